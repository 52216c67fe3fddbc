"""The foundations of a proof, recorded for others to check: statements, steps, questions to z3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from eqsat_opt.ir.ops.index.integers import Formula
    from eqsat_opt.ir.ops.index.scalars import Scalar
    from eqsat_opt.proving.proof.sums.normal import Normal

__all__ = ["Record", "Statement", "Step", "Vanishing"]

_ALL = 32
"""Most statements of a rule of which all are kept; some rules have thousands of scenarios."""

Claim: TypeAlias = "tuple[tuple[Formula, ...], Normal | None]"
"""Assumptions and a sum that vanishes under them; without a sum, they cannot hold."""


@dataclass(frozen=True)
class Statement:
    """A statement about one scenario: two elements are equal wherever the premises hold."""

    premises: tuple[Formula, ...]
    sides: tuple[Scalar, Scalar]
    sums: tuple[Normal, Normal]


@dataclass(frozen=True)
class Step:
    """A step of the normaliser: both sums are equal wherever the assumptions hold."""

    kind: Literal["reindex", "merge"]
    assumptions: tuple[Formula, ...]
    before: Normal
    after: Normal


@dataclass
class Vanishing:
    """A sum that vanishes under assumptions, and how that is shown.

    Attributes:
        assumptions: formulas on integers.
        sums: the sum, and what each step made of it.
        ending: why the last sum vanishes.
        rest: claims on which the ending rests.
    """

    assumptions: tuple[Formula, ...]
    sums: list[Normal]
    ending: Literal["empty", "split", "continued", "cleared", "by cases"] = "empty"
    rest: list[Claim] = field(default_factory=list)


@dataclass
class Record:
    """A record of one proof.

    Attributes:
        statements: the shown statements, by scenario and root: the first ones, then ever fewer.
        stated: number of all statements.
        roots: claims from which the statements follow.
        steps: steps inside of simplifications.
        vanishing: sums that vanish; a claim comes after those that it rests on.
        questions: logic and text in SMT-LIB of each question that z3 found unsatisfiable.
    """

    statements: list[Statement] = field(default_factory=list)
    stated: int = 0
    roots: list[Claim] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    vanishing: list[Vanishing] = field(default_factory=list)
    questions: dict[tuple[str, str], None] = field(default_factory=dict)

    def state(self, statement: Statement) -> None:
        """Add a statement; of more than 32, only those whose number is a power of 2 are kept."""
        self.stated += 1
        if self.stated <= _ALL or not self.stated & (self.stated - 1):
            self.statements.append(statement)
