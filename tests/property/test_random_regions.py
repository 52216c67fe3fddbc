"""Random graphs of elementwise and moving operators: each region computes what onnxruntime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.regions import region_sites, with_regions
from eqsat_opt.runtime.backends.native.sites import with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized

if why := missing() or compiler_missing():
    pytest.skip(why, allow_module_level=True)

ONE, AS_IS = OrtOptions(1), OrtOptions(1, "disabled")
UNARY = ("Sigmoid", "Tanh", "Relu", "Neg", "Abs", "Exp", "Erf", "Softsign", "LeakyRelu", "Floor")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
MOVES = ("split", "transpose", "reshape", "concat", "expand")
TOGETHER = 12
"""Models of which one library is compiled: the compiler takes longer to start than for a kernel."""


class Writer:
    """Values of known shapes, and the nodes that make them."""

    def __init__(self, draw: Any, prefix: str) -> None:
        self.draw, self.prefix = draw, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def node(self, op: str, inputs: list[str], *shapes: tuple[int, ...], **attrs: Any) -> None:
        names = [f"{self.prefix}v{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        self.shapes.update(zip(names, shapes, strict=True))

    def constant(self, value: list[int]) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def value(self) -> str:
        return str(self.draw(st.sampled_from(sorted(self.shapes))))

    def step(self) -> None:
        x = self.value()
        shape = self.shapes[x]
        op = self.draw(st.sampled_from(UNARY + BINARY * 3 + MOVES * 2 + ("product",)))
        if op in UNARY:
            self.node(op, [x], shape)
        elif op in BINARY:
            fitting = [n for n, s in self.shapes.items() if _broadcast(s, shape) is not None]
            y = self.draw(st.sampled_from(fitting))
            result = _broadcast(self.shapes[y], shape)
            assert result is not None
            self.node(op, [x, y], result)
        elif op == "product":
            w = f"{self.prefix}w{len(self.constants)}"
            matrix = np.random.default_rng(len(self.constants)).standard_normal((shape[-1], 6))
            self.constants.append(numpy_helper.from_array(matrix.astype(np.float32) / 3, w))
            self.node("MatMul", [x, w], (*shape[:-1], 6))
        else:
            self.move(op, x, shape)

    def move(self, op: str, x: str, shape: tuple[int, ...]) -> None:
        axis = self.draw(st.integers(0, len(shape) - 1))
        match op:
            case "split" if shape[axis] > 1:
                at = self.draw(st.integers(1, shape[axis] - 1))
                sizes = self.constant([at, shape[axis] - at])
                parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in (at, shape[axis] - at)]
                self.node("Split", [x, sizes], *parts, axis=axis)
            case "transpose":
                perm = self.draw(st.permutations(range(len(shape))))
                self.node("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)
            case "reshape":
                new = self.draw(st.sampled_from(_reshapes(shape)))
                self.node("Reshape", [x, self.constant(list(new))], new)
            case "concat":
                rest = (*shape[:axis], -1, *shape[axis + 1 :])
                same = [
                    n
                    for n, s in self.shapes.items()
                    if len(s) == len(shape) and (*s[:axis], -1, *s[axis + 1 :]) == rest
                ]
                y = self.draw(st.sampled_from(same))
                total = shape[axis] + self.shapes[y][axis]
                self.node("Concat", [x, y], (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)
            case "expand":
                new = (2, *shape)
                self.node("Expand", [x, self.constant(list(new))], new)


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        return None


def _reshapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    size = int(np.prod(shape))
    halves = [(size // d, d) for d in (1, 2, 3, 4, 6) if size % d == 0]
    return [(size,), *halves, *((a, 1, b) for a, b in halves)]


@st.composite
def models(draw: Any) -> list[onnx.ModelProto]:
    """A few models, small enough that all orders of loops and borders occur."""
    found = []
    for i in range(TOGETHER):
        writer = Writer(draw, f"m{i}")
        shapes = draw(
            st.lists(
                st.sampled_from([(4, 6), (1, 6), (6,), (2, 1, 6), (1,)]), min_size=2, max_size=3
            )
        )
        for k, shape in enumerate(shapes):
            writer.shapes[f"m{i}x{k}"] = shape
        inputs = dict(writer.shapes)
        for _ in range(draw(st.integers(2, 14))):
            writer.step()
        read = {name for node in writer.nodes for name in node.input}
        outputs = [n for n in writer.shapes if n not in inputs and n not in read]
        outputs += [n for n in writer.shapes if n in read and n not in inputs][:1]
        float32 = TensorProto.FLOAT
        graph = helper.make_graph(
            writer.nodes,
            "random",
            [helper.make_tensor_value_info(n, float32, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, float32, writer.shapes[n]) for n in outputs],
            writer.constants,
        )
        opsets = [helper.make_opsetid("", 17)]
        found.append(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    return found


@settings(max_examples=2)
@given(models())
def test_regions_compute_what_onnxruntime_does(given_models: list[onnx.ModelProto]) -> None:
    made = []
    for model in given_models:
        named = with_names(ort_optimized(model, ONE))
        sites = region_sites(named, AS_IS)
        made.append(with_ways(named, [(site, site.ways[0]) for site in sites]))
        onnx.checker.check_model(model)
    options = with_regions(AS_IS, [node for one in made for node in one.graph.node])
    for model, other in zip(given_models, made, strict=True):
        rng = np.random.default_rng(0)
        feeds = {
            value.name: rng.standard_normal(
                [d.dim_value for d in value.type.tensor_type.shape.dim]
            ).astype(np.float32)
            for value in model.graph.input
        }
        expected = OrtSession(model, ONE).run(feeds)
        assert output_error(OrtSession(other, options).run(feeds), expected) < 1e-5
