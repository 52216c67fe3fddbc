"""A model in the form that one machine runs fastest, with the portable model inside.

The metadata of the file name the runtime that won the race here (onnxruntime with our kernels or
with a setting of its own, or another runtime), and all facts on which this choice depends. That
runtime runs the graph of the file. If this is not the portable graph, the portable model is stored
in the field ``training_info``, which runtimes do not read. So a file that does not fit a machine
still holds a model that does.
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from eqsat_opt.common.codecs import record_in
from eqsat_opt.errors import ModelError, OptionError, RuntimeFailed
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.registry import load_runtime
from eqsat_opt.runtime.processor import device_fingerprint
from eqsat_opt.runtime.source import ModelSource, RaceRunner, Setting, read_structure

__all__ = [
    "MOST_BYTES",
    "Execution",
    "is_tuned",
    "is_tuned_by",
    "open_as_raced",
    "open_tuned",
    "portable_of",
    "recorded_execution",
    "require_portable",
    "tuned_model",
    "tuned_record",
    "tuned_threads",
]

_KEY = "eqsat_opt.tuned"
_SHELL = "eqsat_opt.portable"
_FORMAT = 2

MOST_BYTES = (2**31 - 1) // 2 - (1 << 24)
"""Largest size of a portable model of which a file can hold two: no ONNX file exceeds 2 GB."""


@dataclass(frozen=True)
class Execution:
    """A way to run a graph.

    Attributes:
        runtime: the name of the runtime.
        threads: the threads that it uses.
        setting: the setting of the runtime.
    """

    runtime: str
    threads: int
    setting: Setting = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Runtime and setting in words."""
        parts = (
            f"{name} {'+'.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in self.setting.items()
        )
        return " ".join((self.runtime, *parts))

    def facts(self) -> dict[str, Any]:
        """Return the facts on which the speed depends: machine, versions, threads."""
        here = {"device": device_fingerprint().id, "threads": self.threads}
        return {**here, **load_runtime(self.runtime).facts()}

    def open(self, model: ModelSource, custom_ops: tuple[str, ...] = ()) -> RaceRunner:
        """Open a runner of a model.

        Raises:
            RuntimeFailed: the runtime is missing, or refuses the model.
        """
        return load_runtime(self.runtime).open(model, self.threads, self.setting, custom_ops)


def tuned_model(
    graph: onnx.ModelProto,
    portable: onnx.ModelProto,
    execution: Execution,
    record: str = "",
) -> onnx.ModelProto:
    """Build the content of a tuned file.

    Args:
        graph: the model that runs here; the portable model itself if only the runtime or its
            setting differ.
        portable: the model that runs elsewhere; it contains its weights.
        execution: the way in which the graph is run here.
        record: the record of it, as :func:`tuned_record` returned it; by default one without
            further facts.
    """
    result = onnx.ModelProto()
    result.CopyFrom(graph)
    del result.metadata_props[:]
    result.metadata_props.extend(portable.metadata_props)
    if graph is not portable:
        _describe(result, portable)
        shell = onnx.ModelProto()
        shell.CopyFrom(portable)
        shell.ClearField("graph")
        result.training_info.add().algorithm.CopyFrom(portable.graph)
        text = base64.b64encode(shell.SerializeToString()).decode()
        result.metadata_props.add(key=_SHELL, value=text)
    result.metadata_props.add(key=_KEY, value=record or tuned_record(execution))
    return result


def tuned_record(execution: Execution, facts: Mapping[str, object] | None = None) -> str:
    """Return the metadata by which a file opens as it was raced, on this machine only.

    Args:
        execution: the way in which the graph is run here.
        facts: facts about the tuning, for readers of the metadata.
    """
    record = {
        **(facts or {}),
        "format": _FORMAT,
        "runtime": execution.runtime,
        "setting": dict(execution.setting),
        **execution.facts(),
    }
    return json.dumps(record)


def recorded_execution(record: str, threads: int) -> Execution:
    """Return the way in which a record of :func:`tuned_record` wants its graph to be run.

    Raises:
        RuntimeFailed: the record does not fit this machine, its libraries, or these threads.
    """
    try:
        return _execution(record, threads)
    except _Misfit as misfit:
        raise RuntimeFailed(str(misfit)) from misfit


def _describe(model: onnx.ModelProto, like: onnx.ModelProto) -> None:
    """Copy the descriptions of a model, its graph and its interface from another form; in place.

    Runtimes that save an optimised model drop all descriptions for people.
    """
    for one, other in ((model, like), (model.graph, like.graph)):
        _copy_text(one, other)
    del model.graph.metadata_props[:]
    model.graph.metadata_props.extend(like.graph.metadata_props)
    described = {value.name: value for value in (*like.graph.input, *like.graph.output)}
    for value in (*model.graph.input, *model.graph.output):
        source = described.get(value.name)
        if source is not None:
            _copy_text(value, source)
            del value.metadata_props[:]
            value.metadata_props.extend(source.metadata_props)


