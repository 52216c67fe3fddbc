"""Models that arrive quantised, in floats: what they compute without rounding to integers.

Integers in fixed ranges become the floats they mean, weights the floats that they are rounded
from, and products on integers products of floats. The ranges of the model are kept by the names of
values, so that a choice in low precision finds the same integers again where they are faster.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.drafts import (
    CONTRIB,
    ReplacementDraft,
    drop_unread,
    free_prefix,
    insert_draft,
    names_in,
)
from eqsat_opt.approximation.sites import constant_of
from eqsat_opt.approximation.static.ranges import QuantisedRange
from eqsat_opt.ir.onnx.data_movement import MOVING

__all__ = ["FloatForm", "in_floats"]

_Array = npt.NDArray[Any]

_OWN = "the model's own"
"""Origin of ranges that a model came with."""

_CARRIERS = MOVING | {"MaxPool"}
"""Operators that compute the same on integers and on the floats they mean."""

_NEVER_NEGATIVE = frozenset({"HardSigmoid", "Relu", "Sigmoid", "Softmax"})
"""Operators whose results are never negative."""

_KEEPS_SIGN = _CARRIERS | {"Add", "AveragePool", "GlobalAveragePool", "Mul"}
"""Operators whose results are not negative if no operand is."""


@dataclass(frozen=True)
class _Form:
    """The place of operands in an operator on integers.

    Attributes:
        operator: the operator in floats.
        operands: indices of integers, each followed by scale and zero point.
        result: index of the scale and zero point of the result.
        bias: index of a bias in units of the sums; ``None`` if there is none.
    """

    operator: str
    operands: tuple[int, ...]
    result: int
    bias: int | None = None


_FORMS = MappingProxyType(
    {
        "QLinearConv": _Form("Conv", (0, 3), 6, bias=8),
        "QLinearMatMul": _Form("MatMul", (0, 3), 6),
        "QGemm": _Form("Gemm", (0, 3), 7, bias=6),
        "QLinearAdd": _Form("Add", (0, 3), 6),
        "QLinearMul": _Form("Mul", (0, 3), 6),
        "QLinearSigmoid": _Form("Sigmoid", (0,), 3),
        "QLinearLeakyRelu": _Form("LeakyRelu", (0,), 3),
        "QLinearAveragePool": _Form("AveragePool", (0,), 3),
        "QLinearGlobalAveragePool": _Form("GlobalAveragePool", (0,), 3),
    }
)
"""Operators on integers in fixed ranges."""

_DYNAMIC = MappingProxyType({"MatMulInteger": "MatMul", "ConvInteger": "Conv"})
"""Operators on integers in the range of the run."""


@dataclass(frozen=True)
class _Integers:
    """The floats that integers mean, and by which scale and zero point.

    Attributes:
        floats: the floats that were rounded to them.
        unit: scale and zero point; a reader that applies others reads other floats.
    """

    floats: onnx_ir.Value
    unit: tuple[Hashable, Hashable]


@dataclass(frozen=True)
class FloatForm:
    """A model in floats that came quantised.

    Attributes:
        model: the model.
        ranges: ranges of values in which it came, by their names.
    """

    model: onnx_ir.Model
    ranges: Mapping[str, QuantisedRange]


def in_floats(model: onnx_ir.Model) -> FloatForm | None:
    """Return a model without the quantised arithmetic of its main graph; ``None`` if it has none.

    Arithmetic in other forms stays on integers. The interface stays.
    """
    result = model.clone()
    graph = result.graph
    graph.sort()
    form = _Dequantising(graph, free_prefix("float_", names_in(graph)))
    for node in list(graph):
        form.visit(node)
    if not form.is_changed:
        return None
    graph.sort()
    _drop_dead(graph)
    return FloatForm(result, form.ranges)


@dataclass
class _Dequantising:
    """The state of one pass.

    Attributes:
        held: meanings of integers, by their values.
        ranges: ranges by the names of floats.
        is_changed: whether anything is in floats now that was not.
    """

    graph: onnx_ir.Graph
    prefix: str
    held: dict[onnx_ir.Value, _Integers] = field(default_factory=dict)
    ranges: dict[str, QuantisedRange] = field(default_factory=dict)
    is_changed: bool = False
    n_drafts: int = 0

    def visit(self, node: onnx_ir.Node) -> None:
        """Add what a node means in floats, and let readers of floats read that."""
        kind = node.op_type
        if node.domain not in ("", "ai.onnx", CONTRIB):
            return
        if kind == "QuantizeLinear":
            self._hold(node, node.inputs[0], node.inputs[1:3])
        elif kind == "DequantizeLinear":
            self._restore(node)
        elif kind == "DynamicQuantizeLinear" and node.inputs[0] is not None:
            integers, scale, zero = node.outputs
            self.held[integers] = _Integers(node.inputs[0], (scale, zero))
        elif kind in _CARRIERS and node.inputs and node.inputs[0] in self.held:
            self._carry(node)
        elif kind in _FORMS:
            self._compute(node, _FORMS[kind])
        elif kind in _DYNAMIC:
            self._multiply(node)

    def _draft(self) -> ReplacementDraft:
        self.n_drafts += 1
        return ReplacementDraft(f"{self.prefix}{self.n_drafts}_")

    def _hold(
        self,
        node: onnx_ir.Node,
        value: onnx_ir.Value | None,
        bounds: Sequence[onnx_ir.Value | None],
    ) -> None:
        """Remember the floats that a node rounds to integers in a fixed range."""
        scale, zero = _bounds_of(bounds, _least_type(node))
        if value is None or scale is None or scale.size != 1 or zero is None:
            return
        if value.dtype is not None and value.dtype.numpy() != scale.dtype:
            return
        lowest = np.iinfo(zero.dtype).min if zero.dtype.kind in "iu" else None
        if lowest is None:
            return
        if int(zero.ravel()[0]) == lowest and not _is_never_negative(value):
            # Quantisers drop a Relu whose zeros the range clips as well.
            draft = self._draft()
            kind, shape = value.type, value.shape
            (value,) = draft.node("Relu", [value], ["positive"])
            value.type, value.shape = kind, shape
            insert_draft(self.graph, draft, node)
        self.held[node.outputs[0]] = _Integers(value, _unit_of(bounds))
        if zero.dtype.itemsize == 1 and value.name:
            # Signed integers mean the same as unsigned ones that are moved by the least of them.
            self.ranges[value.name] = QuantisedRange(
                float(scale.ravel()[0]), int(zero.ravel()[0]) - lowest, _OWN
            )

    def _restore(self, node: onnx_ir.Node) -> None:
        made = self._meant(node, 0, axis=node.attributes.get_int("axis", 1))
        if made is not None:
            self.is_changed = True
            self._replace(node.outputs[0], made, node)

    def _meant(self, node: onnx_ir.Node, index: int, axis: int) -> onnx_ir.Value | None:
        """Return the floats that an operand means; ``None`` if they are not known.

        Args:
            node: a node.
            index: place of the integers, which scale and zero point follow.
            axis: axis of a constant along which scales lie.
        """
        value = node.inputs[index]
        if value is None:
            return None
        integers, bounds = self.held.get(value), node.inputs[index + 1 : index + 3]
        if integers is not None:
            return integers.floats if integers.unit == _unit_of(bounds) else None
        stored = constant_of(value)
        scale, zero = _bounds_of(bounds)
        if stored is None or scale is None or scale.dtype != np.float32:
            return None
        array = stored.numpy()
        if zero is None:
            zero = np.zeros_like(scale, dtype=array.dtype)
        if scale.ndim > 1 or (scale.size > 1 and not -1 <= axis < array.ndim):
            return None
        if scale.size > 1 and scale.size != array.shape[axis]:
            return None
        shape = [1] * array.ndim
        if scale.size > 1:
            shape[axis] = -1
        wide = np.int64 if array.dtype.kind in "iu" else np.float64
        moved = array.astype(wide) - zero.astype(wide).reshape(shape if zero.size > 1 else ())
        scales = scale.reshape(shape if scale.size > 1 else ())
        return self._constant(node, (moved.astype(np.float32) * scales).astype(np.float32))

    def _constant(self, node: onnx_ir.Node, array: _Array) -> onnx_ir.Value:
        draft = self._draft()
        value = draft.constant("constant", array)
        insert_draft(self.graph, draft, node)
        return value

    def _carry(self, node: onnx_ir.Node) -> None:
        found = [None if value is None else self.held.get(value) for value in node.inputs]
        unit = None if found[0] is None else found[0].unit
        is_joined = node.op_type == "Concat"
        if unit is None or (is_joined and any(one is None or one.unit != unit for one in found)):
            return
        if len(node.outputs) > 1 and any(value.uses() for value in node.outputs[1:]):
            return
        operands = [
            value if one is None else one.floats
            for value, one in zip(node.inputs, found, strict=True)
        ]
        made = self._added(node, node.op_type, operands, dict(node.attributes))
        self.held[node.outputs[0]] = _Integers(made, unit)

    def _added(
        self,
        node: onnx_ir.Node,
        operator: str,
        operands: Sequence[onnx_ir.Value | None],
        attributes: Mapping[str, Any],
    ) -> onnx_ir.Value:
        """Add a node of floats in front of another one, and return its result."""
        draft = self._draft()
        (made,) = draft.node(operator, operands, ["result"], attributes)
        made.type, made.shape = onnx_ir.TensorType(onnx_ir.DataType.FLOAT), node.outputs[0].shape
        insert_draft(self.graph, draft, node)
        return made

    def _compute(self, node: onnx_ir.Node, form: _Form) -> None:
        if node.attributes.get_int("channels_last", 0):
            return
        axis = 0 if form.operator == "Conv" or bool(node.attributes.get_int("transB", 0)) else -1
        operands = [self._meant(node, index, axis) for index in form.operands]
        if any(one is None for one in operands):
            return
        if form.bias is not None and len(node.inputs) > form.bias:
            bias = node.inputs[form.bias]
            if bias is not None:
                operands.append(self._bias(node, bias, form.operands))
                if operands[-1] is None:
                    return
        attributes = {k: v for k, v in node.attributes.items() if k != "channels_last"}
        made = self._added(node, form.operator, operands, attributes)
        self.is_changed = True
        bounds = node.inputs[form.result : form.result + 2]
        if bounds and bounds[0] is not None:
            self._hold(node, made, bounds)
        else:
            self._replace(node.outputs[0], made, node)

    def _bias(
        self, node: onnx_ir.Node, bias: onnx_ir.Value, operands: Sequence[int]
    ) -> onnx_ir.Value | None:
        """Return a bias in floats; it is in units of the sums of products."""
        stored, scales = constant_of(bias), [node.inputs[index + 1] for index in operands]
        tensors = [None if one is None else constant_of(one) for one in scales]
        if stored is None or any(one is None for one in tensors):
            return None
        unit = np.prod(
            np.broadcast_arrays(*(one.numpy().ravel() for one in tensors if one is not None)),
            axis=0,
        ) * node.attributes.get_float("alpha", 1.0)
        return self._constant(node, (stored.numpy() * unit).astype(np.float32))

    def _multiply(self, node: onnx_ir.Node) -> None:
        """Replace sums of integers that are cast and scaled in the next two steps."""
        rows, weight, *zero_points = (*node.inputs, None, None)[:4]
        integers = None if rows is None else self.held.get(rows)
        stored = None if weight is None else constant_of(weight)
        if integers is None or stored is None or integers.unit[1] != _part_of(zero_points[0]):
            return
        scaled, zeros = _scaled(node, integers.unit[0]), np.zeros((), np.int64)
        if zero_points[1] is not None:
            tensor = constant_of(zero_points[1])
            if tensor is None:
                return
            zeros = tensor.numpy().astype(np.int64)
        if scaled is None:
            return
        scale, bias, result = scaled
        array = stored.numpy().astype(np.int64)
        # Columns or channels: their axis in the weight, and from the end of the result.
        is_conv = node.op_type == "ConvInteger"
        axis, own = (0, 1 - array.ndim) if is_conv else (-1, -1)
        if scale.ndim > is_conv - own or scale.size != math.prod(scale.shape[own:][:1]):
            return  # it gives the result a further axis, or differs along others
        shape = [1] * array.ndim
        shape[axis] = -1
        if any(one.size not in (1, array.shape[axis]) for one in (scale, zeros)):
            return
        matrix = (array - zeros.reshape(shape if zeros.size > 1 else ())) * (
            scale.reshape(shape if scale.size > 1 else ())
        )
        constant = self._constant(node, matrix.astype(np.float32))
        operands = [integers.floats, constant, *([] if bias is None else [bias])]
        made = self._added(node, _DYNAMIC[node.op_type], operands, dict(node.attributes))
        made.shape = result.shape
        self.is_changed = True
        self._replace(result, made, node)

    def _replace(self, old: onnx_ir.Value, made: onnx_ir.Value, node: onnx_ir.Node) -> None:
        if old.is_graph_output():
            made = self._added(node, "Identity", [made], {})
            made.type, made.shape = old.type, old.shape
            old.replace_all_uses_with(made, replace_graph_outputs=True)
            made.name, old.name = old.name, f"{made.name}/replaced"
        else:
            old.replace_all_uses_with(made)


def _is_never_negative(value: onnx_ir.Value) -> bool:
    producer = value.producer()
    if producer is None:
        return False
    if producer.op_type in _NEVER_NEGATIVE:
        return True
    reads_many = producer.op_type in ("Add", "Concat", "Mul")
    operands = producer.inputs if reads_many else producer.inputs[:1]
    return producer.op_type in _KEEPS_SIGN and all(
        one is not None and _is_never_negative(one) for one in operands
    )


def _bounds_of(
    bounds: Sequence[onnx_ir.Value | None], least_type: npt.DTypeLike = np.uint8
) -> tuple[_Array | None, _Array | None]:
    """Return scale and zero point of two operands; ``None`` for what is missing or computed.

    A zero point that is not given is 0, of ``least_type``.
    """
    found = [None if one is None else constant_of(one) for one in bounds]
    arrays = [None if one is None else one.numpy() for one in found]
    is_given = len(bounds) > 1 and bounds[1] is not None
    scale = arrays[0] if arrays else None
    if scale is not None and not is_given:
        return scale, np.zeros(scale.shape, least_type)
    return scale, arrays[1] if is_given else None


def _least_type(node: onnx_ir.Node) -> npt.DTypeLike:
    """Return the type of the integers that a node makes where no zero point says it."""
    given = node.attributes.get_int("output_dtype", 0)
    if given:
        return onnx_ir.DataType(given).numpy()
    made = node.outputs[0].dtype
    return np.uint8 if made is None else made.numpy()


def _unit_of(bounds: Sequence[onnx_ir.Value | None]) -> tuple[Hashable, Hashable]:
    """Return scale and zero point of two operands; two units are equal where both surely are."""
    scale, zero = (*bounds, None, None)[:2]
    return _part_of(scale), _part_of(zero)


def _part_of(value: onnx_ir.Value | None) -> Hashable:
    """Return the number that a constant holds, 0 for none, and any other value itself."""
    if value is None:
        return 0.0
    tensor = constant_of(value)
    if tensor is None or tensor.size != 1 or tensor.dtype == onnx_ir.DataType.STRING:
        return value
    return float(tensor.numpy().astype(np.float64).reshape(()))


def _scaled(
    node: onnx_ir.Node, unit: Hashable
) -> tuple[_Array, onnx_ir.Value | None, onnx_ir.Value] | None:
    """Return the scale of the weight, the bias and the result of sums that are cast and scaled.

    Old quantisers divide the bias of a convolution by the scales in each run, and add it to the
    sums; the bias that is returned is the one in floats.

    Args:
        node: the node that sums.
        unit: the scale of the data, by which the sums have to be scaled as well.
    """
    bias, last = None, node
    total = _only_reader(node, "Add")
    if total is not None and node.op_type == "ConvInteger":
        (added,) = [one for one in total.inputs if one is not node.outputs[0]] or (None,)
        for operator in ("Reshape", "Cast", "Floor", "Div"):
            maker = None if added is None else added.producer()
            if maker is None or maker.op_type != operator:
                return None
            added = maker.inputs[0]
        bias, last = added, total
    cast = _only_reader(last, "Cast")
    mul = None if cast is None else _only_reader(cast, "Mul")
    if cast is None or mul is None:
        return None
    (scales,) = [value for value in mul.inputs if value is not cast.outputs[0]] or (None,)
    producer = None if scales is None else scales.producer()
    if producer is None or producer.op_type != "Mul":
        return None
    for value in producer.inputs:
        tensor = None if value is None else constant_of(value)
        others = [one for one in producer.inputs if one is not value]
        if tensor is not None and tensor.dtype == onnx_ir.DataType.FLOAT and others == [unit]:
            return tensor.numpy(), bias, mul.outputs[0]
    return None


def _only_reader(node: onnx_ir.Node, operator: str) -> onnx_ir.Node | None:
    uses = tuple(node.outputs[0].uses())
    is_alone = len(uses) == 1 and not node.outputs[0].is_graph_output()
    return uses[0].node if is_alone and uses[0].node.op_type == operator else None


def _drop_dead(graph: onnx_ir.Graph) -> None:
    """Remove nodes and constants whose results nothing reads."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
    for value in list(graph.initializers.values()):
        if value not in graph.inputs:
            drop_unread(graph, value)
