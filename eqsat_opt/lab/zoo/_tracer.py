"""Recording of an ONNX graph while it is computed on one sample input.

Tracing with real activations gives two things at once: shapes need no inference, and layers can be
scaled by the activations that reach them (see `eqsat_opt.lab.zoo._builder`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper

from eqsat_opt.lab.zoo._evaluate import IR_VERSION, OPSET, Attribute, evaluator, make_node

__all__ = ["Array", "TracedValue", "Tracer"]

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TracedValue:
    """A tensor of the graph under construction and its value for the sample input."""

    name: str
    sample: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the tensor."""
        return self.sample.shape


class Tracer:
    """A recorder of nodes, initializers and inputs that evaluates every node as it is added.

    Attributes:
        rng: source of the weights; the sample inputs come from a stream of their own, so that
            neither depends on the other.
    """

    def __init__(self, name: str, seed: int) -> None:
        weight_seed, sample_seed = np.random.SeedSequence(seed).spawn(2)
        self.rng = np.random.default_rng(weight_seed)
        self._sample_rng = np.random.default_rng(sample_seed)
        self._evaluate = evaluator()
        self._counts: Counter[str] = Counter()
        # The model is filled in place: appending a finished TensorProto would copy all of its
        # weights.
        self._model = ModelProto(ir_version=IR_VERSION, producer_name="eqsat_opt.lab.zoo")
        self._model.opset_import.append(helper.make_opsetid("", OPSET))
        self._graph = self._model.graph
        self._graph.name = name

    def input(self, name: str, shape: tuple[int, ...]) -> TracedValue:
        """Declare a float graph input; its sample is standard normal."""
        self._graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return TracedValue(name, self._sample_rng.standard_normal(shape, dtype=np.float32))

    def initializer(self, array: npt.NDArray[Any], kind: str) -> TracedValue:
        """Add a weight or constant, named after its `kind`."""
        name = self._fresh(kind)
        tensor = self._graph.initializer.add(name=name, dims=array.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.raw_data = array.tobytes()
        return TracedValue(name, array)

    def evaluate(
        self, op_type: str, *arrays: npt.NDArray[Any], **attributes: Attribute
    ) -> npt.NDArray[Any]:
        """Compute an operator without adding it to the graph."""
        return self._evaluate(op_type, arrays, attributes)

    def op(self, op_type: str, *inputs: TracedValue, **attributes: Attribute) -> TracedValue:
        """Add a node of the default domain with one output."""
        sample = self.evaluate(op_type, *(value.sample for value in inputs), **attributes)
        return self.record(op_type, inputs, attributes, sample)

    def record(
        self,
        op_type: str,
        inputs: tuple[TracedValue, ...],
        attributes: Mapping[str, Attribute],
        sample: npt.NDArray[Any],
    ) -> TracedValue:
        """Add a node whose output for the sample input is already known."""
        name = self._fresh(op_type.lower())
        self._graph.node.append(
            make_node(op_type, [value.name for value in inputs], name, attributes)
        )
        return TracedValue(name, sample)

    def model(self, outputs: Mapping[str, TracedValue]) -> ModelProto:
        """Close the graph: the values become outputs under the given names, in that order.

        The model is handed over, not copied, so the tracer cannot be used afterwards.
        """
        renamed = {value.name: name for name, value in outputs.items()}
        for node in self._graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        for name, value in outputs.items():
            info = helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
            self._graph.output.append(info)
        return self._model

    def _fresh(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind]}"
