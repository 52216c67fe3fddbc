"""`eqsat-opt compare`: what it prints, writes and returns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat_opt import api, comparison, reporting
from eqsat_opt.cli import main
from eqsat_opt.comparison import (
    CompareSettings,
    Comparison,
    MethodResult,
    Moment,
    compare,
    compare_methods,
)
from eqsat_opt.comparison.results import descent
from eqsat_opt.comparison.saturated import saturated
from eqsat_opt.cost.operators import OperatorCost, graph_cost_us
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph import Graph
from eqsat_opt.options import Options
from eqsat_opt.proving.selection import default_rules, load_rules
from eqsat_opt.rules import Numerics, Rule
from eqsat_opt.search import Budget
from eqsat_opt.testing import GraphMaker

MODEL = "zoo:weight_chain@tiny"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def numbers(*arguments: str) -> dict[str, Any]:
    """What `--json FILE` writes."""
    assert main(["compare", *arguments, "--quiet", "--threads", "1", "--json", "out.json"]) == 0
    value: dict[str, Any] = json.loads(Path("out.json").read_text(encoding="utf-8"))
    return value


def by_method(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["method"]: result for result in value["results"]}


def test_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", MODEL, "--threads", "1"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    rows = {line[:19].strip(): line[19:].split() for line in output.splitlines()}
    assert rows[""] == ["original", "eqsat", "metaflow"]
    assert rows["cost"][2:4] == rows["cost"][4:6]  # with its unit
    share = rows["of original"]
    assert share[0] == "1.000"
    assert float(share[1]) == float(share[2]) < 1
    assert rows["bound"][-1] == "none"
    assert rows["gap"] == ["0.0%"]
    assert rows["ended"] == ["saturated,", "optimal", "exhausted"]
    assert rows["outputs"] == ["agree", "agree"]
    assert all(len(line) <= 80 for line in output.splitlines()[2:15])


@pytest.mark.parametrize("silence", [[], ["--quiet"], ["--json", "-"], ["-q", "--json", "o.json"]])
@pytest.mark.parametrize("command", ["compare", "explain", "optimize"])
def test_rules_that_are_left_out_are_named(
    command: str,
    silence: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Below the tables, on standard error where there are none, and in the JSON."""
    monkeypatch.setattr(
        reporting, "excluded_rules", lambda: {"matmul/assoc": "it is stale", "a/b": "?"}
    )
    arguments = ["--threads", "1", "--store", "", "--rules", "matmul/assoc"]
    own = {"explain": ["--no-measure"], "optimize": ["--no-measure", "--no-race"]}
    assert main([command, MODEL, *arguments, *own.get(command, ()), *silence]) == 0
    output, errors = capsys.readouterr()
    note = "rule matmul/assoc and 1 more left out of the default set: it is stale"
    assert f"note: {note}" in " ".join((errors if silence else output).split())
    assert errors.count("\n") == bool(silence)
    if "--json" in silence:
        value = json.loads(output or Path("o.json").read_text(encoding="utf-8"))
        assert value.get("report", value)["notes"][-1].startswith(note)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--methods", "metaflow", "--budget", "1"], "limit of graphs"),
        (["--methods", "metaflow", "--budget", "cpu=1e-9"], "limit of CPU time"),
        (["--methods", "eqsat", "--nodes", "1"], "limit of e-nodes, optimal in what it holds"),
        (["--methods", "eqsat"], "saturated, optimal"),
    ],
)
def test_what_ended_a_method_and_what_it_proved(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", MODEL, "--check", "0", *arguments]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("ended"))
    assert row.removeprefix("ended").strip() == expected


def test_a_bound_of_part_of_the_graphs_is_told_apart() -> None:
    found = by_method(numbers("zoo:sru@tiny", "--nodes", "1", "--budget", "50", "--check", "0"))
    eqsat, metaflow = found["eqsat"], found["metaflow"]
    assert (eqsat["stopped_by"], eqsat["extraction"]) == ("nodes", "optimal")
    assert (metaflow["stopped_by"], metaflow["extraction"]) == ("graphs", None)
    assert metaflow["cost"] < eqsat["lower_bound"]  # what makes it worth telling


@pytest.mark.parametrize(("given", "expected"), [(0.0, (30.0, 20.0)), (7.0, (7.0, 7.0)),
                                                 (90.0, (90.0, 90.0))])  # fmt: skip
def test_a_time_limit_is_that_of_every_stage(
    given: float, expected: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noted(graph: Graph, rules: Any, cost: Any, budget: Any, **named: Any) -> Any:
        seen.append((budget.deadline.left_s, named["time_limit_s"]))
        return saturated(graph, rules, cost, budget, **named)

    still = SimpleNamespace(after=lambda seconds: Deadline.after(seconds, lambda: 0.0))
    monkeypatch.setattr(compare, "Deadline", still)
    monkeypatch.setattr(compare, "saturated", noted)
    compare_methods(_relus(), [], CompareSettings(methods=("eqsat",), budget=Budget(cpu_s=given)))
    assert seen == [expected]


def test_numbers() -> None:
    value = numbers(MODEL, "--rules", "matmul/assoc")
    eqsat, metaflow = by_method(value)["eqsat"], by_method(value)["metaflow"]
    assert value["model"] == MODEL
    assert value["operators"] == 2
    assert value["prices"] == "roofline"
    assert eqsat["cost"] == metaflow["cost"] < value["original_cost"]
    assert eqsat["lower_bound"] == pytest.approx(eqsat["cost"])
    assert metaflow["lower_bound"] is None
    assert (metaflow["graphs"], metaflow["enodes"], eqsat["graphs"]) == (2, None, None)
    assert metaflow["rules"] == {"matmul/assoc": 1}
    assert eqsat["operators"] == metaflow["operators"] == 1
    assert {eqsat["why"], metaflow["why"]} == {""}
    for result in (eqsat, metaflow):
        first, *_, last = result["trace"]
        assert first == {"time_s": 0.0, "cost": value["original_cost"]}
        assert last["cost"] == pytest.approx(result["cost"])
        assert 0 < last["time_s"] == result["best_after_s"] <= result["time_s"]


def test_options_arrive() -> None:
    value = numbers(
        "zoo:lora@tiny", "--methods", "metaflow", "--set", "metaflow.alpha=1.2", "--budget", "3",
        "--set", "metaflow.hash=taso", "--rules", "matmul", "--numerics", "refactor",
        "--check", "0", "--budget", "cpu=9",
    )  # fmt: skip
    assert set(by_method(value)) == {"metaflow"}
    settings = value["settings"]
    parameters = {"alpha": 1.2, "hash": "taso", "growth": 2.0, "part": 0}
    assert settings["parameters"] == {"metaflow": parameters}
    assert settings["budget"] == {"graphs": 3, "substitutions": 0, "cpu_s": 9.0, "length": 0}
    usable = [one for one in load_rules("matmul", Numerics.REFACTOR) if one.phase != "derivation"]
    assert value["rules"] == len(usable)
    result = by_method(value)["metaflow"]
    assert (result["graphs"], result["status"], result["max_error"]) == (3, "graphs", None)


def test_symbolic_sizes_opaque_nodes_and_subgraphs() -> None:
    """What no rule knows passes through, and names that subgraphs read stay."""
    text = """
        <ir_version: 9, opset_import: ["":17]>
        g (float[N,8] x, bool c) => (float[N,4] y, float[N,3] v, int64[N,3] i, float[N,4] z)
        {
          a = MatMul(x, w1)
          h = MatMul(a, w2)
          r = Relu(h)
          y = Relu(r)
          k = Constant<value = int64[1] {3}>()
          v, i = TopK(y, k)
          z = If(c) <then_branch = t () => (float[N,4] p) { p = Add(h, r) },
                     else_branch = e () => (float[N,4] q) { q = Identity(y) }>
        }
    """
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w1", (8, 16)), ("w2", (16, 4))):
        weight = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(model, "dynamic.onnx")
    for arguments, assumed in (((), {"N": 2}), (("--input-shape", "N:8"), {})):
        rules = "matmul/assoc,elementwise/relu-idempotent"
        value = numbers("dynamic.onnx", "--rules", rules, *arguments)
        assert value["assumed_sizes"] == assumed
        found = by_method(value)
        assert found["eqsat"]["cost"] == pytest.approx(found["metaflow"]["cost"])
        fused = by_method(numbers("dynamic.onnx", "--level", "kernels", *arguments))
        assert fused["eqsat"]["cost"] == pytest.approx(fused["eqsat"]["lower_bound"], abs=1e-3)
        # MatMul, Relu, TopK, If, and an Identity: r and y are one value with two wanted names.
        assert found["eqsat"]["operators"] == found["metaflow"]["operators"] == 5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), "assumed sizes M = 16, N = 2"),
        (("M:2",), "assumed sizes N = 2"),
        (("M:2", "N:3"), ""),
    ],
)
def test_assumed_sizes_are_named(
    given: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '<ir_version: 9, opset_import: ["":17]> g (float[N,M] x) => (float[N,M] y) {y = Relu(x)}'
    onnx.save(onnx.parser.parse_model(text), "relu.onnx")
    sizes = [part for size in given for part in ("--input-shape", size)]
    assert main(["compare", "relu.onnx", "--rules", "none", *sizes]) == 0
    output = capsys.readouterr().out
    assert ("note: priced at" in output) == bool(expected)
    assert expected in output


def test_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", MODEL, "--methods", "metaflow", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == MODEL


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--methods", "taso"], "unknown method 'taso'"),
        (["--methods", ","], "no method is given"),
        (["--methods", "eqsat,eqsat"], "given twice"),
        (["--set", "metaflow.alpha=0.5"], "alpha is 0.5"),
        (["--set", "metaflow.alpha=much"], "metaflow.alpha is 'much'; give a number"),
        (["--set", "metaflow.hash=md5"], "metaflow.hash is 'md5'; choose canonical or taso"),
        (["--set", "metaflow.beta=1"], "no parameter 'beta'; choose from alpha, hash, growth"),
        (["--set", "alpha=1"], "is not SEARCH.NAME=VALUE"),
        (["--set", "metaflow.alpha"], "is not SEARCH.NAME=VALUE"),
        (["--set", "eqsat.nodes=1"], "for 'eqsat', which is not a search among the methods"),
        (["--set", "metaflow.alpha=2", "--set", "metaflow.alpha=3"], "alpha twice; keep one"),
        (["--methods", "eqsat", "--set", "metaflow.alpha=2"], "among the methods (none)"),
        (["--budget", "-1"], "the budget's graphs is -1; give a count"),
        (["--budget", "cpu=-1"], "the budget's cpu is -1 s; give a finite number"),
        (["--budget", "cpu=nan"], "the budget's cpu is nan s; give a finite number"),
        (["--budget", "cpu=inf"], "the budget's cpu is inf s; give a finite number"),
        (["--budget", "wall=1"], "a budget has no 'wall'; choose from graphs, substitutions, cpu"),
        (["--budget", "cpu=1,cpu=2"], "the budget's cpu is given twice; keep one"),
        (["--budget", "graphs=1e3"], "the budget 'graphs=1e3' is no number"),
        (["--threads", "-1"], "error: threads must not be negative but is -1"),
        (["--check", "-1"], "error: check must not be negative but is -1"),
        (["--repeat", "0"], "repeat is 0"),
        (["--device", "v10"], "unknown device 'v10'; there are a100, b200"),
        (["--device", "v100", "--measure"], "cannot be measured; leave out --measure"),
        (["--objective", "energy"], "'energy' has no prices"),
        (["--level", "tiles"], "unknown level 'tiles'; choose from operators, kernels"),
        (["--level", "kernels", "--objective", "time*bytes"], "chosen for sums only"),
        (["--objective", "speed"], "unknown metric 'speed'"),
        (["--objective", "workspace", "--device", "v100"], "so it cannot be minimised"),
        (["--rules", "nonsense"], "nonsense"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", MODEL, *arguments]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert expected in errors


@pytest.mark.parametrize(
    "objective",
    ["time", "time+0.25*critical_path(time)", "bytes*time", "flops/time", "time+1e-3*launches"],
)
def test_both_minimise_the_same_objective_on_a_device(objective: str) -> None:
    given = ("--device", "v100", "--objective", objective, "--check", "0")
    value = numbers("zoo:weight_chain@tiny", *given)
    found = by_method(value)
    assert value["prices"] == "analytic v100"
    assert found["eqsat"]["cost"] == pytest.approx(found["metaflow"]["cost"])
    assert found["eqsat"]["cost"] <= value["original_cost"]
    assert found["eqsat"]["lower_bound"] == pytest.approx(found["eqsat"]["cost"], rel=1e-5)


def test_kernels_are_fused_by_all_methods_alike() -> None:
    """The e-graph and a search end with one cost, which is less than that of the operators."""
    given = ("--device", "v100", "--methods", "eqsat,metaflow,sampling", "--rules", "matmul/assoc")
    costs = {}
    for level in ("operators", "kernels"):
        value = numbers("zoo:weight_chain@tiny", *given, "--level", level)
        assert {one["why"] for one in value["results"]} == {""}
        eqsat, *others = by_method(value).values()
        assert all(one["cost"] == pytest.approx(eqsat["cost"], abs=1e-3) for one in others)
        assert eqsat["lower_bound"] <= eqsat["cost"] + 1e-6
        costs[level] = value["original_cost"], eqsat["cost"]
    assert costs["kernels"][0] <= costs["operators"][0]
    assert costs["kernels"][1] < costs["kernels"][0]


def test_a_limit_that_no_graph_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", MODEL, "--device", "v100", "--limit", "time=1", "--threads", "1"]) == 0
    output = capsys.readouterr().out
    assert "above a limit" in output
    assert "infeasible" in output
    assert "nan" not in output


def test_a_wrong_result_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search that returns another graph fails the check, in words and in the exit code."""

    def broken(graph: Graph, rules: Sequence[Rule], *rest: Any, **named: Any) -> Comparison:
        found = compare_methods(graph, rules, *rest, **named)
        (first, *others) = found.results
        swapped = replace(first.graph, constants=_negated(first.graph))  # type: ignore[type-var, arg-type]
        return replace(found, results=(replace(first, graph=swapped), *others))

    monkeypatch.setattr("eqsat_opt.comparison.compare_methods", broken)
    assert main(["compare", MODEL, "--threads", "1"]) == 2
    output, errors = capsys.readouterr()
    assert "the result of eqsat computes something else" in errors
    assert "agree" in output  # the other method's


def _negated(graph: Graph) -> dict[str, Any]:
    def negate(handle: Any) -> Any:
        return replace(handle, load=lambda: -handle.load(), source=None)

    return {name: negate(handle) for name, handle in graph.constants.items()}


def test_measured_prices() -> None:
    options = Options(threads=1, store="", check=0)
    found = api.compare(MODEL, options, CompareSettings(measure=True))
    assert found.prices == "measured"
    assert found.measuring_s > 0
    assert all(result.time_s > 0 for result in found.results)


def _relus() -> Graph:
    g = GraphMaker()
    return g.graph(g("Relu", g("Relu", g.input("x", 2, 2))))


def test_both_methods_read_the_same_rules() -> None:
    """General equations, which no e-graph search reads, are left out for all."""
    rules = load_rules("default,equations", Numerics.REASSOCIATE)
    graph = _relus()
    found = compare_methods(graph, rules, CompareSettings())
    assert found.n_rules == len(default_rules()) <= len(rules)
    assert [result.operators for result in found.results] == [1, 1]
    for result in found.results:
        assert result.graph is not None
        assert result.cost == pytest.approx(graph_cost_us(result.graph, OperatorCost()), abs=1e-3)


def test_the_quickest_turn_counts_and_long_ones_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = _relus()
    turns: list[tuple[str, float]] = []
    seconds = {"eqsat": iter([3.0, 1.0, 2.0]), "metaflow": iter([9.0])}

    run = compare._run

    def timed(method: str, *arguments: Any) -> MethodResult:
        result = replace(run(method, *arguments), time_s=next(seconds[method]))
        turns.append((method, result.time_s))
        return result

    monkeypatch.setattr(compare, "_run", timed)
    found = compare_methods(graph, default_rules(), CompareSettings(repeat=3))
    assert turns == [("eqsat", 3.0), ("metaflow", 9.0), ("eqsat", 1.0), ("eqsat", 2.0)]
    assert [(r.method, r.time_s) for r in found.results] == [("eqsat", 1.0), ("metaflow", 9.0)]


def test_when_a_method_was_as_cheap_as_the_others() -> None:
    found = compare_methods(_relus(), [], CompareSettings())
    eqsat, metaflow = found.results
    eqsat = replace(eqsat, trace=tuple(map(Moment, (0.0, 0.5, 2.0), (10.0, 8.0, 7.0))))
    for cost, expected in ((10.0, 0.0), (8.0 * (1 - 1e-12), 0.5), (7.5, 2.0), (6.0, None)):
        results = (eqsat, replace(metaflow, cost=cost))
        both = replace(found, results=results)
        assert both.as_cheap_after_s(eqsat) == expected
        assert both.to_json()["results"][0]["as_cheap_after_s"] == expected
    assert replace(found, results=(eqsat,)).as_cheap_after_s(eqsat) is None


def test_settings_are_checked_before_the_work() -> None:
    with pytest.raises(OptionError, match="alpha"):
        comparison.CompareSettings(parameters={"metaflow": {"alpha": 0.0}})


def test_costs_fall_from_the_original_to_the_final_one() -> None:
    moments = [
        Moment(0.1, 9.0),
        Moment(0.2, 9.0 * (1 - 1e-12)),
        Moment(0.3, 11.0),
        Moment(0.4, 5.0),
    ]
    expected = (Moment(0.0, 10.0), Moment(0.1, 9.0), Moment(0.4, 5.0000003))
    assert descent(10.0, 5.0000003, moments) == expected
    assert descent(10.0, 10.0, [Moment(0.1, 10.0)]) == (Moment(0.0, 10.0),)


def test_a_merged_model_is_found_not_given() -> None:
    """Saturation alone makes these one operator, but it takes time."""
    graph = GraphMaker()
    value = graph.input("x", 4, 4)
    for _ in range(3):
        value = graph("Relu", value)
    found = compare_methods(graph.graph(value), default_rules(), CompareSettings())
    for result in found.results:
        first, *_, last = result.trace
        assert first == Moment(0.0, found.original_cost)
        assert last.cost == result.cost < 0.5 * first.cost
        assert found.as_cheap_after_s(result) == result.best_after_s > 0