def _copy_text(one: Any, other: Any) -> None:
    """Give a message the doc string of another message, or none if that has none."""
    if other.HasField("doc_string"):
        one.doc_string = other.doc_string
    else:
        one.ClearField("doc_string")


def is_tuned(model: ModelSource) -> bool:
    """Return whether a model is tuned for some machine."""
    return is_tuned_by(_metadata(model))


def is_tuned_by(metadata: Mapping[str, str]) -> bool:
    """Return whether a model with such metadata is tuned for some machine."""
    return _KEY in metadata


def tuned_threads(model: ModelSource) -> int:
    """Return the threads that a model is tuned for; 0 if it is not tuned, or names none."""
    threads = record_in(_metadata(model).get(_KEY, "")).get("threads")
    return threads if type(threads) is int and threads > 0 else 0


def require_portable(metadata: Mapping[str, str], name: str) -> None:
    """Refuse a tuned model, by its metadata, where its graph would have to be understood.

    Raises:
        ModelError: the model is tuned.
    """
    if is_tuned_by(metadata):
        raise ModelError(
            f"{name} is a tuned form, which is made for one machine; give the portable model that "
            "it was made from"
        )


def portable_of(model: ModelSource) -> ModelSource:
    """Return the portable model within a tuned one; the same if it is tuned only by its metadata.

    Raises:
        ModelError: the portable model is damaged.
    """
    tuned = read_structure(model)
    shell = _metadata(tuned).get(_SHELL)
    if shell is None and not tuned.training_info:
        return model
    try:
        result = onnx.load_model_from_string(base64.b64decode(shell or "", validate=True))
        result.graph.CopyFrom(tuned.training_info[0].algorithm)
    except Exception as error:  # protobuf's DecodeError has no public base class
        raise ModelError(
            "the portable model within the tuned one is damaged; make the file again with --tuned"
        ) from error
    return result


def open_as_raced(model: ModelSource, options: OrtOptions) -> RaceRunner:
    """Open a model as it was raced.

    A tuned model runs in its runtime, if it fits this machine and the threads. Otherwise the
    portable model within it is opened, with a warning. Any other model runs at the level that its
    metadata ask for.

    Raises:
        ModelError: the model cannot be read.
        RuntimeFailed: onnxruntime refuses it.
    """
    return open_tuned(model, options)[0]


def open_tuned(model: ModelSource, options: OrtOptions) -> tuple[RaceRunner, str]:
    """Open a model as `open_as_raced` does; return the runner and the name of its runtime."""
    why, default = "", Execution(ORT, options.threads)
    if (text := _metadata(model).get(_KEY)) is None:
        return default.open(model, options.custom_ops), ORT
    try:
        execution = _execution(text, options.threads)
        return execution.open(model, options.custom_ops), execution.runtime
    except _Misfit as misfit:
        why = str(misfit)
    except RuntimeFailed as error:
        why = f"it cannot be opened as it was raced: {error}"
    warnings.warn(
        f"the model is tuned for another machine or other threads ({why}), so the portable model "
        "in it is used; tune it here with eqsat-opt optimize --tuned",
        RuntimeWarning,
        stacklevel=4,
    )
    return default.open(portable_of(model), options.custom_ops), ORT


class _Misfit(Exception):
    """Error for a record that does not fit this machine; the message is the difference."""


def _execution(text: str, threads: int) -> Execution:
    """Return the way in which a record wants its graph to be run.

    Raises:
        _Misfit: the record does not fit this machine.
    """
    record = record_in(text)
    if record.get("format") != _FORMAT:
        known = "its record cannot be read" if "format" not in record else ""
        raise _Misfit(known or f"format {record['format']} is not {_FORMAT}")
    name, setting = record.get("runtime"), record.get("setting")
    if not isinstance(name, str) or not isinstance(setting, dict):
        raise _Misfit("its record cannot be read")
    execution = Execution(name, threads, setting)
    try:
        if why := load_runtime(name).missing():
            raise _Misfit(why)
        here = execution.facts()
    except OptionError as error:
        raise _Misfit(str(error)) from error
    different = [
        f"{key} {record.get(key)!r} is not {value!r}"
        for key, value in here.items()
        if record.get(key) != value
    ]
    if different:
        raise _Misfit(", ".join(different))
    return execution


def _metadata(model: ModelSource) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_structure(model).metadata_props}
