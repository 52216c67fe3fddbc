"""Operands that are designed to expose errors which normally distributed values do not.

They are gates of exactly 0 and 1, one operand beside which the others are small, sums that nearly
cancel, masks, infinities and NaN in single elements, and the ends of the range of the element type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.proving.numbers.draws import MOST_INDEX
from eqsat_opt.proving.numbers.evaluation import Values
from eqsat_opt.rules.bindings import Bindings

__all__ = ["BEYOND", "ORDINARY", "Designed", "designed_values", "values_beyond"]

ORDINARY = frozenset({"ordinary numbers", "gates of 0 and 1"})
"""Kinds of operands on which every class but the weakest promises a result."""
BEYOND = "operands at which functions leave the range"
"""The kind of operands at which an exponential, a square or an inverse square has no value."""
_PARTS = (0.52, 0.999, 1.02, 2.1)
"""Multiples of the number at which a function leaves the range; its operand may be scaled."""
_ROOTS = (2, 3, 4)
"""Powers that leave the range at roots of its ends."""
_MIXTURES = 5
_OF_SIZES = 2
"""Number of draws with numbers of several sizes: there are many sizes, and each number has one."""
_ROW = 0.34
"""Share of the rows of a mask in which everything is masked."""


@dataclass(frozen=True)
class Designed:
    """Operands of one kind.

    Attributes:
        kind: description of the kind.
        values: operand to value.
    """

    kind: str
    values: Values


def _large(dtype: str) -> float:
    """Return a number much larger than 1, yet far from the end of the range."""
    return 1e9 if float(np.finfo(dtype).max) > 1e30 else 8192.0


def _mask(rng: np.random.Generator, shape: tuple[int, ...], masked: float) -> Array:
    """Draw a mask of some elements, and in some rows of all elements."""
    rows = rng.random(shape[:-1] + (1,) * bool(shape)) < _ROW
    return np.where(rows | (rng.random(shape) < 0.4), masked, 0.0)


def _with_one(values: Array, at: int, special: float) -> Array:
    """Return a copy of an array with another number at one position."""
    changed = np.array(values, np.float64)
    if changed.size:
        changed.flat[at % changed.size] = special
    return changed


def designed_values(
    bindings: Bindings, dtype: str, seed: int = 0, literals: Sequence[float] = ()
) -> Iterator[Designed]:
    """Yield operands of every kind, each rounded to ``dtype``; truth values stay random.

    Args:
        bindings: an instance with operands of floating point; integers beside them are indices.
        dtype: an element type of floating point.
        seed: seed of everything drawn.
        literals: numbers of the rule; others are drawn up to a thousand times larger or smaller.
    """
    rng = np.random.default_rng(seed)
    shapes = {n: t.shape for n, t in bindings.static_types.items()}
    truths = {n for n, t in bindings.types.items() if t.dtype == "bool"}
    # Indices are the same in all draws, so that elements are gathered from the same places.
    whole = {
        n: rng.integers(0, MOST_INDEX, shapes[n]).astype(t.dtype)
        for n, t in bindings.types.items()
        if t.dtype not in FLOATS and n not in truths
    }
    names = [name for name in shapes if name not in truths and name not in whole]

    def normal(scale: float = 1.0) -> dict[str, Array]:
        values = {n: rng.standard_normal(shape) * scale for n, shape in shapes.items()}
        return {n: v > 0 if n in truths else v for n, v in values.items()} if truths else values

    def designed(kind: str, values: Values, **changed: Array) -> Designed:
        drawn = {**values, **changed}
        with np.errstate(all="ignore"):
            rounded = {n: v if n in truths else v.astype(dtype) for n, v in drawn.items()}
        return Designed(kind, {**rounded, **whole})

    def gate(shape: tuple[int, ...]) -> Array:
        return rng.integers(0, 2, shape).astype(np.float64)

    info, large = np.finfo(dtype), _large(dtype)
    yield designed("ordinary numbers", normal())
    yield designed("ordinary numbers", {n: np.abs(v) for n, v in normal().items()})
    if not names:
        return
    for name in names:
        yield designed("gates of 0 and 1", normal(), **{name: gate(shapes[name])})
    yield designed("gates of 0 and 1", normal(), **{n: gate(shapes[n]) for n in names})
    for name in names:
        yield designed("one large operand", normal(), **{name: normal(large)[name]})
    for _ in range(_MIXTURES):
        kinds = {n: int(rng.integers(3)) for n in names}
        chosen = {
            n: gate(shapes[n]) if kind == 0 else normal(large if kind == 1 else 1.0)[n]
            for n, kind in kinds.items()
        }
        yield designed("gates beside large operands", normal(), **chosen)
    for one, other in combinations(names, 2):
        # Operands of one shape have them in the same places; broadcast ones meet in any places.
        for sign in (1.0, -1.0):
            values = normal()
            half = {
                n: np.where(gate(shapes[n]), s * np.inf, values[n])
                for n, s in ((one, 1.0), (other, sign))
            }
            if shapes[one] == shapes[other]:
                half[other] = np.where(np.isinf(half[one]), sign * half[one], values[other])
            yield designed("infinities that meet", values, **half)
        # The operands are constant up to noise, so that different shapes cancel as well.
        for sign in (1.0, -1.0):
            noise = normal()
            pair = {one: large + noise[one] * 64, other: sign * large + noise[other] * 64}
            yield designed("large terms that cancel", noise, **pair)
    for name in names:
        for masked, word in (
            (-np.inf, "-inf"), (float(info.min), "the lowest number"), (-large, "-1e9"),
        ):  # fmt: skip
            mask = _mask(rng, shapes[name], masked)
            yield designed(f"a mask of {word}", normal(), **{name: mask})
        nothing = np.full(shapes[name], float(info.min))
        yield designed("a mask of the lowest number", normal(), **{name: nothing})
        for special in (np.inf, -np.inf, np.nan):
            values = normal()
            kind = "a NaN" if np.isnan(special) else "an infinity"
            one_of = _with_one(values[name], int(rng.integers(1 << 30)), special)
            yield designed(kind, values, **{name: one_of})
            gates = {n: gate(shapes[n]) for n in names if n != name}
            yield designed(f"{kind} beside gates", {**values, **gates}, **{name: one_of})
        yield designed("subnormal numbers", normal(), **{name: normal(float(info.tiny) / 8)[name]})
        edge = normal(float(info.max) ** 0.5 / 4)
        yield designed("the edge of the range", normal(), **{name: edge[name]})
    yield designed("the edge of the range", edge)
    # The sum of two of these is out of the range, their mean is not.
    end = {
        n: np.copysign(float(info.max) * rng.uniform(0.4, 1.0, v.shape), v)
        for n, v in normal().items()
    }
    yield designed("the end of the range", normal(), **{n: end[n] for n in names})
    for name in names:
        values = normal()
        yield designed(
            "large numbers that vary little", {**values, name: large + values[name] * 64}
        )
    sizes = np.array(sorted({1.0, *(abs(number) for number in literals if number)}))
    for _ in range(_OF_SIZES):
        values = normal()
        for name in names:
            size = rng.choice(sizes, shapes[name]) * 10.0 ** rng.uniform(-3, 3, shapes[name])
            values[name] = np.copysign(size, values[name])
        yield designed("numbers of several sizes", values)


def _ends(function: str, dtype: str) -> Iterator[float]:
    """Yield the numbers, of either sign, at which a function of one element leaves the range.

    A result leaves it that is infinite, or that is 0 although no result for smaller numbers is.
    """
    evaluate = FUNCTIONS[function].evaluate
    info, attrs = np.finfo(dtype), {**FUNCTIONS[function].defaults}
    for sign in (1.0, -1.0):

        def inside(size: float, sign: float = sign) -> bool:
            with np.errstate(all="ignore"):
                value = evaluate(np.asarray([sign * size], dtype), attrs).astype(dtype)[0]
            return bool(np.isfinite(value) and value != 0)

        low, high = 1.0, float(info.max) ** 0.5
        if not inside(low) or inside(high):
            continue
        while high > low * (1.0 + 1e-6):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if inside(middle) else (low, middle)
        yield sign * low


@lru_cache(maxsize=64)
def _beyond(functions: frozenset[str], dtype: str) -> tuple[float, ...]:
    """Return numbers at which powers and some functions leave the range, or nearly do."""
    info = np.finfo(dtype)
    found = [2.0 * float(info.max) ** (1.0 / n) for n in _ROOTS]
    found += [0.5 * float(info.smallest_subnormal) ** (1.0 / n) for n in _ROOTS]
    # Open attributes and undefined places need no care: a function that has either has no end.
    known = sorted(f for f in functions if f in FUNCTIONS and "vanishing" in FUNCTIONS[f].traits)
    for function in known:
        if FUNCTIONS[function].attrs.keys() <= FUNCTIONS[function].defaults.keys():
            found += [part * end for end in _ends(function, dtype) for part in _PARTS]
    return tuple(dict.fromkeys(found))


def values_beyond(
    bindings: Bindings, dtype: str, functions: frozenset[str], seed: int = 0
) -> Iterator[Designed]:
    """Yield operands at which powers and ``functions`` leave the range of ``dtype``.

    One operand, or each, has such numbers in about half of its elements; in the others, and in
    other operands, are ordinary numbers.
    """
    rng = np.random.default_rng(seed)
    types = bindings.static_types
    names = [name for name, type_ in types.items() if type_.dtype in FLOATS]
    others = next(designed_values(bindings, dtype, seed)).values

    def filled(name: str, number: float) -> Array:
        shape = types[name].shape
        values = np.where(rng.random(shape) < 0.6, number, rng.standard_normal(shape))
        return np.asarray(values.astype(dtype))

    for number in _beyond(functions, dtype):
        for name in names:
            yield Designed(BEYOND, {**others, name: filled(name, number)})
        for second in (number, -number, 1.0 / number) if len(names) > 1 else ():
            pair = [number, second]
            filled_all = {name: filled(name, pair[i % 2]) for i, name in enumerate(names)}
            yield Designed(BEYOND, {**others, **filled_all})
