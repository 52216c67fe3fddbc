"""`eqsat-opt compare`: what it prints, writes and returns."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.operators import OperatorCost, graph_cost_us
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab import comparison, zoo
from eqsat_opt.lab.comparison import (
    CompareSettings,
    Moment,
    compare,
    gathered,
    run_method,
)
from eqsat_opt.lab.comparison.engines import ENGINES
from eqsat_opt.lab.comparison.results import MOST_NOISE
from eqsat_opt.lab.comparison.saturated import saturated
from eqsat_opt.lab.experiments import whole, worker
from eqsat_opt.lab.search import Budget, search_class
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.pipeline import report as reporting
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.plans import load_plan
from eqsat_opt.proving.selection import default_rules, load_rules
from eqsat_opt.racing.race import RaceResult
from eqsat_opt.racing.race import race as race_of
from eqsat_opt.rules import Numerics
from eqsat_opt.rules.library import FAMILIES
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.devices.profile import profile_names
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.files import read_plan

MODEL = "zoo:weight_chain@tiny"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def in_children() -> None:
    """Asks for processes of their own."""


@pytest.fixture(autouse=True)
def runs_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs happen in this process, where they need not load libraries; some tests want a child."""
    if "in_children" not in request.fixturenames:
        monkeypatch.setattr(whole, "run_apart", worker.run_here)


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
    table, _, uses = output.partition("\n\nuses")
    rows = {line[:19].strip(): line[19:].split() for line in table.splitlines()}
    assert rows[""] == ["original", "eqsat", "metaflow"]
    assert rows["cost"][2:4] == rows["cost"][4:6]  # with its unit
    assert rows["kernels"] == ["2", "1", "1"]
    assert uses.splitlines()[1].split() == ["matmul/assoc", "1", "1"]
    assert float(rows["CPU time"][0]) > 0
    share = rows["of original"]
    assert share[0] == "1.000"
    assert float(share[1]) == float(share[2]) < 1
    assert rows["bound"][-1] == "–"
    assert rows["gap"] == ["0.0%"]
    assert rows["ended"] == ["saturated,", "optimal", "exhausted"]
    assert rows["outputs"] == ["agree", "agree"]
    assert all(len(line) <= 80 for line in output.splitlines()[2:15])


def test_what_a_search_tells_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "zoo:weight_chain@tiny", "--methods", "taso", "--check", "0", "--json"]
    assert main([*command, "o.json"]) == 0
    note = "taso: by the published prices"
    assert f"note: {note}" in capsys.readouterr().out
    value = json.loads(Path("o.json").read_text())
    assert note in value["notes"][0]
    assert value["results"][0]["notes"] == value["notes"]


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
        reporting.numbers, "excluded_rules", lambda: {"matmul/assoc": "it is stale", "a/b": "?"}
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
    output = capsys.readouterr().out
    row = output.partition("\nended")[2].partition("\noutputs")[0]
    assert " ".join(row.split()) == expected


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
    seen: list[tuple[float, float]] = []

    def noted(graph: Graph, rules: Any, cost: Any, budget: Any, **named: Any) -> Any:
        seen.append((budget.deadline.left_s, named["time_limit_s"]))
        return saturated(graph, rules, cost, budget, **named)

    clocks: list[Any] = []

    def after(seconds: float, clock: Any = time.monotonic) -> Deadline:
        clocks.append(clock)
        return Deadline.after(seconds, lambda: 0.0)

    monkeypatch.setattr(compare, "Deadline", SimpleNamespace(after=after))
    monkeypatch.setattr(compare, "saturated", noted)
    settings = CompareSettings(methods=("eqsat",), budget=Budget(cpu_s=given))
    compare.run_method("eqsat", compare.Subject(_relus(), []), settings, 0)
    assert seen == [expected]
    assert clocks == [time.process_time if given else time.monotonic]


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
        assert first == {"time_s": 0.0, "cost": value["original_cost"], "cpu_s": 0.0}
        assert last["cost"] == pytest.approx(result["cost"])
        assert 0 < last["time_s"] <= result["time_s"]
        assert 0 < last["cpu_s"] == result["best_after_s"] <= result["cpu_s"]
        assert result["kernels"] == 1 < value["kernels"] == 2
        assert result["metrics"]["flops"] < value["metrics"]["flops"]
        assert result["metrics"]["launches"] == result["kernels"]
        assert result["peak_bytes"] > 1 << 24


