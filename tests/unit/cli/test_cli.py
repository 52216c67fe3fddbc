"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import onnx
import pytest

import eqsat_opt
from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.cli.arguments import parse_shapes
from eqsat_opt.cli.session import stage_progress, write_json
from eqsat_opt.errors import CheckFailed, OptionError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

FAST = ("--no-measure", "--threads", "1", "--budget", "600")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Standard output of a command that says nothing on standard error."""
    assert main(arguments) == code
    output, errors = capsys.readouterr()
    assert errors == ""
    return output


def table(text: str) -> dict[str, list[str]]:
    """First word of a line to its other words; prose below a table may begin with the same word."""
    lines = [words for words in map(str.split, text.splitlines()) if words]
    return {words[0]: words[1:] for words in reversed(lines)}


# ** the application **


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "--version") == f"eqsat-opt {eqsat_opt.__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("--help",)):
        output = shown(capsys, *arguments)
        for command in ("optimize", "explain", "bench", "profile", "zoo"):
            assert command in output
    assert "export" in shown(capsys, "profile")
    assert "build" in shown(capsys, "zoo")
    assert "--input-shape" in shown(capsys, "optimize", "--help")


def test_a_shell_completes_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"_EQSAT_OPT_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    for name, value in {**settings, "COMP_WORDS": "eqsat-opt p"}.items():
        monkeypatch.setenv(name, value)
    assert shown(capsys).split() == ["plan", "profile"]


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    code = (
        "import sys; from eqsat_opt.cli import main; code = main([sys.argv[1]]); "
        "heavy = {'egglog', 'numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'ortools'}; "
        "sys.exit(code or ', '.join(heavy & set(sys.modules)) or None)"
    )
    root = Path(eqsat_opt.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--nothing", 1)])
def test_the_process_ends_without_freeing_objects(argument: str, code: int) -> None:
    """What was registered for the end is called; a destructor in a module is not."""
    program = (
        "import atexit, sys\n"
        "class Held:\n"
        "    def __del__(self): print('freed')\n"
        "held = Held()\n"
        "atexit.register(print, 'registered')\n"
        f"sys.argv = ['eqsat-opt', {argument!r}]\n"
        "from eqsat_opt.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == "registered"


@pytest.mark.parametrize(("spent_s", "left_s"), [(0.5, 3.5), (100.0, 2.0)])
def test_a_budget_counts_from_the_start_of_the_command(
    spent_s: float, left_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long imports took, half of it is left."""
    deadlines = []

    def searched(*_: Any, deadline: Any, **__: Any) -> NoReturn:
        deadlines.append(deadline)
        raise OptionError("enough")

    monkeypatch.setattr(api, "run_request", searched)
    monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(api, "Deadline", SimpleNamespace(after=lambda seconds: seconds))
    with pytest.raises(OptionError, match="enough"):
        api.run("m.onnx", Options(budget_s=4.0), started_s=100.0 - spent_s)
    assert deadlines == [left_s]


def test_module_is_the_command_and_survives_a_closed_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    root = Path(eqsat_opt.__file__).parents[1]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "eqsat_opt", "zoo", "list"],
            cwd=root, stdout=closed, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["optimise"], "No such command 'optimise'"),
        (["optimize"], "Missing argument 'MODEL'"),
        (["bench", "one.onnx"], "Missing argument 'OTHER'"),
        (["zoo", "build", "sru"], "Missing option '--output'"),
        (["profile", "burn"], "No such command 'burn'"),
    ],
)
def test_usage_errors_are_no_failed_checks(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert expected in errors
    assert "--help" in errors


def raising(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (
            CheckFailed("outputs differ;\n rule x is at fault"),
            2,
            "outputs differ; rule x is at fault",
        ),
        (ZeroDivisionError("by zero"), 1, "unexpected ZeroDivisionError: by zero"),
        (OSError(28, "No space left on device", "a.onnx"), 1, "a.onnx: No space left on device"),
    ],
)
def test_every_error_is_one_line(
    error: BaseException,
    code: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(api, "run", raising(error))
    assert main(["optimize", "zoo:sru@tiny"]) == code
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {expected}")
    assert errors.count("\n") == 1


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "run", raising(ZeroDivisionError("by zero")))
    assert main(["optimize", "zoo:sru@tiny", "--debug"]) == 1
    errors = capsys.readouterr().err
    assert "Traceback (most recent call last)" in errors
    assert errors.splitlines()[-1].startswith("error: unexpected ZeroDivisionError")


def test_interruption_says_what_is_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eqsat_opt.cli.optimize.output_console", raising(KeyboardInterrupt()))
    assert main(["optimize", "zoo:weight_chain@tiny", "--no-race", *FAST]) == 1
    assert capsys.readouterr().err == (
        "error: interrupted; weight_chain-tiny.opt.onnx is complete\n"
    )


# ** optimize **


