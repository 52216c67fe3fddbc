"""Operators of the normal form that recognition reaches: what ONNX spells in many ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.dims import Dim
from eqsat_opt.ir.ops import index_movement, index_reduction
from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    EvalFn,
    FlopsFn,
    Op,
    Trait,
    elements,
    register,
    require,
    traits,
)
from eqsat_opt.ir.ops.normalisation import inverse_deviation, mean
from eqsat_opt.ir.ops.scalars import Call, IndexFn, Inverse, Plus, Times, elementwise
from eqsat_opt.ir.types import FLOATS, TensorType, has_element, numpy_dtype

__all__: list[str] = []


def _same(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a number that is no float: {}", inputs[0])
    return inputs[0]


def _along(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    axes = attrs["axes"]
    require(bool(axes) and all(0 <= a < inputs[0].rank for a in axes), "axes {}", axes)
    require(len(set(axes)) == len(axes), "an axis is reduced once, not as in {}", axes)
    return _same(inputs, attrs)


def _flops(per_element: int) -> FlopsFn:
    def flops(_inputs: Sequence[TensorType], output: TensorType, _attrs: AttrMap) -> Dim:
        return elements(output) * per_element

    return flops


def _scale(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.mul(x, domain.constant(attrs["factor"], x))


def _shift(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.add(x, domain.constant(attrs["offset"], x))


def _square(domain: Domain, operands: Sequence[Array], _attrs: AttrMap) -> Array:
    return domain.mul(operands[0], operands[0])


def _rsqrt(domain: Domain, operands: Sequence[Array], _attrs: AttrMap) -> Array:
    root = domain.apply("Sqrt", {}, operands[0])
    return domain.div(np.broadcast_to(domain.constant(1, root), root.shape), root)


def _center(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    return domain.sub(operands[0], mean(domain, operands[0], attrs["axes"]))


def _rms(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.mul(x, inverse_deviation(domain, x, attrs["axes"], attrs["epsilon"]))


_POINTWISE: dict[str, tuple[str | None, EvalFn]] = {
    "Scale": ("factor", _scale),
    "Shift": ("offset", _shift),
    "Square": (None, _square),
    "Rsqrt": (None, _rsqrt),
}
_POINTWISE_INDEX: dict[str, IndexFn] = {
    "Scale": elementwise(lambda x, a: Times((x[0], a["factor"]))),
    "Shift": elementwise(lambda x, a: Plus((x[0], a["offset"]))),
    "Square": elementwise(lambda x, _a: Times((x[0], x[0]))),
    "Rsqrt": elementwise(lambda x, _a: Inverse(Call("Sqrt", (), (x[0],)))),
}
_DOCS = {
    "Scale": "`x` times the constant `factor`",
    "Shift": "`x` plus the constant `offset`",
    "Square": "`x` times `x`",
    "Rsqrt": "1/√`x`",
}
_TRAITS: dict[str, frozenset[Trait]] = {
    "Rsqrt": traits("pole"), "Square": traits("ring"),
}  # fmt: skip
for _name, (_attr, _evaluate) in _POINTWISE.items():
    register(
        Op(
            _name,
            (1, 1),
            {_attr: "float"} if _attr else {},
            "pointwise",
            type_fn=_same,
            eval_fn=_evaluate,
            flops=_flops(1),
            index_fn=_POINTWISE_INDEX[_name],
            traits=_TRAITS.get(_name, frozenset()),
            doc=_DOCS[_name],
        )
    )
register(
    Op(
        "Center",
        (1, 1),
        {"axes": "ints"},
        "reduction",
        type_fn=_along,
        eval_fn=_center,
        flops=_flops(2),
        index_fn=index_reduction.center,
        traits=traits("along", "floats"),
        doc="`x` less its mean over `axes`",
    )
)
register(
    Op(
        "RmsN",
        (1, 1),
        {"axes": "ints", "epsilon": "float"},
        "reduction",
        type_fn=_along,
        eval_fn=_rms,
        flops=_flops(4),
        index_fn=index_reduction.root_mean_square,
        traits=traits("along", "floats"),
        doc="`x` divided by √(mean of `x²` over `axes` + `epsilon`)",
    )
)


def _fill_type(_inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    dtype, value = attrs["dtype"], attrs["value"]
    require(has_element(dtype, value), "{} as {}", value, dtype)
    return TensorType(dtype, tuple(attrs["shape"]))


def _fill(domain: Domain, _operands: Sequence[Array], attrs: AttrMap) -> Array:
    dtype = numpy_dtype(attrs["dtype"]) if domain.name == "float" else np.dtype(np.int64)
    value = domain.constant(attrs["value"], np.zeros((), dtype))
    return np.broadcast_to(value, attrs["shape"]).copy()


register(
    Op(
        "Fill",
        (0, 0),
        {"shape": "ints", "value": "float", "dtype": "str"},
        "movement",
        type_fn=_fill_type,
        eval_fn=_fill,
        flops=lambda _i, _o, _a: 0,
        index_fn=index_movement.fill,
        doc="a tensor of this shape with the same value everywhere",
    )
)


def _repeat_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), axis, repeats = inputs, attrs["axis"], attrs["repeats"]
    require(0 <= axis < x.rank and repeats > 0, "{} times along axis {} of {}", repeats, axis, x)
    return TensorType(x.dtype, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


def _repeat(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    return np.repeat(operands[0], attrs["repeats"], axis=attrs["axis"])


register(
    Op(
        "Repeat",
        (1, 1),
        {"axis": "int", "repeats": "int"},
        "movement",
        type_fn=_repeat_type,
        eval_fn=_repeat,
        flops=lambda _i, _o, _a: 0,
        index_fn=index_movement.repeat,
        traits=traits("along"),
        doc="every slice along `axis`, `repeats` times in a row: (a, b) becomes (a, a, b, b)",
    )
)
