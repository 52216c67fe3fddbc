"""The tuned form and the plan by earlier decisions: the same bytes, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from eqsat_opt import api
from eqsat_opt.errors import CheckFailed, OptionError, StageError
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.pipeline.decisions.document import read_decisions, write_decisions
from eqsat_opt.pipeline.forms import tuned
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.tuned_results import PORTABLE, SUITED, TunedJob, TunedResult
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.library import missing, with_kernels
from eqsat_opt.runtime.backends.native.sites import with_names
from eqsat_opt.runtime.backends.native.tuning import sites, tuned_by
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import ort_optimized
from eqsat_opt.runtime.backends.tuned_file import Execution, tuned_model, tuned_record
from eqsat_opt.runtime.devices import HOST

SEARCH: dict[str, Any] = {
    "measure": False,
    "race": False,
    "check": 0,
    "budget_s": 600,
    "threads": 1,
    "nodes": 2_000,
    "store": "",
}

needs_kernels = pytest.mark.skipif(bool(missing()), reason=missing() or "there are kernels")

CONVOLUTIONS = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[1,16,12,12] x, float[16,16,3,3] v, float[16,16,3,3] w) => (float[1,16,12,12] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, v)
    b = Relu (a)
    c = Relu (b)
    y = Conv <pads = [1, 1, 1, 1]> (c, w)
}"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a model."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(CONVOLUTIONS)
    for value in list(model.graph.input)[1:]:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        size = dims[0] * dims[1] * dims[2] * dims[3]
        values = [((7 * i) % 13 - 6) / 64 for i in range(size)]
        model.graph.initializer.append(onnx.helper.make_tensor(value.name, 1, dims, values))
        model.graph.input.remove(value)
    onnx.save(model, "m.onnx")
    return tmp_path


def all_kernels(base: str, runtime: str) -> Any:
    """A race that a form wins in which our kernels compute every site of a graph."""

    def race(job: TunedJob) -> TunedResult:
        graphs = {PORTABLE: job.portable, ORIGINAL: job.original_inside(), SUITED: job.suited}
        graph, ways = graphs[base], tuple[str, ...]()
        assert graph is not None
        execution = Execution(runtime, 1, {"graph_optimization_level": "basic"})
        if runtime == NATIVE:
            execution = Execution(NATIVE, 1)
            optimized = with_names(ort_optimized(graph, job.session))
            found = sites(optimized, with_kernels(job.session))
            ways = tuple(site.ways[0].name for site in found)
            graph = tuned_by(graph, job.session, ways)
            assert ways
        record = tuned_record(execution, {"max_error": job.max_error, "error": 1e-6})
        return TunedResult(
            model=tuned_model(graph, job.portable, execution, record),
            execution=execution,
            error=1e-6,
            base=base,
            ways=ways,
            record=record,
        )

    return race


def decided(**options: Any) -> Report:
    given = Options(**{**SEARCH, **options}, decisions="d.json", tuned="t.onnx")
    return api.run("m.onnx", given, output="a.onnx").report


def again(**options: Any) -> Report:
    given: dict[str, Any] = {
        "threads": 1,
        "budget_s": 600,
        "store": "",
        "tuned": "u.onnx",
        "replay": "d.json",
    }
    return api.run("m.onnx", Options(**{**given, **options}), output="b.onnx").report


def same(one: str, other: str) -> bool:
    return Path(one).read_bytes() == Path(other).read_bytes()


def suited(outcome: Any, *_: Any, **__: Any) -> Any:
    """The graph that was searched, which is another one than that of the result."""
    graph = outcome.job.clean
    return tuned._Suited(graph, model_proto(export_model(graph)))


@needs_kernels
@pytest.mark.parametrize(
    ("base", "runtime"), [(PORTABLE, NATIVE), (ORIGINAL, ORT), (PORTABLE, ORT), (SUITED, NATIVE)]
)
def test_a_tuned_form_has_the_same_bytes(
    base: str, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "_suited", suited)
    monkeypatch.setattr(tuned, "race_tuned_forms", all_kernels(base, runtime))
    found = decided().tuned
    assert found is not None
    assert found.won
    monkeypatch.setattr(tuned, "race_tuned_forms", None)
    told = again(check=1).tuned
    assert told is not None
    assert same("a.onnx", "b.onnx")
    assert same("t.onnx", "u.onnx")
    assert told.won
    assert (told.runtime, told.is_suited) == (found.runtime, base == SUITED)
    assert told.error <= told.max_error


def test_the_portable_result_where_no_form_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "race_tuned_forms", lambda _: TunedResult(why="none is"))
    decided()
    told = again().tuned
    assert told is not None
    assert (told.won, told.why) == (False, "d.json decided that no form is faster")
    assert same("t.onnx", "u.onnx")


@needs_kernels
def test_a_tuned_form_on_another_machine_or_with_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuned, "race_tuned_forms", all_kernels(PORTABLE, NATIVE))
    decided()
    with pytest.raises(OptionError, match="was decided with 1 thread, and this run has 2; give"):
        again(threads=2)
    found = read_decisions("d.json")
    assert found.tuned is not None
    for change, why in (
        ({"record": found.tuned.record.replace('"onnxruntime": "', '"onnxruntime": "0.')}, "0\\."),
        ({"record": "{}"}, "its record cannot be read"),
        ({"ways": ()}, "sites here, and 0 were tuned"),
        ({"ways": ("abacus",) * len(found.tuned.ways)}, "no kernel 'abacus' computes"),
        ({"base": "clay"}, "'clay' is no graph of a tuned form"),
        ({"digest": "0"}, "does not make the tuned form again"),
    ):
        write_decisions(replace(found, tuned=replace(found.tuned, **change)), "d.json")
        with pytest.raises(StageError, match=why):
            again()
        assert not Path("u.onnx").exists()


@needs_kernels
def test_a_check_finds_a_wrong_tuned_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "race_tuned_forms", all_kernels(PORTABLE, NATIVE))
    decided()
    monkeypatch.setattr("eqsat_opt.racing.tuned_results.output_error", lambda *_: 0.5)
    with pytest.raises(CheckFailed, match=r"the tuned form is wrong: outputs differ by 5\.0e-01"):
        again(check=1)
    assert not Path("u.onnx").exists()


@pytest.mark.parametrize("target", [HOST, "v100"])
def test_a_plan_has_the_same_bytes(target: str) -> None:
    given = Options(**SEARCH, target=target, decisions="d.json", plan="p.json")
    found = api.run("m.onnx", given, output="a.onnx").report.planned
    options: dict[str, Any] = {"threads": 1, "store": "", "target": target, "replay": "d.json"}
    result = api.run("m.onnx", Options(**options, plan="q.json"), output="b.onnx")
    told = result.report.planned
    assert found is not None
    assert told is not None
    assert same("p.json", "q.json")
    assert (told.graph, told.predicted_us) == (found.graph, found.predicted_us)
    assert result.plan is not None
    if target == HOST:
        checked = api.run("m.onnx", Options(**options, plan="r.json", check=1), output="b.onnx")
        assert checked.report.planned is not None
        assert same("p.json", "r.json")
    saved = read_decisions("d.json")
    assert saved.planned is not None
    damaged = {**saved.planned.plan, "launches": []}
    write_decisions(replace(saved, planned=replace(saved.planned, plan=damaged)), "d.json")
    with pytest.raises(StageError, match=r"the plan in d\.json is damaged"):
        api.run("m.onnx", Options(**options, plan="s.json"), output="b.onnx")
    assert not Path("s.json").exists()
