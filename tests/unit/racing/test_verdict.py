"""What is written after a race and what is claimed of it, on a simulated machine."""

from __future__ import annotations

import itertools

import pytest

from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.racing.verdict import Verdict, decide
from tests.unit.machines import Machine


def race(times_us: dict[str, float], luck: float = 0.01, seed: int = 0) -> RaceResult:
    """A race of models that take a while, so that few runs are simulated."""
    times_us = {"original": 1000.0, **times_us}
    slow_us = {name: 20 * time_us for name, time_us in times_us.items()}
    return Machine(luck, seed).race(seed=seed, rounds=1, **slow_us)


def verdict(times_us: dict[str, float], incumbent: str = "") -> Verdict:
    return decide([race(times_us)], incumbent=incumbent)


def test_the_fastest_by_default_is_written() -> None:
    found = verdict({"best": 900, "clean": 800, "best@basic": 890, "original@basic": 1000})
    assert (found.winner, found.status, found.level) == ("clean", "improved", "")
    assert found.speedup == pytest.approx(1.25, rel=0.02)
    assert found.session_speedup == 1


def test_ties_keep_the_original() -> None:
    found = verdict({"best": 990, "clean": 1000, "best@basic": 985, "original@basic": 990})
    assert found == Verdict("original", "unchanged")


def test_an_option_is_advised_where_the_same_graph_gains_by_it() -> None:
    found = verdict({"best": 800, "best@basic": 500, "original@basic": 900})
    assert (found.winner, found.status, found.level) == ("best", "improved", "basic")
    assert found.speedup == pytest.approx(1.25, rel=0.02)
    assert found.session_speedup == pytest.approx(2, rel=0.02)


def test_an_option_that_gains_nothing_is_not_advised() -> None:
    found = verdict({"best": 500, "best@basic": 495})
    assert (found.winner, found.level) == ("best", "")


def test_a_graph_that_is_best_with_an_option_does_not_displace_the_best_by_default() -> None:
    found = verdict({"best": 800, "best@basic": 790, "clean": 950, "clean@basic": 500})
    assert (found.winner, found.status, found.level) == ("best", "improved", "")


def test_what_wins_with_an_option_only_claims_nothing_by_default() -> None:
    found = verdict({"best": 1000, "best@basic": 600, "original@basic": 900})
    assert (found.winner, found.status, found.level) == ("best", "improved_with_option", "basic")
    assert found.speedup == 1
    assert found.session_speedup == pytest.approx(1 / 0.6, rel=0.02)


def test_a_graph_that_is_slower_by_default_is_never_written() -> None:
    found = verdict({"best": 1100, "best@basic": 600})
    assert found == Verdict("original", "unchanged")


def test_the_original_with_an_option_is_the_original() -> None:
    """Where the option makes all the difference, no other graph is needed."""
    found = verdict({"best": 1000, "best@basic": 600, "original@basic": 605})
    assert (found.winner, found.status, found.level) == (
        "original", "improved_with_option", "basic",
    )  # fmt: skip


def test_an_earlier_result_stays_unless_it_is_beaten_or_slower() -> None:
    kept = verdict({"previous": 990, "best": 1000}, "previous")
    assert kept == Verdict("previous", "kept")
    tied = verdict({"previous": 805, "best": 800}, "previous")
    assert (tied.winner, tied.status) == ("previous", "improved")
    beaten = verdict({"previous": 900, "best": 800}, "previous")
    assert (beaten.winner, beaten.status) == ("best", "improved")
    fresh = verdict({"previous": 990, "best": 900}, "previous")
    assert (fresh.winner, fresh.status) == ("best", "improved")
    slower = verdict({"previous": 1100, "best": 1000}, "previous")
    assert slower == Verdict("original", "unchanged")


def test_an_earlier_result_that_never_won_has_no_right_to_stay() -> None:
    assert verdict({"previous": 990}) == Verdict("original", "unchanged")
    found = verdict({"previous": 805, "best": 800})
    assert found.winner in ("previous", "best")


def test_an_earlier_result_may_be_a_candidate_of_today() -> None:
    assert verdict({"best": 990, "clean": 1000}, "best") == Verdict("best", "kept")


def test_a_win_has_to_hold_at_each_set_of_sizes() -> None:
    small, large = race({"best": 800, "clean": 900}), race({"best": 1100, "clean": 950})
    found = decide([small, large])
    assert (found.winner, found.status) == ("clean", "improved")
    assert found.speedup == pytest.approx(1 / 0.95, rel=0.02)
    assert decide([small, race({"best": 1000, "clean": 1000})]).status == "unchanged"


TIMES = (500.0, 960.0, 1000.0, 1300.0)


@pytest.fixture(scope="module", params=[0.01, 0.2])
def races(request: pytest.FixtureRequest) -> list[RaceResult]:
    """All combinations of gains and losses of two graphs, with and without an option."""
    names = ("best", "previous", "best@basic", "original@basic")
    return [
        race(dict(zip(names, times, strict=True)), request.param, seed)
        for seed, times in enumerate(itertools.product(TIMES, repeat=len(names)))
    ]


@pytest.mark.parametrize("incumbent", ["", "previous", "best"])
def test_no_verdict_claims_what_the_race_does_not_show(
    incumbent: str, races: list[RaceResult]
) -> None:
    seen = set()
    for result in races:
        found = decide([result], incumbent=incumbent)
        seen.add(found.status)
        won = [name for name, entry in result.entries.items() if entry.wins and "@" not in name]
        assert (found.status == "improved") == bool(won)
        assert (found.winner in won) == (found.status == "improved")
        assert (found.speedup > 1) == (found.status == "improved")
        assert (found.session_speedup > 1) == bool(found.level)
        if found.winner != "original":
            assert not result.loses(found.winner)
        if found.level:
            advised = f"{found.winner}@{found.level}"
            assert result.beats(advised, "original")
            assert result.beats(advised, found.winner)
            assert found.session_speedup == 1 / result.entries[advised].ratio
        if found.status == "improved_with_option":
            assert found.level
        if found.status == "kept":
            assert found.winner == incumbent
        if found.status == "unchanged":
            assert found == Verdict("original", "unchanged")
    assert seen >= {"improved", "unchanged"}
    assert ("kept" in seen) == bool(incumbent)
