"""The measuring loop: what is chosen where the time ends before all is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph import Budget
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.choose import ChoiceResult
from eqsat_opt.select.proposal import SearchOptions, propose


def siblings() -> Graph:
    """Return two products of one input, which rules make one."""
    g = GraphMaker()
    x = g.input("x", 4, 8)
    first, second = (g("MatMul", x, g.weight(8, 8)) for _ in range(2))
    return g.graph(g("Relu", first), g("Tanh", second))


class Hurried(Pricer):
    """Measures only a number of kernels, each at 10 µs; bounds are 1 µs."""

    def __init__(self, most: int, expected_us: float) -> None:
        super().__init__(None, 1)
        self.most = most
        self.expected_us = expected_us
        self.seen: dict[Offer, Quote] = {}

    def price(self, offer: Offer) -> Quote:
        return self.seen.get(offer, Quote({TIME: 1.0}, "bound"))

    def expect(self, offer: Offer) -> Quote:
        return self.seen.get(offer, Quote({TIME: self.expected_us}, "expected"))

    def is_known(self, offer: Offer) -> bool:
        return offer in self.seen

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        for offer in offers:
            if len(self.seen) < self.most:
                self.seen[offer] = Quote({TIME: 10.0}, "measured")


def chosen(pricer: Pricer) -> ChoiceResult:
    search = SearchOptions(Objective({TIME: 1.0}), Budget(), {}, deadline=Deadline.after(600.0))
    return propose(siblings(), default_rules(), pricer, search).choice


def test_an_unmeasured_kernel_is_not_taken_for_fast() -> None:
    """By bounds alone the merged product costs a tenth of the measured ones."""
    choice = chosen(Hurried(most=4, expected_us=30.0))
    assert choice.unmeasured == 0
    assert choice.metrics["launches"] == choice.original_metrics["launches"] == 4.0
    assert choice.extraction.cost == choice.original_cost == pytest.approx(40.0)


def test_the_bound_of_an_expected_answer_rests_on_bounds() -> None:
    choice = chosen(Hurried(most=4, expected_us=30.0))
    assert choice.extraction.lower_bound < 40.0
    assert choice.extraction.status == "feasible"
    choice.extraction.check(choice.problem.problem)


def test_an_expected_kernel_is_chosen_where_it_wins_with_a_margin() -> None:
    choice = chosen(Hurried(most=4, expected_us=2.0))
    assert choice.unmeasured > 0
    assert choice.sources["expected"] == choice.unmeasured
    assert choice.extraction.cost < choice.original_cost


def test_what_is_measured_through_is_proven_as_ever() -> None:
    choice = chosen(Hurried(most=10_000, expected_us=30.0))
    assert choice.unmeasured == 0
    assert choice.extraction.status == "optimal"
    assert choice.extraction.cost == choice.extraction.lower_bound
