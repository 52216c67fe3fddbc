"""The numerics class that a rule earns, measured at designed operands (``docs/numerics.md``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, Array
from eqsat_opt.ir.ops.domains import FLOAT, FloatDomain
from eqsat_opt.ir.values.types import FLOATS, require_static
from eqsat_opt.proving.checks.bounds import bounded_results
from eqsat_opt.proving.checks.counterexample import Refutation, refutation_at
from eqsat_opt.proving.checks.rounding import InOrderDomain
from eqsat_opt.proving.instances.search import USUAL_POINTS, Found, find_instances, varied
from eqsat_opt.proving.numbers.designed import (
    BEYOND,
    ORDINARY,
    Designed,
    designed_values,
    values_beyond,
)
from eqsat_opt.proving.numbers.evaluation import Program, Values, program
from eqsat_opt.proving.numbers.reals import literals
from eqsat_opt.proving.numbers.terms import computes_alike
from eqsat_opt.rules.bindings import Bindings, types_of
from eqsat_opt.rules.rule import Numerics, Rule

__all__ = ["DTYPES", "Breach", "breach", "refutation_of"]

DTYPES = ("float32", "float16")
_KEPT = {"float32": 6, "float16": 3}
"""Number of instances that are measured, by element type."""
_MOST_ELEMENTS = 400
"""Most elements of all operands together, and most elements of any result."""
MOST = 16.0
"""Largest error of the right side, as a multiple of the rounding error of the left side."""
_DIGITS = 64.0
"""Further error of recombining, in roundoffs of the largest result; multiplied by `MOST`, too."""
_IN_ORDER = InOrderDomain()


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A point at which a directed rule moves its results further than a class allows.

    Attributes:
        found: the instance.
        designed: the operands.
        dtype: element type.
        root: number of the equation that is broken, from 0.
        index: index of an element that shows it.
        left, right: both values of the root.
        domain: arithmetic of both sides.
    """

    found: Found
    designed: Designed
    dtype: str
    root: int
    index: tuple[int, ...]
    left: Array
    right: Array
    domain: FloatDomain

    @property
    def change(self) -> str:
        """The element before and after."""
        was, became = float(self.left[self.index]), float(self.right[self.index])
        return f"with {self.designed.kind} {was:.6g} becomes {became:.6g}"

    @property
    def line(self) -> str:
        """The breach and its instance, in one line."""
        shapes = ", ".join(
            f"{name}: {replace(type_, dtype=self.dtype) if type_.dtype in FLOATS else type_}"
            for name, type_ in self.found.types.items()
        )
        attrs = "".join(f", {name}={value}" for name, value in self.found.attrs.items())
        return f"{shapes}{attrs}: {self.change}"


def _results(rule: Rule, found: Found) -> int:
    """Return the number of elements of the largest result, intermediate ones included."""
    types = (type_ for root in rule.roots for type_ in types_of(root, found))
    return max(require_static(type_).size for type_ in types)


@lru_cache(maxsize=8)
def _small(rule: Rule, seed: int, max_points: int) -> tuple[Found, ...]:
    """Return instances of floating point that are cheap to evaluate."""
    drawn = find_instances(rule, limit=max_points, seed=seed).points
    return tuple(
        b for b in drawn
        if not b.whole
        and b.origin.elements <= _MOST_ELEMENTS
        and _results(rule, b) <= _MOST_ELEMENTS
    )  # fmt: skip


def _points(rule: Rule, seed: int, dtype: str, max_points: int) -> list[Found]:
    """Return a few instances of every size, the smallest first."""
    return varied(_small(rule, seed, max_points), _KEPT[dtype])


@dataclass(frozen=True)
class _Suspect:
    """Operands at which both sides differ in some bit, and the values of all roots there."""

    designed: Designed
    roots: Sequence[tuple[Array, Array]]


