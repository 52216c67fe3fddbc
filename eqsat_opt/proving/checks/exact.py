"""Level 1: a rule is evaluated, without rounding, on many small typed instances of its left side.

Both sides run in a prime field, where every nonlinear function is a random one, so what holds there
holds for any function. A rule that needs a property of its functions fails there. It is decided on
exact rationals with the true piecewise functions (relu, max), or in two prime fields, where
exponentials, roots and powers are homomorphisms. A field has no order and no truth values, so it
does not judge rules that need these. A rule that none of these methods accepts is at level 0, which
no default rule may be at.

These methods compare only where both sides are defined, and at values that they can represent. So a
rule that one of them accepts is also evaluated in double precision, and refuted where its left side
is a number and its right side is another number or undefined. If its operands may be integers, it
is evaluated in integer arithmetic as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from eqsat_opt.proving.checks.counterexample import (
    Refutation,
    counterexample,
    mistyped,
    refutation_at,
)
from eqsat_opt.proving.checks.degrees import Degrees, FalseAcceptance, degree_of, false_acceptance
from eqsat_opt.proving.checks.differences import Wrong, first_wrong, smallest
from eqsat_opt.proving.checks.margins import first_moved
from eqsat_opt.proving.checks.methods import exact_methods, has_properties
from eqsat_opt.proving.instances.search import Found, find_instances
from eqsat_opt.proving.numbers.evaluation import (
    WHOLE_DRAWS,
    FieldNumbers,
    FloatNumbers,
    IntegerNumbers,
    Numbers,
    program,
)
from eqsat_opt.proving.numbers.reals import DRAWS, RealNumbers, literals
from eqsat_opt.rules.bindings import Bindings, type_of
from eqsat_opt.rules.rule import Rule

__all__ = [
    "MAX_POINTS",
    "MIN_POINTS",
    "CheckReport",
    "check_rule",
    "first_mistyped",
]

MAX_POINTS = 120
"""Most instances per direction of a rule."""
MIN_POINTS = 20
"""Fewest instances at which a rule must be evaluated; with fewer it counts as not exercised."""
_TARGET_LOG2 = -50.0
_LEAST_TRIALS = 2
_PROPERTY_TRIALS = 3
_POLYNOMIALS = 8
"""Number of instances at which the degree of a polynomial is measured."""
_FLOAT = FloatNumbers.name
_REAL_POINTS = 12
"""Number of smallest instances that get every kind of real values; the others get one each."""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The result of level 1 for one rule, read left to right.

    Attributes:
        rule: name of the rule.
        points: number of instances at which both sides were evaluated.
        guarded: number of instances of the left side at which the right side does not type, so that
            no reader applies the rule.
        complete_to: all instances of the enumerated ranks and attributes with extents up to this
            are among the points; 0 if they are too many.
        largest_extent: greatest extent of an operand.
        method: kind of numbers that gave the verdict.
        bound: bound on the probability of a false acceptance per instance; ``None`` for methods
            without one.
        trials: independent draws of values per instance.
        seed: seed of the instances and values.
        refutation: where both sides differ; ``None`` if they agree everywhere.
    """

    rule: str
    points: int
    guarded: int
    complete_to: int
    largest_extent: int
    method: str
    bound: FalseAcceptance | None
    trials: int
    seed: int
    refutation: Refutation | None

    @property
    def exercised(self) -> bool:
        """Whether enough instances were found."""
        return self.points >= MIN_POINTS

    @property
    def passed(self) -> bool:
        """Whether the rule was exercised and not refuted, by a method that does not round."""
        return self.refutation is None and self.exercised and self.method != _FLOAT

    def __str__(self) -> str:
        if self.refutation is not None:
            return f"{self.rule}: refuted\n{self.refutation}"
        if not self.exercised:
            return f"{self.rule}: not exercised, only {self.points} typed instances found"
        if not self.passed:
            return f"{self.rule}: holds in {self.method} only, which no exact method confirms"
        return f"{self.rule}: agrees at {self.points} instances ({self.method})"


def first_mistyped(rule: Rule, points: Sequence[Bindings]) -> Refutation | None:
    """Find the smallest instance at which both sides type, but differently."""
    for bindings in points:
        for root, (left, right) in enumerate(zip(rule.lhs, rule.rhs, strict=True)):
            types = type_of(left, bindings), type_of(right, bindings)
            if types[0] != types[1]:
                reason = f"the left side is {types[0]}, the right side {types[1]}"
                return mistyped(rule, bindings, root, reason)
    return None


def _bound(rule: Rule, points: Sequence[Bindings]) -> FalseAcceptance:
    """Return the worst bound over all instances.

    The degree of a polynomial depends on its term alone, so a few instances suffice for it.
    """
    worst = false_acceptance(1, 0, _TARGET_LOG2, _LEAST_TRIALS)
    polynomial = True
    for count, bindings in enumerate(reversed(points)):
        if polynomial and count >= _POLYNOMIALS:
            break
        domain = Degrees()
        values = {n: domain.variable(t.shape) for n, t in bindings.static_types.items()}
        degree = 1
        for left, right in program(rule, bindings, "float64").run(values, domain):
            degree = max(degree, degree_of(domain.sub(left, right)), domain.greatest_argument)
        polynomial = polynomial and domain.is_polynomial
        here = false_acceptance(degree, domain.pairs, _TARGET_LOG2, _LEAST_TRIALS)
        if here.degree * (1 + here.argument_pairs) > worst.degree * (1 + worst.argument_pairs):
            worst = here
    return worst


