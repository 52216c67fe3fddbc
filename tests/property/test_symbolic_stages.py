"""Models of open sizes, whose constants may be of open size as well, pass through every stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.api import run
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.values.dims import sym
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

N = sym("n")
CHANNELS = 4
QUICK = Options(
    store="", measure=False, race=False, check=1, strict=True, threads=1, budget_s=10, nodes=500
)


def _length(g: GraphMaker, x: str) -> Any:
    return g.type(x).shape[1]


def _token(g: GraphMaker, x: str) -> str:
    """A weight for each sample before the others, as vision transformers have it."""
    token = g("Expand", g.weight(1, 1, CHANNELS), shape=(N, 1, CHANNELS))
    return g("Concat", token, x, axis=1)


def _places(g: GraphMaker, x: str) -> str:
    """A sum of constants, spread over samples before it is added."""
    shape = (N, _length(g, x), CHANNELS)
    spread = g("Expand", g.weight(1, 1, CHANNELS), shape=shape)
    return g("Add", x, g("Mul", spread, g.weight(CHANNELS)))


def _product(g: GraphMaker, x: str) -> str:
    return g("Add", g("MatMul", x, g.weight(CHANNELS, CHANNELS)), g.weight(CHANNELS))


def _rows(g: GraphMaker, x: str) -> str:
    """A product of all rows at once."""
    length = _length(g, x)
    rows = g("Reshape", x, shape=(N * length, CHANNELS))
    made = g("MatMul", rows, g.weight(CHANNELS, CHANNELS))
    return g("Reshape", made, shape=(N, length, CHANNELS))


def _attention(g: GraphMaker, x: str) -> str:
    scores = g("MatMul", x, g("Transpose", x, perm=(0, 2, 1)))
    return g("MatMul", g("Softmax", scores, axis=2), x)


def _relu(g: GraphMaker, x: str) -> str:
    return g("Relu", x)


STEPS = (_token, _places, _product, _rows, _attention, _relu)


@st.composite
def symbolic_graphs(draw: Any) -> Graph:
    """Graphs of a few samples of rows, whose number is open or not."""
    g = GraphMaker(draw(st.integers(0, 3)))
    x = g.input("x", "n", draw(st.sampled_from(("m", 1, 3))), CHANNELS)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4)):
        x = step(g, x)
    return g.graph(x)


@pytest.mark.parametrize("objective", ["time", "bytes"])
@settings(max_examples=2, deadline=None)
@given(graph=symbolic_graphs(), samples=st.sampled_from((1, 2, 3)))
def test_every_stage_takes_open_sizes(objective: str, graph: Graph, samples: int) -> None:
    """An internal error of any stage would end a strict run."""
    model = model_proto(export_model(graph))
    result = run(model, replace(QUICK, objective=objective))
    (length,) = graph.types["x"].shape[1:2]  # type: ignore[union-attr]
    shape = (samples, length if isinstance(length, int) else 2, CHANNELS)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    before, after = (
        OrtSession(one, OrtOptions(threads=1, level="disabled")).run({"x": x})[0]
        for one in (model, result.model)
    )
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


def test_open_sizes_are_planned_and_tuned_at_those_that_are_given(tmp_path: Path) -> None:
    g = GraphMaker()
    x = g.input("x", "n", "m", CHANNELS)
    for step in STEPS:
        x = step(g, x)
    plan, tuned = tmp_path / "plan.json", tmp_path / "tuned.onnx"
    sizes = {"n": 2, "m": 3}
    options = replace(QUICK, shapes=sizes, plan=str(plan), tuned=str(tuned), runtimes=("ort",))
    result = run(model_proto(export_model(g.graph(x))), options)
    assert result.report.status == "unmeasured"
    assert plan.exists()
    assert tuned.exists()