def test_options_arrive() -> None:
    value = numbers(
        "zoo:lora@tiny", "--methods", "metaflow", "--set", "metaflow.alpha=1.2", "--budget", "3",
        "--set", "metaflow.hash=taso", "--rules", "matmul", "--numerics", "refactor",
        "--check", "0", "--budget", "cpu=9",
    )  # fmt: skip
    assert set(by_method(value)) == {"metaflow"}
    settings = value["settings"]
    given = {"alpha": 1.2, "hash": "taso", "growth": 2.0, "part": 30}
    assert settings["parameters"] == {"metaflow": given}
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


def test_what_there_is_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list", "--json", "-"]) == 0
    value = json.loads(capsys.readouterr().out)
    methods = {one["name"]: one for one in value["methods"]}
    assert tuple(methods) == comparison.method_names()
    for name in methods.keys() - {"eqsat"}:
        assert methods[name]["title"]
        assert re.fullmatch(r".* et al\., .*20\d\d.*", methods[name]["source"]), name
        own = {one.name: one.default for one in fields(ENGINES.get(name) or search_class(name))}
        told = {one["name"]: one["default"] for one in methods[name]["parameters"]}
        assert told == own
        assert all(one["meaning"] for one in methods[name]["parameters"])
    assert {one["name"] for one in value["devices"]} == set(profile_names())
    assert tuple(value["families"]) == FAMILIES
    assert {"metaflow", "taso", "ocggs"} <= set(value["rule_sets"])
    assert main(["compare", "--list"]) == 0
    words = capsys.readouterr().out.split()
    assert {"metaflow.alpha", "1.05", "v100", "sampling"} <= set(words)
    assert main(["compare"]) == 1
    assert "no model is given" in capsys.readouterr().err


