"""Orders of low peaks: exact on small graphs, and as onnxruntime itself runs files."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.runtime.memory.orders import Lifetimes, in_order, least_peak
from eqsat_opt.runtime.memory.session_memory import SessionMemory, session_order


def drawn(seed: int, nodes: int, outputs: int = 2) -> Graph:
    """Return a graph of random sizes: sums, functions, transposes, other shapes, concatenations."""
    rng = random.Random(seed)
    maker = GraphMaker()
    values = [(maker.input("x", 2, 4), 8)]
    for _ in range(nodes):
        name, size = rng.choice(values)
        pick = rng.randrange(5)
        if pick == 0:
            other, more = rng.choice(values)
            made = maker("Concat", name, other, axis=0), size + more
        elif pick == 1 and size > 8:
            made = maker("Slice", name, axis=0, lo=0, hi=2), 8
        elif pick == 2:
            made = maker("Reshape", name, shape=(size // 4, 4)), size
        elif pick == 3:
            made = maker("Relu", name), size
        else:
            made = maker("Sin", name), size
        values.append(made)
    names = [name for name, _ in values[1:]]
    return maker.graph(*dict.fromkeys([names[-1], *rng.sample(names, min(outputs, len(names)))]))


def orders(lives: Lifetimes) -> Iterator[tuple[int, ...]]:
    steps = range(len(lives.reads))
    for order in itertools.permutations(steps):
        place = {step: number for number, step in enumerate(order)}
        if all(place[a] < place[b] for a in steps for b in lives.readers[a]):
            yield order


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_a_small_graph_is_the_best(seed: int) -> None:
    lives = Lifetimes.of(drawn(seed, 6), keeps_inputs=bool(seed % 2))
    found = least_peak(lives)
    assert found.is_exact
    assert found.peak_bytes == lives.peak_bytes(found.order)
    assert found.peak_bytes == min(map(lives.peak_bytes, orders(lives)))


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_of_a_large_graph_holds_for_its_orders(seed: int) -> None:
    graph = drawn(seed, 40, outputs=12)
    lives = Lifetimes.of(graph)
    hasty, patient = least_peak(lives, work=0), least_peak(lives)
    assert hasty.lower_bound_bytes <= patient.lower_bound_bytes <= patient.peak_bytes
    assert patient.peak_bytes <= lives.peak_bytes(range(len(graph.nodes)))
    assert sorted(patient.order) == list(range(len(graph.nodes)))
    in_order(graph, patient.order).check()


def test_graphs_without_steps_or_known_sizes_have_a_peak() -> None:
    maker = GraphMaker()
    x = maker.input("x", "N", 4)
    empty = maker.graph(x)
    assert least_peak(Lifetimes.of(empty, {"N": 3})).peak_bytes == 48
    assert SessionMemory(empty, {"N": 3}).peak_bytes() == 48
    assert SessionMemory(empty, {"N": 3}).with_less() == empty
    assert Lifetimes.of(maker.graph(maker("Sin", x))).least_bytes == 0  # nobody said what N is


@pytest.mark.parametrize("seed", range(6))
def test_a_session_runs_nodes_in_the_order_that_is_predicted(seed: int, tmp_path: Path) -> None:
    made = drawn(seed, 25, outputs=4)
    exported = export_model(made)
    proto, graph = model_proto(exported), import_model(exported)
    for number, node in enumerate(proto.graph.node):
        node.name = str(number)
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, {"x": np.ones((2, 4), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [e["name"] for e in events if e["name"].endswith("_kernel_time")]
    output_of = {str(n): node.output[0] for n, node in enumerate(proto.graph.node)}
    found = [output_of[name.removesuffix("_kernel_time")] for name in ran]
    order = session_order(Lifetimes.of(graph), range(len(graph.nodes)))
    assert [graph.nodes[number].output for number in order] == found


@pytest.mark.parametrize("seed", range(4))
def test_a_file_for_a_session_needs_no_more_than_before(seed: int) -> None:
    graph = drawn(seed, 16, outputs=5)
    before = SessionMemory(graph, {})
    after = SessionMemory(before.with_less(), {})
    after.graph.check()
    assert sorted(map(str, after.graph.nodes)) == sorted(map(str, graph.nodes))
    assert before.lower_bound_bytes() <= after.peak_bytes() <= before.peak_bytes()
