"""Models as a command line names them, for commands that do without the whole package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["files_of", "given"]


def given(model: str) -> str | onnx.ModelProto:
    """Return a path as it is, and build the model of ``zoo:NAME``.

    Raises:
        OptionError: the zoo has no such model.
    """
    if not model.startswith("zoo:"):
        return model
    from eqsat_opt.lab import zoo

    return zoo.build_named(model.removeprefix("zoo:"))


def files_of(*models: str) -> Iterator[str]:
    """Yield the files from which models are read, data files included; ``zoo:NAME`` has none."""
    from eqsat_opt.ir.onnx.files.external import files_read_by

    for model in models:
        if not model.startswith("zoo:"):
            yield model
            yield from files_read_by(model)
