"""Patterns of kernels that the generator fuses around a reduction or a window.

Elementwise operators and movements need no pattern: neighbours of these kinds become one kernel
when a plan is made (`regions.py`). A reduction or a window is fused with the elementwise operators
before and after it by the patterns here; prices decide which of the patterns a plan uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

from eqsat_opt.ir.ops import get_op
from eqsat_opt.rules.term import Function, Term, Var, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern
from eqsat_opt.runtime.backends.shared.epilogues import attr

__all__ = ["generated_patterns"]

_Link = Callable[[Term], Term]

_BOTH_SIDES = (
    "ReduceSum", "ReduceMean", "ReduceMax", "Softmax", "LayerNormalization", "RMSNormalization",
)  # fmt: skip
"""Operators that are fused with elementwise operators before and after them."""

_ONE_SIDE = (
    "ReduceMin", "ReduceProd", "LogSoftmax", "InstanceNormalization", "GlobalAveragePool",
    "GlobalMaxPool", "AveragePool", "MaxPool", "LRN",
)  # fmt: skip
"""Operators that are fused with elementwise operators on one side; they are rarer in models."""

_Y, _Z = Var("y"), Var("z")

_BEFORE: Mapping[str, _Link] = {
    "map": Function("f"),
    "add": lambda x: ops.Add(x, _Y),
    "sub": lambda x: ops.Sub(x, _Y),
    "mul": lambda x: ops.Mul(x, _Y),
}

_BEHIND: Mapping[str, _Link] = {
    "map": Function("g"),
    "add": lambda x: ops.Add(x, _Z),
    "sub": lambda x: ops.Sub(x, _Z),
    "from": lambda x: ops.Sub(_Z, x),
    "mul": lambda x: ops.Mul(x, _Z),
    "div": lambda x: ops.Div(x, _Z),
    "over": lambda x: ops.Div(_Z, x),
}


def _reduced(op: str, data: Term, further: Sequence[Term] = (), suffix: str = "") -> Term:
    """Return the term of an operator on some data, with any attributes."""
    attrs = {name: attr(name + suffix) for name in get_op(op).attrs}
    return getattr(ops, op)(data, *further, **attrs)  # type: ignore[no-any-return]


def _heads(op: str) -> Iterator[_Link]:
    """Yield links that apply an operator, one for each number of operands that it may have."""
    least, most = get_op(op).arity
    for count in range(least, most + 1):
        further = [Var(f"p{number}") for number in range(1, count)]
        yield partial(_reduced, op, further=further)


def _around(op: str, *, both: bool) -> Iterator[KernelPattern]:
    x = Var("x")
    for head in _heads(op):
        for before, first in _BEFORE.items():
            yield KernelPattern(f"{op}-of-{before}", head(first(x)))
            if both:
                for behind, last in _BEHIND.items():
                    yield KernelPattern(f"{behind}-of-{op}-of-{before}", last(head(first(x))))
        for behind, last in _BEHIND.items():
            yield KernelPattern(f"{behind}-of-{op}", last(head(x)))


def _twice() -> Iterator[KernelPattern]:
    """Yield patterns of two reductions of the same rows: variances, and a softmax spelled out."""
    x, f = Var("x"), Function("f")
    for op, inner in (("ReduceMean", "ReduceMean"), ("ReduceSum", "ReduceMax")):
        least = f(ops.Sub(x, _reduced(inner, x)))
        total = _reduced(op, least, suffix="2")
        yield KernelPattern(f"{op}-beside-{inner}", total)
        yield KernelPattern(f"share-beside-{inner}", ops.Div(least, total))


@cache
def generated_patterns() -> tuple[KernelPattern, ...]:
    """Return the patterns of fused reductions and windows, and of two reductions of a row."""
    return (
        *(one for op in _BOTH_SIDES for one in _around(op, both=True)),
        *(one for op in _ONE_SIDE for one in _around(op, both=False)),
        *_twice(),
    )