@dataclass(frozen=True)
class _Verdict:
    """The kind of numbers that decided, and where both sides differ, if they do.

    A difference off the targets of a rule's tolerances is ``moved``: no smaller one is looked for.
    """

    method: str
    trials: int
    bound: FalseAcceptance | None
    wrong: Wrong | None
    moved: bool = False


def _over_the_reals(rule: Rule, points: Sequence[Found], seed: int) -> _Verdict:
    """Return the verdict of the first exact method that accepts the rule.

    If none does, the verdict is a difference that was found, or agreement in floating point alone.
    """
    bound = _bound(rule, points)
    refused: Wrong | None = None
    for kind in exact_methods(rule):
        exact = kind is FieldNumbers
        trials = bound.trials if exact else _PROPERTY_TRIALS
        wrong = first_wrong(rule, points, kind, range(seed, seed + trials))
        if wrong is True:
            return _Verdict(kind(0).name, trials, bound if exact else None, None)
        if not isinstance(wrong, bool):
            refused = refused or wrong
    if refused is None or has_properties(rule):
        wrong = first_wrong(rule, points, FloatNumbers, range(seed, seed + 3))
        if isinstance(wrong, bool):
            return _Verdict(_FLOAT, 3, None, None)
        refused = wrong
    return _Verdict(refused[1].name, 1, None, refused)


def _elsewhere(rule: Rule, points: Sequence[Found], seed: int) -> _Verdict | None:
    """Return a verdict that overrides the acceptance of a rule by an exact method.

    The rule is evaluated on integers, on real numbers, and off the targets of its tolerances. A
    difference refutes it; too few comparisons keep it from level 1.

    Returns:
        ``None`` if the acceptance is confirmed.
    """
    numbers = literals(rule)
    whole = [point for point in points if point.whole]
    real = [point for point in points if not point.whole]
    kind: Callable[[int], Numbers] = partial(IntegerNumbers, literals=numbers)
    wrong = first_wrong(rule, whole, kind, range(seed, seed + WHOLE_DRAWS))
    if not isinstance(wrong, bool):
        return _Verdict(wrong[1].name, WHOLE_DRAWS, None, wrong)
    kind = partial(RealNumbers, literals=numbers)
    wrong = first_wrong(rule, real[:_REAL_POINTS], kind, range(seed, seed + DRAWS))
    if wrong is False and real:
        return _Verdict(_FLOAT, DRAWS, None, None)
    rest = real[_REAL_POINTS:]
    for draw in range(DRAWS):
        if isinstance(wrong, bool):
            wrong = first_wrong(rule, rest[draw::DRAWS], kind, (seed + draw,))
    if not isinstance(wrong, bool):
        return _Verdict(_FLOAT, 1, None, wrong)
    moved = first_moved(rule, real, seed)
    return None if moved is None else _Verdict(_FLOAT, 1, None, moved, moved=True)


def _refutation(rule: Rule, verdict: _Verdict, seed: int, minimise: bool) -> Refutation | None:
    if verdict.wrong is None:
        return None
    if verdict.moved:
        return refutation_at(rule, *_plain(verdict.wrong))
    wrong = smallest(rule, verdict.wrong, seed) if minimise else verdict.wrong
    return counterexample(rule, *_plain(wrong))


def _plain(wrong: Wrong) -> Wrong:
    """Replace measured numbers by plain floating point, which suffices for a known difference."""
    found, numbers, values = wrong
    return found, FloatNumbers(0) if isinstance(numbers, RealNumbers) else numbers, values


def check_rule(
    rule: Rule, *, seed: int = 0, max_points: int = MAX_POINTS, minimise: bool = True
) -> CheckReport:
    """Evaluate ``rule``, read left to right, on up to ``max_points`` small typed instances.

    An instance of the left side whose conditions hold but whose right side has another type refutes
    the rule. An instance whose right side does not type at all is left out, because no reader
    applies the rule there.
    """
    instances = find_instances(rule, limit=max_points, seed=seed)
    points = instances.points

    def report(
        method: str, refutation: Refutation | None, bound: FalseAcceptance | None, trials: int
    ) -> CheckReport:
        return CheckReport(
            rule=rule.name, points=len(points), guarded=instances.guarded,
            complete_to=instances.complete_to, largest_extent=instances.largest_extent,
            method=method, bound=bound, trials=trials, seed=seed, refutation=refutation,
        )  # fmt: skip

    other_type = first_mistyped(rule, points)
    if other_type is not None:
        return report("types", other_type, None, 0)
    with np.errstate(all="ignore"):
        verdict = _over_the_reals(rule, points, seed)
        if verdict.wrong is None:
            verdict = _elsewhere(rule, points, seed) or verdict
        refutation = _refutation(rule, verdict, seed, minimise)
    return report(verdict.method, refutation, verdict.bound, verdict.trials)
