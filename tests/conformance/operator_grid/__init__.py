"""A generated grid of configurations on which the registry means what ONNX means.

A generator yields configurations of an operator; importing this package registers all of them. To
add an operator, write a generator and decorate it with ``on_grid``.
"""

from __future__ import annotations

from tests.conformance.operator_grid import (
    contractions,
    movement,
    normal_form,
    pointwise,
    positions,
    recurrences,
    reductions,
    resampling,
    windows,
)

__all__ = [
    "contractions",
    "movement",
    "normal_form",
    "pointwise",
    "positions",
    "recurrences",
    "reductions",
    "resampling",
    "windows",
]
