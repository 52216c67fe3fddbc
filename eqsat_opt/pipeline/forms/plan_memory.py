"""Plans under a limit on the memory of their values, or of the least memory.

The memory of a plan is its arena, in which there is nothing of what a session of a runtime takes,
so plans of sessions are left out. Values are computed twice where the limit demands it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from eqsat_opt.cost.metrics import PEAK
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.extract import AnyObjective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.pipeline.request import Request
from eqsat_opt.runtime.backends.registry import record_of
from eqsat_opt.runtime.plan.constants import Tensors
from eqsat_opt.runtime.planning.planner import static_graph
from eqsat_opt.runtime.planning.recomputation import recomputation_front, with_recomputation
from eqsat_opt.select.rebuilding.planning import PlanDraft, drafts

__all__ = ["drafts_in_memory", "of_least_memory", "single_operator_backends"]


def single_operator_backends(request: Request) -> tuple[str, ...]:
    """Return the user's backends that run operators one by one, in memory of the plan.

    Raises:
        OptionError: there is none.
    """
    found = tuple(one for one in request.backends if not record_of(one).runs_models)
    if not found:
        raise OptionError(
            f"the memory inside a session is no part of a plan, so {PEAK} needs a backend that "
            "runs operators one by one; add numpy or generated to --backends"
        )
    return found


def of_least_memory(made: Iterable[PlanDraft], objective: AnyObjective) -> list[PlanDraft]:
    """Return the plans that keep the limit on the peak, or those of the least arena.

    Raises:
        PlanError: none keeps the limit.
    """
    found = list(made)
    least = min((one.plan.arena_bytes for one in found), default=0)
    limit = objective.limits.get(PEAK, math.inf)
    kept = [one for one in found if one.plan.arena_bytes <= limit]
    if found and not kept:
        raise PlanError(
            f"no plan within {PEAK}<={limit:.10g} was found: the arena of the least found takes "
            f"{least} B; raise the limit, or lower the batch size"
        )
    is_aim = objective.weighs(PEAK)
    return [one for one in kept if not is_aim or one.plan.arena_bytes == least]


def drafts_in_memory(
    graphs: Mapping[str, Graph], tensors: Tensors, request: Request, sizes: Mapping[str, int]
) -> list[PlanDraft]:
    """Return plans for this machine that keep the limit on the peak, or those of the least arena.

    For each graph and placement it is the plan of the least additional work that keeps the limit.

    Args:
        graphs: the graphs by name.
        tensors: tensors that the model stores.
        request: the user's choices.
        sizes: sizes of symbolic dimensions.

    Raises:
        OptionError: all backends run graphs as sessions, whose memory is not known.
        PlanError: no plan keeps the limit, or a graph cannot be part of a plan.
    """
    objective = request.objective
    backends = single_operator_backends(request)
    limit = objective.limits.get(PEAK, math.inf)
    found: dict[tuple[str, str], PlanDraft] = {}
    least: dict[tuple[str, str], PlanDraft] = {}
    for name, graph in graphs.items():
        front = recomputation_front(static_graph(graph, sizes))
        choices = reversed(front.choices) if objective.weighs(PEAK) else front.within(limit)
        for choice in (*choices, front.choices[-1]):
            again = with_recomputation(choice)
            for draft in drafts({name: again}, tensors, backends, sizes=sizes):
                key = (name, draft.placement)
                if draft.plan.arena_bytes <= limit:
                    found.setdefault(key, draft)
                other = least.get(key)
                if other is None or draft.plan.arena_bytes < other.plan.arena_bytes:
                    least[key] = draft
            if found:
                break
    return of_least_memory(list((found or least).values()), objective)
