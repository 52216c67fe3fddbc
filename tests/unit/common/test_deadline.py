"""Deadlines, with a clock that only the test moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat_opt.common.deadline import Deadline


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_left_shrinks_and_ends_at_zero() -> None:
    clock = Clock()
    deadline = Deadline.after(5.0, clock)
    assert deadline.left_s == 5.0
    clock.now_s += 4.0
    assert deadline.left_s == 1.0
    assert not deadline.expired
    clock.now_s += 1.0
    assert deadline.expired
    clock.now_s += 1.0
    assert deadline.left_s == 0.0


def test_a_share_is_one_of_what_is_left() -> None:
    clock = Clock()
    deadline = Deadline.after(8.0, clock)
    assert deadline.share(0.5).left_s == 4.0
    clock.now_s += 4.0
    assert deadline.share(0.5).left_s == 2.0
    assert deadline.share(1.0).at_s == deadline.at_s


def test_shares_of_shares_never_pass_the_whole() -> None:
    clock = Clock()
    deadline = Deadline.after(3.0, clock)
    inner = deadline.share(0.5).share(0.9)
    assert inner.at_s < deadline.at_s


def test_a_stage_that_must_run_gets_its_least_even_when_late() -> None:
    clock = Clock()
    deadline = Deadline.after(1.0, clock)
    assert deadline.share(0.1, least_s=0.5).left_s == 0.5
    clock.now_s += 9.0
    assert deadline.share(0.1, least_s=0.5).left_s == 0.5
    assert deadline.share(0.1).expired


def test_nothing_presses() -> None:
    never = Deadline.never()
    assert never.left_s == math.inf
    assert never.share(0.1).left_s == math.inf
    assert not never.expired


def test_the_earlier_of_two_deadlines_counts() -> None:
    clock = Clock()
    soon, late = Deadline.after(1.0, clock), Deadline.after(2.0, clock)
    assert soon.earlier(late) == late.earlier(soon) == soon
