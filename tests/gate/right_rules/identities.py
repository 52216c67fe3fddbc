"""Identities of school: angles, roots, powers, logarithms, orders, choices and gates."""

from collections.abc import Callable, Mapping

from eqsat_opt.rules import Numerics, Rule, Term, declared, is_float, ops

_B, _R, _N = Numerics.BITEXACT, Numerics.REASSOCIATE, Numerics.FINITE
_F, _X = Numerics.REFACTOR, Numerics.RELAXED
_sin, _cos, _exp, _abs, _neg = ops.Sin, ops.Cos, ops.Exp, ops.Abs, ops.Neg
_max, _min, _where, _square = ops.Max, ops.Min, ops.Where, ops.Square


def _times(x: Term, factor: float) -> Term:
    return ops.Scale(x, factor=factor)


def _plus(x: Term, offset: float) -> Term:
    return ops.Shift(x, offset=offset)


def _rest(x: Term) -> Term:
    return _plus(_neg(x), 1.0)


_OF_ONE: Mapping[str, tuple[Numerics, Callable[[Term], tuple[Term, Term]]]] = {
    "pythagoras": (_X, lambda x: (_square(_sin(x)) + _square(_cos(x)), _plus(_times(x, 0.0), 1.0))),
    "half-angle": (_X, lambda x: (_times(_square(_sin(x)), 2.0), _rest(_cos(_times(x, 2.0))))),
    "half-cosine": (_X, lambda x: (
        _times(_square(_cos(x)), 2.0), _plus(_cos(_times(x, 2.0)), 1.0))),
    "triple-sine": (_X, lambda x: (
        _sin(_times(x, 3.0)), _times(_sin(x), 3.0) - _times(_sin(x) * _square(_sin(x)), 4.0))),
    "triple-cosine": (_X, lambda x: (
        _cos(_times(x, 3.0)), _times(_cos(x) * _square(_cos(x)), 4.0) - _times(_cos(x), 3.0))),
    "fourfold-sine": (_X, lambda x: (
        _sin(_times(x, 4.0)),
        _times(_sin(x) * _cos(x) * (_square(_cos(x)) - _square(_sin(x))), 4.0))),
    "odd-sine": (_R, lambda x: (_sin(_neg(x)), _neg(_sin(x)))),
    "even-cosine": (_R, lambda x: (_cos(_neg(x)), _cos(x))),
    "odd-tanh": (_R, lambda x: (ops.Tanh(_neg(x)), _neg(ops.Tanh(x)))),
    "exponential-of-double": (_X, lambda x: (_exp(_times(x, 2.0)), _square(_exp(x)))),
    "exponential-of-opposite": (_X, lambda x: (_exp(_neg(x)), ops.Reciprocal(_exp(x)))),
    "tanh-by-sigmoid": (_X, lambda x: (
        ops.Tanh(x), _plus(_times(ops.Sigmoid(_times(x, 2.0)), 2.0), -1.0))),
    "sigmoid-squared": (_F, lambda x: (
        ops.Sigmoid(x) - _square(ops.Sigmoid(x)), ops.Sigmoid(x) * _rest(ops.Sigmoid(x)))),
    "root-of-magnitude-squared": (_X, lambda x: (_square(ops.Sqrt(_abs(x))), _abs(x))),
    "magnitude-of-opposite": (_B, lambda x: (_abs(_neg(x)), _abs(x))),
    "magnitude-of-square": (_B, lambda x: (_abs(_square(x)), _square(x))),
    "magnitude-squared": (_B, lambda x: (_square(_abs(x)), _square(x))),
    "parts-of-magnitude": (_B, lambda x: (_abs(x), ops.Relu(x) + ops.Relu(_neg(x)))),
    "parts-of-number": (_B, lambda x: (ops.Relu(x) - ops.Relu(_neg(x)), _plus(x, 0.0))),
    "greatest-of-opposites": (_B, lambda x: (_max(x, _neg(x)), _abs(x))),
    "rectified-twice": (_B, lambda x: (ops.Relu(ops.Relu(x)), ops.Relu(x))),
    "rectified-opposites": (_X, lambda x: (ops.Relu(x) * ops.Relu(_neg(x)), _times(x, 0.0))),
    "floor-by-ceiling": (_B, lambda x: (_neg(ops.Ceil(_neg(x))), ops.Floor(x))),
    "floor-of-floor": (_B, lambda x: (ops.Floor(ops.Floor(x)), ops.Floor(x))),
    "ceiling-of-floor": (_B, lambda x: (ops.Ceil(ops.Floor(x)), ops.Floor(x))),
    "cube-by-square": (_R, lambda x: ((x * x) * x, x * _square(x))),
    "fourth-power": (_R, lambda x: (_square(_square(x)), (x * x) * (x * x))),
    "binomial-of-one": (_F, lambda x: (
        _square(_plus(x, 1.0)), _plus(_square(x) + _times(x, 2.0), 1.0))),
    "conjugate-of-one": (_F, lambda x: (
        _plus(x, 1.0) * _plus(x, -1.0), _plus(_square(x), -1.0))),
    "sign-of-opposite": (_B, lambda x: (ops.Sign(_neg(x)), _neg(ops.Sign(x)))),
}  # fmt: skip
_OF_TWO: Mapping[str, tuple[Numerics, Callable[[Term, Term], tuple[Term, Term]]]] = {
    "sine-of-difference": (_X, lambda x, y: (
        _sin(x - y), _sin(x) * _cos(y) - _cos(x) * _sin(y))),
    "cosine-of-difference": (_X, lambda x, y: (
        _cos(x - y), _cos(x) * _cos(y) + _sin(x) * _sin(y))),
    "product-of-sines": (_X, lambda x, y: (
        _times(_sin(x) * _sin(y), 2.0), _cos(x - y) - _cos(x + y))),
    "product-of-cosines": (_X, lambda x, y: (
        _times(_cos(x) * _cos(y), 2.0), _cos(x - y) + _cos(x + y))),
    "mixed-product": (_X, lambda x, y: (
        _times(_sin(x) * _cos(y), 2.0), _sin(x + y) + _sin(x - y))),
    "squares-of-sines": (_X, lambda x, y: (
        _square(_sin(x)) - _square(_sin(y)), _sin(x + y) * _sin(x - y))),
    "rotated-norm": (_X, lambda x, y: (
        _square(x * _cos(y)) + _square(x * _sin(y)), _square(x) + _times(y, 0.0))),
    "binomial": (_F, lambda x, y: (
        _square(x + y), _square(x) + _times(x * y, 2.0) + _square(y))),
    "binomial-of-difference": (_F, lambda x, y: (
        _square(x - y), _square(x) - _times(x * y, 2.0) + _square(y))),
    "third-binomial": (_F, lambda x, y: ((x + y) * (x - y), _square(x) - _square(y))),
    "polarised": (_X, lambda x, y: (
        _times(x * y, 4.0), _square(x + y) - _square(x - y))),
    "parallelogram": (_F, lambda x, y: (
        _square(x + y) + _square(x - y), _times(_square(x) + _square(y), 2.0))),
    "square-of-product": (_X, lambda x, y: (_square(x * y), _square(x) * _square(y))),
    "magnitude-of-product": (_B, lambda x, y: (_abs(x * y), _abs(x) * _abs(y))),
    "magnitude-of-difference": (_B, lambda x, y: (_abs(x - y), _abs(y - x))),
    "signs-of-product": (_B, lambda x, y: (_neg(x) * _neg(y), x * y)),
    "difference-by-opposite": (_B, lambda x, y: (x - _neg(y), x + y)),
    "apart-by-extremes": (_B, lambda x, y: (_max(x, y) - _min(x, y), _abs(x - y))),
    "least-reflected": (_B, lambda x, y: (_neg(_min(_neg(x), _neg(y))), _max(x, y))),
    "absorbed-least": (_N, lambda x, y: (_max(x, _min(x, y)), x + _times(y, 0.0))),
    "greatest-by-part": (_X, lambda x, y: (_max(x, y), x + ops.Relu(y - x))),
    "least-by-part": (_X, lambda x, y: (_min(x, y), x - ops.Relu(x - y))),
    "greatest-by-magnitude": (_X, lambda x, y: (
        _times(_max(x, y), 2.0), x + y + _abs(x - y))),
    "positive-greatest": (_B, lambda x, y: (
        ops.Relu(_max(x, y)), _max(ops.Relu(x), ops.Relu(y)))),
    "positive-least": (_B, lambda x, y: (
        ops.Relu(_min(x, y)), _min(ops.Relu(x), ops.Relu(y)))),
    "exponential-of-product": (_X, lambda x, y: (_exp(x) * _exp(y), _exp(y + x))),
    "exponentials-of-greatest": (_R, lambda x, y: (_exp(_max(x, y)), _max(_exp(x), _exp(y)))),
    "quotient-of-quotient": (_X, lambda x, y: (x / (x / y), y + _times(x, 0.0))),
    "mean-from-one": (_F, lambda x, y: (
        _times(x + y, 0.5), x + _times(y - x, 0.5))),
    "gate-of-sigmoid": (_F, lambda x, y: (
        ops.Sigmoid(x) * y + ops.Sigmoid(_neg(x)) * y, y + _times(x, 0.0))),
    "ordered-greatest": (_X, lambda x, y: (_where(ops.Less(x, y), y, x), _max(y, x))),
    "ordered-least": (_X, lambda x, y: (_where(ops.Less(y, x), y, x), _min(y, x))),
    "below-by-difference": (_X, lambda x, y: (
        _where(ops.Less(x, y), y - x, _times(x - y, 0.0)), ops.Relu(y - x))),
    "choice-of-same": (_N, lambda x, y: (_where(ops.Less(x, y), x, x), x + _times(y, 0.0))),
}  # fmt: skip


def _of_one(name: str, numerics: Numerics, sides: Callable[[Term], tuple[Term, Term]]) -> Rule:
    return declared(
        f"identities/{name}",
        f"An identity: {name.replace('-', ' ')}.",
        {"x": "Tensor"},
        lambda v: (*sides(v["x"]), is_float(v["x"])),
        numerics=numerics,
    )


def _of_two(
    name: str, numerics: Numerics, sides: Callable[[Term, Term], tuple[Term, Term]]
) -> Rule:
    return declared(
        f"identities/{name}",
        f"An identity: {name.replace('-', ' ')}.",
        {"x": "Tensor", "y": "Tensor"},
        lambda v: (*sides(v["x"], v["y"]), is_float(v["x"]), v["x"].shape == v["y"].shape),
        numerics=numerics,
    )


ONES = [_of_one(name, *told) for name, told in _OF_ONE.items()]
TWOS = [_of_two(name, *told) for name, told in _OF_TWO.items()]
