"""Cells that are unrolled in any spelling become layers that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import unrolled
from eqsat_opt.api import run
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.recurrences.layers import with_layers
from eqsat_opt.ir.passes.recurrences.products import with_joint_products
from eqsat_opt.ir.values.dims import sym
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.pipeline.options import Options

F32 = np.float32
Gates = Callable[[str, str], list[str]]
"""From data and a state to what the gates read."""


@dataclass(frozen=True)
class Case:
    """A recurrent net, unrolled.

    Attributes:
        cell: "lstm", "gru" or "gru-before" (the reset gate before the product).
        spelling: "apart" (a product for each operand and gate), "together" (of both operands) or
            "merged" (one product for all gates).
        data: "inputs", "rows", "first" (axis), "second" or "backwards".
        first: first state, "zeros", "constant" or "input".
        results: "all" states one below another, "stacked" along a second axis, "last", or "cells".
    """

    cell: str = "lstm"
    spelling: str = "apart"
    data: str = "inputs"
    first: str = "input"
    results: str = "all"
    steps: int = 3
    samples: int = 2
    features: int = 3
    hidden: int = 2
    seed: int = 0


def built(case: Case) -> Graph:
    """The graph of a case."""
    g = GraphMaker(case.seed)
    n, f, h = case.samples, case.features, case.hidden
    xs = data_of(g, case)
    if case.first == "input":
        state, cell = g.input("h", n, h), g.input("c", n, h)
    else:
        value = np.zeros((n, h), F32) + (case.first == "constant")
        state = cell = g.constant(value)
    if case.cell == "gru-before":
        both, new = gates(g, case, 2), gates(g, replace(case, spelling="together"), 1)
    elif case.cell == "gru":
        both = gates(g, case, 2)
        of_x, of_h = linear(g, f, h), linear(g, h, h)
    else:
        both = gates(g, case, 4)
    states, cells = [], []
    one = g.constant(np.ones((), F32))
    for x in xs:
        if case.cell == "lstm":
            i, o, k, s = both(x, state)
            kept = g("Mul", cell, g("Sigmoid", k))
            cell = g("Add", g("Mul", g("Tanh", s), g("Sigmoid", i)), kept)
            state = g("Mul", g("Sigmoid", o), g("Tanh", cell))
            cells.append(cell)
        else:
            z, r = (g("Sigmoid", gate) for gate in both(x, state))
            if case.cell == "gru":
                inner = g("Add", of_x(x), g("Mul", r, of_h(state)))
            else:
                (inner,) = new(x, g("Mul", state, r))
            fresh = g("Tanh", inner)
            if case.seed % 2:
                state = g("Add", fresh, g("Mul", z, g("Sub", state, fresh)))
            else:
                rest = g("Mul", g("Sub", one, z), fresh)
                state = g("Add", g("Mul", z, state), rest)
        states.append(state)
    return g.graph(*results_of(g, case, states, cells))


def data_of(g: GraphMaker, case: Case) -> list[str]:
    steps, n, f = case.steps, case.samples, case.features
    if case.data == "inputs":
        return [g.input(f"x{step}", n, f) for step in range(steps)]
    if case.data == "rows":
        x = g.input("x", n * steps, f)
        cuts = [(n * step, n * step + n) for step in range(steps)]
        return [g("Slice", x, axis=0, lo=lo, hi=hi) for lo, hi in cuts]
    axis = 1 if case.data == "second" else 0
    x = g.input("x", *((n, steps + 1, f) if axis else (steps + 1, n, f)))
    order = range(steps, 0, -1) if case.data == "backwards" else range(steps)
    return [g("Gather", x, g.constant(np.array(step)), axis=axis) for step in order]


def linear(g: GraphMaker, rows: int, columns: int) -> Callable[[str], str]:
    weight, bias = g.weight(rows, columns), g.weight(columns)
    return lambda x: g("Add", g("MatMul", x, weight), bias)


def gates(g: GraphMaker, case: Case, count: int) -> Gates:
    f, h = case.features, case.hidden
    if case.spelling == "merged":
        of_x, of_h = linear(g, f, count * h), linear(g, h, count * h)

        def merged(x: str, state: str) -> list[str]:
            total = g("Add", of_x(x), of_h(state))
            return [g("Slice", total, axis=1, lo=k * h, hi=k * h + h) for k in range(count)]

        return merged
    if case.spelling == "together":
        maps = [linear(g, f + h, h) for _ in range(count)]
        return lambda x, state: [m(g("Concat", x, state, axis=1)) for m in maps]
    pairs = [(linear(g, f, h), g.weight(h, h)) for _ in range(count)]
    return lambda x, state: [g("Add", m(x), g("MatMul", state, w)) for m, w in pairs]


def results_of(
    g: GraphMaker, case: Case, states: Sequence[str], cells: Sequence[str]
) -> Sequence[str]:
    if case.results == "last":
        return states[-1:]
    if case.results == "cells":
        return [states[-1], states[len(states) // 2], *cells]
    axis = 0
    if case.results == "stacked":
        axis, shape = 1, (case.samples, 1, case.hidden)
        states = [g("Reshape", state, shape=shape) for state in states]
    return [g("Concat", *states, axis=axis)]


CASES = st.builds(
    Case,
    cell=st.sampled_from(["lstm", "gru", "gru-before"]),
    spelling=st.sampled_from(["apart", "together", "merged"]),
    data=st.sampled_from(["inputs", "rows", "first", "second", "backwards"]),
    first=st.sampled_from(["zeros", "constant", "input"]),
    results=st.sampled_from(["all", "stacked", "last", "cells"]),
    steps=st.integers(1, 5),
    samples=st.integers(1, 3),
    features=st.integers(1, 3),
    hidden=st.integers(1, 3),
    seed=st.integers(0, 3),
)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_layers_compute_what_their_steps_do(case: Case) -> None:
    graph = normalise(built(case))
    found = normalise(with_layers(graph))
    found.check()
    assert found.types == {**found.types, **{o: graph.types[o] for o in graph.outputs}}
    inputs = random_inputs(graph, case.seed)
    for ours, theirs in zip(evaluate(found, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


WHOLE = [
    Case(cell, spelling, data, first, results)
    for cell in ("lstm", "gru", "gru-before")
    for spelling, data, first, results in (
        ("apart", "inputs", "zeros", "all"),
        ("together", "first", "input", "last"),
        ("merged", "second", "input", "stacked"),
        ("merged", "rows", "input", "all"),
        ("apart", "backwards", "input", "last"),
    )
]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: "-".join(map(str, vars(case).values())))
def test_all_steps_are_one_operator(case: Case) -> None:
    found = normalise(with_layers(normalise(built(replace(case, samples=1)))))
    counts = found.operator_counts()
    assert counts["LSTM" if case.cell == "lstm" else "GRU"] == 1
    assert not counts.keys() & {"MatMul", "Sigmoid", "Tanh", "Mul", "Add"}
    if case.data not in ("inputs", "backwards"):
        assert not counts["Concat"]


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_joint_products_compute_what_those_of_steps_do(case: Case) -> None:
    graph = normalise(built(case))
    found = normalise(with_joint_products(graph))
    found.check()
    inputs = random_inputs(graph, case.seed)
    for ours, theirs in zip(evaluate(found, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spelling", ["apart", "together"])
@pytest.mark.parametrize("first", ["input", "constant"])
@pytest.mark.parametrize("data", ["inputs", "rows", "second", "backwards"])
def test_a_step_has_one_product_and_its_data_one_of_all(
    spelling: str, first: str, data: str
) -> None:
    case = Case(spelling=spelling, first=first, data=data, steps=5, samples=1)
    counts = normalise(with_joint_products(normalise(built(case)))).operator_counts()
    # The product of a constant state is constant. Where it was folded into the biases of the first
    # step, these are not those of the others, and the step has a product of its own.
    assert counts["MatMul"] == (5 if (spelling, first) == ("together", "constant") else 6)


def test_products_of_steps_that_are_joint_stay() -> None:
    case = Case("gru", "merged", steps=4, results="last")
    graph = normalise(built(case))
    products = with_joint_products(graph).operator_counts()["MatMul"]
    assert products <= graph.operator_counts()["MatMul"]


def test_a_first_state_may_be_expanded_zeros() -> None:
    g, case = GraphMaker(), Case()
    xs = [g.input(f"x{step}", "N", case.features) for step in range(3)]
    cell = g.constant(np.zeros((1, 1), F32))
    state, parts = g("Expand", cell, shape=(sym("N"), case.hidden)), gates(g, case, 4)
    for x in xs:
        i, o, k, s = parts(x, state)
        kept = g("Mul", g("Sigmoid", k), cell)
        cell = g("Add", kept, g("Mul", g("Sigmoid", i), g("Tanh", s)))
        state = g("Mul", g("Sigmoid", o), g("Tanh", cell))
    counts = normalise(with_layers(normalise(g.graph(state)))).operator_counts()
    assert counts["LSTM"] == 1
    assert not counts["Sigmoid"]


def test_steps_with_other_weights_stay() -> None:
    g = GraphMaker()
    xs = [g.input(f"x{step}", 1, 2) for step in range(4)]
    state = cell = g.input("h", 1, 2)
    for x in xs:
        i, o, k, s = gates(g, Case(features=2), 4)(x, state)
        kept = g("Mul", g("Sigmoid", k), cell)
        cell = g("Add", kept, g("Mul", g("Sigmoid", i), g("Tanh", s)))
        state = g("Mul", g("Sigmoid", o), g("Tanh", cell))
    graph = normalise(g.graph(state))
    assert with_layers(graph) is graph


def test_steps_stay_whose_data_depend_on_earlier_states() -> None:
    g = GraphMaker()
    state = cell = g.input("h", 1, 2)
    parts = gates(g, Case(features=2), 4)
    for _ in range(4):
        i, o, k, s = parts(g("Relu", state), state)
        kept = g("Mul", g("Sigmoid", k), cell)
        cell = g("Add", kept, g("Mul", g("Sigmoid", i), g("Tanh", s)))
        state = g("Mul", g("Sigmoid", o), g("Tanh", cell))
    graph = normalise(g.graph(state))
    assert with_layers(graph) is graph


@pytest.mark.parametrize("numerics", ["reassociate", "bitexact"])
def test_a_model_gets_the_operator_where_results_may_move(numerics: str) -> None:
    options = Options(
        measure=False,
        race=False,
        check=1,
        store="",
        threads=1,
        budget_s=600.0,
        numerics=numerics,
        rules="none",  # the search takes longer than all else
    )
    written = run(unrolled.build("lstm", 4), options).model.graph.node
    assert ("LSTM" in {node.op_type for node in written}) == (numerics == "reassociate")
