"""A rule of another system, in its own words and, where these have a counterpart, in ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr, Term, applied

__all__ = ["ForeignRule", "Unsayable", "attributes_in", "attributes_of"]


class Unsayable(Exception):
    """A rule cannot be stated here; the message names what is missing."""


@dataclass(frozen=True)
class ForeignRule:
    """A rule that was read from a file of another system.

    Attributes:
        name: ``system/number``.
        text: the rule as its file has it, in one line.
        rule: the same rule in our language; ``None`` if it cannot be stated.
        missing: the operator or notion that is missing here; empty if the rule can be stated.
    """

    name: str
    text: str
    rule: Rule | None
    missing: str = ""

    def __post_init__(self) -> None:
        if (self.rule is None) != bool(self.missing):
            raise RuleError(f"{self.name} is stated or says what is missing, and not both")


def attributes_of(roots: Sequence[Term]) -> set[str]:
    """Return the attribute variables in terms."""
    values = [value for term in applied(roots) for value in term.attrs.values()]
    parts = [p for value in values for p in (value if isinstance(value, tuple) else (value,))]
    return {leaf.args[0] for part in parts for leaf in part.leaves() if leaf.kind == "attr"}


def attributes_in(conditions: Sequence[Condition]) -> set[str]:
    """Return the attribute variables in conditions."""
    sizes = [arg for one in conditions for arg in one.args if isinstance(arg, Expr)]
    return {leaf.args[0] for size in sizes for leaf in size.leaves() if leaf.kind == "attr"}
