"""An ONNX model in the making, every node of which onnxruntime has already run.

A node is drawn with its operands' values at hand: what the runtime refuses is not drawn, and the
result's type and shape are those of the value that it gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "BFLOAT16",
    "FLOATS",
    "INTEGERS",
    "LOCAL",
    "Array",
    "Draft",
    "Impossible",
    "Value",
    "array_of",
    "code_of",
    "finfo",
    "loaded",
    "runs",
]

Array = npt.NDArray[Any]

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16)
INTEGERS = tuple(
    np.dtype(name)
    for name in ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
)
_CODES = {BFLOAT16: TensorProto.BFLOAT16}
_IR_VERSIONS = {range(7, 8): 3, range(8, 15): 4, range(15, 19): 8, range(19, 21): 9}
LOCAL = "edge"
"""The domain of a model's own functions."""
_LARGEST = 400
"""Elements of a value, at most."""


class Impossible(Exception):
    """This cannot be drawn here."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model, with what it is for the first feed."""

    name: str
    array: Array = field(compare=False)
    constant: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def finfo(dtype: np.dtype[Any]) -> Any:
    """The limits of a floating point type, brain floats among them."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def code_of(dtype: np.dtype[Any]) -> int:
    return _CODES.get(dtype) or int(helper.np_dtype_to_tensor_dtype(dtype))


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A model as it stands: nothing is fused or folded."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def loaded(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session; raises :class:`Impossible` where onnxruntime refuses the model."""
    try:
        return session(model)
    except Exception as error:  # onnxruntime raises unrelated classes
        raise Impossible(str(error)) from error


def runs(
    model: onnx.ModelProto | onnxruntime.InferenceSession, feeds: Mapping[str, Array]
) -> list[Array]:
    """Outputs; raises :class:`Impossible` where onnxruntime does."""
    opened = loaded(model) if isinstance(model, onnx.ModelProto) else model
    try:
        return list(opened.run(None, dict(feeds)))
    except Exception as error:
        raise Impossible(str(error)) from error


def proto(array: Array, name: str) -> TensorProto:
    if array.dtype == BFLOAT16:
        raw = array.view(np.uint16).tobytes()
        return helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, raw, raw=True)
    return numpy_helper.from_array(array, name)


def _limits(dtype: np.dtype[Any]) -> list[float]:
    info = finfo(dtype)
    tiny, least = float(info.tiny), float(info.smallest_subnormal)
    largest = float(info.max)
    return [np.inf, -np.inf, np.nan, 0.0, -0.0, least, -tiny / 2, tiny, -largest, largest]


def array_of(random: Random, dtype: np.dtype[Any], shape: Sequence[int], kind: str = "") -> Array:
    """An array of a kind: ordinary numbers, special ones, masks, gates, or what is large or small.

    Args:
        random: the source of all choices.
        dtype: element type.
        shape: any, also without elements.
        kind: one of the kinds; drawn if empty.
    """
    rng = np.random.default_rng(random.randrange(1 << 30))
    kind = kind or random.choice(("ordinary",) * 6 + ("special", "special", "ones", "zeros", "end"))
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        plain = rng.integers(0 if limits.min == 0 else -3, 4, shape).astype(dtype)
        if kind in ("special", "end"):
            ends = rng.choice(np.array([limits.min, limits.max, 0, 1], dtype), size=shape)
            return np.where(rng.random(shape) < 0.4, ends, plain).astype(dtype)
        return np.full(shape, kind == "ones", dtype) if kind in ("ones", "zeros") else plain
    with np.errstate(all="ignore"):
        numbers = np.asarray(rng.standard_normal(shape)).astype(dtype)
        largest = float(finfo(dtype).max)
        match kind:
            case "special":
                edges = _limits(dtype)[: 10 if random.random() < 0.2 else 8]
                ends = rng.choice(np.array(edges), size=shape).astype(dtype)
                return np.where(rng.random(shape) < 0.3, ends, numbers).astype(dtype)
            case "mask":
                low = random.choice((-np.inf, -largest, -1e9, -1e4))
                hidden = rng.random(shape) < random.choice((0.3, 1.0))
                return np.where(hidden, low, 0).astype(dtype)
            case "gate":
                return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
            case "end":
                exponent = random.choice((0.4, 0.6, 0.8, -0.4, -0.6, -0.8))
                return np.asarray(numbers * largest**exponent).astype(dtype)
            case "ones" | "zeros":
                return np.full(shape, kind == "ones", dtype)
    return numbers