def test_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", MODEL, "--methods", "metaflow", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == MODEL


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--methods", "tazo"], "unknown method 'tazo'"),
        (["--methods", ","], "no method is given"),
        (["--methods", "eqsat,eqsat"], "given twice"),
        (["--set", "metaflow.alpha=0.5"], "alpha is 0.5"),
        (["--set", "metaflow.alpha=much"], "metaflow.alpha is 'much'; give a number"),
        (["--set", "metaflow.hash=md5"], "metaflow.hash is 'md5'; choose canonical or taso"),
        (["--set", "metaflow.beta=1"], "no parameter 'beta'; choose from alpha, hash, growth"),
        (["--set", "alpha=1"], "is not SEARCH.NAME=VALUE"),
        (["--set", "metaflow.alpha"], "is not SEARCH.NAME=VALUE"),
        (["--set", "eqsat.nodes=1"], "eqsat has no parameter 'nodes'; choose from"),
        (["--set", "metaflow.alpha=2", "--set", "metaflow.alpha=3"], "alpha twice; keep one"),
        (["--methods", "eqsat", "--set", "metaflow.alpha=2"], "is not among the methods (eqsat)"),
        (["--budget", "-1"], "the budget's graphs is -1; give a count"),
        (["--budget", "cpu=-1"], "the budget's cpu is -1 s; give a finite number"),
        (["--budget", "cpu=nan"], "the budget's cpu is nan s; give a finite number"),
        (["--budget", "cpu=inf"], "the budget's cpu is inf s; give a finite number"),
        (["--budget", "wall=1"], "a budget has no 'wall'; choose from graphs, substitutions, cpu"),
        (["--budget", "cpu=1,cpu=2"], "the budget's cpu is given twice; keep one"),
        (["--budget", "graphs=1e3"], "the budget 'graphs=1e3' is no number"),
        (["--threads", "-1"], "error: threads must not be negative but is -1"),
        (["--check", "-1"], "error: check must not be negative but is -1"),
        (["--seeds", "0"], "seeds is 0"),
        (["--device", "v10"], "unknown device 'v10'; there are a100, b200"),
        (["--device", "v100", "--measure"], "cannot be measured; leave out --measure"),
        (["--objective", "energy"], "roofline tells no energy; give --device"),
        (["--device", "v100", "--limit", "energy=1"], "the profile of v100 tells no energy"),
        (["--energy-model", "model.json"], "a model of energy goes with the profile of a device"),
        (["--device", "v100", "--energy-model", "none.json"], "none.json"),
        (["--methods", "metaflw"], "choose from eqsat,"),
        (["--methods", "Metaflow"], "; did you mean metaflow?"),
        (["--set", "metaflow.alhpa=1"], "; did you mean alpha?"),
        (["--level", "kernel"], "; did you mean kernels?"),
        (["--budget", "graph=1"], "; did you mean graphs?"),
        (["--methods", "sampling", "--set", "sampling.samples=3"], "give an even number"),
        (["--level", "tiles"], "unknown level 'tiles'; choose from operators, kernels"),
        (["--limit", "peak_bytes<=1e6"], "peak_bytes depends on the order of the kernels"),
        (["--level", "streams", "--objective", "time*bytes"], "do not add up; give a sum"),
        (["--objective", "speed"], "unknown metric 'speed'"),
        (["--objective", "costs.py:slow"], "names no function; write FILE.py:NAME(METRICS)"),
        (["--objective", "none.py:slow(time)"], "cannot load none.py (FileNotFoundError"),
        (["--objective", "math:slow(time)"], "math has no function slow"),
        (["--objective", "math:hypot()"], "reads no metric"),
        (["--objective", "math:hypot(time,time)"], "names a metric twice"),
        (["--objective", "math:hypot(time, bytes)"], "leave it out with --methods, metaflow"),
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


