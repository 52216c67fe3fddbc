"""The plan of an outcome: its kernels as launches, on its streams, in one arena."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.lab.search.pricing.outcome import PricedGraph
from eqsat_opt.runtime.backends.registry import fallback
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.plan.constants import Tensors
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import Seat, make_plan

__all__ = ["planned"]


def planned(
    outcome: PricedGraph,
    tensors: Tensors,
    *,
    sizes: Mapping[str, int] | None = None,
    target: str = HOST,
) -> Plan:
    """Return the plan of an outcome, checked for hazards.

    A value that several kernels compute inside is computed once. A node that takes no time becomes
    a view.

    Args:
        outcome: the outcome of a search.
        tensors: the tensors that the model stores, from which constants are made.
        sizes: sizes of symbolic dimensions.
        target: the device that the outcome is for.

    Raises:
        OptionError: a size is not given.
        PlanError: a plan cannot hold an operator, element type or constant.
    """
    graph, kernel_of = outcome.graph, dict[str, int]()
    kernels = tuple(outcome.kernels.values())
    for number, one in enumerate(kernels):
        if one.kernel is None:
            raise PlanError(
                f"{one.writes[-1]!r} cannot stand in a plan: nothing is known of what computes it"
            )
        stack = list(one.writes)
        while stack:
            name = stack.pop()
            node = graph.producers.get(name)
            if node is None or name in one.reads or name in kernel_of:
                continue
            kernel_of.update(dict.fromkeys(node.outputs, number))
            stack += node.reads

    def number_of(node: Node) -> int | None:
        return kernel_of.get(node.outputs[0])

    def backend_of(node: Node) -> str:
        number = number_of(node)
        # Nodes that are in no kernel are not left in a plan.
        return fallback() if number is None else kernels[number].backend

    def algorithm_of(node: Node) -> str:
        number = number_of(node)
        return "default" if number is None else kernels[number].implementation.algorithm

    seats = {
        name: Seat(number, one.stream, one.waits)
        for number, one in enumerate(kernels)
        for name in one.writes
    }
    return make_plan(
        graph,
        tensors,
        backend_of,
        algorithm_of=algorithm_of,
        unit_of=number_of,
        seats=seats if outcome.streams > 1 else None,
        sizes=sizes,
        target=target,
    )
