"""Linear equations between unknown extents, solved by elimination as they come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from eqsat_opt.ir.dims import Dim, SymDim, dim_names, evaluate_dim, sym

__all__ = ["NoTyping", "Unknowns"]


class NoTyping(Exception):
    """The frame admits no typing."""


@dataclass
class Unknowns:
    """Linear equations over the unknown extents, solved as they come.

    Attributes:
        solved: unknown to its value over unknowns that are still free.
        pending: equations that cannot be solved for one unknown yet.
        fresh_names: how many unknowns were made here.
    """

    solved: dict[str, Dim] = field(default_factory=dict)
    pending: list[tuple[Dim, Dim]] = field(default_factory=list)
    fresh_names: int = 0

    def resolve(self, dim: Dim) -> Dim:
        return substitute(dim, self.solved)

    def fresh(self) -> Dim:
        self.fresh_names += 1
        return sym(f"free{self.fresh_names}")

    def equate(self, a: Dim, b: Dim) -> None:
        """Make ``a`` and ``b`` equal.

        Raises:
            NoTyping: if they are different numbers.
        """
        difference = self.resolve(a) - self.resolve(b)
        if not isinstance(difference, SymDim):
            if difference:
                raise NoTyping
            return
        names = [name for monomial, _ in difference.terms for name in monomial]
        for monomial, coefficient in difference.terms:
            if len(monomial) == 1 and abs(coefficient) == 1 and names.count(monomial[0]) == 1:
                (name,) = monomial
                value = sym(name) - difference * coefficient
                if name in dim_names(sym(name)) and name not in dim_names(value):
                    self._eliminate(name, value)
                    return
        if not self._share_multiple(difference):
            self.pending.append((a, b))

    def _share_multiple(self, difference: SymDim) -> bool:
        """Solve ``p * u = q * v`` by one unknown of which both are multiples."""
        linear = [(m[0], c) for m, c in difference.terms if len(m) == 1]
        if len(linear) != 2 or len(difference.terms) != 2:
            return False
        (u, p), (v, q) = linear
        if p * q > 0 or any(name not in dim_names(sym(name)) for name in (u, v)):
            return False
        common, unknown = math.gcd(p, q), self.fresh()
        self._eliminate(u, unknown * (abs(q) // common))
        self._eliminate(v, unknown * (abs(p) // common))
        return True

    def _eliminate(self, name: str, value: Dim) -> None:
        self.solved = {k: substitute(v, {name: value}) for k, v in self.solved.items()}
        self.solved[name] = value
        pending, self.pending = self.pending, []
        for a, b in pending:
            self.equate(a, b)


class _Substitution(dict[str, Dim]):
    """Names that are not replaced stand for themselves."""

    def __missing__(self, name: str) -> Dim:
        return sym(name)


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    # Evaluation is substitution: sizes of names may themselves be symbolic.
    return evaluate_dim(dim, cast(Mapping[str, int], _Substitution(values)))
