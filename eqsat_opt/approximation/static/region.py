"""The units of a model that may compute on integers, with their ranges, times and kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.choice import EXACT, HeldForm, KernelOption, Option
from eqsat_opt.approximation.static.measuring import UnitTimes, conversion_times, measure_units
from eqsat_opt.approximation.static.ranges import QuantisedRange, range_of
from eqsat_opt.approximation.static.units import Unit, find_units
from eqsat_opt.approximation.static.ways import ways_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["TimedRegion", "static_region"]

_Values = Mapping[str, npt.NDArray[Any]]

_PRICING = 0.35
"""Share of the time that is left for the times of units."""


@dataclass(frozen=True)
class TimedRegion:
    """Units with their times.

    Attributes:
        units: units by name.
        ranges: ranges of their data and results.
        times: times of the units.
        conversions: for each of these values the time to convert it to integers, and to floats, µs.
        n_late: units that there was no time to measure.
    """

    units: Mapping[str, Unit] = field(default_factory=dict)
    ranges: Mapping[str, QuantisedRange] = field(default_factory=dict)
    times: Mapping[str, UnitTimes] = field(default_factory=dict)
    conversions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    n_late: int = 0

    def kernels(self) -> Iterator[KernelOption]:
        """Yield the kernels of all units, and the conversions, without errors."""
        for name, unit in self.units.items():
            yield from _kernels(unit, self.times[name])
        for name, (to_us, back_us) in self.conversions.items():
            floats, integers = (name, HeldForm.FLOATS), (name, HeldForm.STATIC_RANGE)
            yield KernelOption(integers, (floats,), (Option(EXACT, to_us),))
            if name in self.units:
                yield KernelOption(floats, (integers,), (Option(EXACT, back_us),))


def _kernels(unit: Unit, times: UnitTimes) -> Iterator[KernelOption]:
    result = (unit.name, HeldForm.FLOATS)
    floats = tuple((name, HeldForm.FLOATS) for name in unit.reads)
    integers = tuple((name, HeldForm.STATIC_RANGE) for name in unit.reads)
    is_product = unit.has_weight and not unit.is_convolution
    if not is_product:
        yield KernelOption(result, floats, (Option(EXACT, times.floats_us),))
    elif unit.product != unit.name:
        # The kernel of the product itself is among those of sites; its activation is fused.
        yield KernelOption(result, ((unit.product, HeldForm.FLOATS),), (Option(EXACT, 0.0),))
    for gives_floats in (False, True):
        options = tuple(
            Option(way.name, times.integers_us)
            for way in ways_of(unit)
            if way.gives_floats is gives_floats
        )
        if options:
            made = result if gives_floats else (unit.name, HeldForm.STATIC_RANGE)
            yield KernelOption(made, integers, options)


def static_region(
    model: onnx_ir.Model,
    samples: tuple[_Values, ...],
    spreads: Sequence[_Values],
    products: Mapping[str, UnitTimes],
    own_ranges: Mapping[str, QuantisedRange],
    options: OrtOptions,
    deadline: Deadline,
) -> TimedRegion:
    """Return the units of a model, with ranges and times; none if no convolution or product gains.

    Args:
        model: the model.
        samples: the data and results of units in floats, for each sample.
        spreads: elements of the same on which ranges are fixed, for each sample, one at least.
        products: times of products by the name of the result.
        own_ranges: ranges that the model came with; others are fixed on ``spreads``.
        options: options of the sessions.
        deadline: time of which a share is for measuring units; further ones are late.
    """
    found = find_units(model)
    ranges = _ranges(found, spreads, own_ranges)
    usable = [
        unit
        for unit in found
        if all(name in ranges for name in (*unit.reads, unit.name))
        and (not unit.has_weight or unit.is_convolution or unit.product in products)
    ]
    times = {
        unit.name: products[unit.product]
        for unit in usable
        if unit.has_weight and not unit.is_convolution
    }
    others = [unit for unit in usable if unit.name not in times]
    times |= measure_units(
        others,
        samples[0],
        ranges,
        model.opset_imports,
        options=options,
        deadline=deadline.share(_PRICING),
    )
    units = {unit.name: unit for unit in usable if unit.name in times}
    if not any(
        unit.has_weight and times[name].integers_us < times[name].floats_us
        for name, unit in units.items()
    ):
        return TimedRegion(n_late=len(usable) - len(units))
    values = dict.fromkeys(name for unit in units.values() for name in (*unit.reads, unit.name))
    by_shape: dict[tuple[int, ...], tuple[float, float]] = {}
    for name in values:
        shape = samples[0][name].shape
        if shape not in by_shape:
            by_shape[shape] = conversion_times(shape, options)
    return TimedRegion(
        units,
        ranges,
        times,
        {name: by_shape[samples[0][name].shape] for name in values},
        n_late=len(usable) - len(units),
    )


def _ranges(
    units: tuple[Unit, ...],
    samples: Sequence[_Values],
    own_ranges: Mapping[str, QuantisedRange],
) -> dict[str, QuantisedRange]:
    """Return the ranges of values that are finite floats with elements."""
    ranges: dict[str, QuantisedRange] = {}

    def add(name: str, held: QuantisedRange | None) -> None:
        if held is not None:
            ranges[name] = held

    def measured(name: str, most: float = np.inf) -> QuantisedRange | None:
        arrays = [one[name] for one in samples if name in one]
        if len(arrays) < len(samples) or any(
            one.dtype != np.float32 or not one.size for one in arrays
        ):
            return None
        return own_ranges.get(name) or range_of(arrays, most)

    for unit in units:
        for name in unit.reads:
            if name not in ranges:
                add(name, measured(name))
        if unit.keeps_range:
            if measured(unit.name) is not None:
                add(unit.name, ranges.get(unit.reads[0]))
        else:
            add(unit.name, measured(unit.name, unit.most))
    return ranges
