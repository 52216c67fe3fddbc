"""Both sides of a rule at one instance, on the numbers of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array, AttrMap, Domain, get_op
from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.types import numpy_dtype
from eqsat_opt.rules.bindings import Bindings, operator
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var
from eqsat_opt.rules.verify.rationals import RationalDomain
from eqsat_opt.rules.verify.twofield import ORDER, TwoFieldDomain

__all__ = [
    "DefinedNumbers",
    "FieldNumbers",
    "FloatNumbers",
    "IntegerNumbers",
    "Numbers",
    "Program",
    "RationalNumbers",
    "Step",
    "TwoFieldNumbers",
    "Values",
    "concrete",
    "normal_values",
    "program",
]

Values = Mapping[str, Array]
_TOLERANCE = 1e-9


class Numbers(Protocol):
    """A kind of numbers to evaluate a rule on, with one draw of values per seed.

    Attributes:
        name: of the method, as certificates give it.
        domain: what operators compute with.
        dtype: element type that literals of the rule take.
    """

    @property
    def name(self) -> str: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def dtype(self) -> str: ...
    def draw(self, bindings: Bindings, seed: int) -> Values: ...
    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]: ...


def _drawn(bindings: Bindings, seed: int, fill: Any) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    values = {}
    for name, type_ in bindings.types.items():
        shape = type_.static_shape()
        is_bool = type_.dtype == "bool"
        values[name] = np.asarray(rng.integers(0, 2, shape) if is_bool else fill(rng, shape))
    return values


@dataclass(frozen=True)
class FieldNumbers:
    """A prime field with random nonlinear functions."""

    seed: int
    name = "random functions over a prime field"
    dtype = "float64"

    @cached_property
    def domain(self) -> FieldDomain:
        """The field."""
        return FieldDomain(seed=self.seed)

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Uniform elements."""
        return _drawn(bindings, seed, self.domain.random)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ."""
        return np.asarray(left != right)


@dataclass(frozen=True)
class RationalNumbers:
    """Exact rationals with the true piecewise functions."""

    seed: int
    name = "exact rationals"
    dtype = "float64"

    @cached_property
    def domain(self) -> RationalDomain:
        """The rationals."""
        return RationalDomain(self.seed)

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Small integers with ties and zeros."""
        return _drawn(bindings, seed, self.domain.random)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ; what is no number on both sides does not."""
        return np.asarray((left != right) & ((left == left) | (right == right))).astype(bool)


@dataclass(frozen=True)
class TwoFieldNumbers:
    """Two prime fields with exponentials, roots and powers; logarithms in a small one."""

    seed: int
    order: int = ORDER
    name = "two prime fields"
    dtype = "float64"

    @cached_property
    def domain(self) -> TwoFieldDomain:
        """Both fields."""
        return TwoFieldDomain(self.seed, self.order)

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Independent residues."""
        return _drawn(bindings, seed, self.domain.random)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ where both are defined."""
        return np.asarray(~self.domain.same(left, right))


def normal_values(bindings: Bindings, seed: int) -> Values:
    """Normal values of both signs, none of them 0."""
    return _drawn(bindings, seed, lambda rng, shape: rng.standard_normal(shape))


def _normal(seed: int) -> Any:
    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        drawn = rng.standard_normal(shape) * 10.0 ** (seed % 3 - 1)
        return np.where(rng.random(shape) < 0.05, 0.0, drawn)

    return fill


@dataclass(frozen=True)
class FloatNumbers:
    """Double precision at a tolerance: evidence, no proof."""

    seed: int
    name = "float64"
    dtype = "float64"
    domain = FLOAT

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Normal values of both signs, some exactly 0, at a scale that varies with the seed."""
        return _drawn(bindings, seed, _normal(seed))

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ by more than the tolerance."""
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        finite = np.isfinite(left) & np.isfinite(right)
        scale = float(np.max(np.abs(left), initial=0.0, where=finite))
        with np.errstate(invalid="ignore"):
            close = finite & (np.abs(left - right) <= _TOLERANCE * scale)
        return np.asarray(~(close | (left == right) | (np.isnan(left) & np.isnan(right))))


class DefinedNumbers(FloatNumbers):
    """Double precision, to see where the left side is a number and the right side is none.

    Where a value is 0 there may be a pole, which is not covered, so no value is.
    """

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Normal values of both signs."""
        return normal_values(bindings, seed)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that only the right side does not define."""
        return np.asarray(np.isfinite(left) & np.isnan(right))


@dataclass(frozen=True)
class IntegerNumbers:
    """The element type int64 with its own arithmetic: wrapping sums, truncating quotients."""

    seed: int
    name = "int64"
    dtype = "int64"
    domain = FLOAT

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Small numbers, so that quotients are not all 0."""
        most = (5, 100)[seed % 2]
        values = _drawn(bindings, seed, lambda rng, shape: rng.integers(-most, most + 1, shape))
        return {n: a.astype(numpy_dtype(bindings.types[n].dtype)) for n, a in values.items()}

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ."""
        return np.asarray(left != right)


@dataclass(frozen=True)
class Step:
    """One operator of a term at an instance.

    Attributes:
        op: its name.
        attrs: attribute values.
        operands: variables by name, results of earlier steps by position.
    """

    op: str
    attrs: AttrMap
    operands: tuple[str | int, ...]


@dataclass(frozen=True)
class Program:
    """Both sides of a rule at one instance: steps in order, and where the roots' values are.

    Attributes:
        steps: of all terms.
        roots: left and right value of each root.
    """

    steps: tuple[Step, ...]
    roots: tuple[tuple[str | int, str | int], ...]

    def run(self, values: Values, domain: Domain) -> Iterator[tuple[Array, Array]]:
        """Left and right value of every root."""
        made: list[Array] = []

        def of(key: str | int) -> Array:
            return made[key] if isinstance(key, int) else values[key]

        for step in self.steps:
            operands = [of(key) for key in step.operands]
            made.append(get_op(step.op).eval_fn(domain, operands, step.attrs))
        for left, right in self.roots:
            yield of(left), of(right)


def concrete(term: Apply, bindings: Bindings, dtype: str) -> tuple[str, AttrMap]:
    """Operator and attributes of a pattern node; literals take the element type ``dtype``."""
    op, attrs = operator(term, bindings)
    if "dtype" in attrs:
        attrs["dtype"] = dtype
    return op, attrs


def program(rule: Rule, bindings: Bindings, dtype: str) -> Program:
    """What evaluates ``rule`` at an instance; literals of the rule take the type ``dtype``.

    What occurs several times is evaluated once.
    """
    steps: list[Step] = []
    places: dict[Any, int] = {}

    def add(term: Term) -> str | int:
        if isinstance(term, Var):
            return term.name
        assert isinstance(term, Apply)
        operands = tuple(add(arg) for arg in term.args)
        op, attrs = concrete(term, bindings, dtype)
        key = op, operands, *attrs.items()
        if key not in places:
            places[key] = len(steps)
            steps.append(Step(op, attrs, operands))
        return places[key]

    pairs = zip(rule.lhs, rule.rhs, strict=True)
    roots = tuple((add(left), add(right)) for left, right in pairs)
    return Program(tuple(steps), roots)
