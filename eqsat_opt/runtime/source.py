"""What may be given where a model is wanted, and what every executor offers in return."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import onnx

from eqsat_opt.errors import ModelError, reason

__all__ = [
    "Feeds",
    "ModelSource",
    "OpenRunner",
    "RaceRunner",
    "Runner",
    "Runtime",
    "Setting",
    "read_structure",
]

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


Setting: TypeAlias = Mapping[str, Any]
"""How a runtime runs a model, as JSON values by name; empty is as it comes."""


class Runtime(Protocol):
    """What runs a whole model: one more entrant of a race, whatever is behind it."""

    @property
    def name(self) -> str:
        """What users call it."""

    def missing(self) -> str:
        """Why it cannot run here, as a sentence without a period; empty if it can.

        It is asked often, and before anything of the runtime is loaded.
        """

    def facts(self) -> Mapping[str, str | int]:
        """Versions and the like, by name: where one of them differs, a measured choice is void."""

    def settings(self, model: ModelSource, custom_ops: Sequence[str] = ()) -> Sequence[Setting]:
        """Settings that are worth a race for a model, beside the empty one.

        Raises:
            RuntimeFailed: it refuses the model.
        """

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> RaceRunner:
        """Load a model.

        Args:
            model: with its data inside, or a file.
            threads: to use, exactly.
            setting: one of `settings`, or the empty one.
            custom_ops: libraries of operators that were built for onnxruntime.

        Raises:
            RuntimeFailed: it is missing, or refuses the model or the setting.
        """


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
