"""The search keeps its bound on data that it did not see, and corrects wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.approximation import survey as surveying
from eqsat_opt.approximation.choice import EXACT, HeldForm, floats_us
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.search import Approximation, SearchTask, expected_of, fastest_within
from eqsat_opt.approximation.static.region import TimedRegion
from eqsat_opt.approximation.survey import Survey, survey_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.staging import Staging

_OPTIONS = OrtOptions(1)
_SHAPE = Shape(4, 64, 64)
_TIMES: Mapping[str, float] = {"int8": 30.0, "uint8 per column": 40.0, "uint8": 120.0}


def _feeds(first: int, count: int = 2) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"x": np.random.default_rng(first + i).standard_normal((4, 64)).astype(np.float32)}
        for i in range(count)
    )


def _alike(first: int, count: int) -> tuple[dict[str, Any], ...]:
    """Return inputs whose rows are sums of a few directions, and a little of all others."""
    mixed = np.random.default_rng(7).standard_normal((64, 64)).astype(np.float32)
    mixed[12:] *= 0.1
    return tuple({"x": one["x"] @ mixed} for one in _feeds(first, count))


@pytest.fixture
def survey(layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch) -> Survey:
    """Return a survey of the two layers with invented prices."""
    prices = Prices({_SHAPE: 100.0}, {_SHAPE: _TIMES}, {(4, 64): 10.0})
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: prices)
    monkeypatch.setattr(surveying, "static_region", lambda *_, **__: TimedRegion())
    return survey_of(layers, _feeds(0), staging, _OPTIONS, Deadline.never(), lambda _: None)


def _search(
    bound: float, layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> Approximation | None:
    correcting, held_back = (expected_of(staging.original, _feeds(i), _OPTIONS) for i in (10, 20))
    task = SearchTask(
        layers, survey, correcting, held_back,
        staging=staging, options=_OPTIONS, deadline=Deadline.never(), progress=lambda _: None,
    )  # fmt: skip
    return fastest_within(bound, task)


def _times_of(survey: Survey) -> dict[str, dict[str, float]]:
    """Return the times of implementations in low precision by the name of a result."""
    times: dict[str, dict[str, float]] = {}
    for kernel in survey.kernels:
        for one in kernel.options:
            if one.name != EXACT:
                times.setdefault(kernel.makes[0], {})[one.name] = one.time_us
                assert 0 < one.squares[0] < 1e-3
    return times


def test_a_survey_offers_what_is_faster(survey: Survey) -> None:
    assert (survey.n_sites, survey.n_late, survey.needed) == (2, 0, ("m", "y"))
    faster = {name: time_us for name, time_us in _TIMES.items() if time_us < 100}
    assert _times_of(survey) == {"m": faster, "y": faster}
    assert floats_us(survey.kernels) == 200.0
    converted = [one for one in survey.kernels if one.makes[1] is HeldForm.RUN_RANGE]
    assert {one.makes[0]: one.options[0].time_us for one in converted} == {"x": 10.0, "r": 10.0}


def test_a_survey_without_time_for_all_keeps_one_site(
    layers: onnx_ir.Model, staging: Staging, survey: Survey
) -> None:
    found = survey_of(layers, _feeds(0), staging, _OPTIONS, Deadline.after(0), lambda _: None)
    assert (len(_times_of(found)), found.n_late) == (1, 1)


def test_values_of_as_many_samples_are_kept_as_there_is_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surveying, "_MOST_BYTES", 3 * 40_000 * 4)
    values = [{"x": np.arange(40_000, dtype=np.float32) - i} for i in range(6)]
    whole, spreads = surveying._samples(values, 5, Deadline.never())
    assert [one["x"].min() for one in whole] == [0, -1, -2]
    assert [one["x"].min() for one in spreads] == [0, -1, -2, -3, -4, -5]
    assert max(one["x"].size for one in spreads) < 33_000
    whole, spreads = surveying._samples(values, 5, Deadline.after(0))
    assert (len(whole), len(spreads)) == (1, 1)


def test_weights_that_make_up_for_errors_are_fitted_to_their_site(
    layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = "weights of 4 bits by 32, asymmetric"
    times = {plain: 20.0, f"{plain}, compensated": 20.0}
    prices = Prices({_SHAPE: 100.0}, {_SHAPE: times}, {(4, 64): 10.0})
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: prices)
    monkeypatch.setattr(surveying, "static_region", lambda *_, **__: TimedRegion())
    found = survey_of(
        layers, _alike(0, 32), staging, _OPTIONS, deadline=Deadline.never(), progress=lambda _: None
    )
    offered = [
        {one.name: one.squares[0] for one in kernel.options}
        for kernel in found.kernels
        if EXACT not in {one.name for one in kernel.options}
    ]
    # What is as fast and more exact at one site is all that another one is offered.
    assert [len(squares) for squares in offered] == [2, 1]
    assert offered[0][f"{plain}, compensated"] < 0.8 * offered[0][plain]
    fed = _alike(50, 4)
    held_back = expected_of(staging.original, fed, _OPTIONS)
    moved = []
    for way in times:
        session = OrtSession(staging.of(found.applied(layers, dict.fromkeys("my", way))), _OPTIONS)
        moved.append(
            sum(
                float(np.sum((session.run(one)[0] - right[0]) ** 2))
                for one, right in zip(fed, held_back.outputs, strict=True)
            )
        )
    assert moved[1] < moved[0]


@pytest.mark.parametrize("samples", [1, 2])
def test_a_fit_is_judged_on_other_rows(
    samples: int, layers: onnx_ir.Model, staging: Staging,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Few rows can be fitted without an error, which says nothing of others."""
    plain = "weights of 4 bits by 32, asymmetric"
    prices = Prices({_SHAPE: 100.0}, {_SHAPE: {plain: 20.0, f"{plain}, compensated": 19.0}}, {})
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: prices)
    monkeypatch.setattr(surveying, "static_region", lambda *_, **__: TimedRegion())
    found = survey_of(
        layers, _feeds(0, samples), staging, _OPTIONS,
        deadline=Deadline.never(), progress=lambda _: None,
    )  # fmt: skip
    offered = {
        one.name: one.squares[0]
        for kernel in found.kernels
        if kernel.makes[0] == "m"
        for one in kernel.options
        if one.name != EXACT
    }
    assert offered[f"{plain}, compensated"] > 0.7 * offered[plain]


