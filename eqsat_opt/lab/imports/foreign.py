"""A rule of another system, in its own words and, where these have a counterpart, in ours."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Rule

__all__ = ["ForeignRule", "Unsayable"]


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
