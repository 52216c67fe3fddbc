"""Backends of this processor side by side in a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.lab.comparison import CompareSettings
from eqsat_opt.lab.comparison.installed import (
    Installed,
    chosen_backends,
    known_as,
    priced_sources,
)
from eqsat_opt.lab.search import BackendPricer, Frame, PriceCache
from eqsat_opt.lab.search.methods.collage import Collage
from eqsat_opt.lab.search.search import Budget
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.runtime.backends.protocol import DEFAULT, Offer
from eqsat_opt.runtime.backends.registry import load_backend

MEASURED: dict[str, Any] = {"measure": True, "level": "kernels"}


@dataclass
class Priced:
    """Times of backends; what has none could not be measured, and keeps a low bound."""

    times: dict[str, float | None]
    metrics: Sequence[str] = (TIME,)
    asked: list[Offer] = field(default_factory=list)

    @property
    def backends(self) -> Any:
        def made(name: str) -> Any:
            return SimpleNamespace(
                name=name, implementations=lambda _kernel: (DEFAULT,), patterns=tuple
            )

        return [made(name) for name in self.times]

    def is_known(self, offer: Offer) -> bool:
        return offer in self.asked

    def recall(self, offers: Sequence[Offer]) -> None:
        del offers

    def measure(self, offers: Sequence[Offer]) -> None:
        self.asked += offers

    def price(self, offer: Offer) -> Quote:
        time_us = self.times[offer.backend]
        if time_us is None:
            return Quote({TIME: 0.1}, "bound")
        return Quote({TIME: time_us}, "measured")


def framed(times: dict[str, float | None], spent: list[float]) -> Frame:
    g = GraphMaker()
    graph = g.graph(g("Tanh", g("MatMul", g.input("x", 4, 4), g.weight(4, 4))))
    pricer: Any = Priced(times)
    device = Installed(BackendPricer(pricer), spent.append)
    backends = known_as(pricer.backends)
    return Frame(graph, (), PriceCache.of(device), "kernels", backends=backends)


def test_what_could_not_be_measured_is_not_taken_for_fast() -> None:
    spent: list[float] = []
    frame = framed({"ort": 5.0, "launched:numpy": None, "launched:generated": 3.0}, spent)
    found = Collage().run(frame, Budget(), 0)
    assert {one.backend for one in found.outcome.kernels.values()} == {"generated"}
    assert len(spent) == 2  # each kernel once
    alone = framed({"ort": None}, [])
    assert {one.backend for one in alone.outcome(alone.start).kernels.values()} == {"ort"}


def test_what_runs_beside_sessions_has_one_thread() -> None:
    given = SimpleNamespace(backends=(), placing=("ort", "native", "numpy"))
    assert priced_sources(given, 1) == ("ort", "native", "launched:native", "launched:numpy")
    assert priced_sources(given, 2) == ("ort", "native")
    given.backends = ("native",)
    assert priced_sources(given, 2) == ("ort", "native")
    given.backends = ("native", "numpy")
    with pytest.raises(OptionError, match="numpy run outside sessions, on one thread; add --thre"):
        priced_sources(given, 2)


def test_names_of_backends() -> None:
    assert chosen_backends(()) == ("ort",)
    assert chosen_backends(("numpy", "ort", "numpy")) == ("ort", "numpy")
    every = chosen_backends(("all",))
    assert every[0] == "ort"
    assert {"numpy", "generated"} <= set(every)
    with pytest.raises(OptionError, match=r"unknown backend 'nunpy'; .*did you mean numpy"):
        chosen_backends(("nunpy",))


def test_a_backend_whose_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(name: str) -> Any:
        if name == "launched:openvino":
            raise PlanError("openvino is not installed; install it")
        return load_backend(name)

    monkeypatch.setattr("eqsat_opt.lab.comparison.installed.load_backend", loaded)
    assert "openvino" not in chosen_backends(("all",))
    with pytest.raises(OptionError, match="openvino cannot be used here: openvino is not inst"):
        chosen_backends(("openvino",))


def test_settings_of_backends() -> None:
    assert CompareSettings(device="local").device == ""
    assert CompareSettings(("metaflow",), **MEASURED).placing == ("ort",)
    assert len(CompareSettings(("collage",), **MEASURED).placing) > 2
    one = CompareSettings(("collage",), backends=("ort",), **MEASURED)
    assert one.placing == ("ort",)
    assert CompareSettings.from_json(one.to_json()).backends == ("ort",)
    for given in ({}, {"measure": True}, {"level": "kernels"}):
        with pytest.raises(OptionError, match="add --measure and --level kernels"):
            CompareSettings(("collage",), backends=("numpy",), **given)
