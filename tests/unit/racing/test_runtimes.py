"""Other runtimes and settings in the tuned form: who may race, what the file says, who opens it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat_opt
from eqsat_opt.api import inventory, run
from eqsat_opt.cli import main
from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.serving import RuntimeSession
from eqsat_opt.racing import session_settings as settings_module
from eqsat_opt.racing import tuned_results as tuned_module
from eqsat_opt.racing.race_apart import Entrant, hold_race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.racing.session_settings import promising_settings
from eqsat_opt.racing.tuned_results import TunedJob, TunedResult, race_tuned_forms
from eqsat_opt.runtime.backends import sandbox as sandbox_module
from eqsat_opt.runtime.backends.native import library
from eqsat_opt.runtime.backends.openvino.runtime import OpenVinoRuntime
from eqsat_opt.runtime.backends.ort.runtime import LEVEL, WITHOUT, OrtRuntime
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import load_runtime, racing_runtimes
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import (
    Execution,
    is_tuned,
    open_as_raced,
    portable_of,
    tuned_model,
    tuned_threads,
)
from eqsat_opt.runtime.measure import Clock
from eqsat_opt.runtime.processor import device_fingerprint
from tests.unit.machines import Machine

ONE = OrtOptions(threads=1)

TOY = """
import os, signal, time
from pathlib import Path
import numpy as np
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

def mode():
    return Path(__file__).with_name("mode").read_text()

class Session:
    def __init__(self, inner):
        self.inner, self.input_names = inner, inner.input_names
        names = tuple(inner.output_names)
        self.output_names = ("other", *names[1:]) if mode() == "names" else names

    def run(self, feeds):
        found = self.inner.run(feeds)
        x, first = feeds["x"], found[0]
        if mode() == "sizes" and x.shape[0] == 1:
            raise RuntimeFailed("not at this size")
        changed = {
            "wrong": lambda: first + 1,
            "inexact": lambda: first * np.float32(1 + 3e-4),
            "type": lambda: first.astype(np.float64),
            "rank": lambda: first[None],
            "wrong at 1": lambda: first + (x.shape[0] == 1),
        }.get(mode(), lambda: first)()
        return [changed, *found[1:]]

    def bind(self, feeds):
        if mode() == "dies in the race":
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.inner.bind(feeds)

class Toy:
    name = "toy"

    def missing(self):
        return "toy is not there" if mode() == "missing" else ""

    def facts(self):
        return {"toy": "2" if mode() == "newer" else "1"}

    def settings(self, model, custom_ops=()):
        return ()

    def open(self, model, threads, setting, custom_ops=()):
        if mode() == "refuses":
            raise RuntimeFailed("no such operator")
        if mode() == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode() == "hangs":
            time.sleep(600)
        return Session(OrtSession(model, OrtOptions(threads)))
"""

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
net (float[N, 8] x) => (float[N, 8] y, float[N] z)
<float[8, 8] w = {{{weights}}}>
{{
    product = MatMul(x, w)
    y = Relu(product)
    z = ReduceMax<axes = [1], keepdims = 0>(product)
}}
"""

Mode = Callable[[str], None]


def net() -> onnx.ModelProto:
    weights = ", ".join(f"{value:.4f}" for value in np.random.default_rng(0).normal(size=64))
    return onnx.parser.parse_model(MODEL.format(weights=weights))


