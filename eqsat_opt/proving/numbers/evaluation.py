"""Both sides of a rule at one instance, evaluated on the numbers of a domain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, Array, AttrMap, Domain
from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.values.types import FLOATS, numpy_dtype
from eqsat_opt.proving.numbers.angles import AngleDomain
from eqsat_opt.proving.numbers.casts import casts_of
from eqsat_opt.proving.numbers.draws import beside, drawn, generator, mingled
from eqsat_opt.proving.numbers.rationals import RationalDomain
from eqsat_opt.proving.numbers.twofield import ORDER, TwoFieldDomain
from eqsat_opt.rules.bindings import Bindings, operator
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = [
    "WHOLE_DRAWS",
    "FieldNumbers",
    "FloatNumbers",
    "IntegerNumbers",
    "Numbers",
    "OrderedNumbers",
    "Program",
    "RationalNumbers",
    "Remembering",
    "Step",
    "TwoFieldNumbers",
    "Values",
    "concrete",
    "normal_values",
    "program",
]

Values = Mapping[str, Array]
_TOLERANCE = 1e-9
_INT32 = 2**31
WHOLE_DRAWS = 3
"""Number of kinds of integers: small ones, larger ones, those of any size."""
_SPECIAL = 0.25
"""Share of the integers that are beside literals or at the ends of their type."""


class Numbers(Protocol):
    """A kind of numbers to evaluate a rule on, with one draw of values per seed.

    Attributes:
        name: name of the method, as certificates give it.
        domain: number domain that operators compute with.
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
        """Draw uniform elements."""
        return drawn(bindings, seed, self.domain.random)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ."""
        return np.asarray(left != right)


@dataclass(frozen=True)
class RationalNumbers:
    """Exact rationals with the true piecewise functions."""

    seed: int
    literals: tuple[float, ...] = ()
    name = "exact rationals"
    dtype = "float64"

    @cached_property
    def domain(self) -> RationalDomain:
        """The rationals."""
        return RationalDomain(self.seed)

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw small integers with ties and zeros, fractions, and numbers beside the rule's own."""
        near = [Fraction(number) for number in beside(self.literals)]
        return drawn(bindings, seed, partial(mingled, self.domain.random, near))

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ; NaN on both sides counts as equal."""
        return np.asarray((left != right) & ((left == left) | (right == right))).astype(bool)


@dataclass(frozen=True)
class OrderedNumbers(RationalNumbers):
    """Rationals over their common denominator, as integers that operators only order and move.

    If such operators' operands are multiplied by a positive number, so are their results. The
    verdict is therefore that of the rationals, and machine integers are compared a hundred times as
    fast.
    """

    domain = FLOAT  # type: ignore[assignment]  # whose integers are exact

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw rationals, and multiply them by their common denominator."""
        drawn = RationalNumbers(self.seed, self.literals).draw(bindings, seed)
        numbers = [n for a in drawn.values() if a.dtype == object for n in a.flat]
        common = math.lcm(*(n.denominator for n in numbers))
        return {
            name: np.asarray(a * common).astype(np.int64) if a.dtype == object else a
            for name, a in drawn.items()
        }


@dataclass(frozen=True)
class TwoFieldNumbers:
    """Two prime fields with exponentials, roots and powers; logarithms in a small one."""

    seed: int
    order: int = ORDER
    angles: bool = False
    name = "two prime fields"
    dtype = "float64"

    @cached_property
    def domain(self) -> TwoFieldDomain:
        """Both fields; those of angles have an order of their own."""
        return AngleDomain(self.seed) if self.angles else TwoFieldDomain(self.seed, self.order)

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw independent residues."""
        return drawn(bindings, seed, self.domain.random)

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ where both are defined."""
        return np.asarray(~self.domain.same(left, right))


def normal_values(bindings: Bindings, seed: int) -> Values:
    """Draw normal values of both signs, none of them 0."""
    return drawn(bindings, seed, lambda rng, shape: rng.standard_normal(shape))


