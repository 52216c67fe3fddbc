"""Two terms compared on numbers, as functions of the terms that both are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import OPAQUE, Node
from eqsat_opt.ir.onnx.folding import evaluate
from eqsat_opt.ir.values.types import FLOATS, StaticType, numpy_dtype
from eqsat_opt.pipeline.certificates.term_table import TermTable

__all__ = ["agree"]

_SEEDS = (0, 1)
_TOLERANCE = 1e-4
"""Largest difference, relative to the greatest element."""
_MAX_ELEMENTS = 1 << 22
_FREE = (LEAF, OUT, OPAQUE, TermTable.UNKNOWN)


def agree(terms: TermTable, left: int, right: int) -> bool:
    """Return whether two terms have the same elements at random values of what they share.

    The answer is ``False`` where they cannot be evaluated: sizes are open, or a type is not one of
    floating point.
    """
    below = _below(terms, left) & _below(terms, right)
    for seed in _SEEDS:
        rng = np.random.default_rng(seed)
        known: dict[int, npt.NDArray[np.float64]] = {}
        try:
            one = _value(terms, left, below, known, rng=rng)
            other = _value(terms, right, below, known, rng=rng)
        except (EqsatError, ArithmeticError, ValueError, KeyError, TypeError):
            return False
        scale = max(float(np.max(np.abs(one), initial=0.0)), 1e-6)
        if one.shape != other.shape or not np.all(np.abs(one - other) <= _TOLERANCE * scale):
            return False
    return True


def _below(terms: TermTable, term: int) -> set[int]:
    seen: set[int] = set()
    stack = [term]
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack += terms.closure.terms[one][1]
    return seen


def _value(
    terms: TermTable,
    term: int,
    shared: set[int],
    known: dict[int, npt.NDArray[np.float64]],
    *,
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    if term in known:
        return known[term]
    (op, attrs), operands, _ = terms.heads(term)
    type_ = terms.types[term]
    if not isinstance(type_, StaticType) or type_.dtype not in FLOATS:
        raise ValueError(f"{type_} has no random elements")
    if type_.size > _MAX_ELEMENTS:
        raise ValueError("too large to compare")
    if op in _FREE or (term in shared and op != "Scalar"):
        array = rng.standard_normal(type_.shape).astype(numpy_dtype(type_.dtype))
    else:
        values = [_value(terms, one, shared, known, rng=rng) for one in operands]
        names = tuple(f"x{i}" for i in range(len(operands)))
        array = evaluate(Node(op, names, ("y",), attrs), values, type_)
    known[term] = array
    return array
