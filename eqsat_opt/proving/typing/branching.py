"""The decisions of a typing by name, and hooks for further choices of its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.index.integers import Formula

__all__ = ["Choices"]


class Choices:
    """Named decisions; all integers stay symbols, and nothing is assumed.

    Attributes:
        made: name of a decision to the option chosen.
        counts: name of a decision to its number of options.
    """

    def __init__(self, choose: Callable[[Sequence[Any]], Any]) -> None:
        """Start without decisions; ``choose`` takes one of some options."""
        self.made: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self._choose = choose

    def pick(self, name: str, options: Sequence[Any]) -> Any:
        """Return the option chosen for ``name``, which is the same every time.

        Raises:
            IllTyped: there are no options.
        """
        if name not in self.made:
            if not options:
                raise IllTyped(f"nothing fits {name}")
            self.counts[name] = len(options)
            self.made[name] = self._choose(options)
        return self.made[name]

    @property
    def combinations(self) -> int:
        """Number of combinations of all choices but ranks, which mostly exclude each other."""
        return prod(n for name, n in self.counts.items() if not name.startswith("rank "))

    def number(self, key: str, name: str) -> int | None:
        """Return a value for the integer ``name``, an attribute ``key``; ``None`` for a symbol."""

    def assumed(self, premises: Sequence[Formula]) -> Iterable[Formula]:
        """Return formulas to assume beyond the premises, which may leave cases open."""
        return ()