def _normal(seed: int) -> Any:
    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        drawn = rng.standard_normal(shape) * 10.0 ** (seed % 3 - 1)
        return np.where(rng.random(shape) < 0.05, 0.0, drawn)

    return fill


@dataclass(frozen=True)
class FloatNumbers:
    """Double precision at a tolerance: evidence, but no proof."""

    seed: int
    name = "float64"
    dtype = "float64"
    domain = FLOAT

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw normal values of both signs, some exactly 0, at a scale that the seed selects."""
        return drawn(bindings, seed, _normal(seed))

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ by more than the tolerance."""
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        finite = np.isfinite(left) & np.isfinite(right)
        scale = float(np.max(np.abs(left), initial=0.0, where=finite))
        with np.errstate(invalid="ignore"):
            close = finite & (np.abs(left - right) <= _TOLERANCE * scale)
        return np.asarray(~(close | (left == right) | (np.isnan(left) & np.isnan(right))))


@dataclass(frozen=True)
class IntegerNumbers:
    """Integers of the operands' own types: wrapping sums, truncating quotients."""

    seed: int
    literals: tuple[float, ...] = ()
    name = "integers"
    dtype = ""
    domain = FLOAT

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw small integers, larger ones, or integers of any size, as the seed selects.

        The small ones give quotients that are not all 0. Some integers are beside literals or at
        the ends of the type.
        """
        rng = generator(seed)
        near = [round(number) for number in beside(self.literals) if abs(number) < _INT32]
        values = {}
        for name, type_ in bindings.static_types.items():
            to, shape = numpy_dtype(type_.dtype), type_.shape
            if to.kind not in "iu":
                drawn = rng.integers(0, 2, shape) if to.kind == "b" else rng.standard_normal(shape)
                values[name] = np.asarray(drawn).astype(to)
                continue
            info = np.iinfo(to)
            least, most = ((-5, 5), (-2000, 2000), (info.min, info.max))[self.seed % WHOLE_DRAWS]
            low, high = max(int(least), int(info.min)), min(int(most), int(info.max))
            ends = [int(info.min), int(info.min) + 1, int(info.max) - 1, int(info.max)]
            special = [*near, 0, 1, *((*ends, -1) if self.seed % WHOLE_DRAWS == 2 else ())]
            usual = np.asarray(rng.integers(low, high, shape, to, endpoint=True))
            values[name] = _among(usual, [n for n in special if low <= n <= high], rng)
        return values

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ."""
        return np.asarray((left != right) & ((left == left) | (right == right)))


def _among(values: Array, special: Sequence[int], rng: np.random.Generator) -> Array:
    """Replace a share of the values by special ones."""
    chosen = np.array(special, values.dtype)[rng.integers(len(special), size=values.shape)]
    return np.where(rng.random(values.shape) < _SPECIAL, chosen, values)


class Step(NamedTuple):
    """One operator of a term at an instance.

    Attributes:
        op: name of the operator.
        attrs: attribute values.
        operands: variables by name, results of earlier steps by position.
    """

    op: str
    attrs: AttrMap
    operands: tuple[str | int, ...]


