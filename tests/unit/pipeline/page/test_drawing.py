"""Graphs of a page: changes come first where there is no room for all, and edges stay inside."""

from __future__ import annotations

import pytest

from eqsat_opt.pipeline.page import drawing
from eqsat_opt.pipeline.page.drawing import drawn_graphs
from eqsat_opt.pipeline.report.explanation import Explanation


@pytest.mark.parametrize("most", [1, 2, 250])
def test_changes_are_drawn_first(
    most: int, explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MOST_NODES", most)
    proposal = explanation.proposal
    for graph, kind in zip(
        drawn_graphs(proposal, proposal.placed[0]), ("gone", "new"), strict=True
    ):
        drawn = [node for node in graph.nodes if node.kind not in ("input", "output")]
        assert len(drawn) == min(most, 3)
        assert len(drawn) + graph.hidden == 3
        assert sum(node.kind == kind for node in drawn) == min(most, 2)
        numbers = {node.id for node in graph.nodes}
        assert all(numbers >= {*edge} and edge[0] < edge[1] for edge in graph.edges)
