"""The report: every sentence is true in every combination of outcomes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.summary import summary, summary_rows
from eqsat_opt.pipeline.report.tables import tables
from eqsat_opt.pipeline.report.values import Latency, OutputError

TIME = {"time_us": 1.0}
FLOPS = {"flops": 1.0}
ENTRY = {"ratio": 1.0, "note": "", "wins": False, "ahead": 0}


def race_json(**entries: dict[str, Any]) -> dict[str, Any]:
    return {
        "original": "original",
        "entries": {"original": ENTRY, **{n: {**ENTRY, **e} for n, e in entries.items()}},
        "threshold": 0.05,
        "noise": 0.05,
        "needed": 3,
        "builds": 3,
        "is_open": False,
    }


REPORT = Report(
    model="model.onnx",
    status="improved",
    winner="best",
    operators_before={"MatMul": 3, "Relu": 1},
    operators_after={"MatMul": 1, "Relu": 1},
    metrics_before={"time_us": 1000.0},
    metrics_after={"time_us": 800.0},
    cost=800.0,
    original_cost=1000.0,
    lower_bound=800.0,
    gap=0.0,
    extraction_status="optimal",
    enodes=50,
    eclasses=20,
    enodes_loaded=4,
    iterations=5,
    stopped_by="saturated",
    rules={"matmul/assoc": 1},
    matches={"matmul/assoc": 2},
    latency={
        "original": Latency(1010.0, 1020.0, 0.02),
        "result": Latency(810.0, 820.0, 0.01),
    },
    race=race_json(best={"ratio": 0.8, "wins": True, "ahead": 3}),
    noise=0.05,
    threads=2,
    kernels_measured=3,
    kernels_unmeasured=0,
    errors=(),
    stages_s={"search": 1.0},
    speedup=1.25,
    output="model.opt.onnx",
    result_cost=800.0,
)
OPTION = {"graph_optimization_level": "basic"}


def printed(report: Report) -> str:
    console = Console(width=300, no_color=True)
    with console.capture() as capture:
        for part in (*summary(report), "", *tables(report)):
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def outcomes() -> Iterator[Report]:
    """Status × winner × option × extraction × objective, as far as a run can end so.

    The result costs as much as the cheapest graph found, more, or nobody knows; the cheapest graph
    found costs less than the original, or as much.
    """
    for status, winner, option, extraction, objective, saves in itertools.product(
        ("improved", "improved_with_option", "kept", "unchanged", "unmeasured"),
        ("original", "clean", "best", "alternative-1", "previous"),
        (False, True),
        ("optimal", "feasible"),
        (TIME, FLOPS, {**TIME, **FLOPS}),
        (False, True),
    ):
        by_time = "time_us" in objective
        raced = status != "unmeasured"
        possible = (
            (status != "unchanged" or (winner == "original" and not option))
            and (winner != "original" or status in ("unchanged", "improved_with_option"))
            and (option == (status == "improved_with_option") or (status == "improved" and by_time))
            and (raced or winner != "previous")
            and (status in ("improved", "unchanged", "unmeasured") or by_time)
        )
        if not possible:
            continue
        cost = 800.0 if saves else 1000.0
        costs = {"best": cost, "alternative-1": cost + 50.0, "previous": None}
        result_cost = costs.get(winner, 1000.0)
        is_best = result_cost == cost
        speedups = (1.25,) if by_time else (1.25, 0.97)
        for speedup in speedups if status == "improved" else (1.0,):
            yield replace(
                REPORT,
                status=status,
                winner=winner,
                cost=cost,
                lower_bound=cost if extraction == "optimal" else 0.9 * cost,
                gap=0.0 if extraction == "optimal" else 0.1,
                extraction_status=extraction,
                objective=objective,
                speedup=speedup,
                session_speedup=1.5 if option else 1.0,
                session_options=OPTION if option else {},
                latency=REPORT.latency if raced else {},
                race=REPORT.race if raced else {},
                result_cost=result_cost,
                passed_over="" if is_best else "it did not win the race",
            )


OUTCOMES = list(outcomes())


def test_the_combinations_are_many() -> None:
    assert len(OUTCOMES) > 100
    assert {r.status for r in OUTCOMES} >= {"improved", "improved_with_option", "kept", "unchanged"}


def test_no_sentence_contradicts_another() -> None:
    for report in OUTCOMES:
        text = printed(report)
        head, shown = report.headline, (report.status, report.winner, report.objective)
        assert not ("proven" in text and "above" in text), shown
        assert not ("proven" in text and "less, but" in text), shown
        assert text.count("e-graph is cheaper") + text.count("above the cheapest") <= 1, shown
        assert ("faster model was found" in head) == (
            report.status == "improved" and "time_us" in report.objective
        ), shown
        if "faster model was found" in head:
            assert report.speedup > 1, shown
        if report.winner == "original":
            assert "result" not in report.optimality, shown
            assert "was found" not in head, shown
        if "the original" in head:
            assert report.winner == "original", shown
        if "cheaper graph was found" in head:
            assert report.result_cost is not None, shown
            assert report.result_cost < report.original_cost, shown
        assert "1.50x" not in head, shown  # what an option gains is no default
        assert ("1.50x" in text) == bool(report.session_options), shown
        assert ("a win is below" in text) == (
            bool(report.race) and "time_us" in report.objective
        ), shown


def test_what_is_proven_is_a_fact_of_the_numbers() -> None:
    for report in OUTCOMES:
        if "proven" in report.optimality:
            assert report.result_cost == report.lower_bound
        found = re.search(r"at most ([\d.]+)% above", report.optimality)
        if found:
            assert report.result_cost is not None
            excess = 100 * (report.result_cost / report.lower_bound - 1)
            assert float(found[1]) == pytest.approx(excess, abs=0.05)


def test_a_summary_is_short_and_plain() -> None:
    more: dict[str, Any] = {
        "operators_passing": {"Loop": 2},
        "operators_inside": 12,
        "passing_share": 0.25,
        "limits": ("memory_bytes<=1e6",),
        "errors": (OutputError("y", 1e-6, 0.0, 1e-3),),
        "sizes": ({"given": {"n": 2}, "assumed": {"m": 7}, "data": {}},),
    }
    full = [replace(report, **more) for report in OUTCOMES]
    for report in (*OUTCOMES, *full):
        rows = summary_rows(report)
        assert len(rows) <= 8, rows
        text = " ".join(words for _, words in rows)
        assert not re.search("e-graph|e-class|e-node|saturat|extract|kernel|prun", text), text
        assert "  " not in text
        if report.winner == "original":
            assert not {"changed", "rewrites"} & dict(rows).keys()


def test_a_summary_of_a_replay_is_not_about_a_search() -> None:
    replayed = replace(REPORT, status="replayed", stopped_by="time", enodes_loaded=0, race={})
    assert "room" not in dict(summary_rows(replayed))
    assert "no time" in dict(summary_rows(replace(replayed, status="unmeasured")))["room"]


def test_a_summary_names_three_rewrites() -> None:
    rules = {"a/b": 1, "c/d": 9, "e/f": 3, "g/h": 2, "i/j": 1}
    rows = dict(summary_rows(replace(REPORT, rules=rules)))
    assert rows["rewrites"] == "c/d ×9, e/f ×3, g/h ×2, 2 more"
    assert "none" in dict(summary_rows(replace(REPORT, rules={}, winner="clean")))["rewrites"]


def test_a_summary_says_what_stayed_and_where() -> None:
    report = replace(
        REPORT,
        operators_inside=12,
        operators_passing={"Loop": 2},
        passing_share=0.25,
        sizes=({"given": {}, "assumed": {"n": 7}, "data": {}},),
        metrics_before={"time_us": 1e3, "flops": 2e9, "weight_bytes": 4e6},
        metrics_after={"time_us": 8e2, "flops": 1e9, "weight_bytes": 4e6},
    )
    rows = dict(summary_rows(report))
    assert (
        rows["kept"]
        == "2 of 14 operators as they were: no rule is about Loop ×2, 25.0% of the time"
    )
    assert rows["changed"] == "4 → 2 operators, 2 GFLOP → 1 GFLOP"
    assert "n=7 (assumed; --input-shape gives others)" in rows["measured"]


def test_the_text_of_a_win() -> None:
    report = replace(REPORT, session_speedup=1.5, session_options=OPTION)
    assert (
        printed(report)
        == """\
