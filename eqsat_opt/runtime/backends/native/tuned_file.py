"""A model in the form that one machine runs fastest, with the portable model inside.

The graph of the file is what onnxruntime runs here, with operators of our library. What it was made
with stands in the metadata, and the portable model in the field ``training_info``, which runtimes
do not read. So a file that does not fit a machine still holds a model that does.
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import onnx

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.native.library import instructions, library_digest, with_kernels
from eqsat_opt.runtime.backends.native.region_library import with_regions
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.config import level_in
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_version
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = [
    "MOST_BYTES",
    "is_tuned",
    "is_tuned_by",
    "open_as_raced",
    "portable_of",
    "require_portable",
    "tuned_model",
]

_KEY = "eqsat_opt.tuned"
_SHELL = "eqsat_opt.portable"
_FORMAT = 1

MOST_BYTES = (2**31 - 1) // 2 - (1 << 24)
"""Size of a portable model up to which a file can hold two: no file of ONNX exceeds 2 GB."""


@dataclass(frozen=True)
class _Machine:
    """What a tuned graph rests on.

    Attributes:
        onnxruntime: its version, since the graph has operators of its own that change with it.
        library: digest of the kernels.
        instructions: that the kernels use.
        block: channels per block.
    """

    onnxruntime: str
    library: str
    instructions: str
    block: int

    @classmethod
    def here(cls) -> _Machine:
        return cls(ort_version(), library_digest(), instructions(), nchwc_block())


def tuned_model(
    graph: onnx.ModelProto, portable: onnx.ModelProto, facts: Mapping[str, object]
) -> onnx.ModelProto:
    """The content of a tuned file.

    Args:
        graph: what is run here.
        portable: what is run elsewhere; its weights are in it.
        facts: of the tuning, for who reads the metadata.
    """
    result = onnx.ModelProto()
    result.CopyFrom(graph)
    shell = onnx.ModelProto()
    shell.CopyFrom(portable)
    shell.ClearField("graph")
    result.training_info.add().algorithm.CopyFrom(portable.graph)
    del result.metadata_props[:]
    result.metadata_props.extend(portable.metadata_props)
    record = {"format": _FORMAT, **asdict(_Machine.here()), **facts}
    for key, value in (
        (_KEY, json.dumps(record)),
        (_SHELL, base64.b64encode(shell.SerializeToString()).decode()),
    ):
        result.metadata_props.add(key=key, value=value)
    return result


def is_tuned(model: ModelSource) -> bool:
    """Whether a model is tuned for some machine."""
    return any(entry.key == _KEY for entry in read_structure(model).metadata_props)


def is_tuned_by(metadata: Mapping[str, str]) -> bool:
    """The same, told by a model's metadata."""
    return _KEY in metadata


def require_portable(metadata: Mapping[str, str], name: str) -> None:
    """Refuse a tuned model, by its metadata, where its graph would have to be understood.

    Raises:
        ModelError: it is one.
    """
    if is_tuned_by(metadata):
        raise ModelError(
            f"{name} is a tuned form, whose operators only this project's kernels compute; give "
            "the portable model that it was made from"
        )


def portable_of(model: ModelSource) -> onnx.ModelProto:
    """The portable model within a tuned one.

    Raises:
        ModelError: it is damaged.
    """
    tuned = read_structure(model)
    try:
        shell = next(entry.value for entry in tuned.metadata_props if entry.key == _SHELL)
        result = onnx.load_model_from_string(base64.b64decode(shell, validate=True))
        result.graph.CopyFrom(tuned.training_info[0].algorithm)
    except Exception as error:  # protobuf's DecodeError has no public base class
        raise ModelError(
            "the portable model within the tuned one is damaged; make the file again with --tuned"
        ) from error
    return result


def open_as_raced(model: ModelSource, options: OrtOptions) -> OrtSession:
    """A session as the model was raced: of a tuned model with our kernels, if it fits this machine.

    A tuned model that does not fit is opened by the portable one within it, with a warning. Of any
    other model the level that its metadata ask for is used.

    Raises:
        ModelError: the model cannot be read.
        RuntimeFailed: onnxruntime refuses it.
    """
    properties = {entry.key: entry.value for entry in read_structure(model).metadata_props}
    if _KEY not in properties:
        return OrtSession(model, replace(options, level=level_in(model)))
    as_tuned = options
    if not (why := _misfit(properties[_KEY])):
        try:
            as_tuned = with_regions(with_kernels(options), read_structure(model).graph.node)
        except (ModelError, RuntimeFailed) as error:
            why = str(error)
    if why:
        warnings.warn(
            f"the model is not tuned for this machine ({why}), so the portable model in it is "
            "used; tune it here with eqsat-opt optimize --tuned",
            RuntimeWarning,
            stacklevel=3,
        )
        portable = portable_of(model)
        return OrtSession(portable, replace(options, level=level_in(portable)))
    return OrtSession(model, as_tuned)


def _misfit(text: str) -> str:
    """In what this machine differs from the one of a record; empty if in nothing that counts."""
    try:
        record = json.loads(text)
        wanted = {name: record[name] for name in asdict(_Machine.here())}
        if record["format"] != _FORMAT:
            return f"format {record['format']} is not {_FORMAT}"
    except (ValueError, KeyError, TypeError):
        return "its record cannot be read"
    here = asdict(_Machine.here())
    return ", ".join(
        f"{name} {wanted[name]!r} is not {value!r}"
        for name, value in here.items()
        if wanted[name] != value
    )
