"""Survey of a model: its sites and units, and the price and error of each implementation there.

A site is a product that is computed on integers in the range of each run, or with weights of few
bits. A unit is an operator that is computed on integers in ranges which calibration data fixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.choice import EXACT, Held, HeldForm, KernelOption
from eqsat_opt.approximation.errors import OutputShift, Probe, SiteErrors, local_errors, values_of
from eqsat_opt.approximation.implementations import (
    FittingRows,
    ProductImplementation,
    implementations_on,
)
from eqsat_opt.approximation.network import Network, faster
from eqsat_opt.approximation.prices import Prices, Shape, measure_prices
from eqsat_opt.approximation.rewriting import with_choice
from eqsat_opt.approximation.sites import ProductSite, find_sites
from eqsat_opt.approximation.static.measuring import UnitTimes, unit_errors
from eqsat_opt.approximation.static.ranges import QuantisedRange, thinned
from eqsat_opt.approximation.static.region import static_region
from eqsat_opt.approximation.static.rewriting import with_static
from eqsat_opt.approximation.static.units import Unit, find_units
from eqsat_opt.approximation.static.ways import WAYS
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.processor import device_fingerprint
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.runtime.staging import Staging

__all__ = ["Survey", "survey_of"]

_Values = Mapping[str, npt.NDArray[Any]]

_PRICING = 0.25
"""Share of the time of a survey for the prices of sites."""

_PROBING = 0.6
"""Share of the time of a survey for runs of the whole model."""

_RANGING = 0.15
"""Share of the time of a survey for the values of samples."""

_MOST_BYTES = 1 << 30
"""Memory that is set aside for the values of samples."""

_WORSE = 1.2
"""Ratio of mean squared errors from which one of two implementations is less exact."""

_GAUSSIAN = 16.0
"""Squared ratio of the largest to the mean difference of an output where nothing was measured."""

_NO_RANGES: Mapping[str, QuantisedRange] = MappingProxyType({})

_JUDGING = 4
"""Samples, or rows of one sample, of which one judges what was fitted to the others."""

_INTEGERS = ("int8 per column", "uint8 per column", "int8", "uint8")
"""Implementations whose kernel also computes on integers in fixed ranges."""


@dataclass(frozen=True)
class Survey:
    """The prices and errors of a model's sites and units.

    Attributes:
        kernels: their kernels, in floats and on integers; empty if none gains.
        needed: values that are needed in floats.
        n_sites: number of all sites and units.
        n_late: sites and units for whose prices or errors there was no time.
        crests: for each output the squared ratio of its largest to its mean difference.
        implementations: implementations of sites by name.
        fitted: those that were fitted to a site, by the names of the site and their own.
        ranges: ranges of the values that units read and make.
    """

    kernels: tuple[KernelOption, ...]
    needed: tuple[str, ...]
    n_sites: int
    n_late: int
    crests: tuple[float, ...]
    implementations: Mapping[str, ProductImplementation]
    fitted: Mapping[tuple[str, str], ProductImplementation] = field(default_factory=dict)
    ranges: Mapping[str, QuantisedRange] = field(default_factory=dict)

    def applied(self, model: onnx_ir.Model, chosen: Mapping[str, str]) -> onnx_ir.Model:
        """Return the model with the chosen implementations, by the name of a result."""
        sites = {
            name: self.fitted.get((name, way), self.implementations[way])
            for name, way in chosen.items()
            if way not in WAYS
        }
        units = {name: WAYS[way] for name, way in chosen.items() if way in WAYS}
        changed = with_choice(model, sites)
        return with_static(changed, units, self.ranges) if units else changed

    def origins(self, model: onnx_ir.Model, chosen: Mapping[str, str]) -> Counter[str]:
        """Return how often a range of some origin is used in a choice."""
        names = {
            name
            for unit in find_units(model)
            if chosen.get(unit.name) in WAYS
            for name in (*unit.reads, unit.name)
        }
        return Counter(self.ranges[name].origin for name in names if name in self.ranges)


def survey_of(
    model: onnx_ir.Model,
    fitting: Sequence[Feeds],
    staging: Staging,
    options: OrtOptions,
    deadline: Deadline,
    progress: Callable[[str], None],
    *,
    ranging: Sequence[Feeds] = (),
    own_ranges: Mapping[str, QuantisedRange] = _NO_RANGES,
    implementations: Sequence[ProductImplementation] | None = None,
) -> Survey:
    """Measure prices, errors and sensitivities, those of the largest gains first.

    Args:
        model: the model in floats.
        fitting: inputs on which ranges are fixed and errors are measured, one at least.
        staging: stages models for sessions.
        options: options of the sessions.
        deadline: time after which no further site or unit is measured; the others stay in floats.
        progress: called with what is measured.
        ranging: further inputs on which ranges are fixed.
        own_ranges: ranges that the model came with, by the names of values.
        implementations: the implementations of sites to choose from; ``None`` for all that the
            processor has.

    Raises:
        RuntimeFailed: the model does not run on the inputs.
        ExtractionError: no choice of units was found in time.
    """
    if implementations is None:
        implementations = implementations_on(device_fingerprint().isa)
    sites, units = find_sites(model), find_units(model)
    n_sites = len({site.name for site in sites} | {unit.product for unit in units})
    known = {one.name: one for one in implementations}
    outputs = len(model.graph.outputs)
    nothing = Survey(
        (),
        needed=(),
        n_sites=n_sites,
        n_late=0,
        crests=(_GAUSSIAN,) * outputs,
        implementations=known,
    )
    if not n_sites:
        return nothing
    wanted = {site.data.name or "" for site in sites}
    wanted |= {name for unit in units for name in (*unit.reads, unit.name)}
    samples, spreads = _samples(
        values_of(model, wanted, [*fitting, *ranging], staging=staging, options=options),
        len(fitting),
        deadline.share(_RANGING),
    )
    shapes = {site: shape for site in sites if (shape := _shape(site, samples[0])) is not None}
    if shapes:
        progress(f"prices of {len(set(shapes.values()))} products")
    prices = measure_prices(
        {shape: site for site, shape in shapes.items()},
        implementations,
        options,
        deadline.share(_PRICING),
    )
    if units:
        progress(f"prices of {len(units)} operators on integers")
    products = _products(shapes, prices)
    region = static_region(
        model, samples, spreads, products,
        own_ranges=own_ranges, options=options, deadline=deadline,
    )  # fmt: skip
    unpriced = region.n_late + sum(shape not in prices.floats for shape in shapes.values())
    network = Network(
        model,
        shapes=shapes,
        prices=prices,
        region=region,
        reads_integers=frozenset(one.name for one in implementations if one.reads_integers),
    )
    kernels = tuple(network.kernels())
    candidates = network.candidates(kernels)
    if not candidates:
        return replace(nothing, n_late=unpriced)
    errors = _Errors(network, samples, fitting, staging, options=options, candidates=candidates)
    late = errors.measure(known, deadline, progress)
    return Survey(
        tuple(errors.with_errors(kernels)),
        needed=network.needed(),
        n_sites=n_sites,
        n_late=late + unpriced,
        crests=tuple(float(np.median(each)) if each else _GAUSSIAN for each in errors.crests),
        implementations=known,
        fitted=errors.fitted,
        ranges=region.ranges,
    )


def _samples(
    values: Iterable[_Values], n_whole: int, deadline: Deadline
) -> tuple[tuple[_Values, ...], list[_Values]]:
    """Return the values of the first samples, and some elements of those of all samples.

    Args:
        values: the values of one sample after the other, one at least.
        n_whole: most samples of which all values are kept, as far as memory is set aside for them.
        deadline: time after which no further sample is run.
    """
    whole: list[_Values] = []
    spreads: list[_Values] = []
    for number, one in enumerate(values):
        spreads.append({name: thinned(array) for name, array in one.items()})
        n_bytes = sum(array.nbytes for array in one.values())
        if number < n_whole and (not whole or (len(whole) + 1) * n_bytes <= _MOST_BYTES):
            whole.append(one)
        if deadline.expired:
            break
    return tuple(whole), spreads


def _shape(site: ProductSite, values: _Values) -> Shape | None:
    """Return the shape of a product; ``None`` if its rows are no matrices of floats."""
    array = values.get(site.data.name or "")
    if array is None or array.ndim < 2 or not array.size or array.dtype != np.float32:
        return None
    return Shape(array.size // site.k, site.k, site.n)


def _products(shapes: Mapping[ProductSite, Shape], prices: Prices) -> dict[str, UnitTimes]:
    """Return the times of products without the conversion of rows, by the name of the result."""
    found: dict[str, UnitTimes] = {}
    for site, shape in shapes.items():
        times = prices.implementations.get(shape, {})
        integers = [times[name] for name in _INTEGERS if name in times]
        if integers:
            found[site.name] = UnitTimes(prices.floats[shape], integers[0])
    return found


class _Errors:
    """The errors of implementations and conversions at each output.

    Attributes:
        crests: for each output the squared ratios of its largest to its mean difference.
        fitted: implementations as they were fitted to a site, by the names of both.
    """

    def __init__(
        self,
        network: Network,
        samples: Sequence[_Values],
        fitting: Sequence[Feeds],
        staging: Staging,
        options: OrtOptions,
        candidates: Sequence[ProductSite | Unit],
    ) -> None:
        self._network, self._options, self._candidates = network, options, candidates
        names = {name for one in candidates for name in _moved(one)}
        self._probe = Probe(network.model, names, fitting, staging=staging, options=options)
        self._samples = samples
        self._squares: dict[tuple[Held, str], tuple[float, ...]] = {}
        self._gains: dict[str, tuple[float, ...]] = {}
        self._useful: dict[Shape, tuple[str, ...]] = {}
        self.crests: list[list[float]] = [[] for _ in network.model.graph.outputs]
        self.fitted: dict[tuple[str, str], ProductImplementation] = {}

    def measure(
        self,
        known: Mapping[str, ProductImplementation],
        deadline: Deadline,
        progress: Callable[[str], None],
    ) -> int:
        """Measure one candidate after the other, and return for how many there was no time."""
        n_values = len({name for one in self._candidates for name in _moved(one)})
        count = _affordable(self._probe.run_s * n_values, deadline, len(self._samples))
        self._samples = self._samples[:count]
        for number, one in enumerate(self._candidates):
            if number and deadline.expired:
                return len(self._candidates) - number
            progress(f"errors of operator {number + 1} of {len(self._candidates)}")
            if isinstance(one, ProductSite):
                self._measure_site(one, known, deadline)
            else:
                self._measure_unit(one)
        return 0

    def with_errors(self, kernels: Iterable[KernelOption]) -> Iterator[KernelOption]:
        """Yield the kernels whose errors are known."""
        for kernel in kernels:
            is_exact = kernel.makes[1] is not HeldForm.STATIC_RANGE
            options = []
            for one in kernel.options:
                squares = self._squares.get((kernel.makes, one.name))
                if squares is not None:
                    options.append(replace(one, squares=squares))
                elif is_exact and one.name == EXACT:
                    options.append(one)
            if options:
                yield replace(kernel, options=tuple(options))

    def _measure_site(
        self, site: ProductSite, known: Mapping[str, ProductImplementation], deadline: Deadline
    ) -> None:
        shape = self._network.shapes[site]
        times = faster(self._network.prices, shape)
        rows, matrix = [one[site.data.name or ""] for one in self._samples], site.matrix()
        fitting, judging = _divided(rows)
        fitted, to_fit = [], FittingRows(fitting)
        for name in self._useful.get(shape, times):
            # One that shares its kernel differs by what it is fitted to, which takes seconds.
            if known[name].kernel != name and (deadline.expired or not judging):
                continue
            one = known[name].fitted(matrix, to_fit)
            if one is not None:
                fitted.append(one)
        self.fitted |= {(site.name, one.name): one for one in fitted}
        errors = local_errors(site, rows, fitted, self._options)
        if errors is None:
            return
        to_judge = [one for one in fitted if one.kernel != one.name]
        apart = local_errors(site, judging, to_judge, self._options) if to_judge else None
        if apart is not None:
            squares = {**errors.mean_square, **apart.mean_square}
            errors = replace(errors, mean_square=squares)
        self._useful.setdefault(shape, _useful(times, errors))
        gains = self._gain(site.name, errors.differences)
        for name, square in errors.mean_square.items():
            self._squares[(site.name, HeldForm.FLOATS), name] = _scaled(gains, square)

    def _measure_unit(self, unit: Unit) -> None:
        region = self._network.region
        for name in unit.reads:
            held = (name, HeldForm.STATIC_RANGE), EXACT
            if held not in self._squares:
                moved = tuple(_rounding(region.ranges[name], one[name]) for one in self._samples)
                self._squares[held] = _scaled(self._gain(name, moved), _mean_square(moved))
        errors = unit_errors(
            unit,
            self._samples,
            region.ranges,
            self._network.model.opset_imports,
            options=self._options,
        )
        if errors is None:
            return
        gains = self._gain(unit.name, errors.differences)
        for name, square in errors.mean_square.items():
            form = HeldForm.FLOATS if WAYS[name].gives_floats else HeldForm.STATIC_RANGE
            self._squares[(unit.name, form), name] = _scaled(gains, square)

    def _gain(self, name: str, differences: Sequence[npt.NDArray[Any]]) -> tuple[float, ...]:
        """Return how much of a squared error at a value arrives at each output."""
        added = _mean_square(differences)
        if not added:
            return (0.0,) * len(self.crests)
        if name not in self._gains:
            shifts = tuple(self._probe.shifts(name, differences))
            moved = np.mean([[one.mean_square for one in shift] for shift in shifts], axis=0)
            self._gains[name] = tuple(float(one) for one in moved / added)
            for each, found in zip(self.crests, zip(*shifts, strict=True), strict=True):
                each.extend(map(_crest, filter(_is_moved, found)))
        return self._gains[name]


_Rows = Sequence[npt.NDArray[Any]]


def _divided(rows: _Rows) -> tuple[_Rows, _Rows]:
    """Divide rows into those to which weights are fitted and those on which the fit is judged.

    Errors on rows to which weights were fitted say little of others where there are few. A quarter
    judges. Whole samples stay together, as rows of one sample may be alike; where there is only one
    sample of one row, nothing is left to judge by.

    Args:
        rows: rows `[..., k]` of each sample, one at least.
    """
    if len(rows) > 1:
        n_judging = max(1, len(rows) // _JUDGING)
        return rows[:-n_judging], rows[-n_judging:]
    flat = rows[0].reshape(-1, rows[0].shape[-1])
    n_fitting = len(flat) - len(flat) // _JUDGING
    return [flat[:n_fitting]], [flat[n_fitting:]] if n_fitting < len(flat) else []


def _moved(candidate: ProductSite | Unit) -> tuple[str, ...]:
    """Return the values that a candidate moves, besides its result those that it rounds."""
    return (
        (candidate.name,)
        if isinstance(candidate, ProductSite)
        else (*candidate.reads, candidate.name)
    )


def _is_moved(shift: OutputShift) -> bool:
    return 0 < shift.mean_square < math.inf


def _crest(shift: OutputShift) -> float:
    return shift.largest**2 / shift.mean_square


def _rounding(held: QuantisedRange, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    moved: npt.NDArray[Any] = held.floats(held.integers(array)) - array
    return moved


def _mean_square(arrays: Sequence[npt.NDArray[Any]]) -> float:
    return float(np.mean([np.mean(one.astype(np.float64) ** 2) for one in arrays]))


def _scaled(gains: Sequence[float], square: float) -> tuple[float, ...]:
    return tuple(gain * square if gain and square else 0.0 for gain in gains)


def _useful(times: Mapping[str, float], errors: SiteErrors) -> tuple[str, ...]:
    """Return the implementations at a site of which no other is more exact and as fast.

    Other sites of the same shape are offered only these, which saves most of the time for errors.
    """
    squares = errors.mean_square
    return tuple(
        name
        for name in times
        if name in squares
        and not any(
            times[other] <= times[name] and _WORSE * squares[other] < squares[name]
            for other in squares
        )
    )


def _affordable(sample_s: float, deadline: Deadline, most: int) -> int:
    """Return for how many samples there is time, one at least."""
    return max(1, int(min(most, _PROBING * deadline.left_s / max(sample_s, 1e-6))))