@dataclass
class Draft:
    """A graph in the making.

    Attributes:
        random: the source of all choices.
        opset: of the default domain.
        prefix: of all new names.
        outer: the graph around a subgraph, whose values it captures.
    """

    random: Random
    opset: int
    prefix: str = ""
    outer: Draft | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    count: int = 0
    full: bool = False
    """Whether no extent may be 0, because onnxruntime fails on what was drawn."""
    plain: bool = False
    """Whether inputs are ordinary numbers, because onnxruntime carries others along."""

    def __post_init__(self) -> None:
        if self.outer is not None:
            self.functions = self.outer.functions

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}v{self.count}"

    @property
    def ir_version(self) -> int:
        return next((v for opsets, v in _IR_VERSIONS.items() if self.opset in opsets), 10)

    def model(
        self, graph: onnx.GraphProto, functions: Sequence[onnx.FunctionProto]
    ) -> onnx.ModelProto:
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(LOCAL, 1)] if functions else []
        return helper.make_model(
            graph,
            opset_imports=imports,
            ir_version=8 if functions and self.ir_version < 8 else self.ir_version,
            functions=list(functions),
        )

    # ** operands **

    def visible(self) -> list[Value]:
        return [*(self.outer.visible() if self.outer else ()), *self.values]

    def pick(self, wanted: Callable[[Value], bool] = lambda _: True) -> Value:
        """One of the values that fit, a late one rather than an early one."""
        fitting = [value for value in self.visible() if wanted(value)]
        if not fitting:
            raise Impossible
        late = fitting[-3:]
        return self.random.choice(late if self.random.random() < 0.6 else fitting)

    def floating(self, *ranks: int) -> Value:
        return self.pick(lambda v: v.dtype in FLOATS and (not ranks or len(v.shape) in ranks))

    def constant(self, array: Array) -> Value:
        value = Value(self.name(), np.asarray(array), constant=True)
        if self.random.random() < 0.8 or value.dtype == BFLOAT16:
            self.initializers.append(proto(value.array, value.name))
        else:
            tensor = proto(value.array, value.name)
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
        return value

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, like: Value, number: float) -> Value:
        return self.constant(np.asarray(number).astype(like.dtype))

    def beside(self, x: Value, shape: Sequence[int] | None = None, kind: str = "") -> Value:
        """A constant with the element type of ``x`` that broadcasts to it."""
        if shape is None:
            start = self.random.randint(0, len(x.shape))
            shape = [d if self.random.random() < 0.7 else 1 for d in x.shape[start:]]
        return self.constant(array_of(self.random, x.dtype, shape, kind))

    def partner(self, x: Value) -> Value:
        """An operand of the same element type that broadcasts: a constant or any other value."""
        if self.random.random() < 0.5:
            return self.beside(x)

        def fits(v: Value) -> bool:
            if v.dtype != x.dtype:
                return False
            try:
                np.broadcast_shapes(v.shape, x.shape)
            except ValueError:
                return False
            return True

        return self.pick(fits)

    # ** nodes **

    def op(self, op_type: str, *operands: Value | None, **attributes: Any) -> Value:
        return self.ops(op_type, *operands, outputs=1, **attributes)[0]

    def ops(
        self,
        op_type: str,
        *operands: Value | None,
        outputs: int,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Run a node on the values that it will have, and add it."""
        names = [v.name if v is not None else "" for v in operands]
        results = [self.name() for _ in range(outputs)]
        node = helper.make_node(
            op_type, names, results, name=f"n_{results[0]}", domain=domain, **attributes
        )
        return self.add(node, [v for v in operands if v is not None])

    def add(self, node: onnx.NodeProto, read: Sequence[Value]) -> list[Value]:
        """Add a node that reads ``read``, captured values included."""
        arrays = self._run_one(node, {v.name: v for v in read})
        if any(array.size > _LARGEST for array in arrays):
            raise Impossible("too large")
        self.nodes.append(node)
        fixed = all(v.constant for v in read)
        made = [Value(n, a, fixed) for n, a in zip(node.output, arrays, strict=True)]
        self.values += made
        return made

    def _run_one(self, node: onnx.NodeProto, read: Mapping[str, Value]) -> list[Array]:
        """Brain floats, which Python cannot feed, go in as constants and come out cast."""
        feeds = {n: v.array for n, v in read.items() if v.dtype != BFLOAT16}
        inputs = [
            helper.make_tensor_value_info(n, code_of(a.dtype), a.shape) for n, a in feeds.items()
        ]
        weights = [proto(v.array, n) for n, v in read.items() if n not in feeds]
        nodes, outputs = [node], list(node.output)
        plain = [helper.make_empty_tensor_value_info(n) for n in outputs]
        functions = self.functions if node.domain or _has_graphs(node) else []
        graph = helper.make_graph(nodes, "one", inputs, plain, weights)
        try:
            return runs(self.model(graph, functions), feeds)
        except Impossible:
            if not any(v.dtype == BFLOAT16 for v in read.values()) and node.op_type != "Cast":
                raise
        casts = [
            helper.make_node("Cast", [n], [f"{n}_plain"], to=TensorProto.FLOAT) for n in outputs
        ]
        ends = [
            helper.make_tensor_value_info(f"{n}_plain", TensorProto.FLOAT, None) for n in outputs
        ]
        graph = helper.make_graph([node, *casts], "one", inputs, ends, weights)
        return [a.astype(BFLOAT16) for a in runs(self.model(graph, functions), feeds)]


def _has_graphs(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") for attribute in node.attribute)
