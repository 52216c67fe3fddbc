"""Many models: each is optimised once, whatever happens to who optimises it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.errors import EqsatError, OptionError, RuntimeFailed, StageError
from eqsat_opt.lab.experiments import batch
from eqsat_opt.pipeline.options import Options

FAST: dict[str, Any] = {
    "measure": False, "race": False, "check": 0, "budget_s": 600, "threads": 1, "store": "",
    "rules": "none",
}  # fmt: skip
QUICK = (
    "--no-measure", "--no-race", "--check", "0", "--budget", "600", "--threads", "1", "--store", "",
    "--rules", "none",
)  # fmt: skip


def save(path: str) -> None:
    """Save a model of which simplification leaves one operator of three."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[2,3] x) => (float[2,3] y) { a = Identity(x) b = Identity(a) y = Relu(b) }
    """)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def here(task: dict[str, Any]) -> dict[str, Any]:
    """What the process of a task does."""
    try:
        options = Options(**task["options"])
        return {"report": api.run(task["model"], options, output=task["output"]).report.to_json(),
                "error": ""}  # fmt: skip
    except EqsatError as error:
        return {"report": {}, "error": str(error)}


class Here(Executor):
    """Does the work at once, and remembers which; from some part on, all get lost."""

    def __init__(self, lost_from: int = 10**9) -> None:
        self.done: list[str] = []
        self.lost_from = lost_from

    def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        (task,) = arguments
        json.dumps(task)  # it can go anywhere
        if len(self.done) >= self.lost_from:
            future.set_exception(ConnectionError("the worker is gone"))
            return future
        self.done.append(Path(task["model"]).name)
        future.set_result(fn(task))
        return future


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where models are optimised in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batch, "optimise_one", here)
    return tmp_path


def names(*given: str) -> list[str]:
    return [one.name for one in api.models_in(given)]


def test_files_folders_and_patterns_name_models() -> None:
    for path in ("m/b.onnx", "m/a.onnx", "m/deep/a.onnx", "m/a.opt.onnx", "n/a.onnx", "m/x.txt"):
        save(path)
    assert names("m") == ["a.onnx", "b.onnx", "deep/a.onnx"]
    assert names("m/*.onnx") == ["a.onnx", "a.opt.onnx", "b.onnx"]
    assert names("m/b.onnx", "n/a.onnx") == ["a.onnx", "b.onnx"]
    assert names("m/a.onnx", "m/a.onnx") == ["a.onnx"]
    with pytest.raises(OptionError, match="would have one result, as both are called"):
        names("m/a.onnx", "n/a.onnx")
    for nothing in ("no.onnx", "m/*.json"):
        with pytest.raises(OptionError, match="is no file, and no file is like it"):
            names(nothing)
    Path("empty").mkdir()
    with pytest.raises(OptionError, match="the folder empty holds no"):
        names("empty")


def test_half_a_batch_is_resumed() -> None:
    for number in range(8):
        save(f"m/{number}.onnx")
    models, options = api.models_in(["m"]), Options(**FAST)
    Path("out").mkdir()
    first = Here(lost_from=4)
    with pytest.raises(
        RuntimeFailed, match=r"4 of 8 .* 4\.onnx first \(the worker is gone\).*--resume"
    ):
        api.run_batch(models, "out", options, first)
    with pytest.raises(OptionError, match="add --resume"):
        api.run_batch(models, "out", options, Here())
    Path("out/3.onnx").unlink()  # a record without its result does not count
    second, told = Here(), list[tuple[str, int, int]]()
    found = api.run_batch(
        models, "out", options, second, resume=True,
        told=lambda one, number, of: told.append((one.name, number, of)),
    )  # fmt: skip
    assert first.done == ["0.onnx", "1.onnx", "2.onnx", "3.onnx"]
    assert second.done == ["3.onnx", "4.onnx", "5.onnx", "6.onnx", "7.onnx"]
    assert [one.name for one in found] == [f"{number}.onnx" for number in range(8)]
    assert told[-1] == ("7.onnx", 8, 8)
    assert {one.report["operators"]["after"]["Relu"] for one in found} == {1}
    assert {len(onnx.load(f"out/{number}.onnx").graph.node) for number in range(8)} == {1}
    third = Here()
    assert api.run_batch(models, "out", options, third, resume=True) == found
    assert third.done == []


def test_a_bad_model_is_one_line_and_not_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    save("m/good.onnx")
    Path("m/bad.onnx").write_text("no model")
    assert main(["optimize", "m", *QUICK]) == 1
    output, errors = capsys.readouterr()
    bad, good, last = output.splitlines()
    assert bad.startswith("bad.onnx   failed: ")
    assert good.startswith("good.onnx         unmeasured, 3 → 1 operator, ")
    assert last == "1 result in m.opt"
    assert errors.startswith("error: 1 of 2 models failed, bad.onnx first: ")
    assert errors.count("\n") == 1
    assert main(["optimize", "m", *QUICK, "--resume", "--json", "-"]) == 1
    models = json.loads(capsys.readouterr().out)["models"]
    assert [(one["name"], bool(one["error"])) for one in models] == [
        ("bad.onnx", True), ("good.onnx", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda: save("m/a.onnx"), ""),
        (lambda: onnx.save(onnx.ModelProto(ir_version=8), "m/a.onnx"), "the model changed since"),
        (lambda: Path("out/a.onnx.json").write_text("{"), "is not JSON.*remove it"),
        (lambda: Path("out/a.onnx.json").write_text("{}"), "has no format.*remove it"),
    ],
)
def test_what_changed_is_noticed(change: Any, expected: str) -> None:
    save("m/a.onnx")
    Path("out").mkdir()
    models = api.models_in(["m"])
    api.run_batch(models, "out", Options(**FAST), Here())
    change()
    if not expected:
        api.run_batch(models, "out", Options(**FAST), Here(), resume=True)
        return
    with pytest.raises((OptionError, StageError), match=expected) as error:
        api.run_batch(models, "out", Options(**FAST), Here(), resume=True)
    assert "\n" not in str(error.value)


def test_other_options_are_another_batch() -> None:
    save("m/a.onnx")
    Path("out").mkdir()
    models = api.models_in(["m"])
    api.run_batch(models, "out", Options(**FAST), Here())
    with pytest.raises(OptionError, match="an option changed since"):
        api.run_batch(models, "out", Options(**{**FAST, "nodes": 7}), Here(), resume=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("m", "-o", "-"), "many models need a folder; give -o one"),
        (("m/a.onnx", "m/b.onnx"), "several models need a folder for their results"),
        (("m", "--tuned", "t.onnx"), "--tuned is about one model"),
        (("m", "--dry-run"), "--dry-run is about one model"),
        (("m", "--workers", "0"), "workers is 0"),
        (("m/a.onnx", "--resume"), "--resume, --workers and --cluster are for many models"),
        (("m/*.pb",), "m/*.pb is no file, and no file is like it"),
        ((".",), ". has no name to call the folder of results by; give -o one"),
        (("m/..",), ". has no name"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        save(f"m/{name}.onnx")
    assert main(["optimize", *arguments]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"error: {expected}")
    assert sorted(one.name for one in folder.iterdir()) == ["m"]


def test_too_small_a_gain_of_one_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m/a.onnx")
    save("m/b.onnx")

    def raced(task: dict[str, Any]) -> dict[str, Any]:
        given = here({**task, "options": {**task["options"], "race": False}})
        given["report"]["speedup"] = 1.5 if task["model"].endswith("a.onnx") else 1.0
        return given

    monkeypatch.setattr(batch, "optimise_one", raced)
    arguments = [one for one in QUICK if one != "--no-race"]
    assert main(["optimize", "m", *arguments, "--min-speedup", "1.2", "-q"]) == 3
    assert capsys.readouterr().err == (
        "error: 1 of 2 results gain less than 1.2x, b.onnx first: 1.000x\n"
    )


@pytest.mark.parametrize("number", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_batch_goes_on(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle, it is resumed with real processes; nothing is done twice or lost."""
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    names = [f"{one:02}.onnx" for one in range(number)]
    for name in names:
        save(f"m/{name}")
    half = names[number // 2 - 1]
    command = [sys.executable, "-m", "eqsat_opt", "optimize", "m", "-o", "out", *QUICK, "-q"]
    root = str(Path(api.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while not Path(f"out/{half}.json").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    done = {one: one.stat().st_mtime_ns for one in Path("out").glob("*.json")}
    assert number // 2 <= len(done) < number
    arguments = ("optimize", "m", "-o", "out", *QUICK, "--resume", "--json", "r.json", "-q")
    assert main(arguments) == 0
    found = json.loads(Path("r.json").read_text(encoding="utf-8"))["models"]
    assert [one["name"] for one in found] == names
    assert all(one.stat().st_mtime_ns == before for one, before in done.items())
    assert sorted(one.name for one in Path("out").iterdir()) == sorted(
        f"{name}{ending}" for name in names for ending in ("", ".json")
    )


@pytest.mark.skipif(
    find_spec("distributed") is None, reason="needs dask: pip install eqsat-opt[distributed]"
)
def test_a_cluster_optimises_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    monkeypatch.undo()
    monkeypatch.chdir(folder)
    for number in range(2):
        save(f"m/{number}.onnx")
    Path("out").mkdir()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        Client(cluster) as client,
    ):
        found = api.run_batch(api.models_in(["m"]), "out", Options(**FAST), client.get_executor())
    assert [len(onnx.load(f"out/{one.name}").graph.node) for one in found] == [1, 1]
