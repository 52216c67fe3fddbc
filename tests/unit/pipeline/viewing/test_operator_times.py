"""Times of operators from a profile: of the best run, each body once, all shares together one."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from eqsat_opt import api
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.viewing.operator_times import times_of_events
from eqsat_opt.runtime.backends.ort.session import OrtSession


def events(operator: str, *durations_us: float) -> list[dict[str, Any]]:
    return [{"dur": time_us, "args": {"op_name": operator}} for time_us in durations_us]


def test_the_least_time_counts_without_the_first_run() -> None:
    found = times_of_events(
        {
            "a": events("MatMul", 1, 30, 20),
            "b": events("MatMul", 1, 7, 9),
            "c": events("Relu", 100, 9, 10),
        }
    )
    assert [(row.operator, row.nodes, row.time_us, row.slowest) for row in found] == [
        ("MatMul", 2, 27, "a"),
        ("Relu", 1, 9, "c"),
    ]
    assert sum(row.share for row in found) == pytest.approx(1)


def test_a_body_counts_with_all_iterations_and_its_loop_not_again() -> None:
    runs = 11
    found = times_of_events(
        {"loop": events("Loop", *[50] * runs), "inside": events("Add", *[4] * (3 * runs))}
    )
    assert [(row.operator, row.time_us) for row in found] == [("Add", 12)]


def test_a_profile_without_kernels_is_empty() -> None:
    assert times_of_events({}) == ()


def relu() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[2,3] x) => (float[2,3] y) { h = Relu(x)  y = Tanh(h) }
    """)


def test_two_models_are_profiled_on_the_same_inputs() -> None:
    one, other = api.operator_times(relu(), relu(), threads=1, check=1, budget=5)
    assert {row.operator for row in one} == {row.operator for row in other} == {"Relu", "Tanh"}


def test_a_tuned_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "is_tuned", lambda _model: True)
    monkeypatch.setattr(api, "open_as_raced", OrtSession)
    with pytest.raises(OptionError, match="tuned form"):
        api.operator_times(relu(), relu(), threads=1, check=1, budget=5)