def test_optimize_improves_and_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("zoo:weight_chain@tiny", "--threads", "1", "--budget", "600")
    output = shown(capsys, "optimize", *arguments, "--verbose", "--json", "r.json")
    rows = table(output)
    assert "e-classes," in rows["e-graph"]
    assert "measured time" in output
    assert "written   weight_chain-tiny.opt.onnx" in output
    report = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    won = report["status"] == "improved"  # the clock decides
    assert won or report["status"] == "unchanged"
    assert rows["operators"] == (["2", "1", "-50.0%"] if won else ["2", "2"])
    assert report["latency_us"].keys() == {"original", "result"}
    assert report["egraph"].keys() >= {"enodes", "eclasses", "stopped_by"}
    assert report.keys() >= {
        "speedup", "cost", "lower_bound", "gap", "rules", "stages_s", "max_abs_error",
        "max_rel_error",
    }  # fmt: skip
    written = onnx.load(folder / "weight_chain-tiny.opt.onnx")
    onnx.checker.check_model(written)
    assert len(written.graph.node) == (1 if won else 2)
    assert sorted(p.name for p in folder.iterdir()) == ["r.json", "weight_chain-tiny.opt.onnx"]


def test_optimize_writes_beside_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "models").mkdir()
    assert shown(capsys, "zoo", "build", "weight_chain@tiny", "-o", "models/chain.onnx")
    arguments = ("optimize", "models/chain.onnx", "--no-race", *FAST)
    output = shown(capsys, *arguments, "--json", "-")
    report = json.loads(output)
    assert report["status"] == "unmeasured"
    assert report["operators"]["after"] == {"MatMul": 1}
    first = (folder / "models" / "chain.opt.onnx").read_bytes()
    assert shown(capsys, *arguments, "--quiet") == ""
    assert (folder / "models" / "chain.opt.onnx").read_bytes() == first


def test_without_rules_the_original_comes_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("zoo:sru@tiny", "-o", "sru.onnx", "--rules", "none", *FAST)
    output = shown(capsys, "optimize", *arguments)
    assert "none of the equal graphs that were found costs less: proven" in output
    assert "written   sru.onnx (the original)" in output
    original = zoo.build("sru", scale="tiny")
    written = onnx.load(folder / "sru.onnx")
    assert [n.op_type for n in written.graph.node] == [n.op_type for n in original.graph.node]


def test_a_bound_speaks_of_what_was_searched(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("zoo:sru@tiny", "-o", "out.onnx", "--nodes", "1", "--no-race", "-v", *FAST)
    output = shown(capsys, "optimize", *arguments)
    assert "1 iteration, stopped by nodes" in output
    assert "no graph in the e-graph is cheaper than the original: proven" in output


# ** explain **


def test_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explain", "zoo:sru_step@tiny", *FAST, "--kernels", "--json", "e.json")
    output = shown(capsys, *arguments)
    explained = json.loads((folder / "e.json").read_text(encoding="utf-8"))
    rules = {rule["rule"]: rule for rule in explained["rules"]}
    assert rules.keys() >= explained["report"]["matches"].keys()
    for name, rule in rules.items():
        assert name in output
        assert bool(rule["chosen"]) != bool(rule["reason"]), rule
        assert (rule["cost"] is None) == (rule["increase"] is None)
    assert {r for r in rules if rules[r]["chosen"]} == explained["report"]["rules"].keys()
    kinds = {(rewrite["op"], *rewrite["rules"]) for rewrite in explained["rewrites"]}
    rows = output.split("new nodes", 1)[1].split("kernel ", 1)[0].splitlines()[1:]
    assert len([row for row in rows if row[:1].strip()]) == len(kinds) < len(explained["rewrites"])
    made = [rule for rewrite in explained["rewrites"] for rule in rewrite["rules"]]
    assert {rule: made.count(rule) for rule in made} == explained["report"]["rules"]
    launches = explained["report"]["metrics"]
    for side in ("before", "after"):
        count = sum(kernel[side] for kernel in explained["kernels"])
        assert count == launches[side]["launches"]
    assert all(kernel["source"] == "bound" for kernel in explained["kernels"])
    assert "bound" in output
    assert not list(folder.glob("*.onnx"))


def test_a_forced_rule_never_beats_a_proven_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explain", "zoo:weight_chain@tiny", "--objective", "flops", "--json", "-", *FAST)
    explained = json.loads(shown(capsys, *arguments))
    assert explained["report"]["extraction"] == "optimal"
    assert explained["report"]["rules"]
    increases = [r["increase"] for r in explained["rules"] if r["increase"] is not None]
    assert all(increase >= -1e-6 for increase in increases)


def test_explain_without_matches(capsys: pytest.CaptureFixture[str]) -> None:
    output = shown(capsys, "explain", "zoo:weight_chain@tiny", "--rules", "none", *FAST)
    assert "(none matched)" in output
    assert "no rewrite was chosen" in output
    assert shown(capsys, "explain", "zoo:weight_chain@tiny", "--quiet", *FAST) == ""


# ** bench **


def test_bench_of_equal_models(capsys: pytest.CaptureFixture[str]) -> None:
    models = ("zoo:weight_chain@tiny", "zoo:weight_chain@tiny")
    output = shown(capsys, "bench", *models, "--threads", "1", "--budget", "1", "--json", "b.json")
    rows = table(output)
    assert rows["MODEL"][0] == rows["OTHER"][0] == "zoo:weight_chain@tiny"
    assert "noise" in output
    assert "agrees" in output
    result = json.loads(Path("b.json").read_text(encoding="utf-8"))
    assert result["agree"] is True
    assert result["race"]["entries"].keys() == {"original", "other"}


def test_bench_of_models_that_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "zoo", "build", "weight_chain@tiny", "-o", "other.onnx", "--seed", "1")
    models = ("zoo:weight_chain@tiny", "other.onnx")
    assert main(["bench", *models, "--threads", "1", "--budget", "1"]) == 2
    output, errors = capsys.readouterr()
    assert "values differ" in output
    assert errors.startswith("error: other.onnx computes something else than zoo:weight_chain@tiny")
    assert errors.count("\n") == 1


