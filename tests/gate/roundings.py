"""Rules that leave out a rounding, add one, or take one for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from eqsat_opt.rules import Numerics, Term, declared, ops
from tests.gate.cases import Case, difference

__all__ = ["of_roundings"]

_Function = Callable[[Term], Term]
_HALF, _SHORT, _SINGLE, _WHOLE = "float16", "bfloat16", "float32", "int32"
_VALUES = np.asarray(
    [1e5, -1e5, 2049.0, 0.1, -0.1, 1e-9, 2.5, 3.5, -2.5, 1.75, -1.75, 0.5, 1e30, 7e4, 1e-30], "f4"
)
"""Numbers that leave the narrow types, lie between two of their numbers, or between integers."""


def _narrow(x: Term, dtype: str) -> Term:
    """Round to a narrow type, and return to single precision."""
    return ops.Cast(ops.Cast(x, to=dtype), to=_SINGLE)


_FUNCTIONS: Mapping[str, _Function] = {
    "": lambda x: x,
    "-positive": ops.Relu,
    "-negated": ops.Neg,
    "-magnitude": ops.Abs,
    "-hyperbolic": ops.Tanh,
    "-doubled": lambda x: ops.Scale(x, factor=2.0),
    "-moved": lambda x: ops.Shift(x, offset=1.0),
    "-squared": ops.Square,
    "-summed": lambda x: ops.ReduceSum(x, axes=(0,), keepdims=1),
    "-greatest": lambda x: ops.ReduceMax(x, axes=(0,), keepdims=1),
    "-twice": lambda x: x + x,
    "-floor": ops.Floor,
}
_ROUNDS_ALIKE = frozenset({"", "-positive", "-negated", "-magnitude", "-greatest", "-doubled"})
"""Functions that a rounding may precede or follow, as far as numbers stay in the range."""
_WHOLE_PARTS: Mapping[str, _Function] = {
    "floor": ops.Floor,
    "ceiling": ops.Ceil,
    "nearest": ops.Round,
    "itself": lambda x: x,
    "of-floor": lambda x: _wholly(ops.Floor(x)),
    "of-ceiling": lambda x: _wholly(ops.Ceil(x)),
    "of-nearest": lambda x: _wholly(ops.Round(x)),
    "of-magnitude": lambda x: _wholly(ops.Abs(x)),
    "of-positive-part": lambda x: _wholly(ops.Relu(x)),
    "of-half": lambda x: _wholly(_narrow(x, _HALF)),
    "of-short": lambda x: _wholly(_narrow(x, _SHORT)),
    "of-double": lambda x: ops.Scale(_wholly(ops.Scale(x, factor=0.5)), factor=2.0),
    "of-byte": lambda x: ops.Cast(ops.Cast(x, to="int8"), to=_SINGLE),
    "truth": lambda x: ops.Cast(ops.Cast(x, to="bool"), to=_SINGLE),
}


def _wholly(x: Term) -> Term:
    return ops.Cast(ops.Cast(x, to=_WHOLE), to=_SINGLE)


def _after(outer: _Function, inner: _Function) -> _Function:
    return lambda x: outer(inner(x))


def _narrowed(dtype: str) -> _Function:
    return lambda x: _narrow(x, dtype)


def _pairs() -> Iterator[tuple[str, _Function, _Function]]:
    for dtype in (_HALF, _SHORT):
        narrow = _narrowed(dtype)
        for name, function in _FUNCTIONS.items():
            rounded = _after(function, narrow)
            yield f"{dtype}{name}-left-out", rounded, function
            if name:  # a rule with a variable for its left side is none
                yield f"{dtype}{name}-added", function, rounded
            if name not in _ROUNDS_ALIKE:
                yield f"{dtype}{name}-too-early", _after(narrow, function), rounded
    half, short = _narrowed(_HALF), _narrowed(_SHORT)
    for name, function in _FUNCTIONS.items():
        yield f"other-type{name}", _after(function, half), _after(function, short)
        both = _after(function, _after(short, half))
        yield f"both-types{name}", both, _after(function, short)
    for name, function in _WHOLE_PARTS.items():
        yield f"whole-part-{name}", _wholly, function
        if name != "itself":
            yield f"made-whole-{name}", function, _wholly


def _case(name: str, left: _Function, right: _Function, numerics: Numerics) -> Case:
    rule = declared(
        f"rounding/{name}-{numerics.name.lower()}",
        "A rounding that is not there, or another one.",
        {"x": "Tensor"},
        lambda v: (left(v["x"]), right(v["x"]), v["x"].dtype == _SINGLE),
        numerics=numerics,
    )
    return Case(rule, {"x": _VALUES})


def of_roundings() -> Iterator[Case]:
    """Mistakes with casts, where numbers of single precision show them."""
    for name, left, right in _pairs():
        for numerics in (Numerics.BITEXACT, Numerics.REASSOCIATE):
            case = _case(name, left, right, numerics)
            if difference(case) is not None:
                yield case
