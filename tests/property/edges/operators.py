"""What a random model at the edges is made of: operators in all their spellings, and motifs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.property.edges.draft import (
    FLOATS,
    INTEGERS,
    Array,
    Draft,
    Impossible,
    Value,
    array_of,
    code_of,
)

__all__ = ["OPERATORS"]

_UNARY = [
    "Relu",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Exp",
    "Log",
    "Sqrt",
    "Neg",
    "Abs",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Sin",
    "Cos",
    "Softsign",
    "Softplus",
    "HardSwish",
    "Mish",
    "Gelu",
    "HardSigmoid",
    "Elu",
    "Celu",
    "LeakyRelu",
    "Selu",
    "ThresholdedRelu",
    "Identity",
    "Dropout",
    "IsNaN",
    "IsInf",
    "Not",
]
_BINARY = [
    "Add",
    "Add",
    "Sub",
    "Sub",
    "Mul",
    "Mul",
    "Div",
    "Pow",
    "Min",
    "Max",
    "PRelu",
    "Equal",
    "Greater",
    "Less",
    "GreaterOrEqual",
    "LessOrEqual",
    "And",
    "Or",
    "Xor",
    "Mod",
]
_REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceMean",
    "ReduceMax",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


def unary(d: Draft) -> Value:
    return d.op(d.random.choice(_UNARY), d.pick())


def binary(d: Draft) -> Value:
    op = d.random.choice(_BINARY)
    truths = op in ("And", "Or", "Xor")
    x = d.pick(lambda v: (v.dtype == np.bool_) == truths)
    y = d.partner(x)
    attributes = {"fmod": 1} if op == "Mod" and x.dtype in FLOATS else {}
    pair = (x, y) if op == "PRelu" or d.random.random() < 0.7 else (y, x)
    return d.op(op, *pair, **attributes)


def variadic(d: Draft) -> Value:
    x = d.pick(lambda v: v.dtype != np.bool_)
    others = [d.partner(x) for _ in range(d.random.randint(0, 2))]
    return d.op(d.random.choice(("Min", "Max", "Sum", "Mean")), x, *others)


def where(d: Draft) -> Value:
    x = d.pick(lambda v: v.dtype != np.bool_)
    y = d.partner(x)
    shape = np.broadcast_shapes(x.shape, y.shape)
    if d.random.random() < 0.5:
        return d.op("Where", d.constant(array_of(d.random, np.dtype(bool), shape)), x, y)
    return d.op("Where", d.op(d.random.choice(("Greater", "Equal")), x, y), x, y)


def clip(d: Draft) -> Value:
    x = d.pick(lambda v: v.dtype != np.bool_)
    low = d.random.choice((None, 0.0, -1.0, -np.inf)) if x.dtype in FLOATS else 0
    high = d.random.choice((None, 6.0, 1.0, np.inf)) if x.dtype in FLOATS else 5
    if d.opset < 11:
        bounds = {n: v for n, v in (("min", low), ("max", high)) if v is not None}
        return d.op("Clip", x, **bounds)
    operands = [None if v is None else d.scalar(x, v) for v in (low, high)]
    while operands and operands[-1] is None:
        operands.pop()
    return d.op("Clip", x, *operands)


def cast(d: Draft) -> Value:
    types: list[np.dtype[Any]] = [*FLOATS, *FLOATS, *INTEGERS, np.dtype(bool)]
    to = d.random.choice(types)
    return d.op("Cast", d.pick(), to=code_of(to))


def reduction(d: Draft) -> Value:
    op = d.random.choice(_REDUCTIONS)
    x = d.pick(lambda v: v.dtype != np.bool_ and len(v.shape) > 0)
    rank = len(x.shape)
    axes: list[int] | None = d.random.sample(range(rank), d.random.randint(1, rank))
    if d.random.random() < 0.3:
        axes = [a - rank for a in axes or ()] if d.opset >= 11 else axes
    if rank >= 3 and d.random.random() < 0.4:
        axes = list(range(2, rank))
    if d.random.random() < 0.15:
        axes = None
    attributes: dict[str, Any] = {"keepdims": d.random.choice((0, 1, 1))}
    # onnxruntime dies of a mean of no integers, and reduces no axes of an empty tensor that are
    # counted from the end.
    d.full |= x.dtype in INTEGERS or bool(axes and min(axes) < 0)
    if d.full and not x.array.size:
        raise Impossible
    if d.opset >= (13 if op == "ReduceSum" else 18):
        if axes is None and d.random.random() < 0.5:
            attributes["noop_with_empty_axes"] = d.random.choice((0, 1))
            return d.op(op, x, *([d.ints()] if d.random.random() < 0.5 else []), **attributes)
        return d.op(op, x, *([] if axes is None else [d.ints(*axes)]), **attributes)
    if axes is not None:
        attributes["axes"] = axes
    return d.op(op, x, **attributes)


def softmax(d: Draft) -> Value:
    x = d.floating()
    if not x.shape:
        raise Impossible
    op = d.random.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    least = -len(x.shape) if d.opset >= 11 else 0
    axis = d.random.choice((None, d.random.randint(least, len(x.shape) - 1)))
    return d.op(op, x, **({} if axis is None else {"axis": axis}))


def pick_elements(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0 and v.dtype != np.bool_)
    axis = d.random.randint(0, len(x.shape) - 1)
    match d.random.choice(("ArgMax", "CumSum", "TopK")):
        case "CumSum":
            flags = {name: d.random.choice((0, 1)) for name in ("exclusive", "reverse")}
            return d.op("CumSum", x, d.constant(np.array(axis)), **flags)
        case "TopK" if d.opset >= 10:
            return d.ops("TopK", x, d.ints(1), outputs=2, axis=axis)[0]
        case _:
            op = d.random.choice(("ArgMax", "ArgMin"))
            last = {"select_last_index": d.random.choice((0, 1))} if d.opset >= 12 else {}
            return d.op(op, x, axis=axis, keepdims=d.random.choice((0, 1)), **last)


# Movement ----------------------------------------------------------------------------------------


def reshape(d: Draft) -> Value:
    x = d.pick()
    sizes = list(x.shape)
    if d.random.random() < 0.5 and len(sizes) > 1:
        at = d.random.randint(0, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    else:
        sizes.insert(d.random.randint(0, len(sizes)), 1)
    attributes: dict[str, int] = {}
    if d.random.random() < 0.4:
        sizes = [0 if i < len(x.shape) and s == x.shape[i] else s for i, s in enumerate(sizes)]
    elif d.opset >= 14 and d.random.random() < 0.3:
        attributes["allowzero"] = 1
    if sizes and d.random.random() < 0.6:
        sizes[d.random.randrange(len(sizes))] = -1
    return d.op("Reshape", x, d.ints(*sizes), **attributes)


def flatten(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0)
    return d.op("Flatten", x, axis=d.random.randint(0, len(x.shape)))


def squeezed(d: Draft) -> Value:
    x = d.pick()
    if d.random.random() < 0.5:
        op, axes = "Unsqueeze", [d.random.randint(0, len(x.shape))]
    else:
        op, axes = "Squeeze", [i for i, s in enumerate(x.shape) if s == 1][:2]
        if not axes:
            raise Impossible
    if d.opset >= 13:
        return d.op(op, x, d.ints(*axes))
    return d.op(op, x, axes=axes)


def transpose(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 1)
    perm = d.random.sample(range(len(x.shape)), len(x.shape))
    return d.op("Transpose", x, **({"perm": perm} if d.random.random() < 0.8 else {}))


def concat(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0)
    axis = d.random.randint(0, len(x.shape) - 1)
    rest = x.shape[:axis] + x.shape[axis + 1 :]

    def fits(v: Value) -> bool:
        same = len(v.shape) == len(x.shape) and v.dtype == x.dtype
        return same and v.shape[:axis] + v.shape[axis + 1 :] == rest

    shape = (*x.shape[:axis], d.random.choice((0, 1, 2)), *x.shape[axis + 1 :])
    other = d.pick(fits) if d.random.random() < 0.6 else d.beside(x, shape)
    return d.op("Concat", *d.random.sample((x, other), 2), axis=axis)


def slices(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0)
    axis = d.random.randint(0, len(x.shape) - 1)
    low = d.random.choice((0, 1, -1, -2, 5))
    high = d.random.choice((1, 2, -1, 2**31 - 1, 2**40, -(2**40)))
    if d.opset < 10:
        return d.op("Slice", x, starts=[low], ends=[high], axes=[axis])
    operands = [d.ints(low), d.ints(high), d.ints(axis)]
    if d.random.random() < 0.2:
        operands.append(d.ints(d.random.choice((1, 2, -1))))
    return d.op("Slice", x, *operands)


def split(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0)
    axis = d.random.randint(0, len(x.shape) - 1)
    size = x.shape[axis]
    cut = d.random.randint(0, size)
    sizes = [cut, size - cut]
    if d.opset >= 13:
        if d.opset >= 18 and d.random.random() < 0.3:
            return d.ops("Split", x, outputs=2, axis=axis, num_outputs=2)[1]
        return d.ops("Split", x, d.ints(*sizes), outputs=2, axis=axis)[0]
    return d.ops("Split", x, outputs=2, axis=axis, split=sizes)[0]


def expand(d: Draft) -> Value:
    x = d.pick()
    if d.random.random() < 0.3:
        return d.op("Tile", x, d.ints(*(d.random.choice((0, 1, 1, 2)) for _ in x.shape)))
    sizes = [d.random.choice((0, 1, 2)) if s == 1 else d.random.choice((1, s)) for s in x.shape]
    return d.op("Expand", x, d.ints(*([2] if d.random.random() < 0.2 else []), *sizes))


def pad(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0 and v.dtype != np.bool_)
    pads = [d.random.choice((0, 0, 1, 2, -1)) for _ in range(2 * len(x.shape))]
    mode = d.random.choice(("constant", "constant", "edge", "reflect", "wrap"))
    value = d.random.choice((0.0, 1.5, -np.inf)) if x.dtype in FLOATS else 1
    if d.opset < 11:
        return d.op("Pad", x, pads=pads, mode=mode, value=float(value))
    return d.op("Pad", x, d.ints(*pads), d.scalar(x, value), mode=mode)


def gather(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0)
    axis = d.random.randint(0, len(x.shape) - 1)
    index = d.random.choice(([0], [0, 0], [-1], [[0], [-1]], []))
    if d.random.random() < 0.2:
        return d.op("Gather", x, d.constant(np.array(-1)), axis=axis)
    return d.op("Gather", x, d.constant(np.array(index, np.int64)), axis=axis)


def named_places(d: Draft) -> Value:
    """Elements that an operand names, read or written over, of both signs."""
    x = d.pick(lambda v: len(v.shape) > 0 and 0 not in v.shape)
    rng = np.random.default_rng(d.random.randrange(1 << 30))
    if d.opset < 11:
        raise Impossible

    def places(extent: int, *shape: int) -> Array:
        # None twice: which of two writes comes last is up to the runtime.
        return np.asarray(rng.permutation(extent)[: int(np.prod(shape))].reshape(shape))

    axis = d.random.randrange(len(x.shape))
    row = [-1 if i == axis else 1 for i in range(len(x.shape))]
    along = np.zeros(x.shape, np.int64) + places(x.shape[axis], x.shape[axis]).reshape(row)
    along -= (d.random.random() < 0.3) * x.shape[axis]
    first = places(x.shape[0], max(1, x.shape[0] // 2), 1)
    reduction: dict[str, Any] = {}
    if d.opset >= 18 and x.dtype != np.bool_ and d.random.random() < 0.3:
        reduction = {"reduction": d.random.choice(("add", "mul", "max", "min"))}
    match d.random.randint(0, 4):
        case 0:
            return d.op("GatherElements", x, d.constant(along), axis=axis)
        case 1:
            return d.op("GatherND", x, d.constant(first))
        case 2:
            operands = d.constant(along), d.beside(x, x.shape)
            return d.op("ScatterElements", x, *operands, axis=axis, **reduction)
        case 3:
            operands = d.constant(first), d.beside(x, (*first.shape[:1], *x.shape[1:]))
            return d.op("ScatterND", x, *operands, **reduction)
        case _:
            if len(x.shape) < 2:
                raise Impossible
            lengths = rng.integers(0, x.shape[0] + 1, x.shape[1])
            return d.op("ReverseSequence", x, d.constant(lengths))


def resize(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) in (2, 4) and v.dtype != np.bool_)
    if d.opset < 11:
        raise Impossible
    scales = [d.random.choice((1.0, 2.0, 1.5, 0.5, 0.7)) for _ in x.shape[-2:]]
    scales = [*(1.0,) * (len(x.shape) - 2), *scales]
    none = d.constant(np.zeros(0, np.float32))
    attributes: dict[str, Any] = {
        "mode": d.random.choice(("nearest", "nearest", "linear", "cubic"))
    }
    place = d.random.choice((None, "half_pixel", "asymmetric", "align_corners"))
    attributes |= {"coordinate_transformation_mode": place} if place else {}
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = d.random.choice(("floor", "ceil", "round_prefer_floor"))
    if d.random.random() < 0.5:
        sizes = [max(1, int(size * scale)) for size, scale in zip(x.shape, scales, strict=True)]
        return d.op("Resize", x, none, none, d.ints(*sizes), **attributes)
    return d.op("Resize", x, none, d.constant(np.asarray(scales, np.float32)), **attributes)


def recurrence(d: Draft) -> Value:
    """Over the first axis, each output read or not."""
    d.full = True  # onnxruntime dies of a sequence of nothing
    x = d.pick(lambda v: len(v.shape) == 3 and v.dtype in (np.float32, np.float64))
    if 0 in x.shape:
        raise Impossible
    op = d.random.choice(("LSTM", "GRU", "RNN"))
    direction = d.random.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    hidden, rows = 2, 2 * {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    weights = (count, rows, x.shape[2]), (count, rows, hidden)
    operands: list[Value | None] = [x, *(d.beside(x, shape, "ordinary") for shape in weights)]
    has_bias, has_lengths, has_state = (d.random.random() < share for share in (0.7, 0.3, 0.5))
    operands.append(d.beside(x, (count, 2 * rows), "ordinary") if has_bias else None)
    rng = np.random.default_rng(d.random.randrange(1 << 30))
    lengths = rng.integers(1, x.shape[0] + 1, x.shape[1]).astype(np.int32)
    operands.append(d.constant(lengths) if has_lengths else None)
    state = (count, x.shape[1], hidden)
    operands.append(d.beside(x, state, "ordinary") if has_state else None)
    while operands[-1] is None:
        operands.pop()
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = d.random.choice((0, 1))
    outputs = d.ops(op, *operands, outputs=d.random.choice((1, 2)), **attributes)
    return d.random.choice(outputs)


def blocks(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) == 4)
    return d.op(d.random.choice(("DepthToSpace", "SpaceToDepth")), x, blocksize=2)


def sizes(d: Draft) -> Value:
    """Arithmetic on extents that comes back as data or as a shape."""
    x = d.pick(lambda v: len(v.shape) > 0)
    shape = d.op("Shape", x)
    size = d.op("Gather", shape, d.constant(np.array(0)), axis=0)
    match d.random.randint(0, 4):
        case 0:
            less = d.op("Sub", size, d.constant(np.array(d.random.choice((0, 1, 5)))))
            if d.opset < 11:
                raise Impossible
            return d.op("Range", d.constant(np.array(0)), less, d.constant(np.array(1)))
        case 1:
            return d.op("ConstantOfShape", shape)
        case 2:
            half = d.op("Div", d.op("Sub", size, d.constant(np.array(3))), d.constant(np.array(2)))
            return d.op("Cast", half, to=TensorProto.FLOAT)
        case 3:
            return d.op("Expand", d.scalar(x, 1), shape)
        case _:
            return d.op("Reshape", d.op("Mul", x, x), shape)


# Contractions and windows ------------------------------------------------------------------------


def matmul(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) > 0 and v.dtype != np.bool_)
    w = d.beside(x, (x.shape[-1], d.random.choice((1, 2, 3))))
    y = d.op("MatMul", x, w)
    if d.random.random() < 0.5:
        y = d.op("Add", y, d.beside(y, y.shape[-1:]))
    if d.random.random() < 0.4:
        y = d.op(d.random.choice(("Mul", "Div")), y, d.beside(y, y.shape[-1:]))
    return y


def chain(d: Draft) -> Value:
    """Two products in a row, or two side by side."""
    x = d.floating()
    if not x.shape:
        raise Impossible
    first = d.op("MatMul", x, d.beside(x, (x.shape[-1], 2)))
    if d.random.random() < 0.5:
        return d.op("MatMul", first, d.beside(x, (2, 3)))
    second = d.op("MatMul", x, d.beside(x, (x.shape[-1], 2)))
    join = d.random.choice(("Add", "Concat", "Mul"))
    return d.op(join, first, second, **({"axis": -1 if d.opset >= 11 else first.array.ndim - 1}
                                        if join == "Concat" else {}))  # fmt: skip


def gemm(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) == 2 and v.dtype != np.bool_)
    turned = d.random.choice((0, 1))
    inner = x.shape[0] if turned else x.shape[1]
    rows = x.shape[1] if turned else x.shape[0]
    d.full = True  # of a product over nothing onnxruntime forgets beta
    if not inner:
        raise Impossible
    w = d.beside(x, (inner, 3))
    c = d.random.choice(([], [d.beside(x, (3,))], [d.beside(x, (rows, 1))]))
    attributes = {n: d.random.choice((1.0, 1.0, 0.0, 0.5, -2.0)) for n in ("alpha", "beta")}
    return d.op("Gemm", x, w, *c, transA=turned, **attributes)


def convolution(d: Draft) -> Value:
    x = d.floating(3, 4, 5)
    axes = len(x.shape) - 2
    kernel = [d.random.choice((1, 2, 3)) for _ in range(axes)]
    channels = x.shape[1]
    if not channels:
        raise Impossible  # onnxruntime never ends
    group = d.random.choice([g for g in (1, 2, channels) if g and channels % g == 0] or [1])
    out = 2 * group
    pads = [d.random.choice((0, 1)) for _ in range(2 * axes)]
    attributes: dict[str, Any] = {"group": group, "strides": [d.random.choice((1, 1, 2))] * axes}
    if d.random.random() < 0.7:
        attributes["pads"] = pads
    else:
        attributes["auto_pad"] = d.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if d.random.random() < 0.25:
        w = d.beside(x, (channels, 2, *kernel))
        d.full = True  # onnxruntime dies of a transposed convolution of nothing
        return d.op("ConvTranspose", x, w, **attributes)
    w = d.beside(x, (out, channels // group, *kernel))
    bias = [d.beside(x, (out,))] if d.random.random() < 0.4 else []
    y = d.op("Conv", x, w, *bias, **attributes)
    match d.random.randint(0, 5):
        case 0:
            return batch_normalisation(d, y)
        case 1:
            return d.op(d.random.choice(("Mul", "Div", "Add")), y,
                        d.beside(y, (out, *(1,) * axes)))  # fmt: skip
        case 2:
            other = d.op("Conv", x, d.beside(x, (2, channels, *(1,) * axes)))
            return d.op("Relu", other)
    return y


def batch_normalisation(d: Draft, x: Value | None = None) -> Value:
    x = x or d.floating(2, 3, 4)
    n = x.shape[1:2]
    parameters = [d.beside(x, n) for _ in range(3)]
    variance = d.constant(np.abs(array_of(d.random, x.dtype, n)))
    return d.op("BatchNormalization", x, *parameters, variance)


def pool(d: Draft) -> Value:
    x = d.pick(lambda v: len(v.shape) in (3, 4, 5) and v.dtype != np.bool_)
    axes = len(x.shape) - 2
    op = d.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN"))
    if op.startswith("Global"):
        return d.op(op, x)
    if op == "LRN":
        d.plain = True  # the runtime's sliding sum keeps an infinity for all channels behind it
        return d.op("LRN", x, size=d.random.choice((1, 3)))
    whole = d.random.random() < 0.3
    kernel = list(x.shape[2:]) if whole else [d.random.choice((1, 2, 3)) for _ in range(axes)]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if not whole:
        attributes["pads"] = [d.random.choice((0, 0, 1)) for _ in range(2 * axes)]
        attributes["strides"] = [d.random.choice((1, 2)) for _ in range(axes)]
        if d.opset >= 10:
            attributes["ceil_mode"] = d.random.choice((0, 1))
    if op == "AveragePool":
        attributes["count_include_pad"] = d.random.choice((0, 1))
    return d.op(op, x, **attributes)


def normalisation(d: Draft) -> Value:
    x = d.floating()
    op = d.random.choice(("LayerNormalization", "RMSNormalization", "InstanceNormalization"))
    if not x.shape:
        raise Impossible
    if op == "InstanceNormalization":
        if 0 in x.shape:
            raise Impossible
        d.full = True  # onnxruntime dies of a plane without elements
        return d.op(op, x, *(d.beside(x, x.shape[1:2]) for _ in range(2)))
    parameters = [d.beside(x, x.shape[-1:]) for _ in range(1 + (op == "LayerNormalization"))]
    return d.op(op, x, *parameters, axis=-1)


def attention(d: Draft) -> Value:
    q = d.floating(4)
    s, n = q.shape[-2:]
    keys = d.random.choice((s, 3))
    k, v = (d.constant(array_of(d.random, q.dtype, (*q.shape[:2], keys, n))) for _ in range(2))
    mask = [] if d.random.random() < 0.3 else [d.beside(q, (1, 1, s, keys), "mask")]
    if d.opset >= 23 and d.random.random() < 0.5:
        return d.op("Attention", q, k, v, *mask)
    logits = d.op("MatMul", q, d.op("Transpose", k, perm=[0, 1, 3, 2]))
    logits = d.op("Mul", logits, d.scalar(q, 0.5))
    if mask:
        logits = d.op("Add", logits, mask[0])
    return d.op("MatMul", d.op("Softmax", logits, axis=3), v)


# Motifs ------------------------------------------------------------------------------------------


def gate(d: Draft) -> Value:
    """m·x + (1 − m)·y, with y masked or not."""
    x = d.floating()
    m, y = d.beside(x, x.shape, "gate"), d.beside(x, x.shape, d.random.choice(("mask", "ordinary")))
    rest = d.op("Sub", d.scalar(x, 1), m)
    return d.op("Add", d.op("Mul", m, x), d.op("Mul", rest, y))


def masked(d: Draft) -> Value:
    x = d.floating()
    if not x.shape:
        raise Impossible
    sum_ = d.op("Add", x, d.beside(x, x.shape, "mask"))
    return d.op("Softmax", sum_, axis=len(x.shape) - 1)


def scaled_twice(d: Draft) -> Value:
    """Factors that are small or large, and together beyond the range."""
    x = d.floating()
    first = d.op(d.random.choice(("Mul", "Div")), x, d.beside(x, (), "end"))
    return d.op(d.random.choice(("Mul", "Div", "Add")), first, d.beside(x, (), "end"))


def variance(d: Draft) -> Value:
    """A normalisation spelled out."""
    x = d.floating()
    if not x.shape:
        raise Impossible
    last = len(x.shape) - 1
    axes: dict[str, Any] = {} if d.opset >= 18 else {"axes": [last]}
    operand = [d.ints(last)] if d.opset >= 18 else []
    centred = d.op("Sub", x, d.op("ReduceMean", x, *operand, **axes))
    square = d.op("Mul", centred, centred)
    mean = d.op("ReduceMean", square, *operand, **axes)
    deviation = d.op("Sqrt", d.op("Add", mean, d.scalar(x, 1e-3)))
    return d.op("Div", centred, deviation)


def quantised(d: Draft) -> Value:
    x = d.pick(lambda v: v.dtype == np.float32 and len(v.shape) > 0)
    zero = d.constant(np.zeros((), d.random.choice((np.uint8, np.int8))))
    scale = d.constant(np.asarray(d.random.choice((0.1, 0.02)), np.float32))
    if d.random.random() < 0.3 and d.opset >= 11:
        y, s, z = d.ops("DynamicQuantizeLinear", x, outputs=3)
        w = d.constant(array_of(d.random, np.dtype(np.uint8), (x.shape[-1], 2)))
        product = d.op("MatMulInteger", y, w, z)
        return d.op("Mul", d.op("Cast", product, to=TensorProto.FLOAT), s)
    if d.opset < 10:
        raise Impossible
    return d.op("DequantizeLinear", d.op("QuantizeLinear", x, scale, zero), scale, zero)


OPERATORS: tuple[Callable[[Draft], Value], ...] = (
    unary, unary, unary, binary, binary, binary, variadic, where, clip, cast, reduction, reduction,
    softmax, pick_elements, named_places, resize, recurrence, reshape, flatten, squeezed, transpose,
    concat, slices, split, expand, pad, gather, blocks, sizes, matmul, matmul, chain, gemm,
    convolution, convolution, batch_normalisation, pool, pool, normalisation, attention, gate,
    masked, scaled_twice, variance, quantised,
)  # fmt: skip
