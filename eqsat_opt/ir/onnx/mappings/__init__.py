"""Readers and writers by family; importing them fills the tables of ``onnx.mapping``."""

from __future__ import annotations

from eqsat_opt.ir.onnx.mappings import (
    attention,
    constants,
    direct,
    einsum,
    elementwise,
    linear,
    movement,
    normalisation,
    padding,
    positions,
    recurrence,
    reduction,
    resampling,
    window,
)

__all__ = [
    "attention",
    "constants",
    "direct",
    "einsum",
    "elementwise",
    "linear",
    "movement",
    "normalisation",
    "padding",
    "positions",
    "recurrence",
    "reduction",
    "resampling",
    "window",
]

direct.fill()
