"""Conformance with TASO: which rules of its file follow from ours, and which are wrong.

Each rule is read twice. Its ordinary reading matches convolutions of one group; it is derived from
the equations of the book, or refuted by an instance at which both sides differ. Its other reading
matches convolutions of any group, as TASO's own matcher does, and shows which rules are sound only
where the group is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eqsat_opt.egraph.derivation.derive import Derivation, Prover
from eqsat_opt.proving import Refutation, check_rule
from eqsat_opt.proving.taso import Groups, TasoRule, read_taso, to_rule
from eqsat_opt.proving.taso.handwritten import HAND_WRITTEN
from eqsat_opt.rules.axioms import axioms
from eqsat_opt.rules.rule import Rule

__all__ = ["Conformance", "ConformanceVerdict", "Progress", "classify"]

Status = Literal["derived", "refuted", "open"]
Progress = Callable[[int, int, str], None]
"""Called with the number of rules done, the number of all rules, and the name of the last one."""

GROUP_CONDITION = "group = 1 on every convolution of the left side"
_ITERATIONS = 4
_INSTANCES = 2
"""Typings per rule: with two, at least one has several groups."""
_KERNELS = (1, 3)
_POINTS = 30


@dataclass(frozen=True)
class ConformanceVerdict:
    """The verdict on one rule.

    Attributes:
        rule: the ordinary reading in our language; an import may load it if it is derived.
        text: the rule as the file has it.
        status: ``derived``, ``refuted``, or ``open`` where neither succeeded.
        derivation: the derivation, if derived.
        refutation: if refuted, a small instance at which the sides differ.
        any_group: status of the reading that matches convolutions of any group; ``None`` for a rule
            whose left side has none.
        any_group_refutation: the refutation of that reading, if refuted.
    """

    rule: Rule
    text: str
    status: Status
    derivation: Derivation | None = None
    refutation: Refutation | None = None
    any_group: Status | None = None
    any_group_refutation: Refutation | None = None

    @property
    def condition(self) -> str | None:
        """The condition that a derived rule needs beyond TASO's matcher, if there is one."""
        needed = self.status == "derived" and self.any_group == "refuted"
        return GROUP_CONDITION if needed else None

    def __str__(self) -> str:
        lines = [f"{self.rule.name:<9} {self.status}  {self.text}"]
        if self.derivation is not None:
            lines.append(f"          {str(self.derivation).partition(': ')[2]}")
        refutation = self.refutation or self.any_group_refutation
        if refutation is not None:
            lines += [f"          {line}" for line in str(refutation).splitlines()]
        if self.condition is not None:
            lines.append(f"          sound with the condition: {self.condition}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        derivation = self.derivation
        return {
            "rule": self.rule.name,
            "text": self.text,
            "status": self.status,
            "axioms": list(derivation.axioms) if derivation else None,
            "iterations": derivation.iterations if derivation else None,
            "time_s": derivation.time_s if derivation else None,
            "counterexample": _plain(self.refutation),
            "any_group": self.any_group,
            "any_group_counterexample": _plain(self.any_group_refutation),
            "condition": self.condition,
        }


def _plain(refutation: Refutation | None) -> dict[str, str] | None:
    if refutation is None:
        return None
    # The code evaluates both sides and fails, so it can be pasted into a test.
    return {"at": refutation.where, "reason": refutation.reason, "code": refutation.code}


@dataclass(frozen=True)
class Conformance:
    """All verdicts.

    Attributes:
        verdicts: verdicts in the order of the file.
        hand_written: known wrong substitutions of other systems that are not in the file.
        time_s: seconds for everything.
    """

    verdicts: tuple[ConformanceVerdict, ...]
    hand_written: tuple[ConformanceVerdict, ...]
    time_s: float

    def count(self, status: Status) -> int:
        """Return the number of rules of the file that have this status."""
        return sum(verdict.status == status for verdict in self.verdicts)

    @property
    def sound(self) -> tuple[Rule, ...]:
        """The rules that an import may load: derived, and restricted to ordinary convolutions."""
        return tuple(v.rule for v in self.verdicts if v.status == "derived")

    @property
    def conditional(self) -> tuple[ConformanceVerdict, ...]:
        """Derived rules that are wrong on grouped convolutions."""
        return tuple(v for v in self.verdicts if v.condition is not None)

    @property
    def summary(self) -> str:
        """A summary in one line."""
        unsettled = self.count("open")
        parts = [f"{self.count('derived')} derived", f"{self.count('refuted')} refuted"]
        parts += [f"{unsettled} open"] if unsettled else []
        text = f"{len(self.verdicts)} rules: {', '.join(parts)}"
        refused = sum(v.status == "refuted" for v in self.hand_written)
        return (
            f"{text}; {len(self.conditional)} of the derived only where the group is 1; "
            f"{refused} of {len(self.hand_written)} hand-written substitutions refuted"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, (*self.verdicts, *self.hand_written)), self.summary])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rules": len(self.verdicts),
            **{status: self.count(status) for status in ("derived", "refuted", "open")},
            "only_ungrouped": [v.rule.name for v in self.conditional],
            "verdicts": [v.to_json() for v in self.verdicts],
            "hand_written": [v.to_json() for v in self.hand_written],
            "time_s": self.time_s,
        }


