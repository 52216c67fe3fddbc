"""The choice among implementations as an extraction problem, which is solved with a bound.

Classes are sites and the integers of their rows, which several sites share. The objective is time;
the squared error of each output is a metric with a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat_opt.extract import Objective, extract
from eqsat_opt.extract.problem import ProblemBuilder

__all__ = ["Offer", "Option", "Selection", "select_within"]

_TIME = "time"

_FLOATS = ""
"""Name of the product in floats among the implementations of a site."""


@dataclass(frozen=True)
class Option:
    """One implementation of a site.

    Attributes:
        name: name of the implementation.
        time_us: its time, without the conversion of rows.
        reads_integers: whether it needs that conversion.
        squares: mean squared error that it causes at each output, as a share of the squared
            maximum.
    """

    name: str
    time_us: float
    reads_integers: bool
    squares: tuple[float, ...]


@dataclass(frozen=True)
class Offer:
    """The implementations of a site.

    Attributes:
        site: name of the site.
        rows: name of the value that it reads.
        floats_us: time of the product in floats.
        conversion_us: time of the conversion of the rows.
        options: the implementations in low precision.
    """

    site: str
    rows: str
    floats_us: float
    conversion_us: float
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Selection:
    """The optimum.

    Attributes:
        chosen: name of a site to the name of its implementation; the others compute in floats.
        time_us: predicted time of all sites.
        bound_us: proven lower bound on that time.
        squares: predicted squared error of each output, before any correction.
    """

    chosen: Mapping[str, str]
    time_us: float
    bound_us: float
    squares: tuple[float, ...]


def select_within(
    offers: Sequence[Offer], limits: Sequence[float], *, time_limit_s: float, seed: int = 0
) -> Selection:
    """Choose the implementations of least time that keep all limits.

    Args:
        offers: the sites, one at least.
        limits: largest squared error of each output; an output whose limit is infinite has none.
        time_limit_s: seconds for the proof.
        seed: seed of the search.

    Raises:
        ExtractionError: no solution was found in time.
    """
    # Shares of a limit keep the numbers of the solver near 1, however small the errors are.
    bounded = [number for number, limit in enumerate(limits) if 0 < limit < float("inf")]
    barred = [number for number, limit in enumerate(limits) if limit <= 0]
    names = [f"error{number}" for number in bounded]
    builder = ProblemBuilder((_TIME, *names))
    nothing = (0.0,) * len(names)
    integers: dict[str, int] = {}
    sites: dict[int, Offer] = {}
    implementations: dict[tuple[int, int], str] = {}
    incumbent: dict[int, tuple[int, int]] = {}
    for offer in offers:
        site = builder.add_class()
        sites[site] = offer
        node = builder.add_node(site, (), [(offer.floats_us, *nothing)])
        implementations[node, 0] = _FLOATS
        incumbent[site] = (node, 0)
        for reads in (False, True):
            rows = [
                one
                for one in offer.options
                if one.reads_integers is reads
                and not any(one.squares[number] > 0 for number in barred)
                and all(one.squares[number] <= limits[number] for number in bounded)
            ]
            if not rows:
                continue
            children: tuple[int, ...] = ()
            if reads:
                if offer.rows not in integers:
                    integers[offer.rows] = builder.add_class()
                    builder.add_node(integers[offer.rows], (), [(offer.conversion_us, *nothing)])
                children = (integers[offer.rows],)
            costs = [
                (one.time_us, *(one.squares[number] / limits[number] for number in bounded))
                for one in rows
            ]
            node = builder.add_node(site, children, costs)
            implementations |= {(node, i): one.name for i, one in enumerate(rows)}
    problem = builder.build(sites)
    found = extract(
        problem,
        Objective({_TIME: 1.0}, limits=dict.fromkeys(names, 1.0)),
        incumbent=incumbent,
        time_limit_s=time_limit_s,
        seed=seed,
    )
    chosen = {
        sites[site].site: implementations[found.choice[site]]
        for site in sites
        if implementations[found.choice[site]] != _FLOATS
    }
    return Selection(chosen, found.cost, found.lower_bound, _squares(offers, chosen, len(limits)))


def _squares(offers: Sequence[Offer], chosen: Mapping[str, str], outputs: int) -> tuple[float, ...]:
    taken = [
        one.squares
        for offer in offers
        for one in offer.options
        if chosen.get(offer.site) == one.name
    ]
    return tuple(sum(each[number] for each in taken) for number in range(outputs))
