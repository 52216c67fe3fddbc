"""Joined keys are the connected components of the graph whose edges were joined."""

from __future__ import annotations

import rustworkx as rx
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.common.union_find import UnionFind

_KEYS = range(12)
_edges = st.lists(st.lists(st.sampled_from(_KEYS), max_size=4))


@given(_edges)
def test_classes_are_connected_components(edges: list[list[int]]) -> None:
    joined, graph = UnionFind[int](), rx.PyGraph()
    graph.add_nodes_from(_KEYS)
    for keys in edges:
        before = rx.connected_components(graph)
        graph.add_edges_from_no_data([(keys[0], key) for key in keys[1:]])
        after = rx.connected_components(graph)
        assert joined.join(keys) == (len(after) < len(before))
    components = sorted(map(sorted, rx.connected_components(graph)))
    assert joined.classes(_KEYS) == components
    for component in components:
        assert {joined.find(key) for key in component} == {min(component)}
