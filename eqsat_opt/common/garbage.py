"""A pause of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage for a while, as work that makes many objects and no cycles needs none.

    It takes a third of the time of parsing 200,000 e-nodes, and a sixth of that of a command of a
    second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
