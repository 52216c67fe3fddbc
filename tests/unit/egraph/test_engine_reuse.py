"""Rules are compiled once per program: a used engine is as good as a fresh one."""

from __future__ import annotations

import threading

import pytest

from eqsat_opt.egraph import saturate
from eqsat_opt.egraph.engine import driver as module
from eqsat_opt.egraph.engine.driver import compiled_engine
from eqsat_opt.errors import SaturationError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import default_rules

PROGRAM = (
    "(sort T)",
    "(constructor A (i64) T)",
    "(relation seen (i64))",
    "(ruleset load)",
    "(A 1)",
)


@pytest.fixture(autouse=True)
def no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_kept", module._Kept())


def kept() -> int:
    return len(module._kept.engines)


def graphs() -> list[Graph]:
    result = []
    for count in (2, 3, 2):
        g = GraphMaker()
        x = g.input("x", 2, 4)
        products = [g("MatMul", x, g.weight(4, 3)) for _ in range(count)]
        result.append(g.graph(g("Relu", g("Concat", *products, axis=1)), g("Add", x, x)))
    return result


def test_a_used_engine_gives_the_same_egraph() -> None:
    fresh = []
    for graph in graphs():
        module._kept.engines.clear()
        fresh.append(saturate(graph, default_rules()))
    module._kept.engines.clear()
    reused = [saturate(graph, default_rules()) for graph in graphs()]
    # Three siblings need an operand more than two; the last graph finds the program of the first.
    assert kept() == 2
    for one, other in zip(fresh, reused, strict=True):
        assert one.eclasses.fingerprint() == other.eclasses.fingerprint()
        assert one.report.matches == other.report.matches
    assert fresh[0].eclasses.fingerprint() != fresh[1].eclasses.fingerprint()


def test_everything_is_undone() -> None:
    with compiled_engine(PROGRAM) as first:
        first.run(["(A 2)", *first.load_table(["i64"], [[7]], "(seen a0)"), "(run load 1)"])
        assert first.sizes() == {"A": 2, "row1": 1, "seen": 1}
    with compiled_engine(PROGRAM) as second:
        assert second is first
        assert second.sizes() == {"A": 1, "seen": 0}
        second.run([*second.load_table(["i64"], [[8], [9]], "(seen a0)"), "(run load 1)"])
        assert second.sizes()["seen"] == 2


def test_a_failed_engine_is_not_used_again() -> None:
    with pytest.raises(SaturationError, match="e-graph engine"), compiled_engine(PROGRAM) as first:
        first.run(["(no-such-command)"])
    assert kept() == 0
    with pytest.raises(ZeroDivisionError), compiled_engine(PROGRAM):
        raise ZeroDivisionError
    assert kept() == 0
    with pytest.raises(SaturationError), compiled_engine(["(no-such-command)"]):
        pass
    assert kept() == 0


def test_nested_and_threaded_uses_do_not_share() -> None:
    shared: list[bool] = []
    with compiled_engine(PROGRAM) as outer, compiled_engine(PROGRAM) as inner:
        assert outer is not inner

    def use() -> None:
        with compiled_engine(PROGRAM) as own:
            shared.append(own is outer or own is inner)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert shared == [False]
    assert kept() == 1


def test_few_engines_are_kept() -> None:
    for number in range(8):
        with compiled_engine([*PROGRAM, f"(A {number})"]):
            pass
    assert kept() == 4
