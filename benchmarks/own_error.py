"""How far the outputs of a model move by themselves: between onnxruntime's levels of optimisation.

A sigmoid far from zero or a difference of large sums has few digits of its own; who computes
anything else than onnxruntime does to the bit then differs from it, and is not wrong.
"""

from __future__ import annotations

from pathlib import Path

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
    levels = (OrtOptions(threads, level="disabled"), OrtOptions(threads))
    plain, usual = (OrtSession(source, options).run(feeds) for options in levels)
    return max(least, _TIMES * output_error(usual, plain))
