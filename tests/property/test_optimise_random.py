"""Random models keep their outputs when they are optimised, and the same seed gives the same bytes.

Two kinds of random models: typed graphs, in which operators meet in any order, and ONNX models put
together from the motifs that networks are made of, which also cross the importer. Of each e-graph
not only the cheapest graph is tried: random prices extract others, so that what every rule makes
is raised, exported and run at some time.

The number of examples comes from the hypothesis profile; more are run by
`python -m benchmarks.random_graphs --examples 500`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import event, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.api import Result, run
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing import evaluate, typed_graphs
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.select import raise_graph, rules_used, selected

Arrays = Mapping[str, npt.NDArray[Any]]

PLAIN = OrtOptions(threads=1, level="disabled")
FUSED = OrtOptions(threads=1)
SEARCH = Options(
    measure=False,
    race=False,
    check=2,
    strict=True,
    alternatives=1,
    store="",
    threads=1,
    nodes=1_500,
)
OBJECTIVES = ("launches", "flops", "bytes", "time", "launches+1e-3*flops+1e-4*weight_bytes")
# How much costlier what the model came with is, so that random prices choose what rules made.
PREJUDICE = (1.0, 10.0, 1000.0)


# What every model must survive -------------------------------------------------------------------


def optimised(model: ModelProto, objective: str) -> Result:
    result = run(model, replace(SEARCH, objective=objective))
    event("rewritten" if result.report.rules else "kept")
    return result


def random_extractions(result: Result, seed: int) -> list[Graph]:
    """Graphs of the e-graph that random prices make cheap."""
    proposal = result.proposal
    assert proposal is not None
    choice, saturation = proposal.choice, proposal.saturation
    index = choice.problem.index
    is_original = choice.priced.is_original[list(index)]
    rng = np.random.default_rng(seed)
    graphs = []
    for factor in PREJUDICE:
        times = rng.uniform(0, 1, len(index)) * np.where(is_original, factor, 1.0)
        costs = choice.problem.problem.impl_cost.copy()
        costs[:, choice.problem.problem.metrics.index(TIME)] = times
        problem = replace(choice.problem.problem, impl_cost=costs)
        found = extract(problem, Objective({TIME: 1.0}), method="greedy")
        selection = selected(choice.priced, choice.problem, found)
        graph = raise_graph(saturation.lowered, saturation.eclasses, selection)
        graph.check()
        graphs.append(graph)
    return graphs


def assert_computes(
    model: ModelProto, feeds: Arrays, expected: list[Any], atol: float, what: str
) -> None:
    onnx.checker.check_model(model)
    for before, after in zip(expected, OrtSession(model, FUSED).run(feeds), strict=True):
        assert after.shape == before.shape, what
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=atol, err_msg=what)


def assert_equal_models(
    model: ModelProto, feeds: Arrays, expected: list[Any], atol: float, objective: str
) -> None:
    interface = [(v.name, v.type) for v in (*model.graph.input, *model.graph.output)]
    given_bytes = model.SerializeToString()
    result = optimised(model, objective)
    assert model.SerializeToString() == given_bytes
    assert [
        (v.name, v.type) for v in (*result.model.graph.input, *result.model.graph.output)
    ] == interface
    assert_computes(result.model, feeds, expected, atol, f"best, {dict(result.report.rules)}")
    for graph in random_extractions(result, seed=len(given_bytes)):
        used = rules_used(graph)
        for name in used:
            event(name)
        assert_computes(model_proto(export_model(graph)), feeds, expected, atol, f"random, {used}")


# Typed graphs ------------------------------------------------------------------------------------


@settings(max_examples=max(20, settings().max_examples // 2))
@given(typed_graphs(), st.sampled_from(OBJECTIVES))
def test_typed_graphs_keep_their_outputs(graph: Graph, objective: str) -> None:
    model = model_proto(export_model(graph))
    feeds = random_inputs(model, 1)
    exact = {name: array.astype(np.float64) for name, array in feeds.items()}
    expected = evaluate(graph, exact)
    everything = replace(graph, outputs=tuple(node.output for node in graph.nodes))
    # A rewrite may cancel what was added, so rounding is relative to the largest value on the way.
    largest = max(
        (float(np.abs(a).max()) for a in evaluate(everything, exact) if a.size), default=1.0
    )
    assert_equal_models(model, feeds, expected, 2e-5 * max(1.0, largest), objective)


# ONNX models of motifs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A float32 tensor of a sketch."""

    name: str
    shape: tuple[int, ...]


