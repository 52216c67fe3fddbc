"""TASO's search: what its cost model leaves out, and what its hash loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search import Budget, Frame, MetaFlow, PriceCache, Quoted, Usual
from eqsat_opt.lab.search.methods.taso import Published, Taso
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import load_rules

RULES = tuple(load_rules("conv/merge-siblings", Numerics.BITEXACT))


@dataclass(frozen=True)
class Counting:
    """Every kernel takes 10 µs, and a Slice as many as it says."""

    slice_us: float

    @property
    def metrics(self) -> Sequence[str]:
        return Usual().metrics

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        (plain,) = Usual().quotes(kernel)
        time = self.slice_us if kernel.steps[0].op == "Slice" else 10.0
        return [replace(plain, metrics={**plain.metrics, TIME: time})]


def siblings() -> Graph:
    g = GraphMaker()
    x = g.input("x", 1, 4, 6, 6)
    return g.graph(*(g("Tanh", g.conv(x, g.weight(n, 4, 1, 1))) for n in (4, 6)))


def framed(slice_us: float) -> Frame:
    return Frame(siblings(), RULES, PriceCache.of(Counting(slice_us)))


def test_a_split_that_costs_something_is_thought_free() -> None:
    """Two convolutions and two Tanh take 40; merged, 30 and the slices."""
    found = Taso().run(framed(7.0), Budget(), 0)
    assert found.steps == ("conv/merge-siblings",)
    assert found.value == 44.0
    assert found.original.value == 40.0
    assert found.trace[-1].value == 44.0
    assert found.notes == ("taso: by the published prices 40 became 30, honestly 40 became 44",)
    honest = Taso(prices="honest").run(framed(7.0), Budget(), 0)
    assert (honest.steps, honest.value) == ((), 40.0)
    assert MetaFlow().run(framed(7.0), Budget(), 0).value == 40.0


def test_what_pays_in_truth_is_found_by_both() -> None:
    assert [
        Taso(prices=prices).run(framed(2.0), Budget(), 0).value
        for prices in ("published", "honest")
    ] == [34.0, 34.0]


def test_only_moving_data_is_free() -> None:
    prices = PriceCache.of(Published(Counting(7.0)))
    frame = Frame(siblings(), (), prices)
    kernels = [one.kernel for one in frame.outcome(frame.start).kernels.values()]
    assert [prices.rows(one)[0].metrics[TIME] for one in kernels if one] == [10.0] * 4


def blocks() -> Frame:
    """Two pairs of siblings: either can be merged, or both."""
    g = GraphMaker()
    heads = []
    for name in "xy":
        x = g.input(name, 1, 4, 6, 6)
        heads += [g("Tanh", g.conv(x, g.weight(4, 4, 1, 1))) for _ in range(2)]
    return Frame(g.graph(*heads), RULES, PriceCache.of(Counting(2.0)))


def test_a_graph_that_waited_is_followed_all_the_same() -> None:
    """When both are merged, a graph with one merge still waits; MetaFlow drops it."""
    assert MetaFlow(alpha=1.02).run(blocks(), Budget(), 0).graphs == 3
    assert (
        Taso(alpha=1.02, hash="canonical", prices="honest").run(blocks(), Budget(), 0).graphs == 4
    )


def test_equal_blocks_are_one_for_its_hash() -> None:
    found = [
        Taso(alpha=1.02, hash=hash_, prices="honest").run(blocks(), Budget(), 0)
        for hash_ in ("taso", "canonical")
    ]
    assert [one.graphs for one in found] == [3, 4]
    assert len({one.value for one in found}) == 1


@pytest.mark.parametrize(
    "given", [{"alpha": 0.5}, {"prices": "free"}, {"hash": "md5"}, {"growth": 1.0}]
)
def test_settings_without_meaning_are_refused(given: dict[str, object]) -> None:
    (name,) = given
    with pytest.raises(OptionError, match=name):
        Taso(**given)  # type: ignore[arg-type]
