"""One configuration of an operator, in the three ways in which ONNX and the registry can meet.

A configuration knows its ONNX model, which others run, and what the registry computes for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir
from onnx import helper, numpy_helper

from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import DTYPE_CODES, StaticType, TensorType, numpy_dtype
from eqsat_opt.lab.testing import GraphMaker

__all__ = ["Configuration", "Exported", "Fixed", "Imported", "Operand", "Spelled", "ints"]

IR_VERSION = 8
"""Old enough for every runtime, new enough for initializers that are no inputs."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """An operand that is part of the model, an initializer."""

    array: Array


def ints(values: Sequence[int]) -> Fixed:
    """A vector of ``int64`` in the model."""
    return Fixed(np.asarray(values, np.int64))


Operand = Array | Fixed | None
"""Fed, part of the model, or absent."""


class Configuration(Protocol):
    """One comparison."""

    @property
    def op(self) -> str:
        """The operator of the registry that is compared."""
        ...

    @property
    def opset(self) -> int:
        """The operator set of the model."""
        ...

    @property
    def label(self) -> str:
        """Enough to write the model down again."""
        ...

    @property
    def feeds(self) -> Mapping[str, Array]:
        """The inputs of the model."""
        ...

    def model(self) -> onnx.ModelProto:
        """The ONNX model, with types inferred by onnx."""
        ...

    def ours(self, model: onnx.ModelProto) -> list[Array]:
        """The outputs as the registry defines them.

        Raises:
            AssertionError: the registry does not know the model, or contradicts its own types.
        """
        ...


def applied(op: str, operands: Sequence[Array], attrs: Mapping[str, Any]) -> Array:
    """What the registry computes in floating point, checked against what its types say."""
    types = [TensorType(str(a.dtype), tuple(int(d) for d in a.shape)) for a in operands]
    expected = get_op(op).type_fn(types, attrs)
    with np.errstate(all="ignore"):
        result = np.asarray(get_op(op).eval_fn(FLOAT, operands, attrs))
    assert result.shape == expected.shape, f"{op}: {result.shape} is no {expected}"
    assert result.dtype == numpy_dtype(expected.dtype), f"{op}: {result.dtype} is no {expected}"
    return result


def inferred(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    fixed: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    """A valid model whose output types are what onnx infers from its inputs."""
    inputs = [
        helper.make_tensor_value_info(name, DTYPE_CODES[str(array.dtype)], array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "configuration",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in fixed.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    onnx.checker.check_model(model)
    return model


def _written(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


@dataclass(frozen=True, eq=False)
class Imported:
    """An ONNX node that the import maps to registry operators.

    Attributes:
        op: the registry operator that the imported graph must contain.
        node: the ONNX operator.
        operands: of the ONNX node, in order.
        attrs: of the ONNX node, as the model spells them.
        opset: of the model.
        outputs: how many the node has.
    """

    op: str
    node: str
    operands: Sequence[Operand]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1

    @property
    def label(self) -> str:
        """The node, its opset and operands."""
        words = [
            "-" if o is None else _written(o) if not isinstance(o, Fixed) else str(o.array.tolist())
            for o in self.operands
        ]
        words += [f"{name}={value}" for name, value in self.attrs.items()]
        return f"{self.node}-{self.opset}({', '.join(words)})"

    @property
    def dtype(self) -> str:
        """The element type of the first operand."""
        first = self.operands[0]
        assert first is not None
        return str(first.array.dtype if isinstance(first, Fixed) else first.dtype)

    @property
    def feeds(self) -> Mapping[str, Array]:
        """The operands that are no part of the model."""
        return {
            f"x{i}": np.asarray(operand)
            for i, operand in enumerate(self.operands)
            if operand is not None and not isinstance(operand, Fixed)
        }

    def model(self) -> onnx.ModelProto:
        """A model of one node."""
        names = ["" if operand is None else f"x{i}" for i, operand in enumerate(self.operands)]
        fixed = {f"x{i}": o.array for i, o in enumerate(self.operands) if isinstance(o, Fixed)}
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.node, names, outputs, **self.attrs)
        return inferred([node], self.feeds, fixed, outputs, self.opset)

    def ours(self, model: onnx.ModelProto) -> list[Array]:
        """The imported graph, evaluated node by node."""
        graph = import_model(load_model(model))
        nodes = list(graph.live_nodes())
        found = [node.op for node in nodes]
        assert OPAQUE not in found, f"{self.label} is not understood: {found}"
        assert self.op in found, f"{self.label} is {found}, without {self.op}"
        values = dict(self.feeds)
        values |= {name: np.asarray(c.load()) for name, c in graph.constants.items()}
        for node in nodes:
            operands = [values[name] for name in node.inputs]
            values[node.output] = applied(node.op, operands, dict(node.attrs))
        return [values[name] for name in graph.outputs]


@dataclass(frozen=True, eq=False)
class Exported:
    """A registry operator and what the export writes for it in an operator set.

    Attributes:
        op: the registry operator.
        operands: of the operator; all are inputs of the model.
        attrs: of the operator, all of them.
        opset: of the model.
    """

    op: str
    operands: Sequence[Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21

    @property
    def label(self) -> str:
        """The operator, its operands and the opset."""
        words = [_written(o) for o in self.operands]
        words += [f"{name}={value}" for name, value in self.attrs.items()]
        return f"{self.op}({', '.join(words)}) written in {self.opset}"

    @property
    def feeds(self) -> Mapping[str, Array]:
        """All operands."""
        return {f"x{i}": np.asarray(operand) for i, operand in enumerate(self.operands)}

    def model(self) -> onnx.ModelProto:
        """What the export makes of a graph with this one operator."""
        maker = GraphMaker()
        names = [maker.input(n, *a.shape, dtype=str(a.dtype)) for n, a in self.feeds.items()]
        graph = maker.graph(maker(self.op, *names, **self.attrs))
        model = export_model(graph.with_nodes(graph.nodes, model=self._interface(graph.types)))
        proto = onnx.shape_inference.infer_shapes(model_proto(model), strict_mode=True)
        onnx.checker.check_model(proto)
        return proto

    def _interface(self, types: Mapping[str, Any]) -> onnx_ir.Model:
        """An empty model that asks for the operator set."""
        inputs = [_value(name, types[name]) for name in self.feeds]
        outputs = [_value(name, type_) for name, type_ in types.items() if name not in self.feeds]
        graph = onnx_ir.Graph(inputs, outputs, nodes=[], opset_imports={"": self.opset}, name="g")
        return onnx_ir.Model(graph, ir_version=IR_VERSION)

    def ours(self, _model: onnx.ModelProto) -> list[Array]:
        """The operator itself."""
        return [applied(self.op, list(self.feeds.values()), self.attrs)]


def _value(name: str, type_: StaticType) -> onnx_ir.Value:
    element = onnx_ir.TensorType(onnx_ir.DataType(DTYPE_CODES[type_.dtype]))
    return onnx_ir.Value(name=name, type=element, shape=onnx_ir.Shape(type_.shape))


@dataclass(frozen=True, eq=False)
class Spelled:
    """A registry operator that only ever becomes a constant, beside ONNX nodes that mean the same.

    Attributes:
        op: the registry operator, without operands.
        attrs: of the operator, all of them.
        nodes: ONNX nodes; the last computes ``y``.
        fixed: the initializers that they read.
        opset: of the model.
    """

    op: str
    attrs: Mapping[str, Any]
    nodes: Sequence[onnx.NodeProto]
    fixed: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 21

    @property
    def label(self) -> str:
        """The operator and the nodes beside it."""
        words = ", ".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{self.op}({words}) beside {[node.op_type for node in self.nodes]}"

    @property
    def feeds(self) -> Mapping[str, Array]:
        """None."""
        return {}

    def model(self) -> onnx.ModelProto:
        """The nodes."""
        return inferred(self.nodes, {}, self.fixed, ["y"], self.opset)

    def ours(self, _model: onnx.ModelProto) -> list[Array]:
        """The operator itself."""
        return [applied(self.op, [], self.attrs)]
