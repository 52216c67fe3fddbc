"""Two terms compared on numbers, as functions of the terms that both are made of."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Node
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
_Operation: TypeAlias = tuple[str, Attrs, tuple[int, ...], StaticType]
"""An operator with its attributes, the places of its operands, and its type."""


def agree(terms: TermTable, left: int, right: int) -> bool:
    """Return whether two terms have the same elements at random values of what they share.

    They share the terms that are equal so far, so that only what is new between them is evaluated.
    The answer is ``False`` where they cannot be evaluated: sizes are open, or a type is not one of
    floating point.
    """
    shared = _below(terms, left) & _below(terms, right)
    made: dict[int, int] = {}
    program: list[_Operation] = []

    def compiled(term: int) -> int:
        """Return the place of a term's result in the program, to which its operations are added."""
        root = terms.closure.root(term)
        if root not in made:
            (op, attrs), operands, _ = terms.heads(term)
            type_ = terms.types[term]
            if not isinstance(type_, StaticType) or type_.dtype not in FLOATS:
                raise ValueError(f"{type_} has no random elements")
            if type_.size > _MAX_ELEMENTS:
                raise ValueError("too large to compare")
            if op in _FREE or (root in shared and op != "Scalar"):
                op, attrs, operands = LEAF, (), ()
            program.append((op, attrs, tuple(map(compiled, operands)), type_))
            made[root] = len(program) - 1
        return made[root]

    try:
        ends = compiled(left), compiled(right)
        return _agree(tuple(program), *ends)
    except (EqsatError, ArithmeticError, ValueError, KeyError, TypeError):
        return False


@lru_cache(maxsize=64)
def _agree(program: tuple[_Operation, ...], left: int, right: int) -> bool:
    """Return whether two results of a program agree; layers of a model have the same programs."""
    for seed, scale in enumerate(_SCALES):
        rng = np.random.default_rng(seed)
        arrays: list[npt.NDArray[np.float64]] = []
        for number, (op, attrs, operands, type_) in enumerate(program):
            if op in _FREE:
                array = scale * rng.standard_normal(type_.shape)
                arrays.append(array.astype(numpy_dtype(type_.dtype)))
            else:
                names = tuple(f"x{i}" for i in range(len(operands)))
                node = Node(op, names, (f"y{number}",), attrs)
                arrays.append(evaluate(node, [arrays[one] for one in operands], type_))
        one, other = arrays[left], arrays[right]
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
