"""Models as a command line names them, for commands that do without the whole package."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["files_of", "given", "without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage for a while, which is a sixth of the time of a command of a second."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
