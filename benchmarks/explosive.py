"""Graphs that cost more than they look: each kind stresses one law, one shape or one stage.

Every function takes a size and returns a valid model; sizes grow without bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["KINDS", "SIZES", "build"]

_OPSET = 17
_SEED = 7


@dataclass
class _Maker:
    """Collects nodes under fresh names."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_SEED))

    def input(self, *shape: int | str) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def constant(self, value: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def __call__(self, op: str, *operands: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    def slice(self, x: str, start: int, end: int, axis: int) -> str:
        ends = (self.constant(np.array([i], dtype=np.int64)) for i in (start, end, axis))
        return self("Slice", x, *ends)

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_value_info(name, helper.make_tensor_type_proto(1, None))
                   for name in outputs]  # fmt: skip
        graph = helper.make_graph(self.nodes, "explosive", self.inputs, results, self.weights)
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(inferred, full_check=True)
        return inferred


def _fold(make: _Maker, ops: Sequence[str], values: Sequence[str]) -> str:
    """Left-deep, the operators in turn."""
    turn = itertools.cycle(ops)
    return reduce(lambda left, right: make(next(turn), left, right), values)


def sums(n: int) -> onnx.ModelProto:
    """A sum of n inputs: associativity and commutativity."""
    make = _Maker()
    return make.model(_fold(make, ["Add"], [make.input(4, 4) for _ in range(n)]))


def sums_and_products(n: int) -> onnx.ModelProto:
    """Sums and products in turn: distributivity on top."""
    make = _Maker()
    return make.model(_fold(make, ["Add", "Mul"], [make.input(4, 4) for _ in range(n)]))


def extremes(n: int) -> onnx.ModelProto:
    """Max and Min in turn over few inputs: a lattice."""
    make = _Maker()
    few = [make.input(4, 4) for _ in range(5)]
    return make.model(_fold(make, ["Max", "Min"], [few[i % 5] for i in range(n)]))


def product_of_sums(n: int) -> onnx.ModelProto:
    """A product of n sums with one common term."""
    make = _Maker()
    common, others = make.input(4, 4), [make.input(4, 4) for _ in range(n)]
    return make.model(_fold(make, ["Mul"], [make("Add", common, x) for x in others]))


def sum_of_products(n: int) -> onnx.ModelProto:
    """A sum of n products, each sharing its factors with two others: factoring."""
    make = _Maker()
    few = [make.input(4, 4) for _ in range(n)]
    pairs = [make("Mul", few[i], few[(5 * i + 1) % n]) for i in range(n)]
    return make.model(_fold(make, ["Add"], pairs))


def weighted_sum(n: int) -> onnx.ModelProto:
    """One value under n weights, summed at once."""
    make = _Maker()
    x = make("Relu", make.input(4, 4))
    return make.model(make("Sum", *(make("Mul", x, make.weight(4, 4)) for _ in range(n))))


def matrix_chain(n: int) -> onnx.ModelProto:
    """A product of n matrices: as many orders as binary trees."""
    make = _Maker()
    return make.model(
        _fold(make, ["MatMul"], [make.input(4, 8), *(make.weight(8, 8) for _ in range(n))])
    )


def sibling_products(n: int) -> onnx.ModelProto:
    """N matrix products of one input: every pair may be merged."""
    make = _Maker()
    x = make.input(4, 16)
    return make.model(
        _fold(make, ["Mul"], [make("MatMul", x, make.weight(16, 16)) for _ in range(n)])
    )


def sibling_convolutions(n: int) -> onnx.ModelProto:
    """N convolutions of one input with two sizes of kernels, side by side."""
    make = _Maker()
    x = make.input(1, 8, 8, 8)
    branches = [
        make("Conv", x, make.weight(8, 8, k, k), pads=[k // 2] * 4)
        for k in (1 if i % 2 else 3 for i in range(n))
    ]
    return make.model(make("Concat", *branches, axis=1))


def transposes(n: int) -> onnx.ModelProto:
    """Permutations and activations in turn, which all commute."""
    make = _Maker()
    x = make.input(3, 4, 5, 6)
    orders = ([1, 0, 2, 3], [0, 2, 1, 3], [3, 0, 1, 2], [2, 3, 0, 1])
    for i in range(n):
        x = make("Tanh" if i % 3 else "Sigmoid", make("Transpose", x, perm=orders[i % 4]))
    return make.model(x)


def growing_concat(n: int) -> onnx.ModelProto:
    """A concatenation of two, n times over: nested as deep as it is long."""
    make = _Maker()
    x = make.input(2, 4)
    grown = x
    for _ in range(n):
        grown = make("Concat", grown, x, axis=0)
    return make.model(make("Relu", grown))


def dense_block(n: int) -> onnx.ModelProto:
    """As in a densely connected network: each layer reads all that came before, side by side."""
    make = _Maker()
    x = make.input(1, 8, 6, 6)
    for i in range(n):
        new = make("Conv", x, make.weight(4, 8 + 4 * i, 1, 1))
        x = make("Concat", x, make("Relu", new), axis=1)
    return make.model(x)


def open_concat(n: int) -> onnx.ModelProto:
    """The same with a symbolic extent, which grows into a long sum."""
    make = _Maker()
    parts = [make.input(f"N{i % 7}", 4) for i in range(n)]
    return make.model(make("Relu", reduce(lambda a, b: make("Concat", a, b, axis=0), parts)))


def slices(n: int) -> onnx.ModelProto:
    """N neighbouring slices of one input, put together again."""
    make = _Maker()
    x = make.input(4, n)
    parts = [make("Relu", make.slice(x, i, i + 1, 1)) for i in range(n)]
    return make.model(make("Concat", *parts, axis=1))


def nested_slices(n: int) -> onnx.ModelProto:
    """An input of n columns halved until columns are left: slices of slices."""
    make = _Maker()

    def halved(x: str, width: int) -> str:
        if width < 2:
            return make("Sigmoid", x)
        left = make.slice(x, 0, width // 2, 1)
        right = make.slice(x, width // 2, width, 1)
        return make("Concat", halved(left, width // 2), halved(right, width - width // 2), axis=1)

    return make.model(halved(make.input(3, n), n))


def overlapping_slices(n: int) -> onnx.ModelProto:
    """N windows of one input, each read twice, summed."""
    make = _Maker()
    x = make.input(2, 2 * n)
    windows = [make.slice(x, i, i + n, 1) for i in range(n)]
    return make.model(
        _fold(make, ["Add", "Mul"], [make("Add", a, b) for a, b in itertools.pairwise(windows)])
    )


def low_rank_layers(n: int) -> onnx.ModelProto:
    """N layers with adapters x W + x A B, each followed by an activation."""
    make = _Maker()
    x = make.input(4, 32)
    for _ in range(n):
        low = make("MatMul", make("MatMul", x, make.weight(32, 4)), make.weight(4, 32))
        x = make("Relu", make("Add", make("MatMul", x, make.weight(32, 32)), low))
    return make.model(x)


def recurrent(n: int) -> onnx.ModelProto:
    """N steps of a gated cell on slices of one input."""
    make = _Maker()
    x, state = make.input(n, 1, 16), make.input(1, 16)
    w, u, gate = make.weight(16, 16), make.weight(16, 16), make.weight(16, 16)
    axis = make.constant(np.array([0], dtype=np.int64))
    for step in range(n):
        now = make("Squeeze", make.slice(x, step, step + 1, 0), axis)
        new = make("Tanh", make("Add", make("MatMul", now, w), make("MatMul", state, u)))
        open_ = make("Sigmoid", make("MatMul", now, gate))
        kept = make("Mul", open_, make("Sub", state, new))
        state = make("Add", kept, new)
    return make.model(state)


def dear_constants(n: int) -> onnx.ModelProto:
    """A product of n constant matrices: nothing is large but what folding it takes."""
    make = _Maker()
    square = make.constant((make.random.standard_normal((1024, 1024)) / 32).astype(np.float32))
    return make.model(make("MatMul", make.input(4, 1024), _fold(make, ["MatMul"], [square] * n)))


_TENTH = np.array([0.1], np.float32)


def dear_fills(n: int) -> onnx.ModelProto:
    """Products of n large matrices of one number, which onnxruntime folds as it loads them."""
    make = _Maker()
    shape = make.constant(np.array([3000, 3000], np.int64))
    square = make("ConstantOfShape", shape, value=numpy_helper.from_array(_TENTH))
    return make.model(make("Add", make.input(3000), _fold(make, ["MatMul"], [square] * n)))


def functions(n: int) -> onnx.ModelProto:
    """N functions, each of which calls the one before twice: 2^n nodes once they are written out.

    A node of each kind stands on either side of the call.
    """
    make = _Maker()
    model = make.model(make("Relu", make("Neg", make.input(4))))
    first, last = model.graph.node
    call = helper.make_node(f"f{n}", first.output, ["called"], domain="own")
    last.input[0] = "called"
    model.graph.node.insert(1, call)
    domains = [*model.opset_import, helper.make_opsetid("own", 1)]
    bodies = [[helper.make_node("Tanh", ["a"], ["b"])]]
    for k in range(n):
        names = ("a", "m"), ("m", "b")
        bodies.append([helper.make_node(f"f{k}", [i], [o], domain="own") for i, o in names])
    for k, nodes in enumerate(bodies):
        one = helper.make_function("own", f"f{k}", ["a"], ["b"], nodes, domains)
        model.functions.append(one)
    model.opset_import.append(domains[-1])
    return model


def dear_runs(n: int) -> onnx.ModelProto:
    """N products of large activations: nothing is large but what running it takes."""
    make = _Maker()
    x, other = make.input(1024, 1024), make.input(1024, 1024)
    for _ in range(n):
        x = make("Tanh", make("MatMul", x, other))
    return make.model(x)


def heavy_weights(n: int) -> onnx.ModelProto:
    """N layers of 16 MB each: nothing takes long but to read, copy and write them."""
    make = _Maker()
    x = make.input(1, 2048)
    for _ in range(n):
        x = make("Relu", make("MatMul", x, make.weight(2048, 2048)))
    return make.model(x)


def large_convolutions(n: int) -> onnx.ModelProto:
    """N convolutions of large images, which have other algorithms, before heavy layers."""
    make = _Maker()
    x = make.input(1, 64, 112, 112)
    for _ in range(n):
        x = make("Relu", make("Conv", x, make.weight(64, 64, 3, 3), pads=[1] * 4))
    flat = make("Flatten", make("GlobalAveragePool", x))
    return make.model(make("MatMul", make("MatMul", flat, make.weight(64, 8192)),
                           make.weight(8192, 2048)))  # fmt: skip


def wide_layers(n: int) -> onnx.ModelProto:
    """N independent towers of three layers: nothing explodes but the number of nodes."""
    make = _Maker()
    x = make.input(2, 8)
    towers = []
    for _ in range(n):
        y = x
        for _ in range(3):
            y = make("Relu", make("Add", make("MatMul", y, make.weight(8, 8)), make.weight(8)))
        towers.append(y)
    return make.model(make("Concat", *towers, axis=1))


KINDS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    kind.__name__: kind
    for kind in (
        sums, sums_and_products, extremes, product_of_sums, sum_of_products, weighted_sum,
        matrix_chain, sibling_products, sibling_convolutions, transposes, growing_concat,
        dense_block, open_concat, slices, nested_slices, overlapping_slices, low_rank_layers,
        recurrent, wide_layers, dear_constants, dear_fills, functions, dear_runs, heavy_weights,
        large_convolutions,
    )
}  # fmt: skip

SIZES: Mapping[str, tuple[int, ...]] = {
    "sums": (24, 200),
    "sums_and_products": (24, 200),
    "extremes": (24, 200),
    "product_of_sums": (16, 100),
    "sum_of_products": (16, 100),
    "weighted_sum": (24, 200),
    "matrix_chain": (12, 60),
    "sibling_products": (16, 64),
    "sibling_convolutions": (16, 48),
    "transposes": (24, 100),
    "growing_concat": (40, 200),
    "dense_block": (12, 40),
    "open_concat": (40, 200),
    "slices": (32, 128),
    "nested_slices": (32, 128),
    "overlapping_slices": (16, 64),
    "low_rank_layers": (12, 60),
    "recurrent": (16, 64),
    "wide_layers": (50, 500),
    "dear_fills": (2, 4),
    "functions": (12, 30),
    "dear_constants": (40, 400),
    "dear_runs": (40, 400),
    "heavy_weights": (5, 40),
    "large_convolutions": (4, 24),
}
"""A graph of moderate size, and a large one."""


def build(name: str) -> onnx.ModelProto:
    """The model of ``kind@size``."""
    kind, _, size = name.partition("@")
    return KINDS[kind](int(size))