# ** profile **


def test_profile_goes_round(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = ("--store", "a.sqlite3")
    arguments = ("zoo:weight_chain@tiny", "--threads", "1", "--budget", "600", "--quiet")
    shown(capsys, "explain", *arguments, *stored)
    count = json.loads(shown(capsys, "profile", "show", *stored, "--json", "-"))["n_measurements"]
    assert count > 0
    listed = shown(capsys, "profile", "show", *stored, "--kernels")
    assert "MatMul" in listed
    assert f"{count} kernels" in listed
    assert f"{count} entries written" in shown(capsys, "profile", "export", "p.json", *stored)
    assert f"{count} entries deleted" in shown(capsys, "profile", "clear", *stored)
    assert "0 kernels" in shown(capsys, "profile", "show", *stored)
    again = ("--store", "b.sqlite3")
    assert f"{count} entries read" in shown(capsys, "profile", "import", "p.json", *again)
    shown(capsys, "profile", "export", "q.json", *again)
    assert (folder / "p.json").read_text() == (folder / "q.json").read_text()


def test_profile_refuses_what_is_no_export(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.json").write_text("{}")
    assert main(["profile", "import", "x.json", "--store", "a.sqlite3"]) == 1
    assert capsys.readouterr().err.startswith("error: x.json is not an export")


# ** rules **


@pytest.mark.parametrize(
    ("width", "titles"),
    [(60, ["rule", "level"]), (75, ["rule", "level", "numerics"]),
     (80, ["rule", "level", "numerics", "equation"])],
)  # fmt: skip
def test_only_the_last_column_of_rules_is_cut(
    width: int,
    titles: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    title, *rows = shown(capsys, "rules", "list").split("\n\n")[0].splitlines()
    assert title.split() == titles
    assert all(len(row) <= width for row in rows)
    whole = [row.split()[: min(len(titles), 3)] for row in rows]
    assert not any("…" in cell for cells in whole for cell in cells)


# ** zoo **


def test_zoo_list(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(shown(capsys, "zoo", "list"))
    assert rows.keys() >= set(zoo.names())
    models = json.loads(shown(capsys, "zoo", "list", "--json", "-"))["models"]
    assert [model["name"] for model in models] == list(zoo.names())


def test_zoo_build(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "zoo", "build", "sru@tiny", "-o", "sru.onnx")
    expected = zoo.build("sru", scale="tiny").SerializeToString(deterministic=True)
    assert (folder / "sru.onnx").read_bytes() == expected
    assert main(["zoo", "build", "sru@huge", "-o", "huge.onnx"]) == 1
    assert "unknown scale 'huge'" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["sru.onnx"]


# ** pieces **


def test_shapes() -> None:
    texts = ["x:1,3,224,224", "N:8", "v:8,", "scope/input:0:2,2"]
    expected = {"x": (1, 3, 224, 224), "N": 8, "v": (8,), "scope/input:0": (2, 2)}
    assert parse_shapes(texts) == [expected]
    assert parse_shapes(["N:1", "S:128", "N:8", "S:512"]) == [
        {"N": 1, "S": 128},
        {"N": 8, "S": 512},
    ]
    with pytest.raises(OptionError, match="'S' in some sets"):
        parse_shapes(["N:1", "S:128", "N:8"])
    for text in ("", "x", "x:", ":3", "x:a", "x:1,,2", "x:-1", "x:1.5"):
        with pytest.raises(OptionError, match="NAME:SIZES"):
            parse_shapes([text])


def test_json_is_whole_or_absent_and_has_no_infinities(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json({"a": [float("inf"), 1.5], "b": float("nan")}, "x.json")
    assert json.loads((folder / "x.json").read_text()) == {"a": [None, 1.5], "b": None}
    monkeypatch.setattr(os, "replace", raising(OSError(28, "No space left on device")))
    with pytest.raises(OptionError, match="No space left"):
        write_json({}, "x.json")
    assert json.loads((folder / "x.json").read_text()) != {}
    assert [path.name for path in folder.iterdir()] == ["x.json"]


def test_progress_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*, quiet: bool) -> str:
        with stage_progress(quiet) as progress:
            progress("measure", "kernel [3] of 7")
        return capsys.readouterr().err

    assert told(quiet=False) == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    assert "measure: kernel [3] of 7" in told(quiet=False)
    assert told(quiet=True) == ""
