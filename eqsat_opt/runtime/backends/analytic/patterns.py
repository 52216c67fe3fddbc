"""Patterns that libraries of accelerators fuse: epilogues, and chains of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from eqsat_opt.rules.term import Function, Term, Var, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern
from eqsat_opt.runtime.backends.shared.epilogues import convolutions, products

__all__ = ["analytic_patterns", "chains"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "Elu", "Softplus")

_Link = Callable[[Term, int], Term]
"""Function that applies one more operator to a term; the number makes its variables unique."""

_SHORT: tuple[_Link, ...] = (
    lambda inner, n: Function(f"f{n}")(inner),
    lambda inner, n: ops.Add(inner, Var(f"y{n}")),
    lambda inner, n: ops.Mul(inner, Var(f"y{n}")),
)

_LINKS: tuple[_Link, ...] = (
    *_SHORT,
    lambda inner, n: ops.Sub(inner, Var(f"y{n}")),
    lambda inner, n: ops.Sub(Var(f"y{n}"), inner),
    lambda inner, n: ops.Div(inner, Var(f"y{n}")),
    lambda inner, n: ops.Div(Var(f"y{n}"), inner),
)


def chains() -> Iterator[KernelPattern]:
    """Yield chains of two elementwise operators, and of three of the most frequent ones."""
    x = Var("x")
    for first in _LINKS:
        for second in _LINKS:
            yield KernelPattern("pointwise-2", second(first(x, 1), 2))
    for first in _SHORT:
        for second in _SHORT:
            for third in _SHORT:
                yield KernelPattern("pointwise-3", third(second(first(x, 1), 2), 3))


@cache
def analytic_patterns() -> tuple[KernelPattern, ...]:
    """Return the epilogues of cuDNN and cuBLASLt, and chains of elementwise operators.

    The epilogues are ``act(conv [+ bias] [+ z])`` and ``act(x @ w + bias)``. Any code generator
    fuses the chains. The second operand of each operator in a chain is a variable, so a longer
    chain is several kernels.
    """
    return (*convolutions(_ACTIVATIONS), *products(_ACTIVATIONS), *chains())
