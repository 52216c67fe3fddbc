"""Survey of a model: its sites, and the price and error of each implementation there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir

from eqsat_opt.approximation.choice import Offer, Option
from eqsat_opt.approximation.errors import (
    OutputShift,
    Probe,
    SiteErrors,
    local_errors,
    rows_of_sites,
)
from eqsat_opt.approximation.implementations import IMPLEMENTATIONS, Implementation
from eqsat_opt.approximation.prices import Prices, Shape, measure_prices
from eqsat_opt.approximation.sites import Site, find_sites
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.runtime.staging import Staging

__all__ = ["Survey", "survey_of"]

_PRICING = 0.3
"""Share of the time of a survey for prices."""

_PROBING = 0.6
"""Share of the time of a survey for runs of the whole model."""

_WORSE = 1.2
"""Ratio of mean squared errors from which one of two implementations is less exact."""

_GAUSSIAN = 16.0
"""Squared ratio of the largest to the mean difference of an output where nothing was measured."""


@dataclass(frozen=True)
class Survey:
    """The prices and errors of a model's sites.

    Attributes:
        offers: the sites that gain by an implementation, the largest gains first.
        n_sites: number of all sites.
        n_late: sites for whose prices or errors there was no time.
        crests: for each output the squared ratio of its largest to its mean difference.
        implementations: implementations by name.
    """

    offers: tuple[Offer, ...]
    n_sites: int
    n_late: int
    crests: tuple[float, ...]
    implementations: Mapping[str, Implementation]


def survey_of(
    model: onnx_ir.Model,
    fitting: Sequence[Feeds],
    staging: Staging,
    options: OrtOptions,
    deadline: Deadline,
    progress: Callable[[str], None],
    implementations: Sequence[Implementation] = IMPLEMENTATIONS,
) -> Survey:
    """Measure prices, errors and sensitivities, those of the largest gains first.

    Args:
        model: the model in floats.
        fitting: inputs on which errors are measured, one at least.
        staging: stages models for sessions.
        options: options of the sessions.
        deadline: time after which no further site is measured; the others stay in floats.
        progress: called with what is measured.
        implementations: the implementations to choose from.

    Raises:
        RuntimeFailed: the model does not run on the inputs.
    """
    known = {one.name: one for one in implementations}
    sites = find_sites(model)
    outputs = len(model.graph.outputs)
    nothing = Survey((), len(sites), 0, (_GAUSSIAN,) * outputs, implementations=known)
    if not sites:
        return nothing
    rows = rows_of_sites(model, sites, fitting, staging=staging, options=options)
    shapes = {site: shape for site in sites if (shape := _shape(site, rows[0])) is not None}
    if not shapes:
        return nothing
    progress(f"prices of {len(set(shapes.values()))} products")
    prices = measure_prices(
        {shape: site for site, shape in shapes.items()},
        implementations,
        options,
        deadline.share(_PRICING),
    )
    gains = {site: _gain(prices, shape) for site, shape in shapes.items()}
    worthwhile = sorted((one for one in gains if gains[one] > 0), key=lambda one: -gains[one])
    unpriced = sum(shape not in prices.floats for shape in shapes.values())
    if not worthwhile:
        return replace(nothing, n_late=unpriced)
    probe = Probe(model, worthwhile, fitting, staging=staging, options=options)
    samples = _affordable(probe.run_s * len(worthwhile), deadline, len(fitting))
    useful: dict[Shape, tuple[str, ...]] = {}
    offers: list[Offer] = []
    crests: list[list[float]] = [[] for _ in range(outputs)]
    for number, site in enumerate(worthwhile):
        if offers and deadline.expired:
            break
        progress(f"errors of product {number + 1} of {len(worthwhile)}")
        shape = shapes[site]
        times = _faster(prices, shape)
        errors = local_errors(
            site,
            [one[site.data.name or ""] for one in rows[:samples]],
            [known[name] for name in useful.get(shape, times)],
            options,
        )
        if errors is None:
            continue
        useful.setdefault(shape, _useful(times, errors))
        shifts = tuple(probe.shifts(site.name, errors.differences))
        offers.append(_offer(site, shape, prices, errors, shifts=shifts, known=known))
        for each, found in zip(crests, zip(*shifts, strict=True), strict=True):
            each.extend(
                one.largest**2 / one.mean_square for one in found if 0 < one.mean_square < math.inf
            )
    return Survey(
        tuple(offers),
        len(sites),
        len(worthwhile) - len(offers) + unpriced,
        tuple(float(np.median(each)) if each else _GAUSSIAN for each in crests),
        implementations=known,
    )


def _shape(site: Site, rows: Mapping[str, np.ndarray]) -> Shape | None:
    """Return the shape of a product; ``None`` if its rows are no matrices of floats."""
    array = rows.get(site.data.name or "")
    if array is None or array.ndim < 2 or not array.size or array.dtype != np.float32:
        return None
    return Shape(array.size // site.k, site.k, site.n)


def _faster(prices: Prices, shape: Shape) -> dict[str, float]:
    """Return the times of implementations that are faster than floats, the fastest first."""
    floats = prices.floats.get(shape, 0.0)
    times = prices.implementations.get(shape, {})
    return dict(sorted(((k, v) for k, v in times.items() if v < floats), key=lambda one: one[1]))


def _useful(times: Mapping[str, float], errors: SiteErrors) -> tuple[str, ...]:
    """Return the implementations at a site of which no other one is both faster and more exact.

    Other sites of the same shape are offered only these, which saves most of the time for errors.
    """
    squares = errors.mean_square
    return tuple(
        name
        for name in times
        if name in squares
        and not any(
            times[other] < times[name] and _WORSE * squares[other] < squares[name]
            for other in squares
        )
    )


def _affordable(sample_s: float, deadline: Deadline, most: int) -> int:
    """Return for how many samples there is time, one at least."""
    return max(1, int(min(most, _PROBING * deadline.left_s / max(sample_s, 1e-6))))


def _gain(prices: Prices, shape: Shape) -> float:
    return prices.floats.get(shape, 0.0) - min(_faster(prices, shape).values(), default=math.inf)


def _offer(
    site: Site,
    shape: Shape,
    prices: Prices,
    errors: SiteErrors,
    shifts: Sequence[Sequence[OutputShift]],
    known: Mapping[str, Implementation],
) -> Offer:
    added = float(np.mean([np.mean(one.astype(np.float64) ** 2) for one in errors.differences]))
    moved = np.mean([[one.mean_square for one in shift] for shift in shifts], axis=0)
    gains = moved / added if added else np.zeros_like(moved)
    times = prices.implementations[shape]
    return Offer(
        site.name,
        site.data.name or "",
        prices.floats[shape],
        prices.conversions[shape.rows, shape.k],
        options=tuple(
            Option(
                name,
                times[name],
                known[name].reads_integers,
                tuple(float(gain * square) if gain else 0.0 for gain in gains),
            )
            for name, square in errors.mean_square.items()
        ),
    )