@dataclass(frozen=True)
class _Case:
    """An instance of a rule with its operands, on which several classes are tried."""

    rule: Rule
    found: Found
    dtype: str
    seed: int

    @cached_property
    def sides(self) -> Program:
        return program(self.rule, self.found, self.dtype)

    @cached_property
    def computes_alike(self) -> bool:
        return computes_alike(self.sides, self.found, _IN_ORDER.name)

    @cached_property
    def either(self) -> bool:
        """Whether the sign of an infinity says nothing, because it may be that of a pole."""
        return any("pole" in OPS[step.op].traits for step in self.sides.steps)

    def suspects(self, domain: FloatDomain) -> list[_Suspect]:
        """Find the operands at which both sides differ in a kind of arithmetic."""
        found = []
        for one in (*self._draws, *self._beyond):
            roots = [(np.asarray(a), np.asarray(b)) for a, b in self.sides.run(one.values, domain)]
            if any(not _same(left, right, self.either).all() for left, right in roots):
                found.append(_Suspect(one, roots))
        return found

    @cached_property
    def usual(self) -> list[_Suspect]:
        """The suspects in the usual arithmetic, for all classes but the strictest."""
        return self.suspects(FLOAT)

    @cached_property
    def is_finite(self) -> list[bool]:
        """Whether the left side has finite numbers only, at each of the usual suspects."""
        return [self.sides.is_finite(one.designed.values, FLOAT) for one in self.usual]

    @cached_property
    def promised(self) -> list[_Promise]:
        """The promise of the classes below refactor at the usual suspects."""
        return _promised(self.sides, self.usual, self.dtype, recombines=False)

    @cached_property
    def _draws(self) -> list[Designed]:
        return [*designed_values(self.found, self.dtype, self.seed, literals(self.rule))]

    @cached_property
    def _beyond(self) -> list[Designed]:
        """Operands at which functions of the right side leave the range; none if it has none."""
        functions = frozenset(step.op for step in self.sides.steps[self.sides.left :])
        if self.dtype != DTYPES[0] or all(map(_keeps_range, functions)):
            return []
        return [*values_beyond(self.found, self.dtype, functions, self.seed)]


def _keeps_range(name: str) -> bool:
    """Return whether results are in the range of the operands: moved, chosen or truncated."""
    op = OPS[name]
    return op.keeps_elements or not op.traits.isdisjoint(("exact", "order", "truth"))


@lru_cache(maxsize=4)
def _cases(rule: Rule, seed: int, dtype: str, max_points: int) -> list[_Case]:
    points = _points(rule, seed, dtype, max_points)
    return [_Case(rule, found, dtype, seed) for found in points]


def breach(
    rule: Rule, numerics: Numerics, *, seed: int = 0, max_points: int = USUAL_POINTS
) -> Breach | None:
    """Find the smallest of some instances at which a directed rule breaks a class's promise."""
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            for case in _cases(rule, seed, dtype, max_points):
                if rule.numerics is Numerics.BITEXACT and case.computes_alike:
                    continue
                for one in _breaches(case, numerics):
                    return one
    return None


def _breaches(case: _Case, numerics: Numerics) -> Iterator[Breach]:
    if numerics is Numerics.BITEXACT:
        for one in case.suspects(_IN_ORDER):
            wrong = [~_same(left, right, case.either) for left, right in one.roots]
            yield from _worst(case, one, wrong, domain=_IN_ORDER)
        return
    places = _places(case, numerics)
    if not places:
        return
    suspects, promised, columns = case.usual, case.promised, places
    if numerics >= Numerics.REFACTOR:
        suspects = [case.usual[place] for place in places]
        promised = _promised(case.sides, suspects, case.dtype, recombines=True)
        columns = list(range(len(places)))
    for place in columns:
        one = suspects[place]
        wrong = [
            ~_same(left, right, case.either)
            & allowed.broken(left, right, place, strict=one.designed.kind == BEYOND)
            for (left, right), allowed in zip(one.roots, promised, strict=True)
        ]
        if numerics is Numerics.RELAXED:  # promises only to be equal over the real numbers
            wrong = [
                bad & np.isfinite(np.asarray(left, np.float64))
                for bad, (left, _) in zip(wrong, one.roots, strict=True)
            ]
        bounds = [allowed.difference[..., place] for allowed in promised]
        yield from _worst(case, one, wrong, domain=FLOAT, bounds=bounds)


def _places(case: _Case, numerics: Numerics) -> list[int]:
    """Return the usual suspects at which a class promises something, by position."""
    kinds = [one.designed.kind for one in case.usual]
    if numerics is Numerics.FINITE:
        return [place for place, is_finite in enumerate(case.is_finite) if is_finite]
    if numerics >= Numerics.REFACTOR:
        told = {*ORDINARY, *(() if numerics is Numerics.RELAXED else (BEYOND,))}
        return [place for place, kind in enumerate(kinds) if kind in told]
    return list(range(len(kinds)))


