"""Errors at sites, and how outputs move with them."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest
from onnx import TensorProto, helper

from eqsat_opt.approximation.errors import (
    OutputShift,
    Probe,
    local_errors,
    shift_of,
    values_of,
)
from eqsat_opt.approximation.implementations import IMPLEMENTATIONS
from eqsat_opt.approximation.rewriting import with_choice
from eqsat_opt.approximation.sites import find_sites
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.staging import Staging

_OPTIONS = OrtOptions(1)
_FEEDS = tuple(
    {"x": np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)}
    for seed in range(2)
)
_ENDLESS = OutputShift(np.inf, np.inf)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "shift"),
    [
        (_floats(1, 4), _floats(1, 4), OutputShift(0.0, 0.0)),
        (_floats(1, 3), _floats(1, 4), OutputShift(0.25, 1 / 32)),
        (_floats(1, -np.inf), _floats(2, -np.inf), OutputShift(0.5, 0.25)),
        (_floats(0, 1), _floats(-np.inf, 1), _ENDLESS),
        (_floats(np.nan, 1), _floats(1, 1), _ENDLESS),
        (_floats(1), _floats(0), _ENDLESS),
        (_floats(0), _floats(0), OutputShift(0.0, 0.0)),
        (_floats(1), _floats(1, 1), _ENDLESS),
        (np.array([1]), np.array([2]), _ENDLESS),
        (np.array([2]), np.array([2]), OutputShift(0.0, 0.0)),
        (np.array([2.0]), _floats(2), _ENDLESS),
        ([1], [1], OutputShift(0.0, 0.0)),
        ([1], [2], _ENDLESS),
    ],
)
def test_shift(found: object, expected: object, shift: OutputShift) -> None:
    assert shift_of(found, expected) == shift


def test_a_shift_by_one_site_is_what_its_implementation_causes(
    layers: onnx_ir.Model, staging: Staging
) -> None:
    """What is added to the result of a site moves the output as the implementation does."""
    sites = find_sites(layers)
    rows = list(values_of(layers, {"x", "r"}, _FEEDS, staging, _OPTIONS))
    probe = Probe(layers, [site.name for site in sites], _FEEDS, staging, _OPTIONS)
    exact = OrtSession(staging.original, _OPTIONS)
    for site in sites:
        own = [one[site.data.name or ""] for one in rows]
        errors = local_errors(site, own, IMPLEMENTATIONS, _OPTIONS)
        assert errors is not None
        assert errors.representative == IMPLEMENTATIONS[0].name
        assert set(errors.mean_square) == {one.name for one in IMPLEMENTATIONS}
        assert all(0 < one < np.inf for one in errors.mean_square.values())
        rewritten = with_choice(layers, {site.name: IMPLEMENTATIONS[0]})
        session = OrtSession(model_proto(rewritten), _OPTIONS)
        for fed, (found,) in zip(_FEEDS, probe.shifts(site.name, errors.differences), strict=True):
            real = shift_of(session.run(fed)[0], exact.run(fed)[0])
            assert found.largest == pytest.approx(real.largest, rel=1e-2)
            assert found.mean_square == pytest.approx(real.mean_square, rel=1e-2)


def test_a_shift_by_an_input_is_that_of_other_data(layers: onnx_ir.Model, staging: Staging) -> None:
    probe = Probe(layers, ["x"], _FEEDS, staging, _OPTIONS)
    moved = np.full((4, 64), 0.01, np.float32)
    ((found,),) = probe.shifts("x", [moved])
    exact = OrtSession(staging.original, _OPTIONS)
    real = shift_of(exact.run({"x": _FEEDS[0]["x"] + moved})[0], exact.run(_FEEDS[0])[0])
    assert found.largest == pytest.approx(real.largest, rel=1e-3)


def test_implementations_that_do_not_run_are_left_out(layers: onnx_ir.Model) -> None:
    """A block of 17 weights is none that onnxruntime knows."""
    from eqsat_opt.approximation.implementations import _WeightsInBlocks

    site = find_sites(layers)[0]
    odd = _WeightsInBlocks("odd", "odd", 8, 17, accuracy=4)
    good = IMPLEMENTATIONS[0]
    found = local_errors(site, [_FEEDS[0]["x"]], [odd, good], _OPTIONS)
    assert found is not None
    assert list(found.mean_square) == [good.name] == [found.representative]
    assert local_errors(site, [_FEEDS[0]["x"]], [odd], _OPTIONS) is None


def test_values_of_any_type_are_returned() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "casts", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model, feeds = onnx_ir.from_proto(proto), {"x": _floats(1, 2)}
    with Staging(model, model) as staging:
        (found,) = values_of(model, ["i", "absent"], [feeds], staging, _OPTIONS)
    assert {name: array.tolist() for name, array in found.items()} == {"i": [1, 2]}
