"""Passes: functions from a graph to an equal graph, as rows of lists that show their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Graph

__all__ = ["ALL_CLASSES", "Pass", "run_passes", "since", "up_to"]

ALL_CLASSES = frozenset(Numerics)


def since(least: Numerics) -> frozenset[Numerics]:
    """Return a numerics class and all that allow more."""
    return frozenset(one for one in Numerics if one >= least)


def up_to(most: Numerics) -> frozenset[Numerics]:
    """Return a numerics class and all that allow less."""
    return frozenset(one for one in Numerics if one <= most)


@dataclass(frozen=True)
class Pass:
    """A row of a list of passes.

    Attributes:
        name: a name in kebab-case. Rows of one name are one pass, which may differ by class or run
            several times.
        run: the pass. It changes no argument, keeps the names of interface and captured values, and
            returns the graph itself if it finds nothing to do. Its docstring numbers its cases.
        classes: the numerics classes in which it runs.
    """

    name: str
    run: Callable[[Graph], Graph]
    classes: frozenset[Numerics] = ALL_CLASSES


def run_passes(passes: Iterable[Pass], graph: Graph, numerics: Numerics) -> Graph:
    """Run those passes of a list that belong to a class, in order.

    A pass that is listed again is skipped if the graph is still the one that it returned.
    """
    returned: dict[str, Graph] = {}
    for one in passes:
        if numerics in one.classes and returned.get(one.name) is not graph:
            graph = returned[one.name] = one.run(graph)
    return graph