def test_streams_of_this_processor_are_raced_with_their_threads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(whole, "_RACE_S", 0.05)

    def won_by_the_twin(*entrants: Any, **options: Any) -> RaceResult:
        """As happens where the same plan twice is not equally fast."""
        return replace(race_of(*entrants, **options), winner=whole._TWIN)

    monkeypatch.setattr(whole, "race", won_by_the_twin)
    model = "zoo:inception_e@tiny"
    given = ("--level", "streams", "--methods", "nimble,ios", "--rules", "matmul/assoc", "--run")
    options = ("--threads", "2", "--save", "out", "--json", "out.json")
    assert main(["compare", model, *given, *options]) == 0
    output = capsys.readouterr().out
    assert "measured here on streams" in output
    value = json.loads(Path("out.json").read_text(encoding="utf-8"))
    found = by_method(value)
    plan = read_plan(found["nimble"]["plan"])
    assert (plan.target, plan.streams) == ("cpu", 2)
    assert any(launch.waits for launch in plan.launches)
    assert {launch.backend for launch in plan.launches} == {"ort"}
    assert len(plan.launches) < found["nimble"]["kernels"]  # sessions between events
    # Equal graphs, but only one of them on two streams: both run.
    assert found["ios"]["structure"] == found["nimble"]["structure"]
    race = value["race"]
    assert race["clock"] == "wall"
    assert race["entries"]["nimble"]["session_us"] != race["entries"]["ios"]["session_us"]
    assert bool(value["race_refused"]) == (race["noise"] > MOST_NOISE)
    assert ("refused" in output) == bool(value["race_refused"])
    feeds = random_inputs(zoo.build_named("inception_e@tiny"), 0)
    expected = OrtSession(zoo.build_named("inception_e@tiny"), OrtOptions(1)).run(feeds)
    runner = load_plan(plan, zoo.build_named("inception_e@tiny"))
    for got, want in zip(runner.run(feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert main(["compare", found["nimble"]["model"], "--verify"]) == 0
    assert "as it says" in capsys.readouterr().out


def test_on_one_thread_there_is_one_stream() -> None:
    value = numbers(
        "zoo:inception_e@tiny", "--level", "streams", "--methods", "nimble", "--save", "out"
    )
    (found,) = value["results"]
    assert read_plan(found["plan"]).streams == 1
    assert found["cost"] == pytest.approx(value["original_cost"])


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
    for level in ("operators", "kernels", "streams"):
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


def test_an_original_above_a_limit_is_no_measure(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["compare", MODEL, "--device", "v100", "--methods", "eqsat", "--threads", "1"]
    assert main([*given, "--limit", "flops=3000", "--json", "limited.json"]) == 0
    output = capsys.readouterr().out
    (found,) = json.loads(Path("limited.json").read_text())["results"]
    assert math.isfinite(found["cost"])
    assert "above a limit" in output
    assert "0.000" not in output


def test_a_wrong_result_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search that returns another graph fails the check, in words and in the exit code."""

    def broken(method: str, *rest: Any) -> Any:
        original, found = run_method(method, *rest)
        if method == "eqsat" and found.outcome is not None:
            own = found.outcome.graph
            graph = replace(own, constants=_negated(own))
            found = replace(found, outcome=replace(found.outcome, graph=graph))
        return original, found

    monkeypatch.setattr(worker, "run_method", broken)
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
    assert found.original is not None
    assert found.original.prices == "measured"
    assert found.measuring_s > 0
    assert all(result.time_s > 0 for result in found.results)


def _relus() -> Graph:
    g = GraphMaker()
    return g.graph(g("Relu", g("Relu", g.input("x", 2, 2))))


def test_both_methods_read_the_same_rules() -> None:
    """General equations, which no e-graph search reads, are left out for all."""
    rules = load_rules("default,equations", Numerics.REASSOCIATE)
    subject = compare.Subject(_relus(), rules)
    for method in ("eqsat", "metaflow"):
        original, found = run_method(method, subject, CompareSettings(), 0)
        assert original.n_rules == len(default_rules()) < len(rules)
        assert found.operators == 1
        assert found.graph is not None
        assert found.cost == pytest.approx(graph_cost_us(found.graph, OperatorCost()), abs=1e-3)


def test_settings_are_checked_before_the_work() -> None:
    with pytest.raises(OptionError, match="alpha"):
        comparison.CompareSettings(parameters={"metaflow": {"alpha": 0.0}})


def test_a_merged_model_is_found_not_given() -> None:
    """Saturation alone makes these one operator, but it takes time."""
    graph = GraphMaker()
    value = graph.input("x", 4, 4)
    for _ in range(3):
        value = graph("Relu", value)
    subject = compare.Subject(graph.graph(value), default_rules())
    replies = [run_method(name, subject, CompareSettings(), 0) for name in ("eqsat", "metaflow")]
    found = gathered("relus", CompareSettings(), replies)
    for result in found.results:
        first, *_, last = result.trace
        assert first == Moment(0.0, replies[0][0].cost, 0.0)
        assert last.cost == result.cost < 0.5 * first.cost
        assert found.as_cheap_after_s(result) == result.best_after_s > 0


BAD = """
import os
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Bad:
    name: ClassVar[str] = "bad"
    exact: ClassVar[bool] = True
    how: str = "dies"

    def run(self, frame, budget, seed):
        if frame.start.size > 2 or self.how == "raises":
            if self.how == "dies":
                os.abort()
            raise ValueError("this search\\nhas no idea")
        from eqsat_opt.lab.search import Run
        with (run := Run(frame, budget)):
            for one in run.substitutions(frame.start):
                run.apply(frame.start, one)
            if self.how == "spent":
                run.substitutions(frame.start)
        return run.result()
"""


@pytest.fixture
def bad_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed search that fails."""
    (folder / "bad.py").write_text(BAD.replace("\\\\", "\\"))
    facts = folder / "bad-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[eqsat_opt.searches]\nbad = bad:Bad\n")
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.usefixtures("bad_search")
def test_a_method_that_fails_is_told_and_the_others_finish(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--methods", "bad,metaflow", "--set", "bad.how=raises", "--json", "out.json"]
    assert main(["compare", MODEL, *arguments, "--seeds", "2"]) == 1
    output, errors = capsys.readouterr()
    rows = {line[:19].strip(): line[19:].split() for line in output.splitlines()}
    assert rows["cost"][2] == "–"
    assert rows["ended"] == ["failed", "exhausted"]
    assert rows["outputs"] == ["–", "agree"]
    assert "bad, seed 1 failed: ValueError: this search" in output
    assert errors.startswith(f"error: bad failed on {MODEL}: ValueError")
    assert errors.count("\n") == 1
    value = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert [one["seed"] for one in value["failures"]] == [0, 1]
    assert [one["seed"] for one in value["results"]] == [0, 1]
    assert value["original_cost"] > value["results"][0]["cost"]


@pytest.mark.usefixtures("bad_search", "in_children")
def test_a_method_that_ends_its_process_is_told_and_the_others_finish(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each run has a process of its own, whose numbers come back."""
    arguments = ["--methods", "bad,metaflow", "--json", "-", "--check", "0", "--rules", "matmul"]
    assert main(["compare", "zoo:linear_attention@tiny", *arguments]) == 1
    output, errors = capsys.readouterr()
    assert errors.splitlines()[-1].endswith("@tiny: it ended the process (SIGABRT)")
    value = json.loads(output)
    (result,) = value["results"]
    assert result["cost"] <= value["original_cost"]
    assert 1 << 24 < result["peak_bytes"] < 1 << 34


@pytest.mark.usefixtures("bad_search")
@pytest.mark.parametrize(("how", "bound"), [("ends", "µs"), ("spent", "–")])
def test_an_exact_search_proves_only_what_it_has_ended(
    how: str, bound: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--methods", "bad", "--set", f"bad.how={how}", "--budget", "1"]
    assert main(["compare", MODEL, *arguments, "--rules", "matmul/assoc"]) == 0
    output = capsys.readouterr().out
    assert "optimal" not in output
    (row,) = (line for line in output.splitlines() if line.startswith("bound"))
    assert row.split()[-1] == bound


def test_what_no_method_can_be_run_on_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("no.onnx").write_bytes(b"no model")
    assert main(["compare", "no.onnx"]) == 1
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert "not an ONNX model" in errors


def test_counts_and_a_seed_fix_everything_but_times() -> None:
    given = ("zoo:lora@tiny", "--methods", "eqsat,sampling", "--budget", "20", "--check", "0")
    first, again = (numbers(*given) for _ in range(2))
    for value in (first, again):
        for one in value["results"]:
            for name in ("time_s", "cpu_s", "best_after_s", "as_cheap_after_s", "peak_bytes"):
                del one[name]
            one["trace"] = [moment["cost"] for moment in one["trace"]]
    assert first == again


def test_saved_models_say_what_they_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file alone tells; a cost that was changed is noticed."""
    monkeypatch.setattr(whole, "_RACE_S", 0.05)
    given = ("--level", "kernels", "--device", "v100", "--rules", "matmul/assoc", "--run")
    value = numbers(MODEL, *given, "--save", "out", "--seeds", "2")
    names = [f"{method}-{seed}" for method in ("eqsat", "metaflow") for seed in (0, 1)]
    files = [f"{name}{ending}" for name in names for ending in (".onnx", ".plan.json")]
    assert sorted(path.name for path in Path("out").iterdir()) == ["comparison.json", *files]
    saved = json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))
    assert saved["results"] == value["results"]
    first, again = value["results"][:2]
    assert first["structure"] == again["structure"] != ""
    entries = value["race"]["entries"]
    assert list(entries) == ["original", "eqsat", "metaflow"]
    assert all(entry["time_us"] > 0 for entry in entries.values())
    for result in value["results"]:
        plan = read_plan(result["plan"])
        assert (plan.target, len(plan.launches)) == ("v100", result["kernels"])
        assert main(["compare", result["model"], "--verify"]) == 0
        assert f"costs {result['cost']:.9g}, as it says" in capsys.readouterr().out
    model = onnx.load("out/eqsat-0.onnx")
    (record,) = (one for one in model.metadata_props if one.key == "eqsat_opt.compare")
    told = json.loads(record.value)
    assert (told["method"], told["seed"], told["model"]) == ("eqsat", 0, MODEL)
    record.value = json.dumps({**told, "cost": told["cost"] / 2})
    onnx.save(model, "out/eqsat-0.onnx")
    assert main(["compare", "out/eqsat-0.onnx", "--verify"]) == 2
    assert "but costs" in capsys.readouterr().err
    settings = {**told["settings"], "methods": ["ios"], "parameters": {}}
    placed = {**told, "method": "ios", "settings": settings}
    record.value = json.dumps({**placed, "cost": told["cost"] / 2})
    onnx.save(model, "out/eqsat-0.onnx")
    assert main(["compare", "out/eqsat-0.onnx", "--verify"]) == 1
    assert "ios places the kernels itself" in capsys.readouterr().err
    record.value = "{}"
    onnx.save(model, "out/eqsat-0.onnx")
    assert main(["compare", "out/eqsat-0.onnx", "--verify"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_what_the_file_says_by_other_operators_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Operator set 17 has no Gelu, which is one kernel on the device."""
    g = GraphMaker()
    x = g.input("x", 64, 64)
    root, one, half = (g.constant(np.array(value, np.float32)) for value in (0.5**0.5, 1.0, 0.5))
    spelled = g("Mul", g("Mul", x, g("Add", g("Erf", g("Mul", x, root)), one)), half)
    onnx.save(model_proto(export_model(g.graph(spelled), opset=17)), "gelu.onnx")
    given = ("--level", "operators", "--device", "v100", "--methods", "eqsat", "--save", "out")
    (found,) = numbers("gelu.onnx", *given)["results"]
    assert found["operators"] == 1
    assert main(["compare", "out/eqsat.onnx", "--verify"]) == 1
    assert "says Gelu by other operators" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--save", "file"], "cannot make the folder file"),
        (["--plot", "curves.jpg"], "end its name in .png, .svg, .pdf"),
        (["--save", "out", "--rules", "taso-published"], "costs and no meaning"),
        (["--run", "--rules", "taso-published"], "leave out --save and --run"),
        (["--verify"], "cannot read"),
    ],
)
def test_mistakes_about_files_are_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    assert main(["compare", MODEL, *arguments]) == 1
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert expected in errors


def test_a_model_that_was_not_saved_has_nothing_to_verify(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = '<ir_version: 9, opset_import: ["":17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), "relu.onnx")
    assert main(["compare", "relu.onnx", "--verify"]) == 1
    assert "was not saved by compare --save" in capsys.readouterr().err


def test_curves_are_drawn() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plot, is not installed")
    numbers(MODEL, "--check", "0", "--plot", "curves.svg", "--methods", "eqsat,metaflow")
    drawn = Path("curves.svg").read_text(encoding="utf-8")
    assert drawn.lstrip().startswith("<?xml")
    limited = ("--device", "v100", "--limit", "time=1")  # infinite costs have no place
    numbers(MODEL, "--check", "0", *limited, "--plot", "curves.pdf")
    assert Path("curves.pdf").read_bytes().startswith(b"%PDF")
