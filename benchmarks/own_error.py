"""How far the outputs of a model move by themselves.

They move between onnxruntime's levels of optimisation, and with inputs one unit in the last place
away. A sigmoid far from zero or a difference of large sums has few digits of its own; who computes
anything else than onnxruntime does to the bit then differs from it, and is not wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds

__all__ = ["tolerated_error"]

_TIMES = 3.0
"""Errors up to this multiple of the original's own are no sign of a fault."""


def tolerated_error(source: str | Path, feeds: Feeds, threads: int, least: float) -> float:
    """Return the largest error that need not be a fault, relative to the maximum of an output.

    Args:
        source: the original.
        feeds: its inputs.
        threads: of its sessions.
        least: what is tolerated of a model whose outputs do not move.
    """
    plain, usual = (
        OrtSession(source, one)
        for one in (OrtOptions(threads, level="disabled"), OrtOptions(threads))
    )
    expected = usual.run(feeds)
    moved = (plain.run(feeds), usual.run({name: _moved(value) for name, value in feeds.items()}))
    return max(least, *(_TIMES * output_error(one, expected) for one in moved))


def _moved(value: Any) -> Any:
    """Return floats one unit in the last place away, and anything else as it is."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.nextafter(value, np.zeros_like(value))
    return value