def feeds(batch: int = 3) -> dict[str, Any]:
    return {"x": np.random.default_rng(1).normal(size=(batch, 8)).astype(np.float32)}


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package with a runtime, which processes of ours find as well."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "toy_runtime.py").write_text(TOY)
    info = folder / "toy_runtime-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-runtime\nVersion: 1\n")
    points = "toy = toy_runtime:Toy\nbroken = toy_runtime:Nothing\nother = toy_runtime:Toy\n"
    (info / "entry_points.txt").write_text(f"[eqsat_opt.runtimes]\n{points}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        patch.setenv("TOY", str(folder))
        importlib.invalidate_caches()
        sandbox_module.close_idle_children()
        yield folder
    sandbox_module.close_idle_children()
    load_runtime.cache_clear()
    sys.modules.pop("toy_runtime", None)


@pytest.fixture
def mode() -> Mode:
    def choose(name: str) -> None:
        Path(os.environ["TOY"], "mode").write_text(name)

    choose("right")
    return choose


def job(**changes: Any) -> TunedJob:
    model = net()
    defaults = TunedJob(
        original=model,
        original_inside=net,
        portable=model,
        is_original=True,
        session=ONE,
        sizes=(Sizes({"N": 3}),),
        seeds=(0, 1),
        numerics=Numerics.REASSOCIATE,
        max_error=1e-4,
        runtimes=("ort", "toy"),
        deadline=Deadline.after(120.0),
    )
    return replace(defaults, **changes)


Held = Callable[..., tuple[RaceResult, str]]


def simulated(**times_us: float) -> Held:
    """A race in which everybody has the time that is told; the original takes 1000 µs."""

    def hold(entrants: Mapping[str, Entrant], *_: Any, **__: Any) -> tuple[RaceResult, str]:
        names: Any = {name: times_us.get(name.replace(" ", "_"), 1000.0) for name in entrants}
        return Machine().race(**names), ""

    return hold


@pytest.fixture
def _no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_found", lambda: ("", "", "the kernels were not compiled"))


# ** the registry **


def test_runtimes_are_known_by_name() -> None:
    assert racing_runtimes() == ("ort", "openvino", "broken", "other", "toy")
    assert load_runtime("toy").name == "toy"
    for name, message in (
        ("broken", "cannot be loaded from toy_runtime:Nothing"),
        ("other", "calls itself 'toy'"),
        ("none", "unknown runtime 'none'; there are ort, openvino"),
    ):
        with pytest.raises(OptionError, match=message):
            load_runtime(name)


# ** who may race **


@pytest.mark.usefixtures("_no_kernels")
def test_a_right_runtime_wins_by_its_time(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    mode("right")
    monkeypatch.setattr(tuned_module, "hold_race", simulated(toy=500.0))
    held = race_tuned_forms(job())
    assert held.entrant == "toy"
    assert held.execution == Execution("toy", 1)
    assert held.error == 0.0
    assert held.refused == {"tuned": "the kernels were not compiled"}
    assert held.model is not None
    record = json.loads(onnx_metadata(held.model)["eqsat_opt.tuned"])
    assert record["runtime"] == "toy"
    assert record["toy"] == "1"
    assert record["threads"] == 1
    assert record["sizes"] == [{"N": 3}]
    assert record["device"].startswith("cpu-")
    monkeypatch.setattr(tuned_module, "hold_race", simulated(toy=990.0))
    held = race_tuned_forms(job())
    assert held.model is None
    assert "nothing is faster" in held.why


@pytest.mark.usefixtures("_no_kernels")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("wrong", "output 'y' is another: values differ"),
        ("inexact", "outputs differ by 3.0e-04, and 1.0e-04 is allowed"),
        ("names", "outputs are other, z instead of y, z"),
        ("type", "output 'y' is another: float64\\[3, 8\\] instead of float32"),
        ("rank", "output 'y' is another: float32\\[1, 3, 8\\] instead of"),
        ("wrong at 1", "output 'y' is another: values differ at N=1"),
        ("refuses", "no such operator"),
        ("dies", "toy, loading the model, ended the process \\(SIGSEGV\\)"),
    ],
)
def test_a_wrong_runtime_takes_no_part(how: str, why: str, mode: Mode) -> None:
    mode(how)
    numerics = Numerics.REFACTOR if how == "inexact" else Numerics.REASSOCIATE
    held = race_tuned_forms(job(numerics=numerics))
    assert held.model is None
    assert not held.races
    with pytest.raises(RuntimeFailed, match=why):
        raise RuntimeFailed(held.refused["toy"])


