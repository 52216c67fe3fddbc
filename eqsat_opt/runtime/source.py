"""Sources of models, and the interfaces of the runners and runtimes that execute them."""

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
"""Model in memory, its file, or its serialised bytes. Weights of a file stay mapped."""

Feeds: TypeAlias = Mapping[str, Any]
"""Arrays by input name; a list of arrays for a sequence, None for an absent optional."""


class Runner(Protocol):
    """An executable model."""

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
        """Fix the inputs; return a function that runs the model with the least possible overhead.

        Raises:
            RuntimeFailed: an input is missing or does not fit.
        """


OpenRunner: TypeAlias = Callable[[], RaceRunner]
"""Function that makes a new runner, or raises `RuntimeFailed`."""


Setting: TypeAlias = Mapping[str, Any]
"""Options with which a runtime runs a model, as JSON values by name; empty for the defaults."""


class Runtime(Protocol):
    """A runtime of whole models, which can take part in a race."""

    @property
    def name(self) -> str:
        """Name of the runtime for users."""

    def missing(self) -> str:
        """Return why it cannot run here, as a sentence without a period; empty if it can.

        The method is called often, and before anything of the runtime is loaded.
        """
        return ""

    def facts(self) -> Mapping[str, str | int]:
        """Return versions and similar facts by name; a change of one voids a measured choice."""

    def settings(self, model: ModelSource, custom_ops: Sequence[str] = ()) -> Sequence[Setting]:
        """Return the settings that are worth a race for a model, besides the empty one.

        Raises:
            RuntimeFailed: the runtime refuses the model.
        """
        return ()

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> RaceRunner:
        """Load a model.

        Args:
            model: a model with its data inside, or a file.
            threads: exact number of threads to use.
            setting: one of `settings`, or the empty one.
            custom_ops: libraries of operators that were built for onnxruntime.

        Raises:
            RuntimeFailed: the runtime is missing, or refuses the model or the setting.
        """


def read_structure(source: ModelSource) -> onnx.ModelProto:
    """Return the model with its graph but without external weights.

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
