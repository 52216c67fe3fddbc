"""On random graphs, one order of independent substitutions reaches what all orders reach."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.search.methods.dpp import Dpp
from eqsat_opt.lab.search.methods.pruning import Pruning
from eqsat_opt.lab.search.methods.sequences import Walk
from eqsat_opt.lab.testing import typed_graphs
from tests.unit.lab.test_sequences import ENDLESS, frame, reached, states

_MOST = 12
"""Substitutions of a graph beyond which all sequences of three are too many for a test."""


@given(graph=typed_graphs(), length=st.integers(2, 3))
def test_ordered_sequences_lose_no_graph(graph: Graph, length: int) -> None:
    start = frame(graph)
    walk = Walk(start, ENDLESS)
    count = len(walk.frame.matching.rewrites(walk.frame.start.graph))
    assume(count <= 2 * _MOST)
    length = length if count <= _MOST else 2
    wanted = reached(start, length)
    for method in (Pruning(length), Dpp(length)):
        assert {one.key for one in states(method, start)} == wanted
