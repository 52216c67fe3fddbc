"""The kernels of a model in all forms, without errors, and which of them could gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.approximation.choice import EXACT, HeldForm, KernelOption, Option, select_within
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.sites import ProductSite
from eqsat_opt.approximation.static.region import TimedRegion
from eqsat_opt.approximation.static.units import Unit
from eqsat_opt.approximation.static.ways import WAYS

__all__ = ["Network", "faster"]

_PROOF_S = 10.0
"""Seconds for the choice of the units whose errors are measured."""


def faster(prices: Prices, shape: Shape) -> dict[str, float]:
    """Return the times of implementations that are faster than floats, the fastest first."""
    floats = prices.floats.get(shape, 0.0)
    times = prices.implementations.get(shape, {})
    return dict(sorted(((k, v) for k, v in times.items() if v < floats), key=lambda one: one[1]))


@dataclass(frozen=True)
class Network:
    """The sites and units of a model.

    Attributes:
        model: the model in floats.
        shapes: shapes of the sites.
        prices: times of the sites.
        region: the units.
        reads_integers: names of implementations of sites that read integers.
    """

    model: onnx_ir.Model
    shapes: Mapping[ProductSite, Shape]
    prices: Prices
    region: TimedRegion
    reads_integers: frozenset[str]

    def kernels(self) -> Iterator[KernelOption]:
        """Yield the kernels and conversions of all priced sites and units, without errors."""
        converted: dict[str, float] = {}
        for site, shape in self.shapes.items():
            if shape not in self.prices.floats:
                continue
            made, rows = (site.name, HeldForm.FLOATS), site.data.name or ""
            yield KernelOption(
                made, ((rows, HeldForm.FLOATS),), (Option(EXACT, self.prices.floats[shape]),)
            )
            for form in (HeldForm.FLOATS, HeldForm.RUN_RANGE):
                options = tuple(
                    Option(name, time_us)
                    for name, time_us in faster(self.prices, shape).items()
                    if (name in self.reads_integers) is (form is HeldForm.RUN_RANGE)
                )
                if options:
                    yield KernelOption(made, ((rows, form),), options)
                    if form is HeldForm.RUN_RANGE:
                        converted[rows] = self.prices.conversions[shape.rows, shape.k]
        for rows, time_us in converted.items():
            floats, integers = (rows, HeldForm.FLOATS), (rows, HeldForm.RUN_RANGE)
            yield KernelOption(integers, (floats,), (Option(EXACT, time_us),))
        yield from self.region.kernels()

    def needed(self) -> tuple[str, ...]:
        """Return the results of sites and units that others read, or that are outputs."""
        data: set[tuple[onnx_ir.Node, int]] = set()
        results: dict[str, onnx_ir.Value] = {}
        for site, shape in self.shapes.items():
            if shape in self.prices.floats:
                data.add((site.node, 0))
                results[site.name] = site.node.outputs[0]
        for unit in self.region.units.values():
            data |= {(unit.nodes[0], index) for index in range(len(unit.data))}
            data |= {(node, 0) for node in unit.nodes[1:]}
            results[unit.name] = unit.result
        return tuple(
            name
            for name, value in results.items()
            if value.is_graph_output()
            or any((use.node, use.idx) not in data for use in value.uses())
        )

    def candidates(self, kernels: Sequence[KernelOption]) -> tuple[ProductSite | Unit, ...]:
        """Return the sites that could gain, and the units that gain together, largest first.

        Raises:
            ExtractionError: no choice of units was found in time.
        """
        gains: dict[ProductSite | Unit, float] = {}
        for site, shape in self.shapes.items():
            times = faster(self.prices, shape)
            if times:
                gains[site] = self.prices.floats[shape] - min(times.values())
        for name, unit in self._fastest_units(kernels).items():
            times_of_unit = self.region.times[name]
            gains[unit] = times_of_unit.floats_us - times_of_unit.integers_us
        return tuple(sorted(gains, key=lambda one: -gains[one]))

    def _fastest_units(self, kernels: Sequence[KernelOption]) -> dict[str, Unit]:
        """Return the units that compute on integers where no error is too large."""
        if not self.region.units:
            return {}
        found = select_within(kernels, self.needed(), (), time_limit_s=_PROOF_S)
        return {name: self.region.units[name] for name, way in found.chosen.items() if way in WAYS}