class Sketch:
    """An ONNX graph in the making; weights keep activations near one."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []

    def op(
        self, op_type: str, *inputs: Value | str, shape: tuple[int, ...], **attributes: Any
    ) -> Value:
        return self.ops(op_type, *inputs, shapes=[shape], **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Value | str, shapes: list[tuple[int, ...]], **attributes: Any
    ) -> list[Value]:
        number = len(self.nodes)
        outputs = [Value(f"v{number}_{i}", shape) for i, shape in enumerate(shapes)]
        names = [value if isinstance(value, str) else value.name for value in inputs]
        self.nodes.append(
            helper.make_node(
                op_type, names, [o.name for o in outputs], f"{op_type}_{number}", **attributes
            )
        )
        return outputs

    def constant(self, array: npt.NDArray[Any]) -> Value:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return Value(name, array.shape)

    def weight(self, *shape: int, fan_in: int = 1) -> Value:
        return self.constant((self.rng.standard_normal(shape) / fan_in**0.5).astype(np.float32))

    def ints(self, *values: int) -> Value:
        return self.constant(np.array(values, np.int64))

    def like(self, op_type: str, *inputs: Value, **attributes: Any) -> Value:
        return self.op(op_type, *inputs, shape=inputs[0].shape, **attributes)

    def concat(self, values: list[Value], axis: int) -> Value:
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        return self.op("Concat", *values, shape=tuple(shape), axis=axis)

    def linear(self, x: Value, columns: int, w: Value | None = None) -> Value:
        weight = w or self.weight(x.shape[-1], columns, fan_in=x.shape[-1])
        return self.op("MatMul", x, weight, shape=(*x.shape[:-1], weight.shape[1]))

    def conv(self, x: Value, channels: int, kernel: int, *, bias: bool, group: int = 1) -> Value:
        fan_in = x.shape[1] // group
        operands = [x, self.weight(channels, fan_in, kernel, kernel, fan_in=fan_in * kernel**2)]
        operands += [self.weight(channels)] if bias else []
        shape = (x.shape[0], channels, *x.shape[2:])
        return self.op("Conv", *operands, shape=shape, pads=[kernel // 2] * 4, group=group)


Draw = Callable[[Any], Any]
Motif = Callable[[Sketch, Draw, Value], Value]
SMALL = st.integers(1, 4)
ACTIVATION = st.sampled_from(
    ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "HardSwish", "Identity")
)


def activation(sketch: Sketch, draw: Draw, x: Value) -> Value:
    return sketch.like(draw(ACTIVATION), x)


def constant_operand(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """A scalar, a row or a full constant on either side."""
    shape = draw(st.sampled_from(((), x.shape[-1:], x.shape)))
    array = np.asarray(sketch.rng.uniform(0.5, 2.0, shape), np.float32)
    operands = draw(st.permutations((x, sketch.constant(array))))
    return sketch.op(draw(st.sampled_from(("Add", "Sub", "Mul", "Div"))), *operands, shape=x.shape)


def split_and_join(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Two parts go their own ways and come together again, perhaps crossed."""
    axis = draw(st.integers(0, len(x.shape) - 1))
    if x.shape[axis] < 2:
        return sketch.like("Neg", x)
    cut = draw(st.integers(1, x.shape[axis] - 1))
    sizes = (cut, x.shape[axis] - cut)
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    parts = sketch.ops("Split", x, sketch.ints(*sizes), shapes=shapes, axis=axis)
    op_type = draw(ACTIVATION)
    parts = [sketch.like(op_type, part) if draw(st.booleans()) else part for part in parts]
    return sketch.concat(draw(st.permutations(parts)), axis)


