"""Redundancy of rules: which rules of a book follow from the others.

A redundant rule adds no equality, but it may still be wanted: it shortens derivations, or a search
on graphs applies it in one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.egraph.derivation.derive import Derivation, Prover
from eqsat_opt.egraph.derivation.generic import generic_instances
from eqsat_opt.rules.rule import Rule

__all__ = ["Redundancy", "RedundancyReport", "redundant"]

_ITERATIONS = 4
_NODES = 2_500
_INSTANCES = 4


@dataclass(frozen=True)
class Redundancy:
    """The redundancy of one rule.

    Attributes:
        rule: name of the rule.
        derivation: its derivation from all other rules; ``None`` if it was not derived.
        instances: number of typings at which it was tried; 0 if none was found, so nothing is
            known.
        in_basis: whether it belongs to the basis from which the others follow.
    """

    rule: str
    derivation: Derivation | None
    instances: int
    in_basis: bool

    def __str__(self) -> str:
        if self.derivation is not None:
            kept = ", kept in the basis" if self.in_basis else ""
            source = ", ".join(self.derivation.axioms) or "the equality of both sides"
            return f"{self.rule}: follows from {source} ({self.derivation.iterations}){kept}"
        return f"{self.rule}: {'not derived' if self.instances else 'no generic instance found'}"


@dataclass(frozen=True)
class RedundancyReport:
    """A report with one row per rule.

    Attributes:
        rows: rows in the order of the book.
        time_s: seconds for everything.
    """

    rows: tuple[Redundancy, ...]
    time_s: float

    @property
    def redundant(self) -> tuple[str, ...]:
        """Rules that follow from all others."""
        return tuple(row.rule for row in self.rows if row.derivation is not None)

    @property
    def basis(self) -> tuple[str, ...]:
        """Rules of which none is known to follow from the rest of them."""
        return tuple(row.rule for row in self.rows if row.in_basis)

    @property
    def summary(self) -> str:
        """A summary in one line."""
        return (
            f"{len(self.rows)} rules, {len(self.redundant)} follow from the others, "
            f"{len(self.basis)} are a basis"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.rows), self.summary])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rules": [
                {
                    "rule": row.rule,
                    "follows_from": list(row.derivation.axioms) if row.derivation else None,
                    "iterations": row.derivation.iterations if row.derivation else None,
                    "instances": row.instances,
                    "in_basis": row.in_basis,
                }
                for row in self.rows
            ],
            "redundant": list(self.redundant),
            "basis": list(self.basis),
            "time_s": self.time_s,
        }


def _weight(rule: Rule) -> int:
    """Return the number of operators of both sides and of conditions.

    Where two rules imply each other, the larger one leaves the basis.
    """
    return sum(sum(1 for _ in root.walk()) for root in rule.roots) + len(rule.when)


def redundant(
    rules: Sequence[Rule], *, progress: Callable[[int, int, str], None] | None = None
) -> RedundancyReport:
    """Try to derive each rule from the others, then thin the book out to a basis.

    Args:
        rules: rules of one book; those that the e-graph does not read (siblings are merged in an
            order, which is for searches on graphs) are derived, but derive nothing.
        progress: called with the number of rules done, the number of all rules, and the name of the
            last one.
    """
    start = time.perf_counter()
    prover = Prover(rules, iterations=_ITERATIONS, nodes=_NODES, most=_INSTANCES)
    derived: dict[str, Derivation | None] = {}
    for done, rule in enumerate(rules, start=1):
        derived[rule.name] = prover.derive(rule)
        if progress is not None:
            progress(done, len(rules), rule.name)
    removed: list[str] = []
    for rule in sorted(rules, key=_weight, reverse=True):
        derivation = derived[rule.name]
        if derivation is None:
            continue
        free = not set(removed) & set(derivation.axioms)
        if free or prover.derive(rule, without=removed, minimise=False) is not None:
            removed.append(rule.name)
    rows = tuple(
        Redundancy(
            rule.name,
            derived[rule.name],
            len(generic_instances(rule, most=_INSTANCES)),
            rule.name not in removed,
        )
        for rule in rules
    )
    return RedundancyReport(rows, time.perf_counter() - start)
