"""Functions of one element, each described by one record.

To add a function, add an entry: types, evaluation, the index function, costs, schema, and the
mapping from and to ONNX follow from it. Proofs treat a function as unknown, and use that equal
arguments have equal values; laws of a particular function are equations of the rule book.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrKind, AttrMap, ExactFn, Trait, traits

__all__ = ["FUNCTIONS", "ScalarFunction"]

_ERF, _ERFC = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)
"""Exact to the last bits; they are only applied to small tensors."""


@dataclass(frozen=True)
class ScalarFunction:
    """A function of one element.

    Attributes:
        evaluate: its values in the element type of the operand, which is floating point (or an
            integer type, if the function accepts these), and NaN at NaN.
        attrs: attribute name to kind.
        defaults: values that ONNX gives to attributes that are left out.
        since: first opset of ONNX with an operator of this name and these attributes; 0 if there is
            none, or one that stores them in another way.
        flops: rough FLOPs per element of a function that is not a single instruction.
        traits: its effect on special numbers (:class:`~eqsat_opt.ir.ops.Op`).
        on_integers: whether it also accepts integers.
        choices: attribute to all values that it may have, if these are few.
        exact: its value at a rational number, with attributes that are rational or infinite;
            ``None`` if the value may be irrational.
    """

    evaluate: Callable[[Array, AttrMap], Array]
    attrs: Mapping[str, AttrKind] = field(default_factory=dict)
    defaults: Mapping[str, float | str] = field(default_factory=dict)
    since: int = 1
    flops: int = 1
    traits: frozenset[Trait] = frozenset()
    on_integers: bool = False
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exact: ExactFn | None = None


def _sigmoid(x: Array) -> Array:
    # The exponents are not positive: neither end overflows, and no small result is rounded to 0.
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0).astype(x.dtype) / (1.0 + small)


def _gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        # (1 + tanh(z)) / 2 = sigmoid(2 z), which has no cancellation.
        return x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
    # 1 + erf(y) = erfc(-y), which does not cancel where erf is near -1.
    tail = np.asarray(_ERFC(x.astype(np.float64) / -math.sqrt(2.0)), np.float64)
    return np.asarray(0.5 * x * tail)


def _celu(x: Array, alpha: float) -> Array:
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return np.asarray(gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def _clip(x: Array, low: float, high: float) -> Array:
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        low, high = (min(max(bound, info.min), info.max) for bound in (low, high))
        return np.clip(x, x.dtype.type(low), x.dtype.type(high))
    return np.asarray(np.minimum(np.maximum(x, low), high))


def _between(x: Any, low: Any, high: Any) -> Any:
    return min(max(x, low), high)


_EXACT = traits("exact")
_DETERMINED = _EXACT | traits("determined")
_VANISHING = traits("vanishing")
_ALPHA: Mapping[str, AttrKind] = {"alpha": "float"}

FUNCTIONS: dict[str, ScalarFunction] = {
    "Relu": ScalarFunction(
        lambda x, _a: np.maximum(x, 0), traits=_DETERMINED | traits("order"), on_integers=True,
        exact=lambda x, _a: max(x, 0),
    ),
    "Abs": ScalarFunction(
        lambda x, _a: np.abs(x), traits=_DETERMINED, on_integers=True, exact=lambda x, _a: abs(x)
    ),
    "Sign": ScalarFunction(
        lambda x, _a: np.sign(x), since=9, traits=_EXACT, on_integers=True,
        exact=lambda x, _a: (x > 0) - (x < 0) if x == x else x,
    ),
    "Floor": ScalarFunction(
        lambda x, _a: np.floor(x), traits=_DETERMINED, exact=lambda x, _a: x // 1
    ),
    "Ceil": ScalarFunction(
        lambda x, _a: np.ceil(x), traits=_DETERMINED, exact=lambda x, _a: -(-x // 1)
    ),
    "Round": ScalarFunction(
        lambda x, _a: np.rint(x), since=11, traits=_EXACT,
        exact=lambda x, _a: round(x) if abs(x) < math.inf else x,
    ),
    "Exp": ScalarFunction(lambda x, _a: np.exp(x), flops=8, traits=_VANISHING),
    "Log": ScalarFunction(
        lambda x, _a: np.log(x), flops=8, traits=traits("nonnegative", "pole")
    ),
    "Sqrt": ScalarFunction(lambda x, _a: np.sqrt(x), traits=traits("determined", "nonnegative")),
    "Sin": ScalarFunction(lambda x, _a: np.sin(x), since=7),
    "Cos": ScalarFunction(lambda x, _a: np.cos(x), since=7),
    "Tanh": ScalarFunction(lambda x, _a: np.tanh(x), flops=10),
    "Erf": ScalarFunction(
        lambda x, _a: np.asarray(_ERF(x), np.float64),
        since=9, flops=10, on_integers=True,
    ),
    "Sigmoid": ScalarFunction(lambda x, _a: _sigmoid(x), flops=10, traits=_VANISHING),
    "Softsign": ScalarFunction(
        lambda x, _a: x / (1 + np.abs(x)), exact=lambda x, _a: Fraction(x) / (1 + abs(x))
    ),
    "Softplus": ScalarFunction(
        lambda x, _a: np.logaddexp(x, 0.0), flops=16, traits=_VANISHING
    ),
    "HardSwish": ScalarFunction(
        lambda x, _a: x * (np.clip(x + 3.0, 0.0, 6.0) / 6.0),  # this form keeps its digits near -3
        since=14,
        exact=lambda x, _a: x * _between(Fraction(x) / 6 + Fraction(1, 2), 0, 1),
    ),
    "Mish": ScalarFunction(
        lambda x, _a: x * np.tanh(np.logaddexp(x, 0.0)), since=18, flops=20
    ),
    "Gelu": ScalarFunction(
        lambda x, a: _gelu(x, a["approximate"]),
        {"approximate": "str"}, {"approximate": "none"}, since=20, flops=14,
        choices={"approximate": ("none", "tanh")},
    ),
    "Swish": ScalarFunction(
        lambda x, a: x * _sigmoid(a["alpha"] * x), _ALPHA, since=0, flops=11
    ),
    "HardSigmoid": ScalarFunction(
        lambda x, a: np.clip(a["alpha"] * x + a["beta"], 0.0, 1.0),
        {"alpha": "float", "beta": "float"}, {"alpha": 0.2, "beta": 0.5},
        exact=lambda x, a: _between(a["alpha"] * x + a["beta"], 0, 1),
    ),
    "Elu": ScalarFunction(
        lambda x, a: np.where(x < 0, a["alpha"] * np.expm1(np.minimum(x, 0)), x),
        _ALPHA, {"alpha": 1.0},
    ),
    "Celu": ScalarFunction(lambda x, a: _celu(x, a["alpha"]), _ALPHA, {"alpha": 1.0}, since=12),
    "Selu": ScalarFunction(
        lambda x, a: _selu(x, a["alpha"], a["gamma"]),
        {"alpha": "float", "gamma": "float"},
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "LeakyRelu": ScalarFunction(
        lambda x, a: np.where(x < 0, a["alpha"] * x, x), _ALPHA, {"alpha": 0.01},
        exact=lambda x, a: x if x >= 0 else a["alpha"] * x,
    ),
    "ThresholdedRelu": ScalarFunction(
        lambda x, a: np.where(x > a["alpha"], x, 0),
        _ALPHA, {"alpha": 1.0}, since=10, traits=_EXACT,
        exact=lambda x, a: x if x > a["alpha"] else 0,
    ),
    "Clip": ScalarFunction(
        lambda x, a: _clip(x, a["min"], a["max"]),
        {"min": "float", "max": "float"}, since=0,
        traits=_EXACT | traits("order"), on_integers=True,
        exact=lambda x, a: _between(x, a["min"], a["max"]),
    ),
}  # fmt: skip
"""Functions by operator name; every law of an arbitrary function holds for each."""