def overlapping_slices(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Three neighbouring slices, of which two are joined."""
    axis = len(x.shape) - 1
    size = x.shape[axis]
    if size < 3:
        return sketch.like("Abs", x)
    bounds = [(0, 1), (1, size - 1), (size - 1, size)]
    parts = [
        sketch.op(
            "Slice",
            x,
            sketch.ints(lo),
            sketch.ints(hi),
            sketch.ints(axis),
            shape=(*x.shape[:axis], hi - lo),
        )
        for lo, hi in bounds
    ]
    first = draw(st.integers(0, 1))
    return sketch.concat(parts[first : first + 2], axis)


def transposed(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """An elementwise operator between two transposes that may undo each other."""
    perm = draw(st.permutations(range(len(x.shape))))
    there = sketch.op("Transpose", x, shape=tuple(x.shape[p] for p in perm), perm=perm)
    middle = sketch.like(draw(ACTIVATION), there)
    back = np.argsort(perm).tolist() if draw(st.booleans()) else perm
    return sketch.op("Transpose", middle, shape=tuple(middle.shape[p] for p in back), perm=back)


def gate(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """f·x + (1 - f)·y, as recurrent cells spell it."""
    f, y = sketch.like("Sigmoid", x), sketch.like("Tanh", x)
    rest = sketch.op("Sub", sketch.constant(np.ones((), np.float32)), f, shape=f.shape)
    return sketch.like("Add", sketch.like("Mul", f, x), sketch.like("Mul", rest, y))


def reshaped(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Two reshapes around an operator."""
    flat = sketch.op(
        "Reshape", x, sketch.ints(x.shape[0], -1), shape=(x.shape[0], int(np.prod(x.shape[1:])))
    )
    inner = sketch.like("Relu", flat)
    return sketch.op("Reshape", inner, sketch.ints(*x.shape), shape=x.shape)


def opaque(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """An operator that no rule knows."""
    return sketch.op(
        "CumSum", x, sketch.constant(np.array(draw(st.integers(0, 1)), np.int64)), shape=x.shape
    )


def siblings(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Products of one input, with biases; two of the same width are combined."""
    columns = draw(SMALL)
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        product = sketch.linear(x, columns)
        parts.append(
            sketch.like("Add", product, sketch.weight(columns)) if draw(st.booleans()) else product
        )
    join = draw(st.sampled_from(("Concat", "Add", "Mul")))
    if join == "Concat":
        return sketch.concat(parts, len(x.shape) - 1)
    return sketch.like(join, parts[0], parts[-1])


def chain(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Two products in a row, with or without a bias between them."""
    first = sketch.linear(x, draw(SMALL))
    if draw(st.booleans()):
        first = sketch.like("Add", first, sketch.weight(first.shape[-1]))
    return sketch.linear(first, draw(SMALL))


def adapter(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """XW + s·(xA)B."""
    columns = draw(SMALL)
    low = sketch.linear(sketch.linear(x, 1), columns)
    scaled = sketch.like("Mul", low, sketch.constant(np.array(0.5, np.float32)))
    return sketch.like("Add", sketch.linear(x, columns), scaled)


def attention(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """One head, with softmax or without."""
    size = draw(SMALL)
    q, k, v = (sketch.linear(x, size) for _ in range(3))
    perm = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    turned = sketch.op("Transpose", k, shape=tuple(k.shape[p] for p in perm), perm=perm)
    scores = sketch.op("MatMul", q, turned, shape=(*x.shape[:-1], x.shape[-2]))
    scores = sketch.like("Mul", scores, sketch.constant(np.array(0.5, np.float32)))
    if draw(st.booleans()):
        scores = sketch.like("Softmax", scores, axis=-1)
    return sketch.op("MatMul", scores, v, shape=(*x.shape[:-1], size))


def gemm(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """All spellings of Gemm, on matrices."""
    columns, is_turned = draw(SMALL), draw(st.booleans())
    shape = (columns, x.shape[1]) if is_turned else (x.shape[1], columns)
    operands = [x, sketch.weight(*shape, fan_in=x.shape[1]), sketch.weight(columns)]
    alpha = draw(st.sampled_from((1.0, 0.5)))
    return sketch.op(
        "Gemm",
        *operands[: draw(st.integers(2, 3))],
        shape=(x.shape[0], columns),
        transB=int(is_turned),
        alpha=alpha,
    )


def steps(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """A recurrent cell over the rows: one weight for all inputs, one for the state."""
    w, u = (sketch.weight(x.shape[1], x.shape[1], fan_in=x.shape[1]) for _ in range(2))
    state: Value | None = None
    for step in range(min(x.shape[0], 3)):
        row = sketch.op(
            "Slice",
            x,
            sketch.ints(step),
            sketch.ints(step + 1),
            sketch.ints(0),
            shape=(1, x.shape[1]),
        )
        product = sketch.linear(row, 0, w)
        state = sketch.like(
            "Tanh",
            product if state is None else sketch.like("Add", product, sketch.linear(state, 0, u)),
        )
    assert state is not None
    return state


def normalised(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """LayerNormalization over the last axis."""
    n = x.shape[-1]
    return sketch.like("LayerNormalization", x, sketch.weight(n), sketch.weight(n), axis=-1)


def inception(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Convolutions of one input side by side."""
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        part = sketch.conv(x, draw(SMALL), draw(st.sampled_from((1, 3))), bias=draw(st.booleans()))
        parts.append(sketch.like("Relu", part) if draw(st.booleans()) else part)
    return sketch.concat(parts, 1)


def residual(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """conv(x) + x, perhaps with BatchNormalization between."""
    group = draw(st.sampled_from([g for g in (1, 2) if x.shape[1] % g == 0]))
    y = sketch.conv(x, x.shape[1], 3, bias=draw(st.booleans()), group=group)
    if draw(st.booleans()):
        n = x.shape[1]
        variance = sketch.constant(sketch.rng.uniform(0.5, 2, n).astype(np.float32))
        y = sketch.like("BatchNormalization", y, *(sketch.weight(n) for _ in range(3)), variance)
    return sketch.like("Add", y, x)


def sum_of_convolutions(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """Two convolutions that are added, of one input or two."""
    other = x if draw(st.booleans()) else sketch.like("Relu", x)
    channels, kernel = draw(SMALL), draw(st.sampled_from((1, 3)))
    return sketch.like("Add", *(sketch.conv(v, channels, kernel, bias=False) for v in (x, other)))


def pool(sketch: Sketch, draw: Draw, x: Value) -> Value:
    """A pool with or without relu, or a normalisation across channels."""
    match draw(st.sampled_from(("max", "average", "lrn", "global"))):
        case "max":
            return sketch.like("MaxPool", sketch.like("Relu", x), kernel_shape=[3, 3], pads=[1] * 4)
        case "average":
            y = sketch.like("Add", x, sketch.like("Tanh", x))
            counted = draw(st.integers(0, 1))
            return sketch.like(
                "AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=counted
            )
        case "lrn":
            return sketch.like("LRN", x, size=3, alpha=0.1, beta=0.75, bias=1.0)
        case _:
            mean = sketch.op("GlobalAveragePool", x, shape=(*x.shape[:2], 1, 1))
            return sketch.op("Mul", x, sketch.like("Sigmoid", mean), shape=x.shape)


ANYWHERE: tuple[Motif, ...] = (
    activation,
    constant_operand,
    split_and_join,
    overlapping_slices,
    transposed,
    gate,
    reshaped,
    opaque,
)
ON_MATRICES: tuple[Motif, ...] = (siblings, chain, adapter, attention, gemm, steps, normalised)
ON_TOKENS: tuple[Motif, ...] = (siblings, chain, adapter, attention, normalised)
ON_IMAGES: tuple[Motif, ...] = (inception, residual, sum_of_convolutions, pool)
MOTIFS = {2: ON_MATRICES, 3: ON_TOKENS, 4: ON_IMAGES}


def with_shape(values: list[Value], shape: tuple[int, ...]) -> list[Value]:
    return [value for value in values if value.shape == shape]


@st.composite
def onnx_models(draw: st.DrawFn) -> ModelProto:
    """Two to four motifs on top of each other, beside each other, or combined."""
    rank = draw(st.sampled_from((2, 3, 4)))
    shape = tuple(draw(SMALL) for _ in range(rank))
    sketch = Sketch(draw(st.integers(0, 7)))
    choose: Draw = draw  # the same function for strategies of anything
    inputs = [Value(f"x{i}", shape) for i in range(draw(st.integers(1, 2)))]
    values = list(inputs)
    for _ in range(draw(st.integers(2, 4))):
        motif = draw(st.sampled_from((*ANYWHERE, *MOTIFS[rank], *MOTIFS[rank])))
        value = motif(sketch, choose, draw(st.sampled_from(values)))
        partners = with_shape(values, value.shape)
        combines: bool = draw(st.booleans())
        if combines and partners:
            op_type = draw(st.sampled_from(("Add", "Sub", "Mul", "Max")))
            value = sketch.like(op_type, value, draw(st.sampled_from(partners)))
        if np.prod(value.shape) <= 512:
            values.append(value)
    chosen = {values[-1], *draw(st.lists(st.sampled_from(values), max_size=2))} - set(inputs)
    outputs = sorted(chosen, key=lambda v: v.name) or [sketch.like("Relu", inputs[0])]
    graph = helper.make_graph(
        sketch.nodes,
        "random",
        [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in inputs],
        [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs],
        sketch.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@settings(max_examples=max(20, settings().max_examples // 2))
@given(onnx_models(), st.sampled_from(OBJECTIVES))
def test_models_of_motifs_keep_their_outputs(model: ModelProto, objective: str) -> None:
    onnx.checker.check_model(model, full_check=True)
    feeds = random_inputs(model, 2)
    expected = OrtSession(model, PLAIN).run(feeds)
    largest = max(1.0, *(float(np.abs(array).max()) for array in expected))
    assert_equal_models(model, feeds, expected, 1e-4 * largest, objective)


# The same seed, the same bytes -------------------------------------------------------------------

REPEATED = ("lora", "sru_step")


def digests(objective: str) -> dict[str, str]:
    options = replace(SEARCH, objective=objective, budget_s=600.0)
    models = {name: zoo.build(name, scale="tiny") for name in REPEATED}
    found = {name: run(model, options).model for name, model in models.items()}
    return {n: hashlib.sha256(m.SerializeToString()).hexdigest() for n, m in found.items()}


PROGRAM = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("random_models", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
print(json.dumps(module.digests("time")))
"""


def digests_elsewhere(hash_seed: str) -> dict[str, str]:
    """The same in a process of its own, where sets of strings have another order."""
    paths = os.pathsep.join([str(Path(eqsat_opt.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__))],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert digests_elsewhere("1") == digests("time")
