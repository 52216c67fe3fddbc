"""Values of operands, drawn from a seed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.rules.bindings import Bindings

__all__ = ["MOST_INDEX", "Fill", "beside", "drawn", "generator", "mingled"]

Fill: TypeAlias = "Callable[[np.random.Generator, tuple[int, ...]], Any]"
"""A function that draws numbers of a shape."""


MOST_INDEX = 12
"""Exclusive upper bound on integers beside floating-point numbers, which may be indices."""


@lru_cache(maxsize=4096)
def _state(seed: int) -> Any:
    """Return the initial state of a generator; mixing a seed's bits takes longer than drawing."""
    return np.random.PCG64(seed).state


class _Local(threading.local):
    """The generator of a thread, which is reused because making one takes longer than drawing."""

    def __init__(self) -> None:
        self.bits = np.random.PCG64(0)
        self.generator = np.random.Generator(self.bits)


_LOCAL = _Local()


def generator(seed: int) -> np.random.Generator:
    """Return a generator like that of `numpy.random.default_rng`.

    It is valid until the next call of this function in the same thread.
    """
    _LOCAL.bits.state = _state(seed)
    return _LOCAL.generator


def drawn(bindings: Bindings, seed: int, fill: Fill) -> dict[str, Array]:
    """Draw a value for each operand.

    All values are drawn by ``fill``, except truth values and integers beside floats.
    """
    rng = generator(seed)
    values = {}
    mixed = any(type_.dtype in FLOATS for type_ in bindings.types.values())
    for name, type_ in bindings.static_types.items():
        shape = type_.shape
        if type_.dtype == "bool":
            values[name] = np.asarray(rng.integers(0, 2, shape).astype(bool))
        elif mixed and type_.dtype not in FLOATS:
            values[name] = np.asarray(rng.integers(0, MOST_INDEX, shape)).astype(type_.dtype)
        else:
            values[name] = np.asarray(fill(rng, shape))
    return values


def beside(literals: Sequence[float]) -> list[float]:
    """Return numbers at, below and above the literals of a rule, where functions may have bends."""
    offsets = [c + d for c in literals for d in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    return [*offsets, *(c * factor for c in literals for factor in (-1.0, 0.5, 1.5, 2.0))]


def mingled(
    fill: Fill,
    near: Sequence[Any],
    rng: np.random.Generator,
    shape: tuple[int, ...],
    share: float = 0.25,
) -> Array:
    """Fill an array by ``fill``, and replace a share of the values by values from ``near``."""
    values = np.asarray(fill(rng, shape))
    if not near:
        return values
    # An array of one type would turn integers among fractions into fractions.
    pool = np.empty(len(near), dtype=values.dtype)
    pool[:] = near
    return np.where(rng.random(shape) < share, pool[rng.integers(len(near), size=shape)], values)