@dataclass(frozen=True)
class Program:
    """Both sides of a rule at one instance: steps in order, and the positions of the roots' values.

    Attributes:
        steps: steps of all terms, those of the left sides first.
        left: number of steps that the left sides need.
        roots: left and right value of each root.
        alike: kind of numbers to whether both sides are one computation, where that was asked.
    """

    steps: tuple[Step, ...]
    left: int
    roots: tuple[tuple[str | int, str | int], ...]
    alike: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def run(self, values: Values, domain: Domain) -> Iterator[tuple[Array, Array]]:
        """Evaluate both sides, and yield the left and right value of every root."""
        left, right = self.sides(values, domain)
        return zip(left, right, strict=True)

    def sides(self, values: Values, domain: Domain) -> Iterator[list[Array]]:
        """Yield the values of all left sides, and then those of the right sides.

        The right sides are not evaluated before they are asked for.
        """
        known: dict[str | int, Array] = dict(values.items())
        place = 0
        for end, roots in zip((self.left, len(self.steps)), self._results, strict=True):
            for evaluate, attrs, operands in self._calls[place:end]:
                known[place] = evaluate(domain, [known[key] for key in operands], attrs)
                place += 1
            yield [known[root] for root in roots]

    def is_finite(self, values: Values, domain: Domain) -> bool:
        """Return whether operands and all values on the left sides are finite numbers."""
        known: dict[str | int, Array] = dict(values.items())
        for place, (evaluate, attrs, operands) in enumerate(self._calls[: self.left]):
            known[place] = evaluate(domain, [known[key] for key in operands], attrs)
        return all(bool(np.isfinite(value).all()) for value in known.values())

    @cached_property
    def _calls(self) -> list[tuple[Callable[..., Array], AttrMap, tuple[str | int, ...]]]:
        return [(OPS[step.op].eval_fn, step.attrs, step.operands) for step in self.steps]

    @cached_property
    def _results(self) -> tuple[list[str | int], list[str | int]]:
        return [left for left, _ in self.roots], [right for _, right in self.roots]


@dataclass
class Remembering(Bindings):
    """An instance that caches the program of the rule that was evaluated there last.

    Attributes:
        programs: element type to that rule and its program.
    """

    programs: dict[str, tuple[Rule, Program]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )


def concrete(term: Apply, bindings: Bindings, dtype: str) -> tuple[str, AttrMap]:
    """Return operator and attributes of a pattern node; literals take the type ``dtype``, if any.

    In double precision, casts to floating point take it as well, because they change nothing over
    the real numbers.
    """
    op, attrs = operator(term, bindings)
    if dtype == "float64" and op == "Cast" and attrs["to"] in FLOATS:
        attrs["to"] = dtype
    if dtype and "dtype" in attrs:
        attrs["dtype"] = dtype
    return op, attrs


def program(rule: Rule, bindings: Bindings, dtype: str) -> Program:
    """Return the program that evaluates ``rule`` at an instance, with literals of type ``dtype``.

    Many checks ask for it, so an instance may cache it.
    """
    if not isinstance(bindings, Remembering):
        return _program(rule, bindings, dtype)
    kept = bindings.programs
    if dtype in kept and (kept[dtype][0] is rule or kept[dtype][0].roots == rule.roots):
        return kept[dtype][1]
    made = _program(rule, bindings, dtype)
    # Most programs have no literals, so facts about one element type hold for the others.
    made = next((other for _, other in kept.values() if other == made), made)
    kept[dtype] = rule, made
    return made


def _program(rule: Rule, bindings: Bindings, dtype: str) -> Program:
    """Build a program in which a term that occurs several times is evaluated once."""
    steps: list[Step] = []
    places: dict[Any, int] = {}
    casts = casts_of(rule, bindings) if dtype == "float64" else {}

    def add(term: Term) -> str | int:
        if isinstance(term, Var):
            return term.name
        assert isinstance(term, Apply)
        operands = tuple(add(arg) for arg in term.args)
        op, attrs = concrete(term, bindings, dtype)
        if id(term) in casts:
            if (rounds := casts[id(term)]) is None:
                return operands[0]
            attrs = {**attrs, "rounds": rounds}  # tells exact numbers that functions differ
        key = op, operands, str(attrs)  # in this text 0 is not -0
        if key not in places:
            places[key] = len(steps)
            steps.append(Step(op, attrs, operands))
        return places[key]

    lefts = [add(root) for root in rule.lhs]
    left = len(steps)
    rights = [add(root) for root in rule.rhs]
    return Program(tuple(steps), left, tuple(zip(lefts, rights, strict=True)))