@pytest.mark.usefixtures("_no_kernels")
def test_a_runtime_that_hangs_is_ended_in_time(mode: Mode) -> None:
    mode("hangs")
    with sandbox() as box:  # the time to start a process is no part of it
        box.wait()
    held = race_tuned_forms(job(deadline=Deadline.after(6.0)))
    assert held.refused["toy"].startswith("it was not ready in time")
    held = race_tuned_forms(job(deadline=Deadline.after(0.0)))
    assert "no time" in held.why


@pytest.mark.usefixtures("_no_kernels")
def test_a_win_has_to_hold_at_every_size(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    mode("right")
    seen: list[tuple[int, ...]] = []

    def hold(entrants: Any, original: str, fed: Any, *_: Any, **__: Any) -> tuple[RaceResult, str]:
        seen.append(fed["x"].shape)
        return Machine().race(original=1000.0, toy=500.0 if len(seen) < 3 else 1500.0), ""

    monkeypatch.setattr(tuned_module, "hold_race", hold)
    sizes = tuple(Sizes({"N": size}) for size in (1, 8, 32))
    assert race_tuned_forms(job(sizes=sizes[:2])).entrant == "toy"
    seen.clear()
    held = race_tuned_forms(job(sizes=sizes))
    assert seen == [(1, 8), (8, 8), (32, 8)]
    assert held.model is None
    assert len(held.races) == 3


@pytest.mark.usefixtures("_no_kernels")
def test_the_original_may_be_what_another_runtime_runs(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("right")
    portable = net()
    portable.graph.node[1].name = "renamed"
    monkeypatch.setattr(tuned_module, "hold_race", simulated(toy_on_the_original=400.0, toy=500.0))
    held = race_tuned_forms(job(portable=portable, is_original=False))
    assert held.entrant == "toy on the original"
    assert held.model is not None
    assert held.model.graph == net().graph
    assert portable_of(held.model) == portable


@pytest.mark.usefixtures("_no_kernels")
def test_without_a_race_no_other_runtime_is_tried(mode: Mode) -> None:
    mode("dies")
    held = race_tuned_forms(job(is_raced=False))
    assert held == TunedResult(
        why="the kernels were not compiled", refused={"tuned": "the kernels were not compiled"}
    )


# ** the race **


def entrants(**runtimes: str) -> dict[str, Entrant]:
    return {name: Entrant(net(), Execution(runtime, 1)) for name, runtime in runtimes.items()}


TERMS: dict[str, Any] = {
    "deadline": Deadline.never(),
    "threads": 1,
    "time_limit_s": 0.2,
    "rounds": 1,
    "builds": 2,
}


def test_a_race_with_another_runtime_is_held_apart(mode: Mode) -> None:
    mode("right")
    with sandbox() as box:
        held, why = hold_race(
            entrants(original="ort", toy="toy"), "original", feeds(), box, **TERMS
        )
    assert why == ""
    assert list(held.entries) == ["original", "toy"]
    assert all(entry.n_samples and not entry.note for entry in held.entries.values())
    assert held.to_json()["entries"]["toy"]["ratio"] > 0


def test_who_dies_in_the_race_is_left_out(mode: Mode) -> None:
    mode("dies in the race")
    with sandbox() as box:
        held, why = hold_race(
            entrants(original="ort", same="ort", toy="toy"), "original", feeds(), box, **TERMS
        )
    assert "the race ended the process (SIGSEGV)" in why
    assert list(held.entries) == ["original", "same"]
    late = {**TERMS, "deadline": Deadline.after(0.0)}
    with sandbox() as box, pytest.raises(OutOfTime):
        hold_race(entrants(original="ort", toy="toy"), "original", feeds(), box, **late)


@pytest.mark.usefixtures("_no_kernels")
def test_a_full_disk_leaves_out_who_needs_files(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("right")

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eqsat_opt.racing.race_apart._file", full)
    held = race_tuned_forms(job())
    assert held.model is None
    assert "temporary files: No space left on device" in held.refused["toy"]
    assert list(held.races[0].entries) == ["original"]


# ** the file **


def onnx_metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def test_a_file_names_its_runtime_and_is_a_plain_model(mode: Mode, tmp_path: Path) -> None:
    mode("right")
    portable, path = net(), tmp_path / "tuned.onnx"
    path.write_bytes(tuned_model(portable, portable, Execution("toy", 1)).SerializeToString())
    assert is_tuned(path)
    assert tuned_threads(path) == 1
    assert portable_of(path) == path
    session = eqsat_opt.session(path)
    assert isinstance(session, RuntimeSession)
    assert session.runtime == "toy"
    assert [(v.name, v.shape, v.type) for v in session.get_inputs()] == [
        ("x", ["N", 8], "tensor(float)")
    ]
    assert [v.name for v in session.get_outputs()] == ["y", "z"]
    expected = OrtSession(portable, ONE).run(feeds())
    for found in (session.run(None, feeds()), session.run([], feeds(), None)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(session.run(["z"], feeds())[0], expected[1])
    with pytest.raises(RuntimeFailed, match="no output 'none'"):
        session.run(["none"], feeds())
    plain = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(plain.run(None, feeds())[0], expected[0])


@pytest.mark.parametrize(
    ("how", "change", "threads", "why"),
    [
        ("right", {"device": "cpu-0"}, 1, "device 'cpu-0' is not"),
        ("right", {}, 2, "threads 1 is not 2"),
        ("newer", {}, 1, "toy '1' is not '2'"),
        ("missing", {}, 1, "toy is not there"),
        ("refuses", {}, 1, "cannot be opened as it was raced: no such operator"),
        ("right", {"runtime": "none"}, 1, "unknown runtime 'none'"),
        ("right", {"runtime": "broken"}, 1, "cannot be loaded"),
        ("right", {"runtime": ["toy"]}, 1, "record cannot be read"),
        ("right", {"setting": 5}, 1, "record cannot be read"),
        ("right", {"runtime": "ort", "setting": {WITHOUT: 5}}, 1, "onnxruntime None is not"),
        ("right", {"format": 1}, 1, "format 1 is not 2"),
    ],
)
def test_a_file_that_does_not_fit_runs_the_portable_model(
    how: str, change: dict[str, Any], threads: int, why: str, mode: Mode
) -> None:
    mode("right")
    portable = net()
    tuned = tuned_model(portable, portable, Execution("toy", 1))
    entry = next(one for one in tuned.metadata_props if one.key == "eqsat_opt.tuned")
    entry.value = json.dumps({**json.loads(entry.value), **change})
    mode(how)
    with pytest.warns(RuntimeWarning, match=why):
        session = eqsat_opt.session(tuned, threads=threads)
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.get_session_options().intra_op_num_threads == threads
    np.testing.assert_array_equal(
        session.run(None, feeds())[0], OrtSession(portable, ONE).run(feeds())[0]
    )


def test_threads_are_those_of_the_file_unless_others_are_asked_for() -> None:
    portable = net()
    for threads in (1, 2):
        tuned = tuned_model(portable, portable, Execution("ort", threads, {LEVEL: "basic"}))
        options = eqsat_opt.session(tuned).get_session_options()
        assert options.intra_op_num_threads == threads
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        assert options.graph_optimization_level == level
    record = next(one for one in tuned.metadata_props if one.key == "eqsat_opt.tuned")
    record.value = record.value.replace('"threads": 2', '"threads": 1000000')
    with pytest.warns(RuntimeWarning, match="threads 1000000 is not"):
        eqsat_opt.session(tuned)


# ** settings of onnxruntime **


def test_a_fusion_that_did_something_is_worth_a_try() -> None:
    model = zoo.build("bert", scale="tiny")
    found = OrtRuntime().settings(model)
    assert {WITHOUT: ["SkipLayerNormFusion"]} in found
    assert {LEVEL: "basic"} in found
    chain = zoo.build("weight_chain", scale="tiny")
    assert all(WITHOUT not in setting for setting in OrtRuntime().settings(chain))
    session = OrtRuntime().open(model, 1, {WITHOUT: ["SkipLayerNormFusion"]})
    assert session.options.disabled_optimizers == ("SkipLayerNormFusion",)
    assert {LEVEL: "extended"} in OrtRuntime().settings(zoo.build("squeezenet", scale="tiny"))


@pytest.mark.parametrize("setting", [{LEVEL: "most"}, {LEVEL: [1]}, {WITHOUT: "x"}, {WITHOUT: [1]}])
def test_a_setting_without_meaning_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(RuntimeFailed, match="setting"):
        OrtRuntime().open(net(), 1, setting)


def test_settings_that_gain_race_the_best_and_all_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    times = {"": 1000.0, "A": 900.0, "B": 950.0, "C": 1200.0, "basic": 990.0}
    names = ({WITHOUT: ["A"]}, {WITHOUT: ["B"]}, {WITHOUT: ["C"]}, {LEVEL: "basic"})
    opened: list[Any] = []

    def open_(_model: Any, _threads: int, setting: Any, _ops: Any) -> Any:
        opened.append(setting)
        key = "".join(setting.get(WITHOUT, ())) or setting.get(LEVEL, "")
        call = machine.session(key, times[key])()
        return SimpleNamespace(bind=lambda _: call)

    toy = SimpleNamespace(settings=lambda *_: names, open=open_)
    monkeypatch.setattr(settings_module, "load_runtime", lambda _: toy)

    def found(deadline: Deadline) -> tuple[Any, ...]:
        clock: Clock = machine
        return promising_settings(
            net(), 1, (), feeds(), build_s=1.0, deadline=deadline, clock=clock
        )

    assert found(Deadline.never()) == ({WITHOUT: ["A"]}, {WITHOUT: ["A", "B"]})
    times["A"] = 1000.0
    assert found(Deadline.never()) == ({WITHOUT: ["B"]},)
    times["B"] = 1000.0
    assert found(Deadline.never()) == ()
    opened.clear()
    assert found(Deadline.after(2.0)) == ()
    assert not opened


@pytest.mark.usefixtures("_no_kernels")
def test_a_setting_wins_and_is_kept_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {WITHOUT: ["SkipLayerNormFusion"]}
    monkeypatch.setattr(tuned_module, "promising_settings", lambda *_, **__: (setting,))
    name = "ort without SkipLayerNormFusion"
    monkeypatch.setattr(tuned_module, "hold_race", simulated(**{name.replace(" ", "_"): 800.0}))
    held = race_tuned_forms(job(runtimes=("ort",)))
    assert held.entrant == name
    assert held.model is not None
    session = open_as_raced(held.model, ONE)
    assert isinstance(session, OrtSession)
    assert session.options.disabled_optimizers == ("SkipLayerNormFusion",)


# ** what users see **


@pytest.mark.usefixtures("_no_kernels")
def test_a_report_names_runtime_threads_and_who_took_no_part(
    mode: Mode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mode("right")
    monkeypatch.setattr(tuned_module, "hold_race", simulated(toy=500.0))
    tuned = tmp_path / "tuned.onnx"
    options = Options(
        tuned=str(tuned),
        runtimes=("toy",),
        threads=2,
        measure=False,
        store="",
        check=1,
        budget_s=600,
    )
    assert options.runtimes == ("ort", "toy")
    report = run(net(), options, output=tmp_path / "out.onnx").report
    found = report.to_json()["tuned"]
    assert (found["runtime"], found["threads"], found["won"]) == ("toy", 2, True)
    assert found["speedup"] == pytest.approx(2.0)
    assert report.tuned is not None
    for text in ("2.00x the original's speed", "run by toy", "with 2 threads"):
        assert text in report.tuned.text
    assert tuned_threads(tuned) == 2
    session = eqsat_opt.session(tuned)
    assert isinstance(session, RuntimeSession)
    mode("wrong")
    report = run(net(), options, output=tmp_path / "out.onnx").report
    assert report.tuned is not None
    assert "toy took no part: output 'y' is another" in report.tuned.text
    assert not is_tuned(tuned)


def test_unknown_and_missing_runtimes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    mode("missing")
    monkeypatch.setattr(OpenVinoRuntime, "missing", lambda _: "openvino is not installed; do so")
    source, tuned = tmp_path / "m.onnx", str(tmp_path / "t.onnx")
    onnx.save(net(), source)
    for runtimes, more, why in (
        ("ort,nothing", ["--tuned", tuned], "unknown runtime 'nothing'; there are ort, openvino"),
        ("openvino", ["--tuned", tuned], "openvino is not installed; do so"),
        ("ort,toy", ["--tuned", tuned], "toy is not there"),
        ("", ["--tuned", tuned], "unknown runtime ''"),
    ):
        command = ["optimize", str(source), "-o", str(tmp_path / "o.onnx"), "--runtimes", runtimes]
        assert main([*command, *more]) == 1
        assert f"error: {why}" in capsys.readouterr().err
    mode("right")
    assert main(["optimize", str(source), "--runtimes", "toy"]) == 1
    assert "name its file with --tuned" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx"}


def test_a_bench_says_once_that_a_file_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: Mode
) -> None:
    mode("right")
    paths = [tmp_path / "m.onnx", tmp_path / "t.onnx"]
    onnx.save(net(), paths[0])
    onnx.save(tuned_model(net(), net(), Execution("toy", 2)), paths[1])
    command = ["bench", *map(str, paths), "--budget", "1", "--check", "1"]
    assert main([*command, "--threads", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--threads", "1"]) == 0
    assert capsys.readouterr().err.count("threads 2 is not 1") == 1


def test_devices_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    mode("missing")
    store = tmp_path / "none.sqlite3"
    assert main(["devices", "--store", str(store), "--json", "-"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["devices"]}
    names = [
        "processor",
        "onnxruntime",
        "own kernels",
        "openvino",
        "broken",
        "other",
        "toy",
        "prices",
    ]
    assert list(found) == names
    assert found["onnxruntime"]["text"] == onnxruntime.__version__
    assert found["toy"]["text"] == "toy is not there"
    assert not found["broken"]["is_here"]
    assert not store.exists()
    monkeypatch.setattr(library, "_found", lambda: ("", "", "the kernels were not compiled"))
    monkeypatch.setattr(OpenVinoRuntime, "missing", lambda _: "openvino is not installed; do so")
    store.write_text("no database")
    assert main(["devices", "--store", str(store)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for text in ("kernels were not compiled", "openvino is not installed; do so", "is damaged"):
        assert text in output
    path = str(tmp_path / "prices.sqlite3")
    device = device_fingerprint().id
    places = ((device, 1, "a"), (device, 2, "a"), (device, 2, "b"), ("cpu-0", 1, "a"))
    keys = [ProfileKey("b", kernel, "i", on, threads, 1) for on, threads, kernel in places]
    store_of = ProfileStore(path)
    store_of.put_many(dict.fromkeys(keys, None))
    store_of.close()
    prices = inventory(path)[-1]
    assert prices.facts["threads"] == {"1": 1, "2": 2}
    assert prices.facts["kernels"] == 3
    assert "3 kernels of this processor (1 with 1 thread, 2 with 2 threads)" in prices.text
