"""Derivatives of all operators against finite differences in float64, on the conformance grid."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import OPS, Array, IllTyped
from eqsat_opt.ir.values.types import FLOATS, TensorType
from eqsat_opt.lab.testing import evaluate
from eqsat_opt.training.derivatives.table import CONSTANTS, DEFINITIONS, DERIVATIVES
from eqsat_opt.training.reverse import accumulate
from eqsat_opt.training.tape import Tape
from tests.conformance.operator_grid.configuration import Exported, Imported
from tests.conformance.operator_grid.generation import configurations
from tests.sampling import sampled

STEP = 1e-6
SAMPLE = 10
"""Configurations per operator."""
EXCUSED = {
    "lengths of sequences": ("GRU", "LSTM", "RNN"),
    "the reduction": ("ScatterElements", "ScatterND"),
}
"""Parts of the messages of applications without a derivative, and the operators that may have them.
"""


def applications(op: str) -> Iterator[Graph]:
    """Graphs of one application on the grid, on finite operands, with a result of floats."""
    every = configurations(op)
    for one in every[:: max(1, len(every) // SAMPLE)]:
        if isinstance(one, Exported):
            node = Node(op, tuple(one.feeds), ("y",), tuple(sorted(one.attrs.items())))
            yield from typed(node, one.feeds)
        elif isinstance(one, Imported):
            graph = import_model(load_model(one.model()))
            values = {name: np.asarray(one.load()) for name, one in graph.constants.items()}
            values |= one.feeds
            for node in graph.nodes:
                if node.op == op and all(name in values for name in node.inputs):
                    yield from typed(node, values)


VALUES: dict[int, Mapping[str, Array]] = {}


def typed(node: Node, values: Mapping[str, Array]) -> Iterator[Graph]:
    given = {name: distinct(np.asarray(values[name])) for name in node.inputs}
    types = {n: TensorType(str(a.dtype), a.shape) for n, a in given.items()}
    attrs = {name: doubled(str(value)) if name == "to" else value for name, value in node.attrs}
    try:
        result = OPS[node.op].type_fn([types[name] for name in node.inputs], attrs)
    except IllTyped:
        return
    floats = [a for a in given.values() if a.dtype.kind == "f"]
    finite = all(np.isfinite(array).all() and (np.abs(array) < 1e6).all() for array in floats)
    if result.dtype not in FLOATS or not floats or not finite or result.size == 0:
        return
    node = Node(node.op, node.inputs, ("y",), tuple(sorted(attrs.items())))
    graph = Graph(tuple(given), ("y",), (node,), {}, {**types, "y": result})
    VALUES[id(graph)] = given
    yield graph


def distinct(array: Array) -> Array:
    """Floats in double precision, no two of them equal, so that no extremum has two places."""
    if str(array.dtype) not in FLOATS:
        return array
    noise = np.random.default_rng(0).random(array.shape)
    return array.astype(np.float64) * (1 + 1e-2 * noise) + 1e-3 * noise


def doubled(dtype: str) -> str:
    return "float64" if dtype in FLOATS else dtype


def slopes(graph: Graph, values: Mapping[str, Array]) -> tuple[float, float, float] | None:
    """The slope along a random direction by the derivative, and by two finite differences."""
    rng = np.random.default_rng(zlib.crc32(str(graph).encode()))
    moved = [n for n in graph.inputs if values[n].dtype.kind == "f"]
    directions = {n: rng.standard_normal(values[n].shape) for n in moved}
    (before,) = evaluate(graph, dict(values))
    if not np.isfinite(before).all():
        return None
    weights = rng.standard_normal(before.shape)

    def difference(step: float) -> float:
        ends = []
        for sign in (1, -1):
            there = {n: values[n] + sign * step * directions[n] for n in moved}
            ends.append(float((evaluate(graph, {**values, **there})[0] * weights).sum()))
        return (ends[0] - ends[1]) / (2 * step)

    tape = Tape(graph)
    seed = tape.input("seed", tape.type("y"))
    found = accumulate(tape, graph.nodes, {"y": seed}, set(moved))
    for name, gradient in found.items():
        assert gradient.type == graph.types[name]
    reverse = tape.graph((*graph.inputs, "seed"), [one.name for one in found.values()])
    reverse.check()
    gradients = evaluate(reverse, {**values, "seed": weights})
    slope = sum(float((g * directions[n]).sum()) for n, g in zip(found, gradients, strict=True))
    return slope, difference(STEP), difference(STEP / 3)


def test_every_operator_has_a_derivative_or_is_constant() -> None:
    known = {*DERIVATIVES, *DEFINITIONS}
    assert known | CONSTANTS == set(OPS)
    assert not known & CONSTANTS
    assert not set(DERIVATIVES) & set(DEFINITIONS)


@pytest.mark.parametrize("op", sampled(sorted(set(OPS) - CONSTANTS), 3))
def test_derivative_is_the_slope(op: str) -> None:
    graphs = list(applications(op))
    assert graphs
    checked = excused = 0
    for graph in graphs:
        try:
            found = slopes(graph, VALUES[id(graph)])
        except ModelError as error:
            if not any(part in str(error) and op in ops for part, ops in EXCUSED.items()):
                raise
            excused += 1
            continue
        if found is None:
            continue
        slope, wide, narrow = found
        if abs(wide - narrow) > 1e-4 * max(1.0, abs(wide)):
            continue  # a kink within a step
        assert slope == pytest.approx(narrow, rel=2e-4, abs=1e-5), str(graph)
        checked += 1
    assert checked >= 1, f"{checked} of {len(graphs)}, {excused} without a derivative"
