"""What a comparison tells of the results that it is given."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from eqsat_opt.cli.compare.plot import front_of
from eqsat_opt.cli.compare.table import print_comparison
from eqsat_opt.lab.comparison import (
    CompareSettings,
    FailedRun,
    MethodResult,
    Moment,
    Original,
    gathered,
)
from eqsat_opt.lab.comparison.results import MOST_NOISE, descent
from eqsat_opt.racing.race_result import RaceEntry, RaceResult


def result_of(method: str, cost: float, seed: int = 0, **named: Any) -> MethodResult:
    given: dict[str, Any] = {
        "lower_bound": None, "stopped_by": "exhausted", "extraction": None, "graphs": 1,
        "tried": 1, "compared": 1, "enodes": None, "operators": 1, "kernels": 1, "metrics": {},
        "rules": {}, "time_s": 1.0, "cpu_s": 1.0, "trace": (Moment(0.0, cost, 0.0),), **named,
    }  # fmt: skip
    return MethodResult(method=method, cost=cost, seed=seed, **given)


def test_when_a_method_was_as_cheap_as_the_others() -> None:
    trace = tuple(map(Moment, (0.0, 1.0, 4.0), (10.0, 8.0, 7.0), (0.0, 0.5, 2.0)))
    eqsat = result_of("eqsat", 7.0, trace=trace)
    for cost, expected in ((10.0, 0.0), (8.0 * (1 - 1e-12), 0.5), (7.5, 2.0), (6.0, None)):
        results = [(None, eqsat), (None, result_of("metaflow", cost))]
        both = gathered("m", CompareSettings(), results)
        assert both.as_cheap_after_s(eqsat) == expected
        assert both.to_json()["results"][0]["as_cheap_after_s"] == expected
    alone = gathered("m", CompareSettings(methods=("eqsat",)), [(None, eqsat)])
    assert alone.as_cheap_after_s(eqsat) is None


def test_medians_and_ranges_over_seeds() -> None:
    settings = CompareSettings(methods=("sampling", "metaflow"), seeds=4)
    costs = (4.0, 1.0, 3.0, 2.0)
    runs = [result_of("sampling", cost, seed, cpu_s=cost) for seed, cost in enumerate(costs)]
    failed = [FailedRun("metaflow", seed, "it ended") for seed in range(4)]
    everything: list[MethodResult | FailedRun] = [*failed, *reversed(runs)]
    found = gathered("m", settings, [(None, one) for one in everything])
    sampling, metaflow = found.runs
    assert [one.seed for one in sampling.results] == [0, 1, 2, 3]
    assert (sampling.median, sampling.best) == (runs[3], runs[1])  # of two the cheaper one
    assert sampling.costs == (1.0, 4.0)
    assert sampling.seconds(one.cpu_s for one in sampling.results) == 2.5
    assert (metaflow.median, metaflow.results, len(metaflow.failures)) == (None, (), 4)
    for one in runs:
        assert MethodResult.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_costs_fall_from_the_original_to_the_final_one() -> None:
    moments = [
        Moment(0.1, 9.0, 0.1),
        Moment(0.2, 9.0 * (1 - 1e-12), 0.2),
        Moment(0.3, 11.0, 0.3),
        Moment(0.4, 5.0, 0.8),
    ]
    expected = (Moment(0.0, 10.0, 0.0), Moment(0.1, 9.0, 0.1), Moment(0.4, 5.0000003, 0.8))
    assert descent(10.0, 5.0000003, moments) == expected
    assert descent(10.0, 10.0, [Moment(0.1, 10.0, 0.1)]) == (Moment(0.0, 10.0, 0.0),)


@pytest.mark.parametrize(("device", "is_refused"), [("", True), ("v100", False)])
def test_times_of_streams_on_a_busy_machine_are_refused(device: str, is_refused: bool) -> None:
    settings = CompareSettings(methods=("nimble",), level="streams", device=device)
    entries = {
        name: RaceEntry(name, 123.0, 123.0, 0.0, 1.0, (123.0,) * 2, 2) for name in ("m", "nimble")
    }
    held = RaceResult("m", "m", entries, 0.2, 0.03, 0.2, 2, "wall", 2, 2, 1.0)
    found = gathered("m", settings, [(None, result_of("nimble", 100.0))])
    for noise in (0.2, MOST_NOISE):
        raced = replace(found, race=replace(held, noise=noise))
        refused = is_refused and noise > MOST_NOISE
        assert ("differs from itself by 20%, more than 10%" in raced.refusal) == refused
        assert raced.to_json()["race_refused"] == raced.refusal
        console = Console(file=io.StringIO(), width=200)
        print_comparison(console, raced)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("123 µs" in text) != refused
        assert ("measure again on a quiet machine" in text) == refused


def test_tables_have_as_many_columns_as_fit() -> None:
    """On 80 columns nothing is cut or wrapped, but for long words on how a method ended."""
    methods = ("eqsat", "enumeration", "pruning", "dpp", "sampling", "metaflow", "exhaustive")
    settings = CompareSettings(methods=methods)
    original = Original(
        cost=12345.6, operators=9, kernels=9, metrics={"flops": 1e9}, n_rules=3, prices="roofline",
        assumed_sizes={},
    )  # fmt: skip
    results = [result_of(name, 12345.6, rules={"a/rule-of-some-length": 3}) for name in methods]
    found = gathered("m", settings, [(original, one) for one in results])
    for width in (20, 80, 200):
        console = Console(width=width, file=io.StringIO(), highlight=False)
        print_comparison(console, found)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= width
        if width == 20:  # too narrow for any table
            continue
        assert "…" not in "".join(lines)
        heads = [line.split() for line in lines if line.split()[:1] == ["original"]]
        assert [name for head in heads for name in head[1:]] == list(methods)
        assert (len(heads) == 1) == (width == 200)


def test_the_front_holds_what_no_other_point_beats() -> None:
    points = [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (2.0, 2.0), (2.5, 2.5), (3.0, 0.5), (1.0, 4.0)]
    assert front_of(points) == [(1.0, 3.0), (2.0, 2.0), (3.0, 0.5)]
    assert front_of([]) == []
