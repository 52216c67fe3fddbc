"""Small graphs for tests: a builder, and a hypothesis strategy of random typed graphs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, attributes
from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.values.dims import Dim, SymDim, sym
from eqsat_opt.ir.values.types import OtherType, StaticType, TensorType, ValueType, require_static

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["GraphMaker", "as_dim", "evaluate", "random_inputs", "typed_graphs"]


def as_dim(value: int | str | SymDim) -> Dim:
    """Return a size; a text becomes a symbolic one."""
    return sym(value) if isinstance(value, str) else value


class GraphMaker:
    """A builder of a typed graph, node by node; every method returns the name of a value.

    >>> g = GraphMaker()
    >>> x = g.input("x", 2, 4)
    >>> y = g("MatMul", x, g.weight(4, 3))
    >>> str(g.graph(y).types[y])
    'float32[2,3]'
    """

    def __init__(self, seed: int = 0) -> None:
        """Begin an empty graph; ``seed`` fixes the values of all weights."""
        self._rng = np.random.default_rng(seed)
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._constants: dict[str, Constant] = {}
        self._types: dict[str, ValueType] = {}

    def input(self, name: str, *shape: Dim | str, dtype: str = "float32") -> str:
        """Add a graph input; a size that is a text is symbolic."""
        self._types[name] = TensorType(dtype, tuple(as_dim(d) for d in shape))
        self._inputs.append(name)
        return name

    def constant(self, array: Array) -> str:
        """Add a compile-time constant."""
        name = f"c{len(self._constants)}"
        type_ = StaticType(str(array.dtype), array.shape)
        data = str(type_).encode() + b":" + array.tobytes()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        self._constants[name] = Constant(type_, digest, lambda: array)
        self._types[name] = type_
        return name

    def weight(self, *shape: int) -> str:
        """Add a float32 constant with random normal elements."""
        return self.constant(self._rng.standard_normal(shape).astype(np.float32))

    def __call__(self, op: str, *operands: str, **attrs: Any) -> str:
        """Apply an operator of the registry; all its attributes must be given.

        Raises:
            IllTyped: the operands do not fit.
        """
        types = [self.type(name) for name in operands]
        name = f"v{len(self._nodes)}"
        self._types[name] = get_op(op).type_fn(types, attrs)
        self._nodes.append(Node(op, operands, (name,), attributes(**attrs), name=name))
        return name

    def conv(
        self, x: str, w: str, *bias: str, stride: int = 1, pad: int = 0, group: int = 1
    ) -> str:
        """Add a convolution with equal strides and pads on all axes."""
        axes = self.type(x).rank - 2
        attrs = {"strides": (stride,) * axes, "pads": (pad,) * 2 * axes, "dilations": (1,) * axes}
        return self("Conv", x, w, *bias, **attrs, group=group)

    def opaque(
        self, op_type: str, *operands: str, outputs: tuple[ValueType, ...]
    ) -> tuple[str, ...]:
        """Add a node that the registry does not know."""
        number = len(self._nodes)
        names = tuple(f"v{number}_{i}" for i in range(len(outputs)))
        self._types.update(zip(names, outputs, strict=True))
        self._nodes.append(Node(OPAQUE, operands, names, name=f"{op_type}{number}"))
        return names

    def type(self, name: str) -> TensorType:
        """Return the type of a value that exists."""
        type_ = self._types[name]
        if isinstance(type_, OtherType):
            raise TypeError(f"{name} is not a tensor but {type_}")
        return type_

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value that exists, all of it literal."""
        return require_static(self.type(name)).shape

    def graph(self, *outputs: str) -> Graph:
        """Return the graph, checked."""
        graph = Graph(
            inputs=tuple(self._inputs),
            outputs=outputs,
            nodes=tuple(self._nodes),
            constants=self._constants,
            types=self._types,
        )
        graph.check()
        return graph


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Draw double precision values for all inputs of a static graph."""
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(graph.static_type(n).shape) for n in graph.inputs}


def evaluate(graph: Graph, inputs: dict[str, Array]) -> list[Array]:
    """Return the outputs of a graph without opaque nodes.

    The registry computes them in double precision.
    """
    from eqsat_opt.ir.ops.domains import FLOAT

    values = dict(inputs)
    for name, constant in graph.constants.items():
        array = constant.load()
        values[name] = array.astype(np.float64) if array.dtype.kind == "f" else array
    for node in graph.nodes:
        attrs = {k: "float64" if k == "dtype" else v for k, v in node.attrs}
        values[node.output] = get_op(node.op).eval_fn(
            FLOAT, [values[i] for i in node.inputs], attrs
        )
    return [values[name] for name in graph.outputs]


# Random graphs -----------------------------------------------------------------------------------

_UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg")
_BINARY = ("Add", "Mul", "Sub")


def _step(draw: Any, st: Any, maker: GraphMaker, values: list[str]) -> str:
    """Add an operator on existing values, with operands that fit."""
    x = draw(st.sampled_from(values))
    shape = maker.shape(x)
    rank = len(shape)
    same = [v for v in values if maker.shape(v) == shape]
    kinds = ["unary", "binary", "literal", "slice", "concat", "transpose"]
    # Operators that most rules match are drawn more often than plain elementwise ones.
    kinds += ["matmul", "products"] * 2 if rank == 2 else []
    kinds += ["conv", "siblings", "pool"] * 3 if rank == 4 else []
    match draw(st.sampled_from(kinds)):
        case "unary":
            return maker(draw(st.sampled_from(_UNARY)), x)
        case "binary":
            return maker(draw(st.sampled_from(_BINARY)), x, draw(st.sampled_from(same)))
        case "literal":
            number = np.float32(draw(st.sampled_from((0.5, 1.0, 2.0))))
            weight = draw(st.sampled_from(("scalar", "vector")))
            other = (
                maker.constant(np.asarray(number))
                if weight == "scalar"
                else maker.weight(*shape[-1:])
            )
            return maker(draw(st.sampled_from(_BINARY)), x, other)
        case "slice":
            axis = draw(st.integers(0, rank - 1))
            lo = draw(st.integers(0, shape[axis] - 1))
            return maker("Slice", x, axis=axis, lo=lo, hi=draw(st.integers(lo + 1, shape[axis])))
        case "concat":
            return maker(
                "Concat", x, draw(st.sampled_from(same)), axis=draw(st.integers(0, rank - 1))
            )
        case "transpose":
            return maker("Transpose", x, perm=tuple(draw(st.permutations(range(rank)))))
        case "matmul":
            fitting = [
                v for v in values if len(maker.shape(v)) == 2 and maker.shape(v)[0] == shape[1]
            ]
            other = draw(st.sampled_from([*fitting, ""])) or maker.weight(
                shape[1], draw(st.integers(1, 4))
            )
            return maker("MatMul", x, other)
        case "products":
            columns = draw(st.integers(1, 4))
            y = draw(st.sampled_from(same))
            products = [maker("MatMul", v, maker.weight(shape[1], columns)) for v in (x, y)]
            return maker("Add", *products)
        case "pool":
            attrs = {
                "kernel": (2, 2),
                "strides": (1, 1),
                "pads": (1, 1, 0, 0),
                "dilations": (1, 1),
                "ceil": 0,
            }
            if draw(st.booleans()):
                return maker("MaxPool", x, **attrs)
            return maker("AveragePool", x, **attrs, count_include_pad=draw(st.integers(0, 1)))
        case "conv":
            kernel = draw(st.sampled_from((1, 3)))
            group = draw(st.sampled_from([g for g in (1, 2) if shape[1] % g == 0]))
            weight = maker.weight(shape[1], shape[1] // group, kernel, kernel)
            product = maker.conv(x, weight, pad=kernel // 2, group=group)
            return maker("Add", product, x) if draw(st.booleans()) else product
        case _:
            outputs = [draw(st.integers(1, 3)) for _ in range(2)]
            kernels = [draw(st.sampled_from((1, 3))) for _ in range(2)]
            parts = [
                maker.conv(x, maker.weight(o, shape[1], k, k), maker.weight(o), pad=k // 2)
                for o, k in zip(outputs, kernels, strict=True)
            ]
            return maker("Concat", *parts, axis=1)


def typed_graphs(max_nodes: int = 8) -> SearchStrategy[Graph]:
    """Return a strategy of random static float32 graphs to which the rules of the book apply.

    It needs hypothesis (the extra ``test``).
    """
    from hypothesis import strategies as st

    @st.composite
    def build(draw: st.DrawFn) -> Graph:
        maker = GraphMaker(draw(st.integers(0, 3)))
        rank = draw(st.sampled_from((2, 4)))
        shape: tuple[Dim, ...] = tuple(draw(st.integers(1, 4)) for _ in range(rank))
        values = [maker.input(f"x{i}", *shape) for i in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(min(3, max_nodes), max_nodes))):
            value = _step(draw, st, maker, values)
            if require_static(maker.type(value)).size <= 1024:
                values.append(value)
        used = set(draw(st.lists(st.sampled_from(values), max_size=2)))
        return maker.graph(*dict.fromkeys([*sorted(used), values[-1]]))

    return build()
