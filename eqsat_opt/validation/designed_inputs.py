"""Inputs whose values show what random ones hide: masks, gates, infinities, ends of ranges.

Formulas that agree everywhere else differ on a maximum over nothing but −∞, on a row of attention
that is masked whole, or on a branch of 1e9 behind a gate of 0. `docs/numerics.md` lists the
promises of each class for such values; classes that promise nothing are not tried on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.onnx.data_movement import MOVING
from eqsat_opt.runtime.inputs import InputSpec, integer_ends, random_inputs
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.validation.trials import InputDraft

__all__ = ["added_masks", "value_drafts"]

Array: TypeAlias = npt.NDArray[Any]
Change: TypeAlias = Callable[[Array, np.random.Generator], Array]
"""A function that returns a special value for an input; the random value stays as it is."""

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_HUGE: Mapping[int, float] = {TensorProto.FLOAT16: 4096.0}
"""A number that hides ordinary ones it is added to, and can still be squared; 1e9 elsewhere."""

_EACH = 4
"""Most inputs of a kind that are made special one at a time, while the others stay ordinary."""

_SPECIAL_CLASSES = (Numerics.BITEXACT, Numerics.REASSOCIATE)
"""Classes that promise something for infinities and NaN."""


def value_drafts(
    graph: onnx.GraphProto, specs: Sequence[InputSpec], sizes: Mapping[str, int], numerics: Numerics
) -> Iterator[InputDraft]:
    """Yield drafts for a model, first those that show errors most often.

    Args:
        graph: the model's graph, in which masks are found.
        specs: its inputs.
        sizes: sizes by symbol.
        numerics: the class that candidates have to keep.
    """

    def draft(what: str, kind: Any, changes: Mapping[str, Change]) -> InputDraft:
        return InputDraft(f"with {what}", kind, lambda seed: _changed(specs, seed, sizes, changes))

    tensors = [spec for spec in specs if spec.is_tensor]
    floats = [spec.name for spec in tensors if spec.elem_type in _FLOATS]
    huge = {spec.name: _HUGE.get(spec.elem_type, 1e9) for spec in tensors}
    ends = {spec.name: found for spec in tensors if (found := integer_ends(spec)) is not None}
    has_infinities = numerics in _SPECIAL_CLASSES
    is_kept = has_infinities or numerics is Numerics.FINITE
    for name in added_masks(graph, floats)[:_EACH] if is_kept else ():
        yield draft(
            f"{name} masked by the least number, rows of it whole", "special", {name: _mask(None)}
        )
        if has_infinities:
            yield draft(
                f"{name} masked by -inf, rows of it whole", "special", {name: _mask(-np.inf)}
            )
    flags = {name: pair for name, pair in ends.items() if pair[1] - pair[0] == 1}
    for which in (0, 1) if flags else ():
        yield draft(
            f"all flags {which}",
            "plain",
            {name: _full(pair[which]) for name, pair in flags.items()},
        )
    if len(ends) > len(flags):
        yield draft(
            "integers at their ends", "plain", {n: _ends(*pair) for n, pair in ends.items()}
        )
    if floats and is_kept:
        yield draft("zeros and ones among the numbers", "plain", dict.fromkeys(floats, _gates))
    if has_infinities:
        yield from _infinite_drafts(graph, floats, numerics, draft)
    for name in floats[:_EACH] if is_kept else ():
        for gate in floats[:_EACH]:
            if gate != name:
                yield draft(f"{name} at {-huge[name]:g} and {gate} a gate", "large",
                            {name: _full(-huge[name]), gate: _gate})  # fmt: skip


def _infinite_drafts(
    graph: onnx.GraphProto,
    floats: Sequence[str],
    numerics: Numerics,
    draft: Callable[..., InputDraft],
) -> Iterator[InputDraft]:
    """Yield drafts with infinities and NaN in the inputs ``floats``, by the function ``draft``."""
    infinite = [
        name
        for name in floats
        if not _meets_products(graph, name)
        or (numerics is Numerics.BITEXACT and not _meets_maxima(graph, name))
    ]
    for name in infinite[:_EACH]:
        yield draft(f"a plane of {name} at -inf", "special", {name: _plane(-np.inf)})
    # Whether a maximum keeps NaN depends on its position: NaN is tried where no maximum reads it.
    clear = [name for name in floats if not _meets_maxima(graph, name)]
    for value, names in ((np.nan, clear), (np.inf, infinite)):
        for name in names[:_EACH]:
            yield draft(f"an element of {name} at {value}", "special", {name: _element(value)})


def _changed(
    specs: Sequence[InputSpec], seed: int, sizes: Mapping[str, int], changes: Mapping[str, Change]
) -> Feeds:
    feeds = random_inputs(specs, seed, sizes)
    generator = np.random.default_rng(seed)
    for name, change in changes.items():
        feeds[name] = change(feeds[name], generator)
    return feeds


def _full(value: float) -> Change:
    return lambda array, _: np.full_like(array, value)


def _ends(low: int, high: int) -> Change:
    def change(array: Array, generator: np.random.Generator) -> Array:
        is_high = generator.integers(0, 2, size=array.shape).astype(bool)
        return np.where(is_high, np.asarray(high, array.dtype), np.asarray(low, array.dtype))

    return change


def _gate(array: Array, generator: np.random.Generator) -> Array:
    """Set each element to 0 or 1 by chance, as gates that are closed or open."""
    return generator.integers(0, 2, size=array.shape).astype(array.dtype)


def _gates(array: Array, generator: np.random.Generator) -> Array:
    """Set some elements to 0 or 1 by chance, a plane to 0 and another to 1."""
    special = generator.integers(0, 2, size=array.shape).astype(array.dtype)
    result = np.where(generator.random(array.shape) < 0.5, special, array).astype(array.dtype)
    for number, value in enumerate((0, 1)):
        plane = _plane_of(result, number)
        if plane is not None:
            result[plane] = value
    return result


def _mask(value: float | None) -> Change:
    """Return a change to a mask of 0 and ``value``, or the least number if that is ``None``.

    The first row is masked whole, the second not at all.
    """

    def change(array: Array, generator: np.random.Generator) -> Array:
        least = _least(array.dtype) if value is None else value
        is_masked = generator.random(array.shape) < 0.5
        rows = is_masked.reshape(-1, array.shape[-1] if array.ndim else 1)
        rows[:1] = True
        rows[1:2] = False
        return np.where(is_masked, least, 0.0).astype(array.dtype)

    return change


def _plane(value: float) -> Change:
    def change(array: Array, _: np.random.Generator) -> Array:
        result = array.copy()
        plane = _plane_of(result, 0)
        result[... if plane is None else plane] = value
        return result

    return change


def _element(value: float) -> Change:
    def change(array: Array, generator: np.random.Generator) -> Array:
        result = array.copy()
        if result.size:
            result.reshape(-1)[generator.integers(result.size)] = value
        return result

    return change


def _plane_of(array: Array, number: int) -> tuple[int, ...] | None:
    """Return the index of an image, or of a row if there are no images; ``None`` for a vector."""
    leading = array.shape[: max(1, array.ndim - 2)] if array.ndim > 1 else ()
    if not leading or array.size == 0 or number >= int(np.prod(leading)):
        return None
    return tuple(int(i) for i in np.unravel_index(number, leading))


def _least(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).min)  # type: ignore[no-untyped-call]


# Propagation of inputs ---------------------------------------------------------------------------

_PASSES_INFINITIES = MOVING | {
    "Cast", "Pad", "Where", "Add", "Sub", "Sum", "Neg", "Abs", "Max", "Min", "Clip", "Relu",
    "LeakyRelu", "PRelu", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin",
    "TopK", "Exp", "Sigmoid", "Tanh", "Erf", "Softmax", "LogSoftmax", "IsInf", "IsNaN", "Greater",
    "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "Sign", "Not",
}  # fmt: skip
"""Operators after which an infinity has one meaning, in whatever order they are computed."""


def _meets_products(graph: onnx.GraphProto, name: str) -> bool:
    """Return whether an infinity may meet a product, where another order may make it NaN."""
    reached = {name}
    for node in graph.node:  # in topological order
        read = reached.intersection(node.input)
        if node.attribute and any(a.HasField("g") or a.graphs for a in node.attribute):
            return True  # a subgraph may read any value
        if read and (node.domain or node.op_type not in _PASSES_INFINITIES):
            return True
        if read:
            reached.update(node.output)
    return False


_MAXIMA = {
    "MaxPool", "GlobalMaxPool", "LpPool", "GlobalLpPool", "MaxRoiPool", "RoiAlign", "ReduceMax",
    "ReduceMin", "ArgMax", "ArgMin", "TopK", "Max", "Min", "Clip", "NonMaxSuppression", "Hardmax",
    "Sort", "Unique", "LSTM", "GRU", "RNN",
}  # fmt: skip
"""Operators that return or drop a NaN, depending on its position; recurrences clip operands."""


def _meets_maxima(graph: onnx.GraphProto, name: str) -> bool:
    """Return whether a NaN may meet a maximum, which may drop it."""
    reached = {name}
    for node in graph.node:  # in topological order
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            return True  # a subgraph may read any value
        if reached.intersection(node.input):
            if node.domain or node.op_type in _MAXIMA:
                return True
            reached.update(node.output)
    return False


_LETS_THROUGH = {
    "Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Slice", "Add",
}  # fmt: skip
_ABSORBS = {"Softmax", "LogSoftmax"}
_MASK_OPERANDS = {"Attention": 3}


def added_masks(graph: onnx.GraphProto, names: Sequence[str]) -> list[str]:
    """Return the inputs that are only added to the operand of a softmax, and have no other use.

    A value as low as a mask is absorbed there, and reaches nothing else.
    """
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, position))
    outputs = {value.name for value in graph.output}
    return [name for name in names if _is_mask(name, readers, outputs)]


def _is_mask(
    name: str,
    readers: Mapping[str, Sequence[tuple[onnx.NodeProto, int]]],
    outputs: set[str],
) -> bool:
    pending = [(name, False)]
    seen: set[tuple[str, bool]] = set()
    added = False
    while pending:
        value, is_sum = pending.pop()
        if (value, is_sum) in seen:
            continue
        seen.add((value, is_sum))
        if value in outputs or value not in readers:
            return False
        for node, position in readers[value]:
            is_operand = _MASK_OPERANDS.get(node.op_type) == position
            if is_operand or (node.op_type in _ABSORBS and is_sum):
                added = True
            elif node.op_type in _LETS_THROUGH and (position == 0 or node.op_type == "Add"):
                pending.append((node.output[0], is_sum or node.op_type == "Add"))
            else:
                return False
    return added
