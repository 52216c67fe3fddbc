"""Schedules of searches on random graphs, before the checker of plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.plan_oracle import branching_graph
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, PriceCache
from eqsat_opt.lab.search.methods.ios import Ios
from eqsat_opt.lab.search.pricing.board import SimulatedBoard
from eqsat_opt.lab.search.pricing.plans import planned
from eqsat_opt.lab.search.pricing.streaming import Streams
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import Plan

# Waiting costs next to nothing, so that streams are used wherever there are two branches.
PROFILE = replace(load_profile("rtx2080ti"), event_us=Figure(0.01, "made up"))
PRICER = ProfilePricer(PROFILE)


def framed(graph: Graph) -> Frame:
    prices = PriceCache.of(BackendPricer(PRICER))
    return Frame(graph, (), prices, "streams", profile=PROFILE, backends=PRICER.backends)


def judge(seed: int) -> Counter[str]:
    """Check the schedules for one random graph, and what the checker says without their waits."""
    graph = branching_graph(seed, nodes=10)
    frame = framed(graph)
    tensors = {name: one.load for name, one in graph.constants.items()}
    assigned = frame.outcome(frame.start)
    staged = Ios(stages=500).run(frame, Budget()).outcome
    counts = Counter[str]()
    for outcome in (assigned, staged):
        reading = SimulatedBoard(Streams(PROFILE)).measure(outcome)
        assert reading.time_us == pytest.approx(outcome.value)
        seen: set[int] = set()
        for number, behind in enumerate(outcome.reads):  # in the order of submission
            assert seen.issuperset(behind)
            seen.add(number)
        plan = planned(outcome, tensors, target=PROFILE.name)
        check_plan(plan)
        assert plan.streams <= outcome.streams
        counts["on several streams"] += plan.streams > 1
        if outcome is assigned:  # stages wait for more than they read
            counts += without_waits(plan)
    return counts


def without_waits(plan: Plan) -> Counter[str]:
    """Whether the checker refuses the plan without what one launch waits for.

    It need not: a plan has fewer launches than an outcome where a copy becomes a view.
    """
    counts = Counter[str]()
    for number, launch in enumerate(plan.launches):
        if launch.waits:
            launches = list(plan.launches)
            launches[number] = replace(launch, waits=())
            try:
                check_plan(replace(plan, launches=tuple(launches)))
                counts["accepted"] += 1
            except PlanError:
                counts["refused"] += 1
    return counts


def total(seeds: range) -> Counter[str]:
    return sum(map(judge, seeds), Counter[str]())


def test_schedules_are_safe() -> None:
    counts = total(range(12))
    assert counts["on several streams"] > 8
    assert counts["refused"] > 10 * counts["accepted"]


@pytest.mark.slow
def test_a_thousand_schedules_are_safe() -> None:
    counts = total(range(12, 1012))
    assert counts["on several streams"] > 500
    assert counts["refused"] > 10 * counts["accepted"]
