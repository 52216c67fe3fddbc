"""Two terms compared on numbers, as functions of the terms that both are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import OPAQUE, Node
from eqsat_opt.ir.onnx.folding import evaluate
from eqsat_opt.ir.values.types import FLOATS, StaticType, numpy_dtype
from eqsat_opt.pipeline.certificates.term_table import TermTable

__all__ = ["agree"]

_SCALES = (1.0, 8.0, 0.125)
"""Standard deviations of the random elements: functions may differ far from zero, or near it."""
_TOLERANCE = 1e-4
"""Largest difference, relative to the greatest element."""
_MAX_ELEMENTS = 1 << 22
_FREE = (LEAF, OUT, OPAQUE, TermTable.UNKNOWN)


def agree(terms: TermTable, left: int, right: int) -> bool:
    """Return whether two terms have the same elements at random values of what they share.

    They share the terms that are equal so far, so that only what is new between them is evaluated.
    The answer is ``False`` where they cannot be evaluated: sizes are open, or a type is not one of
    floating point.
    """
    below = _below(terms, left) & _below(terms, right)
    for seed, scale in enumerate(_SCALES):
        draw = partial(_drawn, np.random.default_rng(seed), scale)
        known: dict[int, npt.NDArray[np.float64]] = {}
        try:
            one = _value(terms, left, below, known, draw=draw)
            other = _value(terms, right, below, known, draw=draw)
        except (EqsatError, ArithmeticError, ValueError, KeyError, TypeError):
            return False
        size = max(float(np.max(np.abs(one), initial=0.0)), 1e-6)
        if not (np.isfinite(size) and one.shape == other.shape):
            return False
        if not np.all(np.abs(one - other) <= _TOLERANCE * size):
            return False
    return True


def _below(terms: TermTable, term: int) -> set[int]:
    """Return the classes of a term and of those that it is made of."""
    seen: set[int] = set()
    stack = [term]
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack += terms.closure.terms[one][1]
    return set(map(terms.closure.root, seen))


def _drawn(rng: np.random.Generator, scale: float, type_: StaticType) -> npt.NDArray[Any]:
    array = scale * rng.standard_normal(type_.shape)
    return array.astype(numpy_dtype(type_.dtype))


def _value(
    terms: TermTable,
    term: int,
    shared: set[int],
    known: dict[int, npt.NDArray[np.float64]],
    *,
    draw: Callable[[StaticType], npt.NDArray[Any]],
) -> npt.NDArray[np.float64]:
    root = terms.closure.root(term)
    if root in known:
        return known[root]
    (op, attrs), operands, _ = terms.heads(term)
    type_ = terms.types[term]
    if not isinstance(type_, StaticType) or type_.dtype not in FLOATS:
        raise ValueError(f"{type_} has no random elements")
    if type_.size > _MAX_ELEMENTS:
        raise ValueError("too large to compare")
    if op in _FREE or (root in shared and op != "Scalar"):
        array = draw(type_)
    else:
        values = [_value(terms, one, shared, known, draw=draw) for one in operands]
        names = tuple(f"x{i}" for i in range(len(operands)))
        array = evaluate(Node(op, names, ("y",), attrs), values, type_)
    known[root] = array
    return array
