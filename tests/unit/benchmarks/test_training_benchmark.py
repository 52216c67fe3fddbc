"""The four kinds of training steps, trained for ten steps."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from benchmarks.training import KINDS, built, difference, first_feeds, train
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.pipeline.plans import memory_front
from eqsat_opt.training.joint import TrainingOptions, training_graph


@pytest.mark.parametrize("name", ["mlp", "block", "lstm"])
def test_ten_steps_lower_the_loss(name: str) -> None:
    kind = KINDS[name]
    graph = training_graph(built(kind), TrainingOptions(optimiser="adam"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    proto = model_proto(graph.model)
    runner = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    feeds = first_feeds(graph, kind)
    losses, state = train(runner, graph, feeds)
    assert losses[-1] < losses[0]
    assert any(difference(state[one], feeds[one]) > 0 for one in graph.parameters)


def test_a_difference_is_a_share_of_the_largest_element() -> None:
    assert difference(np.asarray([1.0, 4.0]), np.asarray([1.0, 5.0])) == pytest.approx(0.2)


def test_values_of_a_block_may_be_dropped() -> None:
    graph = training_graph(built(KINDS["block"]), TrainingOptions(optimiser="sgd"))
    front = memory_front(graph.model)
    least = front.choices[-1].peak_bytes
    assert front.lower_bound_bytes <= least < 0.8 * front.choices[0].peak_bytes