def _same(left: Array, right: Array, either: bool) -> npt.NDArray[np.bool_]:
    """Return where results agree, up to the sign of zero and, with ``either``, of a pole."""
    same = left == right
    if same.all():
        return np.asarray(same)
    same = same | ((left != left) & (right != right))
    if either and left.dtype.kind == "f":
        same = same | (np.isinf(left) & np.isinf(right))
    return np.asarray(same)


@dataclass(frozen=True)
class _Promise:
    """The promise of a class for one root; draws are the last axis.

    Attributes:
        difference: greatest difference between numbers.
        nothing: where nothing is promised.
        strained: where nothing is promised at operands at which functions leave the range: only
            where the left side, its factors in some order, leaves it too.
        spread: where an infinity may become NaN.
    """

    difference: Array
    nothing: Array
    strained: Array
    spread: Array

    def broken(
        self, left: Array, right: Array, draw: int, *, strict: bool
    ) -> npt.NDArray[np.bool_]:
        """Return the elements that differ by more, or are special on one side only.

        If ``strict``, the right side must not leave the range where the left side does not.
        """
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        finite = np.isfinite(left) & np.isfinite(right)
        far = np.abs(left - right) > self.difference[..., draw]
        to_nan = np.isinf(left) & ~np.isfinite(right) & self.spread[..., draw]
        kept = to_nan | (np.isnan(left) & np.isinf(right))
        nothing = self.strained if strict else self.nothing
        return np.asarray(np.where(finite, far, ~kept) & ~nothing[..., draw])


def _promised(
    sides: Program, suspects: Sequence[_Suspect], dtype: str, *, recombines: bool
) -> list[_Promise]:
    """Compute the promise of a class, which may recombine numbers or not, for each root."""
    info = np.finfo(dtype)
    roundoff = float(info.eps) / 2
    values = [one.designed.values for one in suspects]
    bounded, vanished = bounded_results(
        sides, values, dtype, roundoffs=(roundoff, 0.0), everywhere=recombines
    )
    promised = []
    for (left, right), (_, tiny) in zip(bounded, vanished, strict=True):
        error = left.error + tiny.error + roundoff * np.abs(left.value)
        if recombines:
            scale = np.max(np.abs(left.value), initial=1.0, where=np.isfinite(left.value))
            error = error + np.minimum(right.error, _DIGITS * roundoff * scale)
        difference = MOST * (error + float(info.smallest_subnormal))
        # At the end of the range a rounding decides whether a result is in it.
        strained = left.left | left.strained | (np.abs(left.value) * MOST > float(info.max))
        promised.append(_Promise(difference, left.left | right.left, strained, left.spread))
    return promised


@dataclass(frozen=True)
class _Shown:
    """The kind of numbers on which a breach is shown.

    Attributes:
        name: name of the method.
        dtype: element type.
        domain: arithmetic.
    """

    name: str
    dtype: str
    domain: FloatDomain

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw ordinary operands; a breach has operands of its own."""
        return next(designed_values(bindings, self.dtype, seed)).values

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ at all."""
        return ~_same(left, right, either=False)


def refutation_of(rule: Rule, shown: Breach) -> Refutation | None:
    """Turn a breach into a refutation with code that shows it.

    Returns:
        ``None`` if both sides agree at the operands of the breach.
    """
    types = {
        n: replace(t, dtype=shown.dtype) if t.dtype in FLOATS else t
        for n, t in shown.found.types.items()
    }
    numbers = _Shown(f"{shown.dtype}, {shown.designed.kind}", shown.dtype, shown.domain)
    bindings = Bindings(types, shown.found.attrs)
    with np.errstate(all="ignore"):
        found = refutation_at(rule, bindings, numbers, shown.designed.values)
    return None if found is None else replace(found, reason=shown.change)


def _worst(
    case: _Case, one: _Suspect, wrong: Sequence[Array], *, domain: FloatDomain,
    bounds: Sequence[Array] | None = None,
) -> Iterator[Breach]:  # fmt: skip
    for root, ((left, right), bad) in enumerate(zip(one.roots, wrong, strict=True)):
        if not bad.any():
            continue
        wide, other = np.asarray(left, np.float64), np.asarray(right, np.float64)
        away = np.abs(wide - other) / (bounds[root] if bounds is not None else 1.0)
        away = np.where(bad, np.where(np.isnan(away), np.inf, away), -1.0)
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(away)), away.shape))
        yield Breach(
            found=case.found,
            designed=one.designed,
            dtype=case.dtype,
            root=root,
            index=index,
            left=left,
            right=right,
            domain=domain,
        )
