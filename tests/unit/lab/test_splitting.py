"""The cut that MetaFlow splits graphs at, against all cuts there are."""

from __future__ import annotations

import random
from itertools import product

import pytest

from eqsat_opt.lab.search.rewriting.splitting import Cut, capacities, minimum_cut, split

Graph = dict[int, list[int]]


def random_graph(rng: random.Random, count: int) -> tuple[Graph, dict[int, int]]:
    graph = {
        i: sorted({rng.randrange(i) for _ in range(rng.randint(0, 2))} if i else ())
        for i in range(count)
    }
    return graph, {i: rng.choice([0, 0, 1, 2, 5]) for i in graph}


def weight(capacity: dict[int, int], node: int) -> int:
    return capacity[node] * (len(capacity) + 1) or 1


def boundary(graph: Graph, before: set[int]) -> set[int]:
    """Nodes before the cut that something behind it reads."""
    return {
        c for node, operands in graph.items() if node not in before for c in operands if c in before
    }


def closed(graph: Graph, before: set[int]) -> bool:
    return all(c in before for node in before for c in graph[node])


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_the_least_of_all(seed: int) -> None:
    rng = random.Random(seed)
    graph, capacity = random_graph(rng, rng.randint(2, 9))
    first, last = {0}, {len(graph) - 1}
    total, before = minimum_cut(graph, capacity, first, last)
    assert first <= before
    assert not last & before
    assert closed(graph, before)
    assert total == sum(weight(capacity, node) for node in boundary(graph, before))
    every = (
        {node for node, chosen in zip(graph, choice, strict=True) if chosen}
        for choice in product((False, True), repeat=len(graph))
    )
    assert total == min(
        sum(weight(capacity, node) for node in boundary(graph, one))
        for one in every
        if first <= one and not last & one and closed(graph, one)
    )


@pytest.mark.parametrize("seed", range(10))
def test_parts_are_small_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    graph, capacity = random_graph(rng, 60)
    found = split(graph, capacity, 7)
    parts = found.parts
    assert sorted(node for part in parts for node in part) == list(graph)
    assert all(0 < len(part) <= 7 for part in parts)
    part_of = {node: i for i, part in enumerate(parts) for node in part}
    assert all(part_of[c] <= part_of[node] for node in graph for c in graph[node])
    # Any two neighbouring parts are on both sides of one cut.
    for first in range(len(parts) - 1):
        assert sum(cut.spanned_by({first, first + 1}) for cut in found.cuts) == 1
    assert found.cuts[-1].begin == 0
    assert found.cuts[-1].end == len(parts)


def test_a_chain_is_cut_where_no_substitution_is_lost() -> None:
    graph = {i: [i - 1] if i else [] for i in range(8)}
    capacity = dict.fromkeys(graph, 3) | {3: 0}
    assert split(graph, capacity, 4).parts == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_nothing_and_what_is_small_enough_stay_whole() -> None:
    assert split({}, {}, 3).parts == ()
    assert split({5: [], 6: [5, 99]}, {5: 0, 6: 0}, 2).parts == ((5, 6),)


def test_a_cut_is_spanned_by_what_lies_on_both_sides() -> None:
    cut = Cut(1, 3, 4)
    assert cut.spanned_by({1, 3})
    assert not cut.spanned_by({1, 2})
    assert not cut.spanned_by({0, 3})
    assert not cut.spanned_by({2, 4})


def test_capacities_count_what_a_cut_disables() -> None:
    """A chain of three, two siblings that read its end, and an operator by itself."""
    graph: Graph = {0: [], 1: [0], 2: [1], 3: [2], 4: [2]}
    matches = [{0, 1, 2}, {3, 4}, {2}, {3, 99}]
    assert capacities(graph, matches) == {0: 1, 1: 1, 2: 0, 3: 1, 4: 1}
