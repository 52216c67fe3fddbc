"""What may be given where a model is wanted, and what every executor offers in return."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import onnx

from eqsat_opt.errors import ModelError, reason

__all__ = ["Feeds", "ModelSource", "OpenRunner", "RaceRunner", "Runner", "read_structure"]

ModelSource: TypeAlias = onnx.ModelProto | str | os.PathLike[str] | bytes
"""A model in memory, its file, or its serialised bytes. Weights of a file stay mapped."""

Feeds: TypeAlias = Mapping[str, Any]
"""Input name → array; a list of arrays for a sequence, None for an absent optional."""


class Runner(Protocol):
    """An executable model: what an executor makes of a graph."""

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""

    def run(self, feeds: Feeds) -> list[Any]:
        """Compute all outputs, in the order of `output_names`."""


class RaceRunner(Runner, Protocol):
    """A runner that can be timed."""

    def bind(self, feeds: Feeds) -> Callable[[], object]:
        """Fix the inputs, for runs that cost as little as can be beside the model's own work.

        Raises:
            RuntimeFailed: an input is missing or does not fit.
        """


OpenRunner: TypeAlias = Callable[[], RaceRunner]
"""Makes a fresh runner; one that cannot be made is a `RuntimeFailed`."""


def read_structure(source: ModelSource) -> onnx.ModelProto:
    """The model with its graph but without external weights.

    Raises:
        ModelError: the file cannot be read or is not ONNX.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    what = "the bytes given" if isinstance(source, bytes) else str(os.fspath(source))
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        return onnx.load_model(os.fspath(source), load_external_data=False)
    except OSError as error:
        raise ModelError(f"cannot read {what}: {reason(error)}") from error
    except Exception as error:  # protobuf's DecodeError has no public base class
        raise ModelError(f"not an ONNX model, or cut short: {what}") from error
