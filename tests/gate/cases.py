"""A wrong rule with what shows that it is wrong: operands and attributes at which its sides differ.

Nothing here asks the gate. Both sides are evaluated by the registry, and the difference has to be
plain: another type, another integer, another bit where the rule promises bits, or a number that is
off by far more than rounding.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array, IllTyped, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules import Numerics, Rule, Term, Var
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, operator, type_of
from eqsat_opt.rules.rule import directed
from eqsat_opt.rules.term import Apply

__all__ = [
    "Case", "Drawn", "cases_of", "difference", "f16", "f32", "f64", "i8", "i32", "i64", "positive",
    "truth", "u8", "wrong",
]  # fmt: skip

_CLEAR = 1e-3
"""Difference, relative to the left side, that no rounding explains."""
_ROUNDING = 1e-9
"""The same relative to the greatest number on the way, in double precision."""


@dataclass(frozen=True)
class Drawn:
    """An operand whose elements do not matter, so they are drawn by its name.

    Attributes:
        shape: its extents.
        dtype: element type.
        positive: whether all of them are greater than 0.
    """

    shape: tuple[int, ...]
    dtype: str
    positive: bool = False

    def values(self, name: str) -> Array:
        """Normal numbers, all numbers of a narrow integer type, or truth values."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        if self.dtype.startswith("float"):
            normal = rng.standard_normal(self.shape)
            return np.asarray(np.abs(normal) + 0.1 if self.positive else normal).astype(self.dtype)
        if self.dtype == "bool":
            return np.asarray(rng.integers(0, 2, self.shape), np.bool_)
        info = np.iinfo(self.dtype)
        low, high = max(info.min, -(10**6)), min(info.max, 10**6)
        return rng.integers(low, high, self.shape, endpoint=True).astype(self.dtype)


def f64(*shape: int) -> Drawn:
    """Normal numbers in double precision."""
    return Drawn(shape, "float64")


def positive(*shape: int) -> Drawn:
    """Positive numbers in double precision."""
    return Drawn(shape, "float64", positive=True)


def f32(*values: Any) -> Array:
    """Given numbers in single precision."""
    return np.asarray(values, np.float32)


def f16(*values: Any) -> Array:
    """Given numbers in half precision."""
    return np.asarray(values, np.float16)


def u8(*values: Any) -> Array:
    """Given unsigned bytes."""
    return np.asarray(values, np.uint8)


def i8(*values: Any) -> Array:
    """Given signed bytes."""
    return np.asarray(values, np.int8)


def i32(*values: Any) -> Array:
    """Given integers of 32 bits."""
    return np.asarray(values, np.int32)


def i64(*values: Any) -> Array:
    """Given integers of 64 bits."""
    return np.asarray(values, np.int64)


def truth(*values: Any) -> Array:
    """Given truth values."""
    return np.asarray(values, np.bool_)


@dataclass(frozen=True)
class Case:
    """A wrong rule and where it shows.

    Attributes:
        rule: as a user would write it.
        given: what its variables are: operands as arrays or drawn ones, attributes as they are.
    """

    rule: Rule
    given: Mapping[str, Any]

    @property
    def name(self) -> str:
        """That of the rule."""
        return self.rule.name

    def operands(self) -> dict[str, Array]:
        """The tensors."""
        return {
            name: value.values(name) if isinstance(value, Drawn) else np.asarray(value)
            for name, value in self.given.items()
            if isinstance(value, Drawn | np.ndarray)
        }

    def bindings(self) -> Bindings:
        """The types of the tensors, and the attributes."""
        operands = self.operands()
        types = {n: TensorType(a.dtype.name, a.shape) for n, a in operands.items()}
        return Bindings(types, {n: v for n, v in self.given.items() if n not in operands})


def wrong(**given: Any) -> Callable[[Rule], Case]:
    """Say of the rule below where it goes wrong."""
    return lambda rule: Case(rule, given)


def cases_of(module: ModuleType) -> Iterator[Case]:
    """The cases that a module defines, alone or in lists."""
    for value in vars(module).values():
        if isinstance(value, Case):
            yield value
        elif isinstance(value, list):
            yield from (one for one in value if isinstance(one, Case))


# What differs -----------------------------------------------------------------------------------


class _Evaluation:
    """The value of terms, and how large numbers became."""

    def __init__(self, operands: Mapping[str, Array], bindings: Bindings) -> None:
        self._operands, self._bindings = operands, bindings
        self.greatest = 0.0

    def value(self, term: Term) -> Array:
        if isinstance(term, Var):
            result = self._operands[term.name]
        else:
            assert isinstance(term, Apply)
            op, attrs = operator(term, self._bindings)
            values = [self.value(arg) for arg in term.args]
            result = np.asarray(get_op(op).eval_fn(FLOAT, values, attrs))
        if result.dtype.kind == "f":
            size = np.abs(result.astype(np.float64))
            finite = np.isfinite(size)
            self.greatest = max(self.greatest, float(size.max(initial=0.0, where=finite)))
        return result


def _differ(left: Array, right: Array, numerics: Numerics, greatest: float) -> npt.NDArray[Any]:
    """Elements that plainly differ, by what the class of a rule promises."""
    if left.dtype.kind not in "f":
        return np.asarray(left != right)
    both_nan = (left != left) & (right != right)
    if numerics is Numerics.BITEXACT:
        return np.asarray((left != right) & ~both_nan)
    a, b = left.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    off = np.abs(a - b)
    far = off > _CLEAR * np.abs(a)
    if left.dtype == np.float64:
        far &= off > _ROUNDING * greatest
    special = np.isfinite(a) != np.isfinite(b)
    if numerics > Numerics.REASSOCIATE:
        special = np.isfinite(a) & ~np.isfinite(b)  # what these classes lose, they may
    return np.asarray(np.where(finite, far, special & ~both_nan))


def difference(case: Case) -> str | None:
    """What shows that a rule is wrong, in one line; ``None`` if nothing does.

    The operands have to satisfy its conditions, in one of its directions, and its right side has
    to have a type there.
    """
    operands, bindings = case.operands(), case.bindings()
    for way in directed([case.rule]):
        if not _applies(way, bindings):
            continue
        for left, right in zip(way.lhs, way.rhs, strict=True):
            types = type_of(left, bindings), type_of(right, bindings)
            if types[0] != types[1]:
                return f"{types[0]} becomes {types[1]}"
            run = _Evaluation(operands, bindings)
            with np.errstate(all="ignore"):
                values = run.value(left), run.value(right)
                differ = _differ(*values, way.numerics, run.greatest)
            if differ.any():
                place = np.unravel_index(int(np.argmax(differ)), differ.shape)
                return f"{values[0][place]} becomes {values[1][place]}"
    return None


def _applies(way: Rule, bindings: Bindings) -> bool:
    try:
        for root in (*way.lhs, *way.rhs):
            type_of(root, bindings)
    except (IllTyped, Undefined, ZeroDivisionError):
        return False
    return all(holds(condition, bindings, lambda *_: True) for condition in way.when)
