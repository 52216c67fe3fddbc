"""The gate: a rule gets a certificate of level 1 here, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.proving.certificates.certificate import Certificate, Direction
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.proving.checks.classes import Breach, breach, refutation_of
from eqsat_opt.proving.checks.empties import empty_difference
from eqsat_opt.proving.checks.exact import CheckReport, check_rule
from eqsat_opt.proving.checks.precision import (
    HALF,
    SINGLE,
    Measured,
    excessive,
    measured,
    worst_errors,
)
from eqsat_opt.proving.checks.rounding import rounding_difference
from eqsat_opt.proving.instances.search import find_instances
from eqsat_opt.proving.proof.axes.uneven import uneven_ranks
from eqsat_opt.proving.typing.closure import tolerance
from eqsat_opt.proving.typing.landmarks import FARTHEST, landmarks
from eqsat_opt.rules.rule import Numerics, Rule, directed

__all__ = ["BRIEF_POINTS", "THOROUGH_POINTS", "certify_exact", "reports_of"]

THOROUGH_POINTS = 600
"""Instances per direction of a rule that has no proof."""
BRIEF_POINTS = 32
"""Instances per direction of a rule that is also proved for all sizes."""


def reports_of(
    rule: Rule, *, seed: int = 0, max_points: int = THOROUGH_POINTS
) -> list[CheckReport]:
    """Run level 1 in each direction, up to the first direction that is refuted.

    Raises:
        RuleRefuted: a side cannot be evaluated.
    """
    reports = []
    for one in directed([rule]):
        try:
            reports.append(check_rule(one, seed=seed, max_points=max_points))
        except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
            raise RuleRefuted(
                f"rule {one.name} cannot be evaluated ({type(error).__name__}: {error}); check "
                "the kinds of its attributes"
            ) from error
        if reports[-1].refutation is not None:
            break
    return reports


def _direction(report: CheckReport) -> Direction:
    bound = report.bound
    return Direction(
        report.rule, report.method, report.points, report.guarded, report.complete_to,
        report.largest_extent, report.trials, report.seed,
        *((bound.degree, bound.argument_pairs, bound.prime, round(bound.log2, 1)) if bound else ()),
    )  # fmt: skip


def _raise_if_failed(rule: Rule, reports: Sequence[CheckReport]) -> None:
    for report in reports:
        if report.refutation is not None:
            raise RuleRefuted(
                f"rule {report.rule} is wrong: {report.refutation.line}; correct it or add the "
                "condition that excludes this case",
                report.refutation,
            )
        if not report.exercised:
            z3 = "" if find_spec("z3") else ", or install z3, which finds more: z3-solver"
            raise RuleRefuted(
                f"rule {report.rule} cannot be verified: only {report.points} small typed "
                f"instances were found; write its conditions so that more shapes fit{z3}",
                None,
            )


def _raise_if_unseen(rule: Rule) -> None:
    """Refuse a rule that changes its behaviour beyond the largest instances."""
    unseen = landmarks(rule).unseen
    if unseen:
        raise RuleRefuted(
            f"rule {rule.name} cannot be verified: {unseen} changes beyond {FARTHEST:,}, the "
            "largest extent that is tried; write it with smaller numbers",
            None,
        )


def _raise_if_uneven(rule: Rule) -> None:
    """Refuse a rule whose truth might differ at ranks that are not tried."""
    for one in directed([rule]):
        if (reason := uneven_ranks(one)) is not None:
            raise RuleRefuted(f"rule {one.name} cannot be verified: {reason}", None)


def _raise_if_rounded(rule: Rule, seed: int, max_points: int) -> None:
    """Refuse a rule that is declared bitexact and is not."""
    if rule.numerics is not Numerics.BITEXACT:
        return
    for one in directed([rule]):
        found = rounding_difference(one, seed=seed, max_points=max_points)
        if found is not None:
            raise RuleRefuted(
                f"rule {one.name} is declared bitexact, but not computed by the same operations in "
                f"the same order: {found.line} ({found.method}); declare "
                "Numerics.REASSOCIATE, FINITE, REFACTOR or RELAXED",
                found,
            )


def _raise_if_empty_differs(rule: Rule, seed: int, max_points: int) -> None:
    """Refuse a rule that is wrong where an extent is 0."""
    for one in directed([rule]):
        found = empty_difference(one, seed=seed, max_points=max_points)
        if found is not None:
            raise RuleRefuted(
                f"rule {one.name} is wrong on empty tensors: {found.line}; add the condition that "
                "excludes this case, such as x.dim(i) >= 1",
                found,
            )


def _raise_if_too_far(rule: Rule, seed: int, max_points: int) -> None:
    """Refuse a rule that breaks the promise of its class on extreme or special values."""
    for one in directed([rule]):

        def broken(numerics: Numerics, way: Rule = one) -> Breach | None:
            return breach(way, numerics, seed=seed, max_points=max_points)

        found = broken(one.numerics)
        if found is None:
            continue
        weaker = [c for c in Numerics if c > one.numerics and not broken(c)]
        raise RuleRefuted(
            f"rule {one.name} is declared {one.numerics.name.lower()}, but moves results further "
            f"than that class allows: {found.line}; {_declare(rule, one, weaker)}, or add the "
            "condition that excludes this case",
            refutation_of(one, found),
        )


def _declare(rule: Rule, way: Rule, classes: Sequence[Numerics]) -> str:
    keyword = "backward=" if rule.backward is not None and way.name != rule.name else ""
    return f"declare {keyword}Numerics.{classes[0].name}" if classes else "correct it"


def _errors_of(rule: Rule, seed: int, max_points: int) -> list[Measured]:
    """Measure the errors of both directions.

    Raises:
        RuleRefuted: an error is larger than its numerics class allows.
    """
    every: list[Measured] = []
    for one in directed([rule]):
        errors = measured(one, find_instances(one, limit=max_points, seed=seed).points)
        found = excessive(one.numerics, errors)
        if found is not None:
            weaker = [c for c in Numerics if c > one.numerics and excessive(c, errors) is None]
            raise RuleRefuted(
                f"rule {one.name} is declared {one.numerics.name.lower()}, but is less precise "
                f"than that class allows: {found.line}; {_declare(rule, one, weaker)}, or compute "
                "it another way",
                None,
            )
        every += errors
    return every


def _reason(way: Rule, seed: int, max_points: int) -> str:
    """Return why a direction is not ``reassociate``; empty if no test shows it.

    A breach that finite values show is told first.
    """
    for numerics in (Numerics.FINITE, Numerics.REASSOCIATE):
        if numerics < way.numerics:
            found = breach(way, numerics, seed=seed, max_points=max_points)
            if found is not None:
                return found.line
    return ""


def certify_exact(rule: Rule, *, seed: int = 0, max_points: int = THOROUGH_POINTS) -> Certificate:
    """Certify a rule at level 1, or at level 0 where only floating point accepts it.

    Args:
        rule: the rule, in one or both directions.
        seed: seed of the instances and values.
        max_points: instances per direction; fewer suffice for a rule that is also proven.

    Raises:
        RuleRefuted: the rule is wrong, was not exercised, depends on the rank in a way that a few
            ranks do not show, or declares a numerics class that it does not keep.
    """
    _raise_if_unseen(rule)
    reports = reports_of(rule, seed=seed, max_points=max_points)
    _raise_if_failed(rule, reports)
    _raise_if_uneven(rule)
    _raise_if_rounded(rule, seed, max_points)
    _raise_if_empty_differs(rule, seed, max_points)
    _raise_if_too_far(rule, seed, max_points)
    errors = worst_errors(_errors_of(rule, seed, max_points))
    level = min(1 if report.passed else 0 for report in reports)
    directions = tuple(
        replace(_direction(report), reason=_reason(way, seed, max_points))
        for report, way in zip(reports, directed([rule]), strict=True)
    )
    return Certificate(
        rule=rule.name, level=level, fingerprint=fingerprint(rule) or "", directions=directions,
        float32=float(f"{errors[SINGLE]:.2e}"), float16=float(f"{errors[HALF]:.2e}"),
        tolerance=tolerance(rule),
    ).sealed()  # fmt: skip
