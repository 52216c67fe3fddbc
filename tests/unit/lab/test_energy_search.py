"""Graphs and algorithms for the least energy, against all that there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.metrics import ENERGY, TIME, metric_name
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import parse_objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search import Budget, Frame, PriceCache, Quoted, Usual
from eqsat_opt.lab.search.methods.energy import Energy
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.runtime.backends.protocol import DEFAULT

POWERS = {"fast": (1.0, 420.0), "frugal": (1.4, 200.0), "slow": (3.0, 120.0)}
"""Algorithm to its time relative to the fastest, and its power, W."""


@dataclass(frozen=True)
class Powers:
    """A made-up device: convolutions have three algorithms, all else one."""

    @property
    def metrics(self) -> Sequence[str]:
        return (*Usual().metrics, ENERGY)

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        (plain,) = Usual().quotes(kernel)
        time = plain.metrics[TIME]
        if kernel.steps[0].op != "Conv":
            return [replace(plain, metrics={**plain.metrics, ENERGY: 100 * time})]
        return [
            Quoted(
                "ort",
                replace(DEFAULT, algorithm=name),
                {**plain.metrics, TIME: time * factor, ENERGY: time * factor * watts},
            )
            for name, (factor, watts) in POWERS.items()
        ]


def fire(width: int = 24) -> Graph:
    """Two convolutions of one input that are concatenated."""
    g = GraphMaker()
    x = g.input("x", 1, 8, 12, 12)
    wide = g.conv(x, g.weight(width, 8, 3, 3), pad=1)
    wider = g.conv(x, g.weight(width + 8, 8, 3, 3), pad=1)
    return g.graph(g("Relu", g("Concat", wide, wider, axis=1)))


def framed(graph: Graph, objective: str = "energy", *limits: str) -> Frame:
    goal = parse_objective(objective, limits, metric=metric_name)
    rules = tuple(load_rules("metaflow", Numerics.REFACTOR))
    return Frame(graph, rules, PriceCache.of(Powers(), goal))


def all_totals(frame: Frame) -> list[tuple[float, float]]:
    """Time and energy under every assignment."""
    kernels = [one.kernel for one in frame.outcome(frame.start).kernels.values()]
    rows = [frame.prices.rows(kernel) for kernel in kernels if kernel is not None]
    return [
        (sum(row.metrics[TIME] for row in one), sum(row.metrics[ENERGY] for row in one))
        for one in product(*rows)
    ]


@pytest.mark.parametrize(
    "objective", ["time", "energy", "time+0.01*energy", "energy/time", "energy^0.5*time^0.5"]
)
def test_the_inner_search_against_all_assignments(objective: str) -> None:
    frame = framed(fire(), objective)
    least = min(
        frame.objective.value({TIME: time, ENERGY: energy}) for time, energy in all_totals(frame)
    )
    for inner in ("walk", "exact"):
        found = Energy(outer=False, inner=inner).run(framed(fire(), objective), Budget(0), 0)
        assert found.value == pytest.approx(least, rel=1e-9)
        assert not found.steps


@pytest.mark.parametrize(("goal", "weight"), [("linear", 0.4), ("product", 0.3), ("power", 1.0)])
def test_own_goals_count_the_original_as_one(goal: str, weight: float) -> None:
    frame = framed(fire())
    time, energy = min(all_totals(frame))  # the fastest algorithms

    def value(a: float, b: float) -> float:
        first = (b / a) / (energy / time) if goal == "power" else a / time
        if goal == "product":
            return float(first**weight * (b / energy) ** (1 - weight))
        return weight * first + (1 - weight) * b / energy

    least = min(value(a, b) for a, b in all_totals(frame))
    for inner in ("walk", "exact"):
        method = Energy(goal=goal, weight=weight, outer=False, inner=inner)  # type: ignore[arg-type]
        found = method.run(framed(fire()), Budget(0), 0)
        metrics = found.outcome.metrics
        assert value(metrics[TIME], metrics[ENERGY]) == pytest.approx(least, rel=1e-9)
        assert f"became {least:g} by its own goal" in found.notes[-1]


def test_both_searches_together_find_the_least() -> None:
    """Table 5: both < inner only < outer only < original."""
    values = [
        Energy(outer=outer, inner=inner).run(framed(fire()), Budget(), 0).value  # type: ignore[arg-type]
        for inner, outer in (("walk", True), ("walk", False), ("off", True), ("off", False))
    ]
    assert values == sorted(values)
    assert len(set(values)) == 4


def test_weights_give_a_monotone_front() -> None:
    """Table 4: more weight on energy never takes less time nor more energy.

    This holds for the best of all graphs, so none is cut off here.
    """
    found = [
        Energy(goal="linear", weight=weight, alpha=3.0)
        .run(framed(fire()), Budget(), 0)
        .outcome.metrics
        for weight in (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
    ]
    times, energies = [one[TIME] for one in found], [one[ENERGY] for one in found]
    assert times == sorted(times)
    assert energies == sorted(energies, reverse=True)
    assert times[0] < times[-1]


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.2, 1.5, 2.5, 10.0])
def test_energy_is_least_within_a_limit_on_the_time(factor: float) -> None:
    """The paper's "less energy as possible, while inference time is faster than T" (§4.4)."""
    points = all_totals(framed(fire()))
    most = factor * min(time for time, _ in points)
    least = min((energy for time, energy in points if time <= most), default=math.inf)
    method = Energy(outer=False)
    found = method.run(framed(fire(), "energy", f"time={most}"), Budget(0), 0)
    if math.isinf(least):
        assert math.isinf(found.value)
        assert "no graph was found within the limit" in found.notes[-1]
    else:
        assert found.value == pytest.approx(least)
        assert found.outcome.metrics[TIME] <= most * (1 + 1e-9)
    wider = Energy().run(framed(fire(), "energy", f"time={most}"), Budget(), 0)
    assert wider.value <= found.value
    assert math.isinf(wider.value) or wider.outcome.metrics[TIME] <= most * (1 + 1e-9)
    spent = method.run(framed(fire(), "energy", f"time={most}"), Budget(1, cpu_s=1e-9), 0)
    assert spent.value >= found.value


