"""What the libraries of accelerators fuse: epilogues, and chains of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from eqsat_opt.rules.term import Function, Term, Var, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern
from eqsat_opt.runtime.backends.shared.epilogues import convolutions, products

__all__ = ["analytic_patterns", "chains"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "Elu", "Softplus")

_Link = Callable[[Term, int], Term]
"""One more operator on a term; the number tells its variables from those of the others."""

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
    """Two elementwise operators in a row, and three of those that models have most of."""
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
    """``act(conv [+ bias] [+ z])`` and ``act(x @ w + bias)``, as epilogues of cuDNN and cuBLASLt.

    Beside them chains of elementwise operators, as any code generator fuses. The operand that a
    chain does not go through stays a variable, so a longer chain is several kernels.
    """
    return (*convolutions(_ACTIVATIONS), *products(_ACTIVATIONS), *chains())
