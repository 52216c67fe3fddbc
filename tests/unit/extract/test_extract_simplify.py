"""Each rule of simplification alone, and shapes of e-graph that must not hurt."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract
from eqsat_opt.extract.bitsets import bits
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import Instance, from_problem
from eqsat_opt.extract.simplify.domination import compare_options
from eqsat_opt.extract.simplify.draft import InstanceDraft
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.simplify.linear_rules import (
    Settled,
    contract,
    drop_duplicates,
    drop_impossible,
    drop_unreachable,
    force,
    settle_free,
)
from eqsat_opt.extract.simplify.necessity import necessities
from eqsat_opt.extract.solve import greedy
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy

Node = tuple[int, Sequence[int], float]


def instance(nodes: Iterable[Node], roots: Sequence[int] = (0,)) -> Instance:
    """From (class, children, cost)."""
    return scalar(raw_problem(nodes, roots))


def raw_problem(nodes: Iterable[Node], roots: Sequence[int]) -> Problem:
    builder = ProblemBuilder(("time",))
    rows = list(nodes)
    for _ in range(1 + max(max(c, *ch, 0) for c, ch, _ in rows)):
        builder.add_class()
    for cls, children, cost in rows:
        builder.add_node(cls, children, [(cost,)])
    return builder.build(roots)


def scalar(problem: Problem) -> Instance:
    objective = Objective({problem.metrics[0]: 1.0})
    return from_problem(problem, price(problem, objective))


def options(draft: InstanceDraft | None) -> list[int]:
    assert draft is not None
    return [int(i) for i in draft.option_ids]


def test_what_needs_itself_or_cannot_be_computed_goes() -> None:
    draft = InstanceDraft.of(
        instance([(0, (1,), 1), (0, (0,), 0), (0, (2,), 0), (1, (), 1), (2, (3,), 0), (3, (2,), 0)])
    )
    assert options(drop_impossible(draft)) == [0, 3]
    assert drop_impossible(InstanceDraft.of(instance([(0, (1,), 1), (1, (0,), 1)]))) is None


def test_free_trees_are_settled_also_through_cycles() -> None:
    draft = InstanceDraft.of(
        instance([(0, (1, 2), 1), (1, (2,), 0), (2, (1,), 0), (2, (3,), 0), (3, (), 0)])
    )
    settled = Settled()
    left = settle_free(draft, settled)
    assert settled.option == {1: 1, 2: 3, 3: 4}
    assert (options(left), left.child_ix.tolist()) == ([0], [])


def test_only_what_forced_classes_reach_stays() -> None:
    draft = drop_unreachable(InstanceDraft.of(instance([(0, (1,), 1), (1, (), 1), (2, (1,), 1)])))
    assert draft.class_ids.tolist() == [0, 1]


def test_duplicates_lose_to_the_cheapest() -> None:
    nodes = [(0, (1, 2), 3), (0, (2, 1), 2), (0, (1,), 1), (0, (1, 2), 2), (1, (), 1), (2, (), 1)]
    assert options(drop_duplicates(InstanceDraft.of(instance(nodes)))) == [1, 2, 4, 5]


def test_common_children_are_forced_and_what_has_no_choice_is_paid() -> None:
    draft = InstanceDraft.of(
        instance([(0, (1, 2), 1), (0, (1, 3), 1), (1, (), 5), (2, (), 2), (3, (), 3)])
    )
    settled = Settled()
    left = force(draft, settled)
    assert (settled.option, settled.costs) == ({1: 2}, [5.0])
    assert left.child_ix.tolist() == [2, 3]


def test_a_chain_that_one_class_uses_goes_into_its_options() -> None:
    draft = InstanceDraft.of(
        instance(
            [
                *((0, (1,), 1), (0, (1, 4), 2), (0, (4,), 9), (1, (2,), 1), (2, (3, 4), 1)),
                *((3, (), 1), (3, (4,), 0), (4, (), 7), (4, (3,), 6)),
            ]
        )
    )
    settled = Settled()
    left = contract(draft, settled)
    assert settled.option == {1: 3, 2: 4}
    assert left.cost.tolist() == [3.0, 4.0, 9.0, 1.0, 0.0, 7.0, 6.0]
    assert left.class_ids[left.child_ix].tolist() == [3, 4, 3, 4, 4, 4, 3]


def test_necessity_finds_cyclic_options_and_forced_classes() -> None:
    # Class 1 can be had from 2 or 3, both of which need 4; an option of 4 needs 1 by way of 5.
    draft = InstanceDraft.of(
        instance(
            [
                *((0, (1,), 1), (1, (2,), 1), (1, (3,), 2), (2, (4,), 2), (3, (4,), 1)),
                *((4, (), 9), (4, (6,), 8), (4, (5,), 0), (5, (1,), 1), (6, (), 1)),
                (3, (6, 4), 0),
            ]
        )
    )
    left, _ = compare_options(draft, work=10_000)
    assert 7 not in options(left)
    assert left.class_ids[left.forced].tolist() == [0, 1, 4]


def test_necessity_sets_survive_a_lack_of_work_and_short_windows_as_smaller_sets() -> None:
    rng = random.Random(1)
    nodes: list[Node] = [(c, rng.sample(range(30), 2), 1) for c in range(25) for _ in range(2)]
    draft = drop_impossible(
        InstanceDraft.of(instance([*nodes, *((c, (), 1) for c in range(20, 30))]))
    )
    assert draft is not None
    children = draft.children_lists()

    def members(work: int, window: int) -> list[set[int]]:
        sets = necessities(draft, children, work=work, window=window)
        return [
            {sets.order[first + k] for k in bits(mask)}
            for first, mask in zip(sets.first, sets.mask, strict=True)
        ]

    complete = members(10**6, 10**6)
    assert sum(map(len, complete)) > draft.n_classes
    for smaller in (members(0, 10**6), members(10**6, 2), members(0, 1)):
        for few, all_of_them in zip(smaller, complete, strict=True):
            assert few <= all_of_them


def test_an_option_loses_to_trees_that_cost_less_than_what_it_alone_needs() -> None:
    # Option 1 costs 1 but is the only user of class 2; option 0 with its own child costs less.
    nodes = [(0, (1,), 2), (0, (2,), 1), (1, (), 2), (1, (3,), 1), (2, (), 9), (2, (4,), 4)]
    left, _ = compare_options(
        InstanceDraft.of(instance([*nodes, (3, (), 5), (4, (), 1)])), work=10_000
    )
    assert 1 not in options(left)


def test_a_known_solution_prunes_what_is_dearer() -> None:
    # Both users of class 6 pay 12 in all, below the 13 of the cheapest trees, above the known 9.
    raw = instance(
        [
            *((0, (1, 2), 1), (1, (3,), 1), (1, (4,), 1), (1, (6,), 1), (2, (3,), 1)),
            *((2, (5,), 1), (2, (6,), 1), (3, (), 6), (4, (), 5), (5, (), 5), (6, (), 9)),
        ]
    )
    assert raw.evaluate(tree_greedy(raw)) == 13
    free, known = simplify(raw), simplify(raw, start={0: 0, 1: 1, 2: 4, 3: 7})
    assert free is not None
    assert known is not None
    kept = [{i for part in r.parts for i in part.option_ids} for r in (free, known)]
    assert kept[0] - kept[1] == {3, 6, 10}


def chain(length: int, *, back: bool, bridges: bool) -> Instance:
    """Every class needs one of the two before it, or with `bridges` the last one in any case.

    With `back`, all lie on cycles.
    """
    rng = random.Random(0)
    nodes: list[Node] = [(0, (), 1), (1, (0,), 1)]
    for k in range(2, length):
        nodes.append((k, (k - 1,), rng.randint(1, 9)))
        nodes.append((k, (k - 1, k - 2) if bridges else (k - 2,), rng.randint(1, 9)))
        if back:
            nodes.append((k, (min(k + 3, length - 1),), rng.randint(1, 9)))
    return instance(nodes, roots=[length - 1])


@pytest.mark.parametrize("back", [False, True])
def test_long_chains_neither_recurse_nor_take_quadratic_memory(
    monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    monkeypatch.setattr(greedy, "_EXACT_CLASSES", 1000)
    monkeypatch.setattr(greedy, "_WINDOW", 200)
    free = chain(5_000, back=back, bridges=False)
    for run in (tree_greedy, sharing_greedy):
        choice = run(free)
        assert choice is not None
        assert free.evaluate(choice) < 5 * 5_000
    assert simplify(free) is not None
    assert sharing_greedy(free, until_s=0.0) is None

    tied = chain(5_000, back=back, bridges=True)
    draft = InstanceDraft.of(tied)
    sets = necessities(draft, draft.children_lists(), work=10**7, window=200)
    assert max(mask.bit_length() for mask in (*sets.mask, *sets.below)) <= 800
    assert sum(mask.bit_count() for mask in sets.mask) > 20 * draft.n_classes
    reduction = simplify(tied)
    assert reduction is not None
    assert reduction.parts == ()
    late = simplify(tied, until_s=0.0)
    assert late is not None
    assert bool(late.parts) == back  # where linear rules are not enough


def test_trees_that_overflow_do_not_look_impossible() -> None:
    nodes: list[Node] = [(0, (), 1)]
    for level in range(1, 1_100):  # a tree pays twice for all below: 2**1100 overflows
        below, top = 3 * level - 3, 3 * level
        nodes += [(top, (top - 1, top - 2), 1), (top - 1, (below,), 1), (top - 2, (below,), 1)]
        nodes += [(top, (top - 1,), 4), (top, (top - 2,), 4)]
    raw = instance(nodes, roots=[3 * 1_099])
    # Three classes of a level cost 1 each; two of them would cost 4 and 1.
    for choice in (tree_greedy(raw), sharing_greedy(raw)):
        assert choice is not None
        assert 1 + 3 * 1_099 <= raw.evaluate(choice) <= 1 + 5 * 1_099
    reduction = simplify(raw)
    assert reduction is not None
    found = extract(raw_problem(nodes, [3 * 1_099]), Objective({"time": 1.0}), method="greedy")
    assert found.cost == 1 + 3 * 1_099
    assert 0 < found.lower_bound <= found.cost


def test_a_class_with_very_many_options_is_not_compared_pair_by_pair() -> None:
    rng = random.Random(0)
    leaves = range(1, 401)
    nodes: list[Node] = [(0, rng.sample(leaves, 3), rng.randint(1, 9)) for _ in range(3_000)]
    raw = instance([*nodes, *((c, (), rng.randint(1, 9)) for c in leaves)])
    _, steps = compare_options(InstanceDraft.of(raw), work=10**9)
    assert steps < 3_000**2 / 4
    reduction = simplify(raw)
    assert reduction is not None
    choice = tree_greedy(raw)
    assert reduction.cost == pytest.approx(raw.evaluate(choice))  # no sharing: trees are optimal
    assert reduction.parts == ()
