"""Sweeps: cells are computed once, whatever happens to who computes them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat_opt.cli import main
from eqsat_opt.common.files import folder_lock
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.lab.experiments import (
    Cell,
    gathering,
    read_sweep,
    run_here,
    run_sweep,
    sweep,
    worker,
)

TEXT = """
models = ["zoo:weight_chain@tiny"]
methods = ["eqsat", "metaflow"]
devices = ["v100", "local"]
seeds = 2
rules = "matmul/assoc"
check = 0
threads = 1
set.metaflow.alpha = 1.1
"""


class Here(Executor):
    """Computes cells at once, and remembers which; some get lost."""

    def __init__(self, lost: int = 0) -> None:
        self.done: list[tuple[str, str, int, str]] = []
        self.lost = lost

    def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        (task,) = arguments
        self.lost -= 1
        if self.lost == 0:
            future.set_exception(ConnectionError("the worker is gone"))
            return future
        own = (task["model"], task["method"], task["seed"], task["settings"]["device"])
        self.done.append(own)
        json.dumps(task)  # it can go anywhere
        future.set_result(fn(task))
        return future


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where cells are computed in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "run_apart", run_here)
    Path("paper.toml").write_text(TEXT)
    Path("cells").mkdir()
    return tmp_path


def test_every_cell_is_computed_once(folder: Path) -> None:
    """What is stored is not computed again, and gives the same comparison."""
    read = read_sweep("paper.toml")
    assert len(set(read.cells)) == len(read.cells) == 8
    assert len({cell.file for cell in read.cells}) == 8
    first = Here(lost=5)
    with pytest.raises(RuntimeFailed, match=r"1 of 8 .*\(the worker is gone\).*--resume"):
        run_sweep(read, "cells", first)
    assert len(first.done) == 7
    second, third = Here(), Here()
    found = run_sweep(read, "cells", second, resume=True)
    assert len(second.done) == 1
    assert set(second.done).isdisjoint(first.done)
    again = run_sweep(read_sweep("paper.toml"), "cells", third, resume=True)
    assert third.done == []
    assert again == found
    assert [(one.model, one.settings.device) for one in found] == [
        ("zoo:weight_chain@tiny", "v100"),
        ("zoo:weight_chain@tiny", ""),
    ]
    for one in found:
        assert [(r.method, r.seed) for r in one.results] == [
            ("eqsat", 0), ("eqsat", 1), ("metaflow", 0), ("metaflow", 1),
        ]  # fmt: skip
        assert {r.cost for r in one.results} == {one.results[0].cost}
    assert not [name for name in os.listdir("cells") if name.endswith(".tmp")]


def test_a_sweep_may_grow_but_not_change(folder: Path) -> None:
    run_sweep(read_sweep("paper.toml"), "cells", Here())
    Path("paper.toml").write_text(TEXT.replace("seeds = 2", "seeds = 3"))
    more = Here()
    run_sweep(read_sweep("paper.toml"), "cells", more, resume=True)
    assert sorted({seed for _, _, seed, _ in more.done}) == [2]
    for old, new, said in (
        (
            '"matmul/assoc"',
            '"matmul"',
            "was begun with rules 'matmul/assoc', which is now 'matmul'",
        ),
        ("alpha = 1.1", "alpha = 1.2", "parameters of metaflow changed since"),
        ("seeds = 2", 'objective = "bytes"', "was begun with objective 'time'"),
    ):
        Path("paper.toml").write_text(TEXT.replace(old, new))
        with pytest.raises(OptionError, match=said) as caught:
            run_sweep(read_sweep("paper.toml"), "cells", Here(), resume=True)
        assert "\n" not in str(caught.value)
    Path("paper.toml").write_text(TEXT)
    with pytest.raises(OptionError, match="add --resume"):
        run_sweep(read_sweep("paper.toml"), "cells", Here())


def test_a_model_that_changed_is_noticed(folder: Path) -> None:
    text = '<ir_version: 9, opset_import: ["":17]> g (float[2] x) => (float[2] y) {y = %s(x)}'
    Path("models").mkdir()
    onnx.save(onnx.parser.parse_model(text % "Relu"), "models/m.onnx")
    toml = 'models = ["m.onnx"]\nmethods = ["metaflow"]\nrules = "none"\ncheck = 0\n'
    Path("models/paper.toml").write_text(toml)
    (found,) = run_sweep(read_sweep("models/paper.toml"), "cells", Here())
    assert found.results[0].operators == 1
    onnx.save(onnx.parser.parse_model(text % "Exp"), "models/m.onnx")
    with pytest.raises(OptionError, match=r"the model m\.onnx changed since"):
        run_sweep(read_sweep("models/paper.toml"), "cells", Here(), resume=True)


def test_what_cannot_be_computed_is_a_failure_of_its_cell(folder: Path) -> None:
    """A limit that no graph keeps has infinite costs, which are stored, too."""
    Path("no.onnx").write_bytes(b"no model")
    toml = TEXT.replace('["zoo', '["no.onnx", "zoo').replace("seeds = 2", 'limits = ["time=1e-3"]')
    Path("paper.toml").write_text(toml)
    read = read_sweep("paper.toml")
    for turn in range(2):
        bad, _, good, _ = run_sweep(read, "cells", Here(), resume=bool(turn))
        assert [one.method for one in bad.failures] == ["eqsat", "metaflow"]
        assert "not an ONNX model" in bad.failures[0].why
        assert {one.cost for one in good.results} == {float("inf")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = [", "is not TOML"),
        ("", "has no list of models"),
        ("models = []", "has no list of models"),
        ("models = [1]", "has no list of models"),
        ('models = ["a", "a"]', "names one of the models twice"),
        ('models = ["no.onnx"]', "no.onnx: No such file"),
        ('models = ["zoo:sru"]\nmodel = 1', "; did you mean models?"),
        ('models = ["zoo:sru"]\nmethods = ["metaflw"]', "did you mean metaflow?"),
        ('models = ["zoo:sru"]\ndevices = ["v10"]', "unknown device 'v10'"),
        ('models = ["zoo:sru"]\nset.metaflow.alpha = 0.5', "alpha is 0.5"),
        ('models = ["zoo:sru"]\nset.metaflow.alpha = "x"', "alpha is 'x'"),
        ('models = ["zoo:sru"]\nset = 3', "has set = 3; give a table for each search"),
        ('models = ["zoo:sru"]\nset.metaflow = 3', "give a table for each search"),
        ('models = ["zoo:sru"]\nseeds = "many"', "has seeds = 'many'; give a whole number"),
        ('models = ["zoo:sru"]\nseeds = 1.5', "has seeds = 1.5; give a whole number"),
        ('models = ["zoo:sru"]\nseed = true', "has seed = True; give a whole number"),
        ('models = ["zoo:sru"]\nlevel = 3', "has level = 3; give a text"),
        ('models = ["zoo:sru"]\nlimits = [3]', "has limits = [3]; give a list of texts"),
        ('models = ["zoo:sru"]\nbudget = { time = 1 }', "a budget has no 'time'"),
        ('models = ["zoo:sru"]\nchecks = 1', "did you mean check?"),
        ('models = ["zoo:sru"]\nobjective = "speed"', "unknown metric 'speed'"),
    ],
)
def test_mistakes_in_the_file_are_one_line(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("paper.toml").write_text(text)
    assert main(["compare", "--sweep", "paper.toml"]) == 1
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert said in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sweep", "other.toml"], "cannot read other.toml"),
        (["--sweep", "paper.toml", "--methods", "eqsat"], "--methods is given beside --sweep"),
        (["--sweep", "paper.toml", "zoo:sru"], "MODEL is given beside --sweep"),
        (["--sweep", "paper.toml", "--workers", "0"], "workers is 0"),
        (["zoo:sru", "--resume"], "add --sweep FILE"),
        (["zoo:sru", "--cluster", "tcp://x"], "add --sweep FILE"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *arguments]) == 1
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert said in errors


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--sweep", "paper.toml", "--json", "out.json"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert output.count("medians of 2 seeds") == 2
    value = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert len(value["comparisons"]) == 2
    assert main(["compare", "--sweep", "paper.toml"]) == 1
    assert "paper.cells holds cells of a sweep; add --resume" in capsys.readouterr().err
    (cell, *_) = sorted(Path("paper.cells").glob("*.cell.json"))
    text = cell.read_text(encoding="utf-8")
    for damaged in (text[: len(text) // 2], "{}", "[]", text.replace('"cost"', '"price"')):
        cell.write_text(damaged, encoding="utf-8")
        assert main(["compare", "--sweep", "paper.toml", "--resume"]) == 1
        output, errors = capsys.readouterr()
        assert (output, errors.count("\n")) == ("", 1)
        assert cell.name in errors


def test_two_sweeps_do_not_share_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_WAIT_S", 0.0)
    read = read_sweep("paper.toml")
    with folder_lock("cells") as got:
        assert got
        with pytest.raises(OptionError, match="another sweep works in cells"):
            run_sweep(read, "cells", Here())


def test_a_sweep_that_is_killed_goes_on(folder: Path) -> None:
    """Processes of its own die with it; no cell is lost or computed twice."""
    Path("paper.toml").write_text(
        TEXT.replace('devices = ["v100", "local"]\n', "").replace('"eqsat", ', "")
    )
    command = [sys.executable, "-m", "eqsat_opt", "compare", "--sweep", "paper.toml", "-q"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cells = Path("paper.cells")
    try:
        end = time.monotonic() + 240
        while len(list(cells.glob("*.cell.json"))) < 1:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.cell.json")}
    assert len(before) == 1
    executor = Here()
    (found,) = run_sweep(read_sweep("paper.toml"), "paper.cells", executor, resume=True)
    assert len(executor.done) == 1
    assert [one.seed for one in found.results] == [0, 1]
    after = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.cell.json")}
    assert len(after) == 2
    assert before.items() <= after.items()


def test_processes_of_threads_end_when_nobody_waits(folder: Path) -> None:
    """What an interruption leaves running is ended."""
    task = read_sweep("paper.toml").task(Cell("zoo:weight_chain@tiny", "v100", "eqsat", 0))
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(worker.run_apart, task)
        while not worker._running:
            time.sleep(0.01)
        (child,) = worker._running
        worker.end_running()
        with pytest.raises(RuntimeFailed, match="cannot start a process"):
            future.result()
    assert not child.is_alive


@pytest.fixture
def cluster(folder: Path) -> Iterator[Any]:
    """Two workers on this machine."""
    distributed = pytest.importorskip(
        "distributed", reason="dask, of the extra distributed, is not installed"
    )
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as found:
        yield found


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker(cluster: Any) -> None:
    """Its cells are computed by the other one."""
    from distributed import Client

    lost: list[str] = []

    def told(cell: Cell, reply: object, known: int, of: int) -> None:
        if not lost:
            name, nanny = next(iter(cluster.workers.items()))
            lost.append(str(name))
            os.kill(nanny.process.pid, 9)

    with Client(cluster) as client:
        read = read_sweep("paper.toml")
        found = run_sweep(read, "cells", client.get_executor(), told=told)
    assert lost
    assert sum(len(one.results) for one in found) == 8
    assert not any(one.failures for one in found)


def test_a_sweep_may_bring_a_model_of_energy(folder: Path) -> None:
    """It is looked for beside the file, and its figures may not change under cells."""
    model = {"static_w": 50, "pj_per_flop": {"fp32": 10}, "pj_per_byte": 40, "source": "made up"}
    Path("energy.json").write_text(json.dumps(model))
    given = 'devices = ["v100"]\nobjective = "energy"\nenergy_model = "energy.json"\n'
    text = re.sub(r"devices = .*\n", given, TEXT).replace("seeds = 2", "seeds = 1")
    Path("paper.toml").write_text(text)
    (found,) = run_sweep(read_sweep("paper.toml"), "cells", Here())
    assert all(one.metrics["energy_uj"] == pytest.approx(one.cost) for one in found.results)
    Path("energy.json").write_text(json.dumps({**model, "static_w": 60}))
    with pytest.raises(OptionError, match="was begun with energy_model"):
        run_sweep(read_sweep("paper.toml"), "cells", Here(), resume=True)
