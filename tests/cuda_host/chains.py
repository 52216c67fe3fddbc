"""Bodies of several operators, which become one kernel each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType

__all__ = ["CHAINS", "chain", "evaluated"]

Array = NDArray[Any]
_Step = tuple[str, tuple[int, ...], Mapping[str, Any]]

_CONV: Mapping[str, Any] = {
    "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1,
}  # fmt: skip

CHAINS: Mapping[str, tuple[Sequence[tuple[int, ...]], Sequence[_Step], tuple[int, ...]]] = {
    "convolution, residual, relu": (
        [(1, 3, 6, 5), (4, 3, 3, 3), (4,), (1, 4, 6, 5)],
        [("Conv", (0, 1, 2), _CONV), ("Add", (4, 3), {}), ("Relu", (5,), {})],
        (6,),
    ),
    "product, bias, tanh": (
        [(5, 12), (12, 7), (7,)],
        [("MatMul", (0, 1), {}), ("Add", (3, 2), {}), ("Tanh", (4,), {})],
        (5,),
    ),
    "scaled and masked softmax": (
        [(2, 4, 40), (4, 40)],
        [("Scale", (0,), {"factor": 0.3}), ("Add", (2, 1), {}), ("Softmax", (3,), {"axis": 2})],
        (4,),
    ),
    "normalised sum, and the sum": (
        [(6, 70), (6, 70), (70,), (70,)],
        [
            ("Add", (0, 1), {}),
            ("LayerNormalization", (4, 2, 3), {"axis": 1, "epsilon": 1e-5}),
        ],
        (5, 4),
    ),
    "transposed softmax of a slice": (
        [(40, 9)],
        [
            ("Slice", (0,), {"axis": 1, "lo": 1, "hi": 8}),
            ("Transpose", (1,), {"perm": (1, 0)}),
            ("Softmax", (2,), {"axis": 1}),
            ("Transpose", (3,), {"perm": (1, 0)}),
        ],
        (4,),
    ),
    "a reduction and what reads it": (
        [(3, 50)],
        [
            ("ReduceMean", (0,), {"axes": (1,), "keepdims": 1}),
            ("Sub", (0, 1), {}),
            ("Sigmoid", (2,), {}),
        ],
        (3, 1),
    ),
    "pooled concatenation": (
        [(1, 2, 6, 6), (1, 3, 6, 6)],
        [
            ("Concat", (0, 1), {"axis": 1}),
            ("Pad", (2,), {"pads": (0, 0, 1, 0, 0, 0, 0, 1), "value": -3.0}),
            ("MaxPool", (3,), {**{k: v for k, v in _CONV.items() if k != "group"},
                               "kernel": (3, 3), "ceil": 0}),
        ],
        (4,),
    ),
    "transposition and sum": (
        [(36, 40), (40, 36)],
        [("Transpose", (0,), {"perm": (1, 0)}), ("Add", (2, 1), {})],
        (3,),
    ),
    "two reductions": (
        [(5, 7), (5, 7)],
        [
            ("ReduceMax", (0,), {"axes": (0,), "keepdims": 0}),
            ("ReduceProd", (1,), {"axes": (1,), "keepdims": 1}),
            ("Mul", (2, 3), {}),
        ],
        (4,),
    ),
}  # fmt: skip
"""Shapes of operands, steps (operands first, earlier steps after them), results."""


def chain(name: str) -> Kernel:
    """The body."""
    shapes, steps, outputs = CHAINS[name]
    operands = tuple(Operand(TensorType("float32", shape), False) for shape in shapes)
    return Kernel(operands, tuple(Step(op, attributes(**a), o) for op, o, a in steps), outputs)


def evaluated(body: Kernel, operands: Sequence[Array]) -> Iterator[Array]:
    """Its results in double precision, as the registry evaluates them."""
    values = [x.astype(np.float64) for x in operands]
    for step in body.steps:
        inputs = [values[i] for i in step.operands]
        values.append(np.asarray(get_op(step.op).eval_fn(FLOAT, inputs, dict(step.attrs))))
    return (values[i] for i in body.outputs)