def _refutation(rules: Sequence[Rule]) -> Refutation | None:
    """Return the first instance at which one of ``rules`` fails; ``None`` if there is none."""
    for rule in rules:
        # A kernel of extent 1 comes first, so the first counterexample is small enough.
        refutation = check_rule(rule, max_points=_POINTS, minimise=False).refutation
        if refutation is not None:
            return refutation
    return None


def _settled(
    prover: Prover, rule: TasoRule, groups: Groups
) -> tuple[Derivation | None, Refutation | None, Status]:
    ordinary = groups is Groups.ORDINARY
    derivation = prover.derive(to_rule(rule, groups), minimise=ordinary)
    if derivation is not None:
        return derivation, None, "derived"
    refutation = _refutation([to_rule(rule, groups, kernel) for kernel in _KERNELS])
    return None, refutation, "open" if refutation is None else "refuted"


def _verdict(prover: Prover, rule: TasoRule) -> ConformanceVerdict:
    derivation, refutation, status = _settled(prover, rule, Groups.ORDINARY)
    any_group: Status | None = None
    grouped: Refutation | None = None
    if any(op.kind == "conv" for op in rule.source):
        # A single group is one case of any group, so a counterexample also refutes that reading.
        any_group, grouped = status, refutation
        if status != "refuted":
            _, grouped, any_group = _settled(prover, rule, Groups.ANY)
    return ConformanceVerdict(
        rule=to_rule(rule),
        text=str(rule),
        status=status,
        derivation=derivation,
        refutation=refutation,
        any_group=any_group,
        any_group_refutation=grouped,
    )


def _hand_written(rule: Rule) -> ConformanceVerdict:
    refutation = _refutation([rule])
    status: Status = "open" if refutation is None else "refuted"
    return ConformanceVerdict(
        rule=rule, text=str(rule), status=status, derivation=None, refutation=refutation
    )


def classify(
    source: str | Path | Sequence[TasoRule], *, progress: Progress | None = None
) -> Conformance:
    """Derive or refute every rule of a substitution file, and refute the hand-written ones.

    Args:
        source: a file in TASO's format, or rules read from one.
        progress: called after each rule.

    Raises:
        RuleError: the file is not intact or holds a rule that cannot be made explicit; then nothing
            is classified.
    """
    start = time.perf_counter()
    rules = read_taso(source) if isinstance(source, str | Path) else tuple(source)
    converted = [to_rule(rule) for rule in rules]
    total = len(rules) + len(HAND_WRITTEN)
    prover = Prover(axioms(), iterations=_ITERATIONS, most=_INSTANCES)
    verdicts, refused = [], []
    for done, (rule, one) in enumerate(zip(rules, converted, strict=True), start=1):
        verdicts.append(_verdict(prover, rule))
        if progress is not None:
            progress(done, total, one.name)
    for done, known in enumerate(HAND_WRITTEN, start=len(rules) + 1):
        refused.append(_hand_written(known))
        if progress is not None:
            progress(done, total, known.name)
    return Conformance(tuple(verdicts), tuple(refused), time.perf_counter() - start)
