"""Goals are read as they are written, and measure what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.approximation import survey as surveying
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.quality import Judge, parse_quality
from eqsat_opt.approximation.search import (
    Approximation,
    SearchTask,
    expected_of,
    fastest_of_quality,
)
from eqsat_opt.approximation.static.region import TimedRegion
from eqsat_opt.approximation.survey import Survey, survey_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.staging import Staging

_OPTIONS = OrtOptions(1)


@pytest.mark.parametrize(
    "text",
    ["", "top1", "top1>0.9", "top1>=", "top1>=2", "top1>=0", "top5>=0.9", "cosine>=1e", "x>=1"],
)
def test_other_goals_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"write top1>=0\.99 or cosine"):
        parse_quality(text)


def test_top1_is_a_share_of_rows() -> None:
    quality = parse_quality(" top1 >= 0.75 ")
    assert (quality.text, quality.least) == ("top1>=0.75", 0.75)
    right = np.array([[1, 2], [3, 2], [1, 2]], np.float32)
    found = np.array([[1, 2], [1, 2], [1, 2]], np.float32)
    assert quality.measure([([found], [right]), ([right], [right])]) == pytest.approx(5 / 6)
    with pytest.raises(OptionError, match="top1 needs an output of floats"):
        quality.measure([([np.ones((3, 1), np.float32)],) * 2])
    with pytest.raises(OptionError, match="top1 needs an output of floats"):
        quality.measure([([np.ones(3, np.int64)],) * 2])


@pytest.mark.parametrize(
    ("found", "right", "value"),
    [
        ([3, 4], [6, 8], 1.0),
        ([1, 0], [0, 1], 0.0),
        ([1e30, 0], [1e30, 0], 1.0),
        ([0, 0], [0, 0], 1.0),
        ([0, 0], [1, 0], 0.0),
        ([], [], 1.0),
        ([np.nan, 1], [np.nan, 1], 1.0),
    ],
)
def test_cosine(found: list[float], right: list[float], value: float) -> None:
    pair = ([np.array(found, np.float32)], [np.array(right, np.float32)])
    assert parse_quality("cosine>=0.9").measure([pair]) == pytest.approx(value)


def test_a_function_accepts_samples() -> None:
    def near(found: Sequence[Any], right: Sequence[Any]) -> bool:
        return bool(abs(found[0] - right[0]) < 1)

    quality = parse_quality(near)
    assert quality.text == "near>=1"
    assert quality.measure([([1.0], [1.5]), ([1.0], [3.0])]) == 0.5


@pytest.fixture
def survey(layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch) -> Survey:
    """Return a survey of two products with invented prices."""
    shape = Shape(4, 64, 64)
    times = {"weights of 4 bits by 128, floats": 30.0, "uint8 per column": 40.0}
    prices = Prices({shape: 100.0}, {shape: times}, {(4, 64): 10.0})
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: prices)
    monkeypatch.setattr(surveying, "static_region", lambda *_, **__: TimedRegion())
    return survey_of(layers, _feeds(0), staging, _OPTIONS, Deadline.never(), lambda _: None)


def _feeds(first: int) -> tuple[dict[str, np.ndarray], ...]:
    return tuple(
        {"x": np.random.default_rng(first + i).standard_normal((4, 64)).astype(np.float32)}
        for i in range(3)
    )


def _found(
    goal: str | Judge, layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> Approximation | None:
    correcting, held_back = (expected_of(staging.original, _feeds(i), _OPTIONS) for i in (10, 20))
    task = SearchTask(
        layers, survey, correcting, held_back,
        staging=staging, options=_OPTIONS, deadline=Deadline.never(), progress=lambda _: None,
    )  # fmt: skip
    return fastest_of_quality(parse_quality(goal), task)


def test_the_stricter_goal_costs_more(
    layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    loose, strict = (
        _found(goal, layers, survey, staging) for goal in ("cosine>=0.9", "cosine>=0.9995")
    )
    assert loose is not None
    assert strict is not None
    assert set(loose.selection.chosen.values()) == {"weights of 4 bits by 128, floats"}
    assert set(strict.selection.chosen.values()) == {"uint8 per column"}
    assert loose.quality is not None
    assert strict.quality is not None
    assert 0.9 <= loose.quality < 0.9995 <= strict.quality
    assert loose.selection.time_us < strict.selection.time_us


def test_a_goal_that_nothing_reaches(
    layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    assert _found(lambda *_: False, layers, survey, staging) is None


def test_a_choice_without_a_predicted_error_is_tried_once(
    layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    """The limit falls all the same, so that other choices get their turn."""
    endless = tuple(
        replace(
            kernel,
            options=tuple(
                replace(one, squares=(np.inf,)) if "4 bits" in one.name else one
                for one in kernel.options
            ),
        )
        for kernel in survey.kernels
    )
    found = _found("cosine>=0.9995", layers, replace(survey, kernels=endless), staging)
    assert found is not None
    assert set(found.selection.chosen.values()) == {"uint8 per column"}