@pytest.mark.parametrize("radius", [1, 2, 3, 4])
def test_a_larger_radius_never_finds_more(radius: int) -> None:
    goal = "energy^0.5*time^0.5"
    one, other = (
        Energy(outer=False, radius=r).run(framed(fire(), goal), Budget(0), 0).value
        for r in (radius, radius + 1)
    )
    assert other <= one


def test_kernels_of_the_result_have_the_algorithms() -> None:
    found = Energy().run(framed(fire()), Budget(), 0)
    used = {one.implementation.algorithm for one in found.outcome.kernels.values()}
    assert "slow" in used or "frugal" in used
    total = sum(one.metrics[ENERGY] for one in found.outcome.kernels.values())
    assert found.value == pytest.approx(total)
    assert found.original.value > found.value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"goal": "speed"}, "unknown goal 'speed'"),
        ({"inner": "none"}, "unknown inner search 'none'"),
        ({"weight": 1.5}, "weight is 1.5"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"radius": -1}, "radius is -1; give a count"),
        ({"halvings": -1}, "halvings is -1; give a count"),
        ({"alpha": 0.9}, "alpha is 0.9"),
        ({"growth": 1.0}, "growth is 1"),
        ({"goal": "power", "inner": "exact"}, "no exact answer is known"),
    ],
)
def test_settings_without_meaning_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Energy(**given)  # type: ignore[arg-type]


def test_what_it_cannot_read_is_refused() -> None:
    frame = framed(fire(), "time+0.5*critical_path(time)")
    with pytest.raises(OptionError, match="reads totals only"):
        Energy().run(frame, Budget(), 0)
    plain = Frame(fire(), (), PriceCache.of())
    with pytest.raises(OptionError, match="nothing tells the energy of kernels here"):
        Energy(goal="linear").run(plain, Budget(), 0)
