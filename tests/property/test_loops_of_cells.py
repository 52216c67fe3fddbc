"""Loops and scans over one step of a cell become layers that compute the same in onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.recurrences.loop_layers import with_loop_layers
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

FEATURES, HIDDEN = 3, 2
NORMAL = partial(normalise, numerics=Numerics.REASSOCIATE)


@dataclass(frozen=True)
class Case:
    """A loop over a cell.

    Attributes:
        cell: "lstm" or "gru".
        loop: "while" (a Loop that counts as Keras does), "for" (with a number of iterations) or
            "scan".
        mask: "none", "where" or "numbers" (1 and 0 that multiply both choices).
        other: what a result is where the mask does not hold: "state", "given" or "before" (the
            result of the step before).
        has_last: whether the last state is an output.
    """

    cell: str = "lstm"
    loop: str = "while"
    mask: str = "none"
    other: str = "state"
    has_last: bool = False


class Body:
    """The nodes and constants of a graph in the making."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        (made,) = self.several(op, *inputs, outputs=1, **attrs)
        return made

    def several(self, op: str, *inputs: str, outputs: int, **attrs: Any) -> list[str]:
        made = [f"{id(self)}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, **attrs))
        return made

    def constant(self, values: npt.ArrayLike) -> str:
        name = f"{id(self)}_c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))


def step(b: Body, cell: str, x: str, state: str, memory: str) -> tuple[str, str]:
    """The state and the memory after a step."""
    count = 4 if cell == "lstm" else 3
    of_x = b("Add", b("MatMul", x, b.weight(FEATURES, count * HIDDEN)), b.weight(count * HIDDEN))
    of_h = b(
        "Add", b("MatMul", state, b.weight(HIDDEN, count * HIDDEN)), b.weight(1, count * HIDDEN)
    )
    sizes = b.constant(np.full(count, HIDDEN))
    if cell == "lstm":
        i, f, g, o = b.several("Split", b("Add", of_x, of_h), sizes, outputs=4, axis=1)
        new = b("Mul", b("Sigmoid", i), b("Tanh", g))
        memory = b("Add", b("Mul", b("Sigmoid", f), memory), new)
        return b("Mul", b("Sigmoid", o), b("Tanh", memory)), memory
    xs = b.several("Split", of_x, sizes, outputs=3, axis=1)
    hs = b.several("Split", of_h, sizes, outputs=3, axis=1)
    z, r = (b("Sigmoid", b("Add", xs[k], hs[k])) for k in (0, 1))
    new = b("Tanh", b("Add", xs[2], b("Mul", r, hs[2])))
    rest = b("Mul", b("Sub", b.constant(np.float32(1)), z), new)
    return b("Add", b("Mul", z, state), rest), memory


def chosen(b: Body, case: Case, mask: str, new: str, old: str) -> str:
    if case.mask == "none":
        return new
    if case.mask == "where":
        return b("Where", mask, new, old)
    yes, no = b("Cast", mask, to=1), b("Cast", b("Not", mask), to=1)
    return b("Add", b("Mul", yes, new), b("Mul", old, no))


def value(name: str, dtype: int, *shape: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def built(case: Case, seed: int = 0) -> ModelProto:
    """From x [T, N, F], m [T, N, 1], h, c and e [N, H] to all results, and the last state."""
    b, outer = Body(seed), Body()
    is_scan = case.loop == "scan"
    number = b("Identity", "n") if case.loop == "while" else "i"
    x, m = ("xt", "mt") if is_scan else (b("Gather", one, number, axis=0) for one in ("x", "m"))
    state, memory = step(b, case.cell, x, "h_in", "c_in")
    mask = "" if case.mask == "none" else m
    after = chosen(b, case, mask, state, "h_in")
    memory_after = chosen(b, case, mask, memory, "c_in")
    other = {"state": "h_in", "given": "e", "before": "y_in"}[case.other]
    result = chosen(b, case, mask, state, other)
    carried = [("h_in", after, "h"), ("c_in", memory_after, "c"), ("y_in", result, "e")]
    floats = [value(name, 1, "N", HIDDEN) for name, _, _ in carried]
    outs = [value(b("Identity", one), 1, "N", HIDDEN) for _, one, _ in carried]
    outs.append(value(b("Identity", result), 1, "N", HIDDEN))
    if is_scan:
        own = [*floats, value("xt", 1, "N", FEATURES), value("mt", 9, "N", 1)]
    else:
        outer_count = outer("Gather", outer("Shape", "x"), outer.constant(np.array(0)), axis=0)
        if case.loop == "while":
            following = b("Add", "n", b.constant(np.array(1)))
            going_on = b("Less", following, outer_count)
            floats.insert(0, value("n", 7))
            outs.insert(0, value(following, 7))
            carried.insert(0, ("n", following, outer.constant(np.array(0))))
            first = ["", outer("Less", outer.constant(np.array(0)), outer_count)]
        else:
            going_on = b("Identity", "going")
            first = [outer_count, ""]
        own = [value("i", 7), value("going", 9), *floats]
        outs.insert(0, value(going_on, 9))
    body = helper.make_graph(b.nodes, "body", own, outs, b.constants)
    firsts = [name for _, _, name in carried]
    names = [f"last{k}" for k in range(len(firsts))]
    if is_scan:
        node = helper.make_node(
            "Scan", [*firsts, "x", "m"], [*names, "y"], body=body, num_scan_inputs=2
        )
    else:
        node = helper.make_node("Loop", [*first, *firsts], [*names, "y"], body=body)
    results = [value("y", 1, None, None, HIDDEN)]
    if case.has_last:
        results.append(value(names[firsts.index("h")], 1, None, HIDDEN))
    inputs = [value("x", 1, "T", "N", FEATURES), value("m", 9, "T", "N", 1)]
    inputs += [value(one, 1, "N", HIDDEN) for one in ("h", "c", "e")]
    graph = helper.make_graph([*outer.nodes, node], "g", inputs, results, outer.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def feeds(steps: int, samples: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    drawn = {one: rng.standard_normal((samples, HIDDEN)) for one in ("h", "c", "e")}
    drawn["x"] = rng.standard_normal((steps, samples, FEATURES))
    drawn = {name: array.astype(np.float32) for name, array in drawn.items()}
    return {**drawn, "m": rng.random((steps, samples, 1)) < 0.6}


CASES = st.builds(
    Case,
    cell=st.sampled_from(["lstm", "gru"]),
    loop=st.sampled_from(["while", "for", "scan"]),
    mask=st.sampled_from(["none", "where", "numbers"]),
    other=st.sampled_from(["state", "given", "before"]),
    has_last=st.booleans(),
)


@settings(max_examples=15, deadline=None)
@given(CASES, st.integers(0, 5))
def test_layers_compute_what_their_loops_do(case: Case, seed: int) -> None:
    model = built(case, seed)
    graph = with_loop_layers(NORMAL(import_model(load_model(model))), NORMAL)
    graph.check()
    found = export_model(NORMAL(graph))
    options = OrtOptions(threads=1, level="disabled")
    before, after = (OrtSession(one, options) for one in (model, model_proto(found)))
    for steps, samples in ((1, 1), (4, 2), (3, 1), (0, 2), (2, 0)):
        if case.loop == "scan" and not steps:
            continue  # onnxruntime refuses it
        given_ = feeds(steps, samples, seed)
        for ours, theirs in zip(after.run(given_), before.run(given_), strict=True):
            if theirs.size:  # a loop without iterations knows no sizes of its results
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.size == theirs.size


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("loop", ["while", "for", "scan"])
@pytest.mark.parametrize("mask", ["none", "where", "numbers"])
def test_a_loop_over_a_cell_is_one_operator(cell: str, loop: str, mask: str) -> None:
    graph = NORMAL(import_model(load_model(built(Case(cell, loop, mask, "given")))))
    counts = with_loop_layers(graph, NORMAL).operator_counts()
    assert counts[cell.upper()] == 1
    assert not counts.keys() & {"Loop", "Scan"}


def test_a_loop_stays_that_ends_before_its_data() -> None:
    model = built(Case(loop="for"))
    count = next(node for node in model.graph.node if node.op_type == "Gather")
    count.op_type = "Identity"
    del count.attribute[:], count.input[:]
    model.graph.initializer.append(numpy_helper.from_array(np.array(2), "two"))
    count.input.append("two")
    graph = NORMAL(import_model(load_model(model)))
    assert with_loop_layers(graph, NORMAL) is graph
