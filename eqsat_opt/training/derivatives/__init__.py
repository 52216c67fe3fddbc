"""The derivatives of the operators of the registry, a small function for each.

Importing this package fills the tables from its modules.
"""

from __future__ import annotations

from eqsat_opt.training.derivatives import (
    contractions,
    layers,
    movement,
    pointwise,
    reductions,
    windows,
)

__all__ = ["contractions", "layers", "movement", "pointwise", "reductions", "windows"]