model.onnx: a faster model was found: 1.25x (1.02 ms → 820 µs)
1.50x with graph optimisation level basic: eqsat_opt.session('model.opt.onnx') opens it so
changed   4 → 2 operators
rewrites  matmul/assoc ×1
measured  in turns with the original, 2 threads
room      none of the equal graphs that were found costs less: proven

                       before   after  change
operators                   4       2  -50.0%
predicted time           1 ms  800 µs  -20.0%
measured time         1.02 ms  820 µs   1.25x
  spread of sessions     2.0%    1.0%

e-graph    4 → 50 e-nodes in 20 e-classes, 5 iterations, nothing is left to rewrite
predicted  result 800 µs, original 1 ms; no graph in the e-graph is cheaper than the result: proven
kernels    3 measured now; all prices used here are measured
rules      matmul/assoc ×1
changed    MatMul 3 → 1
race       best 0.800 of the original's time; a win is below 0.952 (noise 5.0%) and ahead of both \
sessions of the original in 3 of 3 builds; 2 threads
seconds    1.00: search 1.00"""
    )


@pytest.mark.parametrize(
    ("max_abs", "beyond", "expected"),
    [
        (0.0, 0.0, "agree: no difference"),
        (1.5, 0.0, "agree: a difference of 1.5e+00, all of it rounding"),
        (0.1, 2e-4, "agree: a difference of 1.0e-01; 2.0e-04 beyond rounding, where 1.0e-03 is "),
    ],
)
def test_the_text_of_differences(max_abs: float, beyond: float, expected: str) -> None:
    errors = (OutputError("y", max_abs, beyond, 1e-3), OutputError("z", 0.0, 0.0, 1e-3))
    assert expected in printed(replace(REPORT, errors=errors))


def test_the_text_of_a_race_that_the_original_won() -> None:
    lost = {"ratio": 0.94, "ahead": 2}
    report = replace(
        REPORT,
        status="unchanged",
        winner="original",
        speedup=1.0,
        result_cost=1000.0,
        passed_over="it did not win the race",
        race={**race_json(best=lost, previous={"ratio": 1.2}), "is_open": True},
    )
    text = printed(report)
    assert text.startswith(
        "model.onnx: no improvement found: the original is kept\n"
        "measured  in turns with the original, 2 threads; best took 0.940 of its time, where less "
        "than 0.952 is more than noise\n"
        "room      a graph was found that promises 20.0% less, but it did not win the race\n\n"
    )
    assert (
        "predicted  cheapest found 800 µs, original 1 ms; "
        "the cheapest graph found would cost 20.0% less, but it did not win the race\n"
    ) in text
    assert (
        "race       best 0.940 (ahead in 2), earlier result 1.200 of the original's time; "
        "a win is below 0.952 (noise 5.0%) and ahead of both sessions of the original in 3 of 3 "
        "builds; more builds might decide otherwise; 2 threads\n"
    ) in text


def test_the_text_of_an_objective_other_than_time() -> None:
    report = replace(
        REPORT, objective=FLOPS, cost=8e6, original_cost=1e7, result_cost=8e6, speedup=0.97
    )
    assert report.headline == (
        "a cheaper graph was found: 0.800 of the predicted cost, 0.97x as fast"
    )
    assert "the predicted cost decides, not the race" in printed(report)
    same = replace(report, winner="clean", result_cost=1e7, cost=1e7)
    assert same.headline == "the graph was simplified, at the same predicted cost, 0.97x as fast"


def test_a_bound_that_tells_nothing_is_not_dressed_up() -> None:
    loose = replace(REPORT, lower_bound=50.0, gap=0.9, extraction_status="feasible")
    assert loose.optimality == (
        "how far the result is from the cheapest graph in the e-graph was not settled"
    )


def test_the_headline_says_under_which_circumstances() -> None:
    busy = replace(REPORT, race={**REPORT.race, "is_busy": True})
    assert busy.headline == "a faster model was found: 1.25x on a busy machine (1.02 ms → 820 µs)"
    twice = replace(REPORT, further_races=(REPORT.race,))
    assert (
        twice.headline
        == "a faster model was found: 1.25x or more at 2 sets of sizes (1.02 ms → 820 µs)"
    )


def test_json_holds_both_numbers() -> None:
    found = replace(REPORT, session_speedup=1.5, session_options=OPTION).to_json()
    assert (found["speedup"], found["session_speedup"]) == (1.25, 1.5)
    assert found["session_options"] == OPTION
    assert found["output"] == "model.opt.onnx"
