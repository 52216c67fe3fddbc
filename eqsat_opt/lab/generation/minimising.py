"""The rules that are kept: each is proven, and none follows from the others.

Candidates come smallest first. One that is an instance of an equation that holds, or that is
derived from the rules kept so far, is left out; the most general statement of any other that the
gate accepts is kept. In the end rules are left out that those found later made superfluous (Enumo,
OOPSLA 2023, minimises in this order; TASO prunes by renaming and common subterms only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from eqsat_opt.egraph.derivation.derive import Prover
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import get_op
from eqsat_opt.lab.certification import verify
from eqsat_opt.lab.generation.candidates import CandidateEquation, KnownEquations
from eqsat_opt.lab.generation.settings import Setting
from eqsat_opt.lab.generation.statements import matchable, statements
from eqsat_opt.proving.certificates.certificate import Certificate
from eqsat_opt.proving.checks.exact import check_rule
from eqsat_opt.rules.rule import Numerics, Rule, directed
from eqsat_opt.rules.term import MAP, Apply, applied

__all__ = ["Kept", "RuleBasis", "prover_of"]

_ITERATIONS = 3
_NODES = 1_500
_QUICK_POINTS = 16
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Kept:
    """A rule that was found, with its certificate."""

    rule: Rule
    certificate: Certificate


def prover_of(rules: Sequence[Rule], iterations: int = _ITERATIONS) -> Prover:
    """Return a prover that derives rules from others, with the bounds of generation."""
    return Prover(rules, iterations=iterations, nodes=_NODES, most=1)


@dataclass
class RuleBasis:
    """The rules found so far.

    Attributes:
        kept: the rules, in the order in which they were found.
        derived: number of candidates that followed from others.
        refused: statements of candidates that the gate refused in every form.
        unsaid: number of candidates that cannot be said, such as a slice without a seam.
    """

    kept: list[Kept] = field(default_factory=list)
    derived: int = 0
    refused: list[str] = field(default_factory=list)
    unsaid: int = 0
    _prover: Prover | None = None

    def extend(
        self, found: Sequence[CandidateEquation], setting: Setting, progress: Progress | None = None
    ) -> None:
        """Add what is new among the candidates of a setting, which come smallest first."""
        known = KnownEquations()
        for number, one in enumerate(found, start=1):
            if progress is not None:
                progress(number, len(found), setting.name)
            if known.has(one):
                continue
            ladder = list(statements(one, setting))
            if not ladder:
                self.unsaid += 1
                continue
            if self._derives(ladder[-1]):
                self.derived += 1
                known.add(one)
                continue
            new = next(filter(None, map(self._proven, map(matchable, ladder))), None)
            if new is None:
                self.refused.append(str(ladder[-1]))
                continue
            known.add(one)
            self.kept.append(new)
            self._prover = None

    def minimise(self) -> None:
        """Leave out rules that others derive, the largest first."""
        for one in sorted(self.kept, key=lambda k: -len(list(applied(k.rule.roots)))):
            rest = [other for other in self.kept if other is not one]
            if rest and _derive(prover_of([k.rule for k in rest]), one.rule):
                self.kept = rest
        self._prover = None

    def _derives(self, goal: Rule) -> bool:
        if not self.kept:
            return False
        if self._prover is None:
            self._prover = prover_of([one.rule for one in self.kept])
        return _derive(self._prover, goal)

    def _proven(self, statement: Rule) -> Kept | None:
        """Return a statement under a free name with its certificate; ``None`` if it is wrong."""
        for way in directed([statement]):
            report = check_rule(way, max_points=_QUICK_POINTS, minimise=False)
            if report.refutation is not None:
                return None
        rule = replace(statement, name=self._name(statement.name))
        rounds = any(_has_sums(term) for term in applied(rule.roots))
        for numerics in tuple(Numerics)[1 if rounds else 0 :]:
            (outcome,) = verify([replace(rule, numerics=numerics)], level=2)
            if outcome.passed and outcome.certificate is not None:
                return Kept(outcome.rule, outcome.certificate)
        return None

    def _name(self, name: str) -> str:
        taken = {one.rule.name for one in self.kept}
        names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        return next(one for one in names if one not in taken)


def _has_sums(term: Apply) -> bool:
    return term.op != MAP and get_op(term.op).kind == "contraction"


def _derive(prover: Prover, goal: Rule) -> bool:
    try:
        return prover.derive(goal, minimise=False) is not None
    except RuleError:  # a side has no type in the instance
        return False
