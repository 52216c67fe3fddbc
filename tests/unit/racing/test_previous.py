"""What an earlier run wrote races again; races are simulated, so the tests decide who wins."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import numpy_helper

import eqsat_opt
from eqsat_opt.api import run
from eqsat_opt.cli import main
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline import optimise as optimising
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.racing import earlier_result as previous
from eqsat_opt.racing import examination
from eqsat_opt.racing.earlier_result import RECORD
from eqsat_opt.racing.examination import Examination
from eqsat_opt.racing.race_result import RaceResult
from tests.unit.machines import Machine

QUIET: dict[str, Any] = {"measure": False, "check": 1, "store": "", "threads": 1, "budget_s": 120.0}
Rig = Callable[..., None]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Decides how long every entrant takes, µs; 1000 where nothing is said."""

    def set_times(**times_us: float) -> None:
        def race(candidates: Mapping[str, object], *_: object, **__: object) -> RaceResult:
            times: dict[str, Any]
            times = {name: 20 * times_us.get(name, 1000.0) for name in candidates}
            return Machine(luck=0.01).race(rounds=1, **times)

        monkeypatch.setattr(examination, "race", race)

    return set_times


def chain() -> onnx.ModelProto:
    """Two products of weights, which fold into one; enough products to try other levels."""
    rng = np.random.default_rng(0)
    lines, value = [], "x"
    for i in range(4):
        lines.append(f"a{i} = MatMul({value}, A)  b{i} = MatMul(a{i}, B)  r{i} = Relu(b{i})")
        value = f"r{i}"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["":17]>
        chain (float[8,16] x) => (float[8,16] y) {{ {" ".join(lines)} y = Relu(r3) }}
    """)
    for name in "AB":
        array = rng.standard_normal((16, 16)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.onnx"


def optimise(output: Path | None, **options: Any) -> Report:
    return run(chain(), Options(**{**QUIET, **options}), output=output).report


def edit(path: Path, change: Callable[[onnx.ModelProto], None]) -> bytes:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    return path.read_bytes()


def with_a_detour(model: onnx.ModelProto) -> None:
    """Another graph that computes the same."""
    last = model.graph.node[-1]
    last.output[0] = "before"
    model.graph.node.append(onnx.helper.make_node("Identity", ["before"], ["y"]))


def test_a_win_stays_when_noise_hides_it(rig: Rig, output: Path) -> None:
    rig(best=800)
    first = optimise(output)
    assert (first.status, first.winner, first.is_in_place) == ("improved", "best", False)
    written = output.read_bytes()
    rig(best=990)
    again = optimise(output)
    assert (again.status, again.winner, again.speedup) == ("kept", "best", 1)
    assert again.is_in_place
    assert "what won an earlier race" in again.headline
    assert output.read_bytes() == written


def test_a_win_that_is_slower_now_makes_way_for_the_original(rig: Rig, output: Path) -> None:
    rig(best=800)
    optimise(output)
    rig(best=1200)
    report = optimise(output)
    assert (report.status, report.winner, report.is_in_place) == ("unchanged", "original", False)
    assert len(onnx.load(output).graph.node) == len(chain().graph.node)


def test_another_graph_races_as_previous(rig: Rig, output: Path) -> None:
    rig(best=800)
    optimise(output)
    written = edit(output, with_a_detour)
    rig(best=990, previous=985)
    kept = optimise(output)
    assert (kept.status, kept.winner) == ("kept", "previous")
    assert set(kept.race["entries"]) >= {"original", "best", "previous", "previous@basic"}
    assert kept.operators_after["Identity"] == 1
    assert kept.result_cost is None
    assert kept.errors
    assert output.read_bytes() == written
    rig(best=805, previous=800)
    assert (optimise(output).winner, output.read_bytes()) == ("previous", written)
    rig(best=600, previous=800)
    assert optimise(output).winner == "best"
    assert output.read_bytes() != written


def test_a_previous_result_that_is_wrong_is_dropped(rig: Rig, output: Path) -> None:
    rig(best=800)
    optimise(output)

    def spoil(model: onnx.ModelProto) -> None:
        with_a_detour(model)
        weight = model.graph.initializer[0]
        array = 1.5 * numpy_helper.to_array(weight)
        weight.CopyFrom(numpy_helper.from_array(array.astype(np.float32), weight.name))

    spoilt = edit(output, spoil)
    rig(best=990, previous=500)
    for check in (0, 1):  # nobody knows who touched the file, even where the rules are trusted
        output.write_bytes(spoilt)
        report = optimise(output, check=check)
        assert "previous" not in report.race["entries"]
        assert any("earlier result" in n and "is dropped: output 'y'" in n for n in report.notes)
        assert report.status == "unchanged"


def test_without_time_to_compare_it_an_earlier_result_does_not_race(
    rig: Rig, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig(best=800)
    optimise(output)
    edit(output, with_a_detour)
    cut_off = Examination(None, {}, {}, 0.0, skipped=("previous",))
    with monkeypatch.context() as patch:
        patch.setattr(previous, "compared", lambda *_: cut_off)
        assert any("no time to race it again" in note for note in optimise(output).notes)
    edit(output, with_a_detour)
    monkeypatch.setattr(optimising, "estimate_bulk_s", lambda *_: 1000.0)
    report = optimise(output, budget_s=3000.0)
    assert any("no time to race it again" in note for note in report.notes)
    assert report.winner == "best"


@pytest.mark.parametrize("change", [{"numerics": "refactor"}, {"rules": "matmul/assoc,conv"}])
def test_other_rules_make_other_results(rig: Rig, output: Path, change: dict[str, str]) -> None:
    rig(best=800)
    optimise(output, rules="matmul/assoc")
    edit(output, with_a_detour)
    report = optimise(output, **{"rules": "matmul/assoc", **change})
    assert "previous" not in report.race["entries"]
    assert any("other rules or another numerics class" in note for note in report.notes)


def test_a_model_that_is_written_over_has_no_earlier_result(rig: Rig, output: Path) -> None:
    onnx.save(chain(), output)
    options = Options(**QUIET, overwrite=True)
    rig(best=800)
    for status in ("improved", "unchanged"):  # the second time there is nothing to find
        report = run(output, options, output=output).report
        assert report.status == status
        assert not any("earlier run" in note or "was there before" in note for note in report.notes)


def test_an_earlier_result_has_to_hold_at_each_set_of_sizes(
    rig: Rig, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def optimise_both(*times_us: float) -> Report:
        races = iter(times_us)

        def race(candidates: Mapping[str, object], *_: object, **__: object) -> RaceResult:
            times: dict[str, Any] = dict.fromkeys(candidates, 20_000.0)
            times["best"] = 20 * next(races)
            return Machine(luck=0.01).race(rounds=1, **times)

        monkeypatch.setattr(examination, "race", race)
        model = chain()
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "N"
        options = Options(**QUIET, shapes=[{"N": 2}, {"N": 8}])
        return run(model, options, output=output).report

    won = optimise_both(800, 900)
    assert won.status == "improved"
    assert won.speedup == pytest.approx(1 / 0.9, rel=0.02)
    assert "1.11x or more at 2 sets of sizes" in won.headline
    assert optimise_both(990, 1000).status == "kept"
    assert optimise_both(990, 1200).status == "unchanged"


def test_an_original_that_was_written_before_needs_no_note(rig: Rig, output: Path) -> None:
    rig()
    for _ in range(2):
        report = optimise(output)
        assert (report.status, report.notes) == ("unchanged", ())


def test_what_is_no_result_is_replaced_with_a_note(rig: Rig, output: Path) -> None:
    rig(best=800)
    onnx.save(zoo.build("lora", scale="tiny"), output)
    assert any("carries no record of an earlier run" in note for note in optimise(output).notes)
    output.write_text("no model")
    assert any("cannot be read as a model" in note for note in optimise(output).notes)
    for record in ("[]", "[" * 100_000):
        edit(output, partial(onnx.helper.set_model_props, dict_value={RECORD: record}))
        notes = optimise(output).notes
        assert any("carries no record of an earlier run" in note for note in notes)
    assert len(onnx.load(output).graph.node) < len(chain().graph.node)


def test_without_a_race_it_is_overwritten(rig: Rig, output: Path) -> None:
    rig(best=800)
    optimise(output)
    edit(output, with_a_detour)
    report = optimise(output, race=False)
    assert (report.status, report.winner) == ("unmeasured", "best")
    assert "Identity" not in {node.op_type for node in onnx.load(output).graph.node}
    rig(best=990)
    assert optimise(output).status == "unchanged"  # what never won has no right to stay


def test_another_objective_does_not_count_as_a_win(rig: Rig, output: Path) -> None:
    rig(best=990)
    report = optimise(output, objective="launches")
    assert report.status == "improved"
    assert report.speedup == pytest.approx(1 / 0.99, rel=0.02)
    assert optimise(output).status == "unchanged"


def test_an_option_is_recorded_and_advised(
    rig: Rig,
    output: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    rig(**{"best": 1000, "best@basic": 500, "original@basic": 900})
    report = optimise(output)
    assert (report.status, report.winner, report.speedup) == ("improved_with_option", "best", 1)
    assert report.session_speedup == pytest.approx(2, rel=0.02)
    assert set(report.latency) == {"original", "result", "session"}
    assert report.advice == (
        f"{report.session_speedup:.2f}x with graph optimisation level basic: "
        f"eqsat_opt.session({str(output)!r}) opens it so"
    )
    level = eqsat_opt.session(output).get_session_options().graph_optimization_level
    assert level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    again = optimise(output)
    assert (again.status, again.is_in_place) == ("improved_with_option", True)

    source = tmp_path / "chain.onnx"
    onnx.save(chain(), source)
    arguments = [
        "optimize",
        str(source),
        "-o",
        str(output),
        "--no-measure",
        "--store",
        "",
        "--budget",
        "120",
    ]
    assert main([*arguments, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "x with graph optimisation level basic: eqsat_opt.session('" in shown.err
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("no model is faster in a default session, but a session option helps")
    assert "x with graph optimisation level basic: " in lines[1]
    assert lines[-1] == f"written   nothing: {output} is left as it was"


def test_an_original_that_gains_by_an_option_stays_and_says_so(rig: Rig, output: Path) -> None:
    rig(**{"best": 1000, "original@basic": 500})
    report = optimise(output)
    assert (report.status, report.winner) == ("improved_with_option", "original")
    written = onnx.load(output)
    assert [n.op_type for n in written.graph.node] == [n.op_type for n in chain().graph.node]
    level = eqsat_opt.session(output).get_session_options().graph_optimization_level
    assert level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_a_result_in_memory_holds_no_record(rig: Rig) -> None:
    rig(best=800)
    assert RECORD not in {
        entry.key for entry in run(chain(), Options(**QUIET)).model.metadata_props
    }


@pytest.mark.parametrize("name", ["squeezenet", "lora"])
def test_a_digest_knows_content_and_not_places(name: str, tmp_path: Path) -> None:
    given = zoo.build(name, scale="tiny")
    model = load_model(given)
    before = model_proto(model).SerializeToString(deterministic=True)
    digest = content_digest(model)
    assert model_proto(model).SerializeToString(deterministic=True) == before
    onnx.save(given, tmp_path / "inline.onnx")
    kinds: dict[str, Any] = {
        "save_as_external_data": True,
        "location": "weights",
        "size_threshold": 0,
    }
    onnx.save(copy.deepcopy(given), tmp_path / "external.onnx", **kinds)
    noted = onnx_ir.from_proto(given)
    noted.metadata_props["note"] = "of no account"
    for same in (tmp_path / "inline.onnx", tmp_path / "external.onnx", noted):
        assert content_digest(load_model(same)) == digest
    exported = export_model(import_model(model))
    onnx.save(model_proto(exported), tmp_path / "exported.onnx")
    assert content_digest(load_model(tmp_path / "exported.onnx")) == content_digest(exported)

    weight = max(given.graph.initializer, key=lambda t: len(t.raw_data))
    data = bytearray(weight.raw_data)
    data[-1] ^= 1
    weight.raw_data = bytes(data)
    assert content_digest(load_model(given)) != digest
