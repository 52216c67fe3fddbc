"""Measured times and errors of units on integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.errors import SiteErrors
from eqsat_opt.approximation.static.models import (
    TO_CHANNELS_LAST,
    conversions,
    integer_model,
    pool_in_company,
    unit_model,
)
from eqsat_opt.approximation.static.ranges import QuantisedRange
from eqsat_opt.approximation.static.units import Unit
from eqsat_opt.approximation.static.ways import ways_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.measure import measure
from eqsat_opt.runtime.source import Feeds

__all__ = ["UnitTimes", "conversion_times", "measure_units", "unit_errors"]

_Array = npt.NDArray[Any]
_Values = Mapping[str, _Array]

_BUDGET_S = 0.08
"""Seconds of one measurement."""


@dataclass(frozen=True)
class UnitTimes:
    """Times of a unit, µs."""

    floats_us: float
    integers_us: float


def measure_units(
    units: Sequence[Unit],
    values: _Values,
    ranges: Mapping[str, QuantisedRange],
    opset_imports: Mapping[str, int],
    options: OrtOptions,
    deadline: Deadline,
) -> dict[str, UnitTimes]:
    """Measure units without conversions, those with the largest data first, until the deadline.

    Units of the same operators, attributes and shapes share a measurement.

    Args:
        units: the units.
        values: their data and results for one sample.
        ranges: ranges of these.
        opset_imports: operator sets of the model.
        options: options of the sessions.
        deadline: time after which no further unit is measured.

    Returns:
        Times by the name of a unit; those that onnxruntime refuses are missing.
    """
    known: dict[tuple[object, ...], UnitTimes | None] = {}
    found: dict[str, UnitTimes] = {}
    for unit in sorted(units, key=lambda one: -sum(values[name].size for name in one.reads)):
        key = _key(unit, values)
        if key not in known:
            if deadline.expired:
                continue
            known[key] = _times(unit, values, ranges, opset_imports, options=options)
        times = known[key]
        if times is not None:
            found[unit.name] = times
    return found


def _key(unit: Unit, values: _Values) -> tuple[object, ...]:
    constants = [
        None if one is None or one.const_value is None else tuple(one.const_value.shape)
        for node in unit.nodes
        for one in node.inputs
    ]
    attributes = sorted(
        f"{node.op_type} {name} {one.value}"
        for node in unit.nodes
        for name, one in node.attributes.items()
    )
    kinds = tuple(node.op_type for node in unit.nodes)
    shapes = tuple(values[name].shape for name in unit.reads)
    return (kinds, *attributes, *constants, *shapes)


def _times(
    unit: Unit,
    values: _Values,
    ranges: Mapping[str, QuantisedRange],
    opset_imports: Mapping[str, int],
    *,
    options: OrtOptions,
) -> UnitTimes | None:
    names = (*unit.reads, unit.name)
    model = unit_model(unit, opset_imports, {name: values[name].shape for name in names})
    way = ways_of(unit)[0]
    integers = {f"{name}/in": ranges[name].integers(values[name]) for name in unit.reads}
    forms = [(integer_model(model, way, ranges), integers)]
    if all(values[name].ndim == len(TO_CHANNELS_LAST) for name in names):
        # In company, images stay in the layout of integer kernels from one to the next.
        fed = {
            name: np.ascontiguousarray(one.transpose(TO_CHANNELS_LAST))
            for name, one in integers.items()
        }
        pool = pool_in_company(unit)
        forms.append((pool or integer_model(model, way, ranges, channels_last=True), fed))
    times_us: list[float] = []
    for form in forms:
        with suppress(RuntimeFailed):
            times_us.append(_time_us(*form, options))
    if not times_us:
        return None
    floats_us = _time_us(model, {name: values[name] for name in unit.reads}, options)
    return UnitTimes(floats_us, min(times_us))


def conversion_times(shape: Sequence[int], options: OrtOptions) -> tuple[float, float]:
    """Measure the conversion of a value of some shape to integers, and that to floats, µs."""
    to, back = conversions(shape)
    return (
        _time_us(to, {"floats": np.zeros(shape, dtype=np.float32)}, options),
        _time_us(back, {"integers": np.zeros(_last(shape), dtype=np.uint8)}, options),
    )


def _last(shape: Sequence[int]) -> Sequence[int]:
    is_image = len(shape) == len(TO_CHANNELS_LAST)
    return [shape[axis] for axis in TO_CHANNELS_LAST] if is_image else shape


def _time_us(model: onnx_ir.Model, fed: Feeds, options: OrtOptions) -> float:
    call = OrtSession(model_proto(model), options).bind(fed)
    return measure(call, threads=options.threads, budget_s=_BUDGET_S).time_us


def unit_errors(
    unit: Unit,
    samples: Sequence[_Values],
    ranges: Mapping[str, QuantisedRange],
    opset_imports: Mapping[str, int],
    options: OrtOptions,
) -> SiteErrors | None:
    """Measure the error of each way to compute a unit, on data that are rounded in any case.

    Returns:
        The errors; the first way that runs is the representative. ``None`` if none runs.
    """
    model = unit_model(unit, opset_imports)
    exact = OrtSession(model_proto(model), options)
    fed = [{name: ranges[name].integers(one[name]) for name in unit.reads} for one in samples]
    expected = [
        exact.run({name: ranges[name].floats(one) for name, one in each.items()})[0] for each in fed
    ]
    squares: dict[str, float] = {}
    representative: str = ""
    differences: tuple[_Array, ...] = ()
    for way in ways_of(unit):
        try:
            session = OrtSession(model_proto(integer_model(model, way, ranges)), options)
            found = [
                session.run({f"{name}/in": one for name, one in each.items()})[0] for each in fed
            ]
        except RuntimeFailed:
            continue
        moved = tuple(
            (one if way.gives_floats else ranges[unit.name].floats(one)) - right
            for one, right in zip(found, expected, strict=True)
        )
        squares[way.name] = float(np.mean([np.mean(one.astype(np.float64) ** 2) for one in moved]))
        if not representative:
            representative, differences = way.name, moved
    return SiteErrors(squares, representative, differences) if squares else None