def test_products_without_prices_are_late(
    layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: Prices())
    found = survey_of(
        layers, _feeds(0), staging, _OPTIONS, deadline=Deadline.never(), progress=lambda _: None
    )
    assert (found.kernels, found.n_late) == ((), 2)


@pytest.mark.parametrize("bound", [1e-4, 1.5e-2, 0.05])
def test_the_bound_holds_on_other_data(
    bound: float, layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    found = _search(bound, layers, survey, staging)
    if found is None:
        assert bound == 1e-4
        return
    session, exact = (
        OrtSession(one, _OPTIONS) for one in (staging.of(found.model), staging.original)
    )
    for fed in _feeds(20):
        left, right = session.run(fed)[0], exact.run(fed)[0]
        assert np.abs(left - right).max() <= found.error * np.abs(right).max() * 1.0001
    assert found.error <= bound
    assert found.selection.bound_us <= found.selection.time_us


def test_a_loose_bound_takes_the_fastest_of_all(
    layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    found = _search(0.5, layers, survey, staging)
    assert found is not None
    assert set(found.selection.chosen.values()) == {"int8"}
    assert (found.selection.time_us, found.measured) == (80.0, 1)


@pytest.mark.parametrize("factor", [1e-4, 100.0])
def test_wrong_predictions_are_corrected(
    factor: float, layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> None:
    """Errors that are predicted much too small or too large lead to the same choice."""
    wrong = replace(
        survey,
        kernels=tuple(
            replace(
                kernel,
                options=tuple(
                    replace(one, squares=tuple(factor * each for each in one.squares))
                    for one in kernel.options
                ),
            )
            for kernel in survey.kernels
        ),
    )
    bound = 0.02
    right, found = (_search(bound, layers, one, staging) for one in (survey, wrong))
    assert right is not None
    assert found is not None
    assert found.selection.chosen == right.selection.chosen
    assert found.error <= bound
