"""Runs that no person watches: dry runs, thresholds, and reports that keep to their schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import onnx.parser
import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.form_reports import Tuned
from eqsat_opt.pipeline.report.report import STATUS_TEXT, Report
from eqsat_opt.pipeline.report.schema import REPORT_FORMAT, SCHEMAS, schema_text
from eqsat_opt.pipeline.run import Result
from tests.unit.machines import Machine

QUICK = ("--no-measure", "--threads", "1", "--budget", "600", "--store", "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def errors_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    assert main(arguments) == code
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors


def searched(**options: Any) -> Report:
    given = {
        "threads": 1,
        "measure": False,
        "race": False,
        "check": 0,
        "budget_s": 600,
        "store": "",
    }
    return api.run("zoo:weight_chain@tiny", Options(**{**given, **options})).report


# ** dry runs **


@pytest.mark.parametrize("extra", [(), ("-o", "fast.onnx")])
def test_a_dry_run_writes_its_json_only(
    extra: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("optimize", "zoo:weight_chain@tiny", "--no-race", "--dry-run", *QUICK, *extra)
    assert main([*arguments, "--json", "r.json"]) == 0
    output = capsys.readouterr().out
    name = extra[1] if extra else "weight_chain-tiny.opt.onnx"
    last = output.splitlines()[-1].split(maxsplit=1)
    assert last == ["written", f"nothing, as --dry-run asks; the result is for {name}"]
    report = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    assert report["operators"]["after"] == {"MatMul": 1}
    assert report["output"] == ""
    assert [one.name for one in folder.iterdir()] == ["r.json"]


@pytest.mark.parametrize("option", ["--tuned", "--plan"])
def test_a_dry_run_makes_no_other_form(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = errors_of(capsys, "optimize", "zoo:sru@tiny", "--dry-run", option, "x.onnx", code=1)
    assert f"{option} x.onnx asks for a file" in told


# ** thresholds **


def raced(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Let the next run report these numbers of its race."""
    report = replace(searched(), **values)
    monkeypatch.setattr(api, "run", lambda *_, **__: Result(None, report))


