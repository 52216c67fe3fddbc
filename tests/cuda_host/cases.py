"""Nodes of all operators of the registry: each with the shapes and attributes of several uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsat_opt.ir.ops import OPS, IllTyped, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType, numpy_dtype, require_static
from eqsat_opt.runtime.backends.generated.by_hand import BY_HAND

__all__ = [
    "DTYPES",
    "FORMS",
    "LAYOUTS",
    "LOOPED",
    "Case",
    "cases",
    "formed",
    "operands_of",
    "with_dtype",
]

Array = NDArray[Any]
Shape = tuple[int, ...]

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool",
)  # fmt: skip


LOOPED = tuple(name for name, op in sorted(OPS.items()) if op.index_fn or name in BY_HAND)
"""The operators that kernels are made of: those whose elements are told one by one."""


@dataclass(frozen=True)
class Case:
    """A node: its operator, the types of its operands, its attributes."""

    op: str
    types: tuple[TensorType, ...]
    attrs: Mapping[str, Any]

    @property
    def result(self) -> TensorType:
        result = get_op(self.op).type_fn(self.types, self.attrs)
        assert isinstance(result, TensorType)
        return result

    def __str__(self) -> str:
        return f"{self.op} {' '.join(map(str, self.types))} {dict(self.attrs)}"


_ONES = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
_PADDED = {"strides": (2, 1), "pads": (1, 2, 1, 2), "dilations": (1, 2)}
_POOL = {"kernel": (3, 2), **_PADDED}
_FLOATS: Mapping[str, float] = {
    "alpha": 0.3, "beta": 0.6, "gamma": 1.1, "min": -1.0, "max": 1.5, "factor": 0.7, "offset": 0.4,
    "epsilon": 1e-5, "bias": 1.0, "scale": 0.5, "value": 2.0,
}  # fmt: skip
"""Attributes by name, where a case says nothing."""

_USES: Mapping[str, Sequence[tuple[Sequence[Shape], Mapping[str, Any]]]] = {
    "Attention": [([(1, 4, 3, 5), (1, 2, 6, 5), (1, 2, 6, 7)], {})],
    "MaskedAttention": [([(1, 2, 3, 4), (1, 2, 6, 4), (1, 2, 6, 3), (3, 6)], {})],
    **{
        name: [
            ([(3, 40)], {"axis": 1, "keepdims": 0, "select_last_index": 0}),
            ([(2, 3, 4)], {"axis": 1, "keepdims": 1, "select_last_index": 1}),
        ]
        for name in ("ArgMax", "ArgMin")
    },
    "AveragePool": [
        ([(1, 2, 7, 6)], {**_POOL, "pads": (1, 1, 1, 1), "ceil": ceil, "count_include_pad": padded})
        for ceil in (0, 1)
        for padded in (0, 1)
    ],
    "MaxPool": [
        ([(2, 2, 7, 6)], {**_POOL, "pads": (1, 1, 1, 1), "ceil": 1}),
        ([(1, 1, 40, 9)], {"kernel": (40, 1), **_ONES, "ceil": 0}),
    ],
    "BatchNormalization": [([(2, 3, 4, 2), (3,), (3,), (3,), (3,)], {})],
    "Concat": [
        ([(2, 3, 1), (2, 1, 1), (2, 5, 1)], {"axis": 1}),
        ([(18, 20), (18, 20)], {"axis": 0}),
    ],
    "Continued": [
        ([(3, 4, 5)], {"pads": (0, 1, 2, 0, 2, 1), "mode": mode, "value": 0.0})
        for mode in ("constant", "reflect", "edge", "wrap")
    ],
    "Conv": [
        ([(2, 4, 7, 6), (6, 2, 3, 2), (6,)], {**_PADDED, "group": 2}),
        ([(1, 3, 5, 5), (4, 3, 1, 1)], {**_ONES, "group": 1}),
        (
            [(1, 4, 9), (4, 1, 3), (4,)],
            {
                "strides": (1,),
                "pads": (1, 1),
                "dilations": (1,),
                "group": 4,
            },
        ),
    ],
    "ConvTranspose": [
        (
            [(1, 4, 4, 3), (4, 3, 3, 2), (6,)],
            {
                **_PADDED,
                "pads": (1, 0, 1, 0),
                "group": 2,
                "output_padding": (1, 0),
            },
        ),
    ],
    "Expand": [([(3, 1)], {"shape": (2, 3, 5)})],
    "Fill": [([], {"shape": (3, 2), "value": 1.0, "dtype": "float32"})],
    "Scalar": [([], {"value": 1.5, "dtype": "float32"})],
    "IdentityKernel": [
        ([], {"channels": 3, "height": 3, "width": 1, "dtype": "float32"}),
    ],
    "CumSum": [
        ([(3, 9, 2)], {"axis": 1, "exclusive": exclusive, "reverse": reverse})
        for exclusive, reverse in ((0, 0), (0, 1), (1, 0), (1, 1))
    ],
    "Gather": [([(3, 7, 4), (2, 5)], {"axis": 1}), ([(6,), ()], {"axis": 0})],
    "GatherElements": [([(3, 7, 4), (3, 5, 4)], {"axis": 1})],
    "GatherND": [
        ([(3, 7, 4), (2, 2)], {"batch_dims": 0}),
        ([(3, 7, 4), (3, 5, 1)], {"batch_dims": 1}),
    ],
    "GlobalAveragePool": [([(2, 3, 7, 9)], {}), ([(1, 5, 2)], {}), ([(1, 40, 6, 7)], {})],
    "GlobalMaxPool": [([(2, 3, 7, 9)], {})],
    "InstanceNormalization": [([(2, 3, 9, 5), (3,), (3,)], {}), ([(1, 2, 3), (2,), (2,)], {})],
    "LRN": [([(1, 7, 3, 2)], {"size": 4}), ([(2, 3)], {"size": 5})],
    "LayerNormalization": [
        ([(3, 300), (300,), (300,)], {"axis": 1}),
        ([(2, 3, 5), (3, 5)], {"axis": 1}),
    ],
    "RMSNormalization": [([(3, 70), (70,)], {"axis": 1}), ([(4, 5), (1,)], {"axis": 1})],
    "MatMul": [
        ([(2, 1, 5, 7), (3, 7, 4)], {}),
        ([(7,), (7, 3)], {}),
        ([(2, 40), (40,)], {}),
    ],
    "GRU": [
        (
            [(4, 2, 3), (1, 15, 3), (1, 15, 5)],
            {"given": (0, 1, 2), "direction": "forward", "output": 0, "linear_before_reset": 1},
        ),
    ],
    "LSTM": [
        (
            [(4, 2, 3), (2, 20, 3), (2, 20, 5), (2, 40)],
            {"given": (0, 1, 2, 3), "direction": "bidirectional", "output": output},
        )
        for output in range(3)
    ],
    "Pad": [([(3, 4)], {"pads": (1, 0, 2, -1), "value": 1.5})],
    "RNN": [
        (
            [(4, 2, 3), (1, 5, 3), (1, 5, 5)],
            {"given": (0, 1, 2), "direction": "reverse", "output": 1, "activation": "Tanh"},
        ),
    ],
    "Range": [([(), (), ()], {"shape": (7,)})],
    "Repeat": [([(2, 3, 2)], {"axis": 1, "repeats": 3})],
    "Resize": [
        ([(1, 2, 3, 5)], {"mode": mode, "coordinates": coordinates, "rounding": "floor", **wanted})
        for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"))
        for wanted in (
            {"sizes": (1, 2, 7, 4), "up": (), "down": ()},
            {"sizes": (), "up": (1, 1, 2, 3), "down": (1, 1, 1, 2)},
        )
    ],
    "Reshape": [([(4, 6, 5)], {"shape": (8, 15)}), ([(6,)], {"shape": (1, 2, 3)})],
    "ReverseSequence": [([(5, 3, 2), (3,)], {"batch_axis": 1, "time_axis": 0})],
    "ScatterElements": [
        ([(3, 7, 4), (3, 5, 4), (3, 5, 4)], {"axis": 1, "reduction": reduction})
        for reduction in ("none", "add")
    ],
    "ScatterND": [
        ([(3, 7, 4), (2, 1), (2, 7, 4)], {"reduction": reduction}) for reduction in ("none", "max")
    ],
    "Slice": [([(4, 9)], {"axis": 1, "lo": 2, "hi": 7})],
    "StridedSlice": [
        ([(4, 9)], {"axis": 1, "cut": (1, 8, 3)}),
        ([(4, 9)], {"axis": 0, "cut": (-1, -9, -1)}),
    ],
    "Transpose": [
        ([(2, 40, 35)], {"perm": (0, 2, 1)}),
        ([(2, 3, 4, 5)], {"perm": (3, 1, 0, 2)}),
        ([(33, 3, 40)], {"perm": (2, 1, 0)}),
    ],
    "TopK": [
        ([(3, 9, 2)], {"axis": 1, "k": 4, "largest": largest, "output": output})
        for largest, output in ((1, 0), (1, 1), (0, 0), (0, 1))
    ],
    "Softmax": [([(3, 300)], {"axis": 1}), ([(2, 5, 3)], {"axis": 1}), ([(4, 40)], {"axis": 1})],
    "LogSoftmax": [([(3, 70)], {"axis": 1}), ([(2, 5, 3)], {"axis": 0})],
    "Center": [([(3, 40, 2)], {"axes": (1,)}), ([(2, 3, 4)], {"axes": (0, 2)})],
    "RmsN": [([(3, 300)], {"axes": (1,)}), ([(2, 3, 4)], {"axes": (0, 2)})],
    "Clamp": [([(3, 7), (), ()], {}), ([(2, 3, 4), (1,), ()], {})],
    "Where": [([(3, 1, 4), (2, 4), (1,)], {})],
    "PRelu": [([(2, 3, 4), (3, 1)], {})],
    "Cast": [([(3, 5)], {"to": to}) for to in ("float16", "int32", "bool", "float64")],
    **{
        name: [
            ([(3, 300)], {"axes": (1,), "keepdims": 0}),
            ([(2, 3, 4)], {"axes": (0, 2), "keepdims": 1}),
            ([(5, 8, 3)], {"axes": (0, 1, 2), "keepdims": 0}),
            ([(45, 35)], {"axes": (0,), "keepdims": 0}),
        ]
        for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceProd")
    },
}


def cases(op: str) -> Iterator[Case]:
    """Some nodes of an operator, of float32 where it takes it."""
    definition = get_op(op)
    uses = _USES.get(op)
    if uses is None:
        arity = definition.arity[0]
        shapes: list[list[Shape]] = [[(3, 7)] * arity]
        if arity == 2:
            shapes += [[(2, 1, 5), (4, 1)], [(), (3,)], [(20, 32), (1, 32)]]
        uses = [(one, {}) for one in shapes]
    for operands, given in uses:
        types = tuple(
            TensorType(definition.element_types.get(i) or "float32", shape)
            for i, shape in enumerate(operands)
        )
        attrs = {
            name: given.get(name, "none" if kind == "str" else _FLOATS.get(name))
            for name, kind in definition.attrs.items()
        }
        yield Case(op, types, attrs)
        if op == "Gelu":
            yield Case(op, types, {"approximate": "tanh"})


def with_dtype(case: Case, dtype: str) -> Case | None:
    """The same on operands of another element type, if the operator takes it and NumPy has it."""
    fixed = OPS[case.op].element_types
    types = tuple(
        t if fixed.get(i) else TensorType(dtype, t.shape) for i, t in enumerate(case.types)
    )
    attrs = {**case.attrs, **({"dtype": dtype} if "dtype" in case.attrs else {})}
    changed = replace(case, types=types, attrs=attrs)
    try:
        assert changed.result
        with np.errstate(all="ignore"):
            found = get_op(case.op).eval_fn(FLOAT, operands_of(changed), attrs)
    except (IllTyped, TypeError, OverflowError):
        return None
    # NumPy divides truths as if they were fractions.
    kept = found.dtype == numpy_dtype(changed.result.dtype)
    return changed if kept or dtype != "bool" else None


def operands_of(case: Case, seed: int = 0) -> list[Array]:
    """Random operands: positive where an operator wants that, small where products may be large."""
    rng = np.random.default_rng(seed)
    arrays = []
    for i, type_ in enumerate(map(require_static, case.types)):
        shape, dtype = type_.shape, type_.dtype
        if case.op == "Gather" and i == 1:
            extent = require_static(case.types[0]).shape[case.attrs["axis"]]
            arrays.append(rng.integers(-extent, extent, shape))
        elif dtype == "bool":
            arrays.append(rng.integers(0, 2, shape).astype(np.bool_))
        elif dtype.startswith(("int", "uint")):
            low = 0 if dtype.startswith("uint") or (case.op == "Pow" and i == 1) else -9
            arrays.append(rng.integers(low, 10, shape).astype(dtype))
        else:
            drawn = rng.standard_normal(shape)
            positive = case.op in ("Log", "Sqrt", "Rsqrt", "Pow", "Reciprocal")
            positive |= case.op == "BatchNormalization" and i == 4
            positive |= case.op == "Div" and i == 1
            drawn = np.abs(drawn) + 0.3 if positive else drawn
            drawn = 1 + drawn / 20 if case.op == "ReduceProd" else drawn
            arrays.append(np.asarray(drawn).astype(numpy_dtype(dtype)))
    return arrays


def _gaps(x: Array) -> Array:
    wide = np.repeat(np.repeat(x, 2, 0), 3, -1)
    return wide[::2][..., ::3]


def _reordered(x: Array) -> Array:
    axes = (*range(1, x.ndim), 0) if x.ndim != 4 else (0, 2, 3, 1)
    return np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))


def _backwards(x: Array) -> Array:
    flip = tuple(slice(None, None, -1) for _ in range(x.ndim))
    return np.ascontiguousarray(x[flip])[flip]


FORMS = ("dense", "gaps", "reordered", "backwards")
LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "dense": np.ascontiguousarray,
    "gaps": _gaps,
    "reordered": _reordered,
    "backwards": _backwards,
}


def formed(x: Array, form: str) -> Array:
    """The same elements in other places: with gaps, in another order of axes, backwards."""
    result = LAYOUTS[form](x) if x.ndim else x
    assert result.shape == x.shape
    return np.asarray(result)
