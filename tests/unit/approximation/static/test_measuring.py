"""Times and errors of units: what is measured is the unit alone, on integers."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.approximation.choice import EXACT, HeldForm
from eqsat_opt.approximation.errors import values_of
from eqsat_opt.approximation.static import region as surveying
from eqsat_opt.approximation.static.measuring import (
    UnitTimes,
    conversion_times,
    measure_units,
    unit_errors,
)
from eqsat_opt.approximation.static.models import integer_model, pool_in_company, unit_model
from eqsat_opt.approximation.static.ranges import QuantisedRange, range_of
from eqsat_opt.approximation.static.region import static_region
from eqsat_opt.approximation.static.units import find_units
from eqsat_opt.approximation.static.ways import ways_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.staging import Staging
from tests.unit.approximation.static.conftest import SHAPE

_OPTIONS = OrtOptions(1)
_FEEDS = tuple(
    {"x": np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)}
    for seed in range(2)
)


@pytest.fixture
def samples(images: onnx_ir.Model) -> tuple[dict[str, np.ndarray], ...]:
    """Return all values of the model for two samples."""
    wanted = {name for unit in find_units(images) for name in (*unit.reads, unit.name)}
    with Staging(images, images) as staging:
        return tuple(values_of(images, wanted, _FEEDS, staging, _OPTIONS))


def _ranges(samples: tuple[dict[str, np.ndarray], ...]) -> dict[str, QuantisedRange]:
    found = {name: range_of([one[name] for one in samples]) for name in samples[0]}
    return {name: held for name, held in found.items() if held is not None}


def test_units_run_alone_in_both_layouts(
    images: onnx_ir.Model, samples: tuple[dict[str, np.ndarray], ...]
) -> None:
    ranges, values = _ranges(samples), samples[0]
    for unit in find_units(images):
        if unit.keeps_range:
            ranges[unit.name] = ranges[unit.reads[0]]
        model = unit_model(unit, images.opset_imports)
        exact = OrtSession(model_proto(model), _OPTIONS)
        (right,) = exact.run({name: values[name] for name in unit.reads})
        np.testing.assert_allclose(right, values[unit.name], rtol=1e-4, atol=1e-5)
        fed = {f"{name}/in": ranges[name].integers(values[name]) for name in unit.reads}
        (way, *_) = (one for one in ways_of(unit) if one.bits < 8)
        (found,) = OrtSession(model_proto(integer_model(model, way, ranges)), _OPTIONS).run(fed)
        assert found.dtype == np.uint8
        near = ranges[unit.name].floats(found)
        assert np.abs(near - right).max() <= 0.05 * np.abs(right).max(), unit.name
        if any(values[name].ndim != 4 for name in (*unit.reads, unit.name)):
            continue
        last = integer_model(model, way, ranges, channels_last=True)
        turned = {name: one.transpose(0, 2, 3, 1) for name, one in fed.items()}
        (other,) = OrtSession(model_proto(last), _OPTIONS).run(turned)
        np.testing.assert_array_equal(other.transpose(0, 3, 1, 2), found)
        pool = pool_in_company(unit)
        assert (pool is not None) is (unit.name == "p")
        if pool is not None:
            (pooled,) = OrtSession(model_proto(pool), _OPTIONS).run(turned)
            np.testing.assert_array_equal(pooled, other)


def test_measuring_leaves_the_model_as_it_was(
    images: onnx_ir.Model, samples: tuple[dict[str, np.ndarray], ...]
) -> None:
    before = model_proto(images).SerializeToString(deterministic=True)
    units = [unit for unit in find_units(images) if not unit.keeps_range]
    ranges = _ranges(samples)
    times = measure_units(
        units, samples[0], ranges, images.opset_imports, options=_OPTIONS, deadline=Deadline.never()
    )
    assert set(times) == {unit.name for unit in units}
    assert all(one.floats_us > 0 and one.integers_us > 0 for one in times.values())
    late = measure_units(
        units,
        samples[0],
        ranges,
        images.opset_imports,
        options=_OPTIONS,
        deadline=Deadline.after(0),
    )
    assert late == {}
    for unit in units:
        errors = unit_errors(unit, samples, ranges, images.opset_imports, _OPTIONS)
        assert errors is not None
        assert set(errors.mean_square) == {way.name for way in ways_of(unit)}
        assert len(errors.differences) == len(samples)
        own = [float(np.mean(one.astype(np.float64) ** 2)) for one in errors.differences]
        assert np.mean(own) == pytest.approx(errors.mean_square[errors.representative])
    assert model_proto(images).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_conversions_of_any_rank(shape: tuple[int, ...]) -> None:
    assert all(time_us > 0 for time_us in conversion_times(shape, _OPTIONS))


def test_a_region_has_a_kernel_for_each_form(
    images: onnx_ir.Model,
    samples: tuple[dict[str, np.ndarray], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = UnitTimes(10.0, 2.0)
    monkeypatch.setattr(
        surveying, "measure_units", lambda units, *_, **__: {one.name: times for one in units}
    )
    monkeypatch.setattr(surveying, "conversion_times", lambda *_: (1.0, 1.0))
    own = {"x": QuantisedRange(0.5, 7, "own")}
    products = {"h": times, "y": times}
    found = static_region(
        images, samples, samples, products,
        own_ranges=own, options=_OPTIONS, deadline=Deadline.never(),
    )  # fmt: skip
    assert found.units.keys() == {unit.name for unit in find_units(images)}
    assert found.ranges["p"] == found.ranges["m"]
    assert found.ranges["x"] == own["x"]
    makes = {(kernel.makes, kernel.options[0].name) for kernel in found.kernels()}
    assert ((("x", HeldForm.STATIC_RANGE)), EXACT) in makes
    assert (("r0", HeldForm.FLOATS), EXACT) in makes
    assert (("r0", HeldForm.STATIC_RANGE), "static int8") in makes
    assert (("hr", HeldForm.FLOATS), "static int8 to floats") in makes
    slow = {name: UnitTimes(1.0, 2.0) for name in found.units}
    monkeypatch.setattr(surveying, "measure_units", lambda *_, **__: slow)
    none = static_region(
        images, samples, samples, {},
        own_ranges=own, options=_OPTIONS, deadline=Deadline.never(),
    )  # fmt: skip
    assert not none.units
