"""Schedules of searches on random graphs, before the checker of plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph import Graph
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.search import Budget, Frame, Offered, Prices
from eqsat_opt.search.board import SimulatedBoard
from eqsat_opt.search.ios import Ios
from eqsat_opt.search.planned import planned
from eqsat_opt.search.streaming import Streams
from eqsat_opt.testing.plans import branching_graph

# Waiting costs next to nothing, so that streams are used wherever there are two branches.
PROFILE = replace(load_profile("rtx2080ti"), event_us=Figure(0.01, "made up"))
PRICER = ProfilePricer(PROFILE)


def framed(graph: Graph) -> Frame:
    prices = Prices.of(Offered(PRICER))
    return Frame(graph, (), prices, "streams", profile=PROFILE, backends=PRICER.backends)


def judge(seed: int) -> int:
    """Check the schedules for one random graph; how many are on several streams."""
    graph = branching_graph(seed, nodes=10)
    frame = framed(graph)
    tensors = {name: one.load for name, one in graph.constants.items()}
    assigned = frame.outcome(frame.start)
    staged = Ios(stages=500).run(frame, Budget()).outcome
    count = 0
    for outcome in (assigned, staged):
        reading = SimulatedBoard(Streams(PROFILE)).measure(outcome)
        assert reading.time_us == pytest.approx(outcome.value)
        seen: set[int] = set()
        for number, behind in enumerate(outcome.reads):  # in the order of submission
            assert seen.issuperset(behind)
            seen.add(number)
        plan = planned(outcome, tensors, target=PROFILE.name)  # which is checked there
        assert plan.streams <= outcome.streams
        count += plan.streams > 1
        if outcome is assigned:  # stages wait for more than they read
            require_all_waits(plan)
    return count


def require_all_waits(plan: Plan) -> None:
    """Without what one launch waits for, the checker refuses the plan."""
    check_plan(plan)
    for number, launch in enumerate(plan.launches):
        if launch.waits:
            launches = list(plan.launches)
            launches[number] = replace(launch, waits=())
            with pytest.raises(PlanError):
                check_plan(replace(plan, launches=tuple(launches)))


def test_schedules_are_safe() -> None:
    assert sum(judge(seed) for seed in range(12)) > 8


@pytest.mark.slow
def test_a_thousand_schedules_are_safe() -> None:
    assert sum(judge(seed) for seed in range(12, 1012)) > 500
