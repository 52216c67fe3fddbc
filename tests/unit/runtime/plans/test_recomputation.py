"""Values that are computed twice: equal results in less memory, in plans that run."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.pipeline.plans import load_plan, memory_front, plan_model
from eqsat_opt.runtime.planning.recomputation import recomputation_front, with_recomputation

LAYERS = 5


def chain(layers: int) -> Graph:
    """Forward a chain of functions, and backward with products that read every value again."""
    maker = GraphMaker()
    x = maker.input("x", 64, 64)
    values = [x]
    for _ in range(layers):
        values.append(maker("Sin", values[-1]))
    gradient = maker("Square", values[-1])
    for value in reversed(values):
        gradient = maker("Mul", gradient, maker("Cos", value))
    return maker.graph(gradient)


def model() -> onnx.ModelProto:
    return model_proto(export_model(chain(LAYERS)))


def test_less_memory_costs_work_and_changes_no_result() -> None:
    graph = chain(14)
    front = recomputation_front(graph)
    assert not front.is_exact
    inputs = random_inputs(graph)
    (expected,) = evaluate(graph, inputs)
    assert len(front.choices) > 2
    for before, after in itertools.pairwise(front.choices):
        assert before.peak_bytes > after.peak_bytes >= front.lower_bound_bytes
        assert before.work < after.work
    assert front.choices[-1].peak_bytes < 0.7 * front.choices[0].peak_bytes
    for choice in front.choices:
        made = with_recomputation(choice)
        made.check()
        (found,) = evaluate(made, inputs)
        np.testing.assert_allclose(found, expected)


def test_few_candidates_are_tried_in_every_choice() -> None:
    front = recomputation_front(chain(LAYERS))
    assert front.is_exact
    assert front.choices[0].values == frozenset()


def test_a_plan_keeps_its_limit_and_computes_the_same() -> None:
    proto = model()
    free = plan_model(proto, backend="numpy")
    front = memory_front(proto)
    limit = front.choices[-1].peak_bytes
    tight = plan_model(proto, backend="numpy", memory_limit=limit)
    assert tight.arena_bytes <= limit < free.arena_bytes
    assert len(tight.launches) > len(free.launches)
    feeds = {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    results = [load_plan(plan, proto).run(feeds) for plan in (free, tight)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_limit_that_is_too_low_is_said() -> None:
    with pytest.raises(PlanError, match="none can take less than"):
        plan_model(model(), backend="numpy", memory_limit=1000)


def test_a_limit_needs_a_backend_of_single_operators() -> None:
    with pytest.raises(OptionError, match="limit on memory"):
        plan_model(model(), memory_limit=1e6)
