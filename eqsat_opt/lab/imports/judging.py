"""Verdicts on rules of other systems: derived, proven, refuted, or not sayable here.

A rule is derived from the equations of the book in an e-graph; one that is not is evaluated exactly
at small instances, and proved for all sizes if these do not refute it. A derivation and a proof
speak of real numbers: a rule that is to be used goes through the gate besides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from eqsat_opt.errors import RuleError
from eqsat_opt.lab.imports.foreign import ForeignRule
from eqsat_opt.lab.imports.running import differs_in_onnxruntime
from eqsat_opt.proving.checks.counterexample import Refutation
from eqsat_opt.proving.numbers.evaluation import FloatNumbers

__all__ = ["Judgement", "RuleVerdict", "Status", "judge", "judge_all"]

Status = Literal["derived", "proven", "exact", "refuted", "open", "unsayable"]
"""The verdicts. ``exact`` is confirmed at small instances and not for all sizes; ``open`` neither
confirmed by an exact method nor refuted."""

_POINTS = 30
_LEAST = 2
"""Fewest instances at which a rule counts as evaluated; the reason names their number."""
_ITERATIONS = 4
_INSTANCES = 2
_CHUNK = 8
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class RuleVerdict:
    """The verdict on one rule.

    Attributes:
        rule: the rule, as read.
        status: the verdict.
        reason: the rules it was derived from, the scope of the proof, the difference of the sides,
            the gap in the proof, or the missing operator.
        code: Python that evaluates both sides at the counterexample and fails; empty without one.
        runs: whether onnxruntime finds the sides to differ at the counterexample; ``None`` without
            one, or if it cannot run a side.
        time_s: seconds of work.
    """

    rule: ForeignRule
    status: Status
    reason: str
    code: str = ""
    runs: bool | None = None
    time_s: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.rule.name}: {self.rule.text}"]
        if self.rule.rule is not None:
            lines.append(f"  read as {self.rule.rule}")
        lines.append(f"  {self.status}: {self.reason}")
        if self.runs is not None:
            lines.append(f"  the sides {'differ' if self.runs else 'agree'} in onnxruntime as well")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.rule.name,
            "text": self.rule.text,
            "rule": str(self.rule.rule) if self.rule.rule is not None else None,
            "status": self.status,
            "reason": self.reason,
            "counterexample": self.code or None,
            "differs_in_onnxruntime": self.runs,
            "time_s": round(self.time_s, 3),
        }


@dataclass(frozen=True)
class Judgement:
    """The verdicts on all rules of a file, in its order."""

    verdicts: tuple[RuleVerdict, ...]

    def count(self, *statuses: Status) -> int:
        """Return the number of rules with one of these verdicts."""
        return sum(one.status in statuses for one in self.verdicts)

    @property
    def summary(self) -> str:
        """The counts, and what is missing for those that cannot be said, in a line each."""
        counts = [f"{self.count(one)} {one}" for one in get_args(Status) if self.count(one)]
        lines = [f"{len(self.verdicts)} rules: {', '.join(counts)}"]
        missing = Counter(one.reason for one in self.verdicts if one.status == "unsayable")
        lines += [f"  {count} lack {what}" for what, count in missing.most_common()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.verdicts), self.summary])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rules": len(self.verdicts),
            **{one: self.count(one) for one in get_args(Status)},
            "verdicts": [one.to_json() for one in self.verdicts],
        }


@cache
def _prover() -> Any:
    from eqsat_opt.egraph.derivation.derive import Prover
    from eqsat_opt.rules.axioms import axioms

    return Prover(axioms(), iterations=_ITERATIONS, most=_INSTANCES)


def judge(foreign: ForeignRule) -> RuleVerdict:
    """Return the verdict on a rule."""
    start = time.perf_counter()
    status, reason, refutation = _settled(foreign)
    runs = None
    if refutation is not None and foreign.rule is not None:
        runs = differs_in_onnxruntime(foreign.rule, refutation)
    return RuleVerdict(
        rule=foreign, status=status, reason=reason,
        code=refutation.code if refutation is not None else "",
        runs=runs, time_s=time.perf_counter() - start,
    )  # fmt: skip


def _settled(foreign: ForeignRule) -> tuple[Status, str, Refutation | None]:
    from eqsat_opt.proving.checks.exact import check_rule
    from eqsat_opt.proving.proof import prove

    rule = foreign.rule
    if rule is None:
        return "unsayable", foreign.missing, None
    try:
        derivation = _prover().derive(rule, minimise=False)
    except RuleError:  # an operator that the e-graph does not hold in a pattern
        derivation = None
    if derivation is not None:
        return "derived", f"in {derivation.iterations} rounds from the equations of the book", None
    try:
        report = check_rule(rule, max_points=_POINTS)
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        return "open", f"it cannot be evaluated: {error}", None
    if report.refutation is not None:
        return "refuted", report.refutation.line, report.refutation
    proof = prove(rule)
    if proof.status == "proven":
        return "proven", f"for {proof.scope}", None
    if report.method == FloatNumbers.name or report.points < _LEAST:
        return "open", f"{report.points} typed instances, by {report.method}", None
    return "exact", f"at {report.points} instances; no proof: {proof.reason}", None


def _judge_some(chunk: Sequence[ForeignRule]) -> list[RuleVerdict]:
    return [judge(one) for one in chunk]


def judge_all(
    rules: Sequence[ForeignRule], executor: Executor, progress: Progress | None = None
) -> Judgement:
    """Judge rules in parallel.

    Args:
        rules: the rules of a file.
        executor: the executor of the work, some rules at a time.
        progress: called with the number of rules done, of all rules, and the name of one.
    """
    starts = range(0, len(rules), _CHUNK)
    futures = {executor.submit(_judge_some, rules[at : at + _CHUNK]): at for at in starts}
    found: dict[int, list[RuleVerdict]] = {}
    done = 0
    try:
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            done += len(future.result())
            if progress is not None:
                progress(done, len(rules), rules[futures[future]].name)
    finally:
        for future in futures:
            future.cancel()
    return Judgement(tuple(one for at in starts for one in found[at]))
