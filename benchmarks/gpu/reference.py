"""The reference executor: every operator as the registry defines it, in NumPy, node after node.

It is slow and defines the meaning of a model: the constant folder and the rule checks evaluate the
same definitions. Operators that the registry does not know are run by onnx's own reference
implementation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx.reference import ReferenceEvaluator

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, sized
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.folding import evaluate
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.types import type_proto
from eqsat_opt.ir.values.dims import SymDim, plain_symbol
from eqsat_opt.ir.values.types import TensorType, numpy_dtype
from eqsat_opt.runtime.source import Feeds, ModelSource, read_structure

__all__ = ["ReferenceSession"]


class ReferenceSession:
    """A model ready to be evaluated in NumPy.

    Raises:
        ModelError: the model is not valid.
    """

    def __init__(self, model: ModelSource) -> None:
        self._model = load_model(read_structure(model) if isinstance(model, bytes) else model)
        self._graph: Graph = import_model(self._model)
        self._defaults = {
            name: value.const_value
            for name, value in self._model.graph.initializers.items()
            if name in self._graph.inputs
        }
        self._evaluators: dict[int, ReferenceEvaluator] = {}

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""
        return tuple(name for name in self._graph.inputs if name not in self._defaults)

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""
        return self._graph.outputs

    def run(self, feeds: Feeds) -> list[Any]:
        """Return all outputs in order, as fresh arrays.

        Sequences are lists, and absent optionals are None.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a node cannot be evaluated.
        """
        graph = self._graph
        sizes: dict[str, int] = {}
        values: dict[str, Any] = {}
        for name in graph.inputs:
            values[name] = self._input(name, feeds)
            _bind_sizes(graph, name, values[name], sizes)
        pending = Counter(graph.uses)
        for number, node in enumerate(graph.nodes):
            operands = {name: self._operand(name, values) for name in node.reads}
            for name, value in self._outputs(number, node, operands, sizes).items():
                values[name] = value
                _bind_sizes(graph, name, value, sizes)
            for name in node.reads:
                pending[name] -= 1
                if not pending[name]:
                    values.pop(name, None)
        results = (self._operand(name, values) for name in graph.outputs)
        return [np.array(r) if isinstance(r, np.ndarray | np.generic) else r for r in results]

    def _operand(self, name: str, values: Mapping[str, Any]) -> Any:
        constant = self._graph.constants.get(name)
        return values[name] if constant is None else np.asarray(constant.load())

    def _input(self, name: str, feeds: Feeds) -> Any:
        if name not in feeds:
            default = self._defaults.get(name)
            if default is None:
                raise RuntimeFailed(f"no value is given for input {name!r}")
            return np.asarray(default.numpy())
        value, type_ = feeds[name], self._graph.tensor_type(name)
        if type_ is None:
            return value
        array = np.asarray(value)
        fits = array.ndim == type_.rank and all(
            isinstance(dim, SymDim) or dim == size
            for dim, size in zip(type_.shape, array.shape, strict=True)
        )
        if not fits or (array.dtype != numpy_dtype(type_.dtype) and type_.dtype != "string"):
            given = TensorType(str(array.dtype), array.shape)
            raise RuntimeFailed(f"input {name!r} is {type_}; {given} was given")
        return array

    def _outputs(
        self, number: int, node: Node, operands: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> dict[str, Any]:
        """Compute the values of one node by name."""
        try:
            with np.errstate(all="ignore"):
                if node.op == OPAQUE:
                    return self._opaque(number, node, operands)
                type_ = self._graph.tensor_type(node.output)
                assert type_ is not None  # the registry types every operator that it knows
                literal = replace(node, attrs=sized(node.attrs, sizes))
                arrays = [operands[name] for name in node.inputs]
                return {node.output: evaluate(literal, arrays, type_)}
        except (
            Exception
        ) as error:  # NumPy and the reference implementation raise whatever they meet
            op_type = node.op if node.payload is None else node.payload.op_type
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            where = node.name or next((name for name in node.outputs if name), "")
            raise RuntimeFailed(f"cannot evaluate {op_type} {where!r}: {reason}") from error

    def _opaque(self, number: int, node: Node, operands: Mapping[str, Any]) -> dict[str, Any]:
        if number not in self._evaluators:
            self._evaluators[number] = ReferenceEvaluator(self._single(node))
        names = [name for name in node.outputs if name]
        results = self._evaluators[number].run(None, dict(operands))
        return dict(zip(names, results, strict=True))

    def _single(self, node: Node) -> onnx.ModelProto:
        """Build a model of one opaque node; values that its subgraphs capture become inputs."""
        proto = onnx_ir.to_proto(node.payload)
        del proto.input[:], proto.output[:]
        proto.input.extend(node.inputs)
        proto.output.extend(node.outputs)
        graph = onnx.helper.make_graph(
            [proto],
            "node",
            [self._value_info(name) for name in dict.fromkeys(node.reads)],
            [self._value_info(name) for name in node.outputs if name],
        )
        return onnx.helper.make_model(
            graph,
            ir_version=self._model.ir_version,
            opset_imports=[
                onnx.helper.make_opsetid(*item) for item in self._model.graph.opset_imports.items()
            ],
            functions=self._functions,
        )

    def _value_info(self, name: str) -> onnx.ValueInfoProto:
        type_ = self._graph.tensor_type(name)
        return onnx.ValueInfoProto(name=name, type=None if type_ is None else type_proto(type_))

    @cached_property
    def _functions(self) -> list[onnx.FunctionProto]:
        return [onnx_ir.to_proto(function) for function in self._model.functions.values()]


def _bind_sizes(graph: Graph, name: str, value: Any, sizes: dict[str, int]) -> None:
    """Record the sizes of symbolic dimensions that the shape of a value reveals."""
    type_ = graph.tensor_type(name)
    if isinstance(type_, TensorType) and np.ndim(value) == type_.rank:
        for dim, size in zip(type_.shape, np.shape(value), strict=True):
            if isinstance(dim, SymDim) and (symbol := plain_symbol(dim)) is not None:
                sizes.setdefault(symbol, size)
