"""The checker: a rule is evaluated on many small typed instances of its left side.

Both sides run in a prime field, where an identity of rational functions that fails is accepted with
a probability of about degree/2^31 (Schwartz-Zippel), and where every nonlinear function is a random
one, so what holds there holds for any function. A rule that needs a property of its functions (relu
is monotone, a power is two roots) is refused there and gets a second opinion in double precision at
a tolerance of 1e-9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import OPS, Array, Domain, IllTyped, get_op
from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, operator, type_of
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.sampling import Sampler
from eqsat_opt.rules.term import MAP, Apply, Term, Var

__all__ = ["MIN_POINTS", "CheckReport", "Refutation", "check_rule", "check_rules"]

MIN_POINTS = 20
"""A rule that was evaluated at fewer instances counts as not exercised."""
_TOLERANCE = 1e-9
_PATIENCE = 5_000
"""Draws in a row without a new instance after which there are taken to be no more."""
_F32_POINTS = 8
_RATIONAL = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Reciprocal", "MatMul", "Conv", "ConvTranspose",
     "AveragePool", "ReduceSum", "ReduceMean", "Scale", "Shift", "Square", "Center", MAP,
     *(name for name, op in OPS.items() if op.kind == "movement")}
)  # fmt: skip
"""Operators that mean the same in every field; :data:`MAP` is any function, without properties."""


@dataclass(frozen=True)
class Refutation:
    """The smallest instance found at which the two sides differ.

    Attributes:
        types: tensor variable to type.
        attrs: attribute variable to value.
        root: which of the rule's equations fails.
        reason: what differs.
        left, right: both values (in the prime field where integers); ``None`` if already the types
            differ.
    """

    types: Mapping[str, TensorType]
    attrs: Mapping[str, Any]
    root: int
    reason: str
    left: Array | None = None
    right: Array | None = None

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}: {type_}" for name, type_ in self.types.items())
        attrs = "".join(f", {name}={_show(value)}" for name, value in self.attrs.items())
        lines = [f"{shapes}{attrs}", self.reason]
        if self.left is not None and self.right is not None:
            lines += [f"left  {_text(self.left)}", f"right {_text(self.right)}"]
        return "\n".join(lines)


def _show(value: Any) -> str:
    return str(value[0]) if isinstance(value, tuple) and value and value[0] in OPS else str(value)


def _text(array: Array) -> str:
    return np.array2string(array, precision=6, threshold=32, separator=", ").replace(
        "\n", "\n      "
    )


@dataclass(frozen=True)
class CheckReport:
    """What the checker saw of one rule, read left to right.

    Attributes:
        rule: its name.
        points: instances at which both sides were evaluated.
        guarded: instances of the left side at which the right side does not type, so that no reader
            applies the rule.
        domain: ``field`` or ``float64``, whichever gave the verdict.
        refutation: ``None`` if both sides agree everywhere.
        worst_rel_error_f32: greatest difference between the right side in float32 and the left side
            in float64, relative to the greatest magnitude of the result; 0 if nothing was
            evaluated.
    """

    rule: str
    points: int
    guarded: int
    domain: str
    refutation: Refutation | None
    worst_rel_error_f32: float

    @property
    def passed(self) -> bool:
        """Whether the rule was exercised and not refuted."""
        return self.refutation is None and self.points >= MIN_POINTS

    def __str__(self) -> str:
        if self.refutation is not None:
            return f"{self.rule}: refuted\n{self.refutation}"
        if not self.passed:
            return f"{self.rule}: not exercised, only {self.points} typed instances found"
        return (
            f"{self.rule}: agrees at {self.points} instances ({self.domain}), "
            f"float32 error {self.worst_rel_error_f32:.1e}"
        )


# Evaluation --------------------------------------------------------------------------------------


def _evaluate(
    term: Term, bindings: Bindings, values: Mapping[str, Array], domain: Domain, dtype: str
) -> Array:
    if isinstance(term, Var):
        return values[term.name]
    assert isinstance(term, Apply)
    operands = [_evaluate(arg, bindings, values, domain, dtype) for arg in term.args]
    op, attrs = operator(term, bindings)
    if "dtype" in attrs:
        attrs["dtype"] = dtype
    return get_op(op).eval_fn(domain, operands, attrs)


def _field_values(field: FieldDomain, bindings: Bindings, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: field.random(rng, t.static_shape()) for n, t in bindings.types.items()}


def _float_values(bindings: Bindings, seed: int) -> dict[str, Array]:
    """Normal values of both signs, some of them exactly 0, at a scale that varies with the seed."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, type_ in bindings.types.items():
        shape = type_.static_shape()
        drawn = rng.standard_normal(shape) * 10.0 ** (seed % 3 - 1)
        values[name] = np.where(rng.random(shape) < 0.05, 0.0, drawn)
    return values


def _difference(left: Array, right: Array, tolerance: float) -> str | None:
    """What differs, or ``None``."""
    if left.shape != right.shape:
        return f"shapes {left.shape} and {right.shape} differ"
    if left.dtype.kind == "i":
        wrong = left != right
    else:
        finite = np.isfinite(left) & np.isfinite(right)
        scale = float(np.max(np.abs(left), initial=0.0, where=finite))
        with np.errstate(invalid="ignore"):
            close = finite & (np.abs(left - right) <= tolerance * scale)
        wrong = ~(close | (left == right) | (np.isnan(left) & np.isnan(right)))
    count = int(wrong.sum())
    return f"{count} of {wrong.size} elements differ" if count else None