def tuned_form(speedup: float, *, won: bool) -> Tuned:
    return Tuned(
        output="t.onnx", won=won, why="", winner="tuned", runtime="native", setting={"a": 1},
        threads=1, speedup=speedup, portable_speedup=1.0, algorithms={"winograd": 2}, n_sites=3,
        is_suited=False, withdrawn=0, error=1e-6, max_error=1e-4, refused={}, race={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("least", "values", "code"),
    [
        ("1.1", {"speedup": 1.2}, 0),
        ("1.2", {"speedup": 1.2}, 0),
        ("1.3", {"speedup": 1.2}, 3),
        ("1.3", {"speedup": 1.2, "tuned": tuned_form(1.4, won=True)}, 0),
        ("1.3", {"speedup": 1.2, "tuned": tuned_form(1.4, won=False)}, 3),
    ],
)
def test_too_small_a_gain_ends_with_3(
    least: str,
    values: dict[str, Any],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raced(monkeypatch, **values, output="fast.onnx")
    assert main(["optimize", "zoo:sru@tiny", "-q", "--min-speedup", least]) == code
    errors = capsys.readouterr().err
    assert errors == (
        "" if not code else "error: the result is 1.200x as fast as the original, and "
        "--min-speedup asks for 1.3x; fast.onnx is written\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--min-speedup", "0"), "--min-speedup is 0; give a factor such as 1.05"),
        (("--min-speedup", "nan"), "--min-speedup is nan; give a factor"),
        (("--min-speedup", "2", "--no-race"), "leave out --no-race"),
        (("--min-speedup", "2", "--target", "h200"), "nothing runs on h200 here"),
        (("--min-speedup", "fast"), "Invalid value for '--min-speedup'"),
    ],
)
def test_a_threshold_needs_a_race(
    arguments: tuple[str, ...], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in errors_of(capsys, "optimize", "zoo:sru@tiny", *arguments, code=1)
    assert not list(folder.iterdir())


# ** the schema **


def test_the_schema_is_printed_and_valid(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in SCHEMAS:
        assert main(["schema", name]) == 0
        text = capsys.readouterr().out
        assert text == schema_text(name)
        jsonschema.Draft202012Validator.check_schema(json.loads(text))
    assert main(["schema", "-o", "s.json"]) == 0
    assert (folder / "s.json").read_text(encoding="utf-8") == schema_text("report")
    assert "choose from report" in errors_of(capsys, "schema", "plan", code=1)


def validate(value: Any) -> None:
    """Check the JSON of a report as it is written: without NaN and infinities."""
    from eqsat_opt.cli.session import write_json

    write_json(value, "r.json")
    document = json.loads(Path("r.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json.loads(schema_text("report"))).validate(document)
    assert document["format"] == REPORT_FORMAT


def unsearched() -> Report:
    return searched(budget_s=1e-6)


def planned() -> Report:
    return searched(target="h200", plan="p.json")


def symbolic() -> Report:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[N,3] x) => (float[N,3] y) { h = Relu(x) z = Relu(h) y = Identity(z) }
    """)
    options = Options(shapes=[{"N": 1}, {"N": 8}], threads=1, measure=False, budget_s=600, store="")
    return api.run(model, options).report


def simulated() -> Report:
    race = Machine(0.1).race(rounds=1, original=1000.0, other=800.0).to_json()
    tuned = replace(tuned_form(1.4, won=True), race=race, further_races=(race,))
    return replace(searched(), race=race, further_races=(race,), tuned=tuned, gap=float("inf"))


@pytest.mark.parametrize("made", [searched, unsearched, planned, symbolic, simulated])
def test_reports_keep_to_the_schema(made: Callable[[], Report]) -> None:
    validate(made().to_json())


@pytest.mark.parametrize("status", STATUS_TEXT)
def test_the_schema_knows_every_status(status: str) -> None:
    validate({**searched().to_json(), "status": status})


def test_the_schema_refuses_what_it_does_not_name() -> None:
    good = searched().to_json()
    lacking = {name: value for name, value in good.items() if name != "speedup"}
    for bad in ({**good, "more": 1}, lacking, {**good, "status": "fine"}, {**good, "cost": "1"}):
        with pytest.raises(jsonschema.ValidationError):
            validate(bad)


# ** tables and the action **


def test_a_table_of_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from eqsat_opt.cli.session import write_json

    one = {**searched().to_json(), "speedup": 1.25, "latency_us": {"original": 2.0, "result": 1.6}}
    write_json(one, "one.json")
    assert main(["table", "one.json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| model | speedup | status | operators | weights | check |",
        "|---|---:|---|---:|---:|---|",
        "| zoo:weight\\_chain\\@tiny | 1.25x | unmeasured | 2 → 1 | 0.00 MB | not compared |",
    ]
    models = [
        {"name": "a|b<i>.onnx", "report": one, "error": ""},
        {"name": "bad.onnx", "report": None, "error": "no\nmodel"},
    ]
    write_json({"models": models}, "many.json")
    assert "is a folder; give the file" in errors_of(capsys, "table", ".", code=1)
    assert main(["table", "many.json", "-o", "t.md"]) == 0
    lines = (folder / "t.md").read_text(encoding="utf-8").splitlines()
    assert lines[2].startswith("| a\\|b\\<i\\>.onnx | 1.25x | ")
    assert lines[3] == "| bad.onnx | no model |  |  |  |  |"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{}", "holds no reports"), ("[]", "holds no JSON object"), ("x", "is not JSON"),
     ('{"models": 3}', "holds no reports"), ('{"models": [{}]}', "holds no reports")],
)  # fmt: skip
def test_a_table_of_something_else(
    text: str, expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.json").write_text(text)
    assert expected in errors_of(capsys, "table", "x.json", code=1)


def test_the_action_runs_commands_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Every eqsat-opt command in it exists, and takes the options that are written there."""
    text = (Path(__file__).parents[3] / "action.yml").read_text(encoding="utf-8")
    commands = re.findall(r"^\s+eqsat-opt (\w+) (.*)$", text, re.MULTILINE)
    assert [name for name, _ in commands] == ["optimize", "table"]
    for name, rest in commands:
        assert main([name, "--help"]) == 0
        output = capsys.readouterr().out
        for option in re.findall(r"(?<!\S)--?[\w-]+", rest):
            assert option in output
