"""The search keeps its bound on data that it did not see, and corrects wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.approximation import survey as surveying
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.search import Approximation, expected_of, fastest_within
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


@pytest.fixture
def survey(layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch) -> Survey:
    """Return a survey of the two layers with invented prices."""
    prices = Prices({_SHAPE: 100.0}, {_SHAPE: _TIMES}, {(4, 64): 10.0})
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: prices)
    return survey_of(layers, _feeds(0), staging, _OPTIONS, Deadline.never(), lambda _: None)


def _search(
    bound: float, layers: onnx_ir.Model, survey: Survey, staging: Staging
) -> Approximation | None:
    correcting, held_back = (expected_of(staging.original, _feeds(i), _OPTIONS) for i in (10, 20))
    return fastest_within(
        bound, layers, survey, correcting, held_back,
        staging=staging, options=_OPTIONS, deadline=Deadline.never(), progress=lambda _: None,
    )  # fmt: skip


def test_a_survey_offers_what_is_faster(survey: Survey) -> None:
    assert (survey.n_sites, survey.n_late, len(survey.offers)) == (2, 0, 2)
    for offer in survey.offers:
        assert "uint8" not in {one.name for one in offer.options}
        assert (offer.floats_us, offer.conversion_us) == (100.0, 10.0)
        for one in offer.options:
            assert one.time_us == _TIMES[one.name]
            assert 0 < one.squares[0] < 1e-3


def test_a_survey_without_time_for_all_keeps_one_site(
    layers: onnx_ir.Model, staging: Staging, survey: Survey
) -> None:
    found = survey_of(layers, _feeds(0), staging, _OPTIONS, Deadline.after(0), lambda _: None)
    assert (len(found.offers), found.n_late) == (1, 1)


def test_products_without_prices_are_late(
    layers: onnx_ir.Model, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "measure_prices", lambda *_: Prices())
    found = survey_of(
        layers, _feeds(0), staging, _OPTIONS, deadline=Deadline.never(), progress=lambda _: None
    )
    assert (found.offers, found.n_late) == ((), 2)


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
        offers=tuple(
            replace(
                offer,
                options=tuple(
                    replace(one, squares=tuple(factor * each for each in one.squares))
                    for one in offer.options
                ),
            )
            for offer in survey.offers
        ),
    )
    bound = 0.02
    right, found = (_search(bound, layers, one, staging) for one in (survey, wrong))
    assert right is not None
    assert found is not None
    assert found.selection.chosen == right.selection.chosen
    assert found.error <= bound