@dataclass
class _Point:
    """One instance; its float verdict needs the rule's functions to be the real ones."""

    rule: Rule
    bindings: Bindings

    @property
    def elements(self) -> int:
        return sum(type_.static_size() for type_ in self.bindings.types.values())

    def both(
        self, values: Mapping[str, Array], domain: Domain, dtype: str
    ) -> Iterator[tuple[Array, Array]]:
        for left, right in zip(self.rule.lhs, self.rule.rhs, strict=True):
            yield (
                _evaluate(left, self.bindings, values, domain, dtype),
                _evaluate(right, self.bindings, values, domain, dtype),
            )

    def refute(self, domain: Domain, seed: int) -> Refutation | None:
        if isinstance(domain, FieldDomain):
            values = _field_values(domain, self.bindings, seed)
        else:
            values = _float_values(self.bindings, seed)
        with np.errstate(all="ignore"):
            for i, (left, right) in enumerate(self.both(values, domain, "float64")):
                reason = _difference(left, right, _TOLERANCE)
                if reason is not None:
                    return self.refutation(i, reason, left, right)
        return None

    def refutation(self, root: int, reason: str, *sides: Array) -> Refutation:
        return Refutation(self.bindings.types, self.bindings.attrs, root, reason, *sides)

    def f32_error(self) -> float:
        """Error of the right side in single precision against the left side in double."""
        values = _float_values(self.bindings, 1)
        single = {name: array.astype(np.float32) for name, array in values.items()}
        double = {name: array.astype(np.float64) for name, array in single.items()}
        worst = 0.0
        for left, right in zip(self.rule.lhs, self.rule.rhs, strict=True):
            with np.errstate(all="ignore"):
                exact = _evaluate(left, self.bindings, double, FLOAT, "float64")
                rounded = _evaluate(right, self.bindings, single, FLOAT, "float32")
            finite = np.isfinite(exact) & np.isfinite(rounded)
            if finite.any():
                scale = max(float(np.abs(exact[finite]).max()), 1e-30)
                worst = max(worst, float(np.abs(exact[finite] - rounded[finite]).max()) / scale)
        return worst


# Instances ---------------------------------------------------------------------------------------


def _points(rule: Rule, seed: int, max_points: int) -> tuple[list[_Point], int, Refutation | None]:
    """Distinct instances, smallest first; how many are guarded; one at which the types differ."""
    sampler = Sampler(rule, seed)
    found: dict[str, _Point] = {}
    guarded: set[str] = set()
    in_vain = 0
    while len(found) < max_points and in_vain < _PATIENCE:
        bindings = sampler.draw()
        in_vain += 1
        if bindings is None:
            continue
        key = f"{sorted(bindings.types.items(), key=str)}{sorted(bindings.attrs.items(), key=str)}"
        if key in found or key in guarded:
            continue
        point = _Point(rule, bindings)
        try:
            for i, (left, right) in enumerate(zip(rule.lhs, rule.rhs, strict=True)):
                types = type_of(left, bindings), type_of(right, bindings)
                if types[0] != types[1]:
                    reason = f"the left side is {types[0]}, the right side {types[1]}"
                    return [], len(guarded), point.refutation(i, reason)
        except (IllTyped, Undefined):
            guarded.add(key)
            continue
        found[key] = point
        in_vain = 0
    return sorted(found.values(), key=lambda point: point.elements), len(guarded), None


def _needs_properties(rule: Rule) -> bool:
    if any(condition.kind == "near" for condition in rule.when):
        return True  # What holds up to rounding cannot hold in a field.
    terms = (term for root in (*rule.lhs, *rule.rhs) for term in root.walk())
    return any(isinstance(term, Apply) and term.op not in _RATIONAL for term in terms)


def _verdict(points: Sequence[_Point], domains: Sequence[tuple[Domain, int]]) -> Refutation | None:
    for point in points:
        for domain, seed in domains:
            refutation = point.refute(domain, seed)
            if refutation is not None:
                return refutation
    return None


def check_rule(rule: Rule, *, seeds: Sequence[int] = (0, 1), max_points: int = 200) -> CheckReport:
    """Evaluate ``rule``, read left to right, on up to ``max_points`` small typed instances.

    Instances of the left side whose conditions hold but whose right side has another type refute
    the rule; those whose right side does not type at all are left out, as every reader leaves them
    out.

    Args:
        rule: one direction of it (:func:`~eqsat_opt.rules.rule.directed`).
        seeds: values per instance.
        max_points: instances to look for.
    """
    points, guarded, mistyped = _points(rule, seeds[0], max_points)
    if mistyped is not None:
        return CheckReport(rule.name, 0, guarded, "types", mistyped, 0.0)
    domain = "field"
    refutation = _verdict(points, [(FieldDomain(seed=seed), seed) for seed in seeds])
    if refutation is not None and _needs_properties(rule):
        domain = "float64"
        refutation = _verdict(points, [(FLOAT, seed) for seed in (*seeds, seeds[-1] + 1)])
    error = max((point.f32_error() for point in points[-_F32_POINTS:]), default=0.0)
    return CheckReport(rule.name, len(points), guarded, domain, refutation, error)


def check_rules(rules: Iterable[Rule], **options: Any) -> list[CheckReport]:
    """One report per rule and direction."""
    return [check_rule(rule, **options) for rule in directed(list(rules))]
