"""What looks at a GPU in one run: units and their children, plans of kernels, a whole rehearsal."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import (
    correctness,
    energy,
    measuring,
    probe,
    results,
    steps,
    timing,
    unit,
    worker,
)
from benchmarks.gpu.bench import GpuBench, HostBench
from benchmarks.gpu.cases import operator_cases, probes
from benchmarks.gpu.kernels import by_algorithm, crossing, repeated
from benchmarks.gpu.merging import merge, products_of
from benchmarks.gpu.peers.compared import PEERS
from benchmarks.gpu.prepared import (
    KernelPlan,
    ModelPlan,
    Prepared,
    kernel_constants,
    kernel_feeds,
    model_of,
    prepared_path,
    read_prepared,
    write_prepared,
)
from benchmarks.gpu.preparing import kernels_of
from benchmarks.gpu.results import Found, Results, results_path
from benchmarks.gpu.running import crew_of, run_units
from benchmarks.gpu.steps import units_of
from benchmarks.gpu.timing import by_turns, runs_for
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.on_device import plan_times_us
from eqsat_opt.cost.recorded import (
    load_recorded,
)
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.lab.zoo import _evaluate
from eqsat_opt.runtime.backends.cudnn.oracle import recorded
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.files import plan_to_json
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from tests.cuda_host.harness import missing
from tests.tools import gpu_units
from tests.tools.fake_gpu import FakeGpu
from tests.tools.fake_nvml import FakeNvml
from tests.unit.machines import Machine

ROOT = Path(__file__).parents[3]
HEAD = {"bench": "host", "prepared": "0"}


# ** units and their children **


def done(folder: Path, *units: unit.Unit, seconds: float = 100.0) -> Results:
    kept = Results(folder, "measure", HEAD)
    with crew_of("host", 1) as crew:
        run_units(units, kept, crew, Deadline.after(seconds))
    return kept


def entries(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = results.read_results(results_path(folder, "measure"))["units"]
    return found


def test_what_crashes_or_hangs_costs_nothing_else(tmp_path: Path) -> None:
    kinds = (
        "chatter", "refuse", "text", "set", "large", "good", "break", "crash", "hang", "babble",
        "hang with another",
    )  # fmt: skip
    units = [gpu_units.unit(kind, value=-i) for i, kind in enumerate(kinds)]
    for number in (8, 10):
        units[number] = replace(units[number], deadline_s=0.2)
    done(tmp_path, gpu_units.unit("good again", value=-20), *reversed(units))
    found = entries(tmp_path)
    assert list(found) == [*kinds, "good again"]  # by value
    states = {name: entry["state"] for name, entry in found.items()}
    assert states == {
        "chatter": "done", "good": "done", "good again": "done", "refuse": "failed",
        "text": "failed", "set": "failed", "large": "failed", "break": "failed",
        "crash": "crashed", "hang": "stopped", "babble": "crashed",
        "hang with another": "stopped",
    }  # fmt: skip
    assert found["chatter"]["result"] == {"is": "well", "infinite": "inf"}
    assert found["refuse"]["why"] == "there is no GPU here"
    assert found["break"]["why"] == "ZeroDivisionError: the context is lost"
    assert "gpu_units.py" in found["break"]["trace"]
    assert "SIGKILL" in found["crash"]["why"]
    assert found["crash"]["said"] == "the library gives up"
    assert "within 0 s" in found["hang"]["why"]
    assert found["good"]["result"]["pid"] != found["good again"]["result"]["pid"]


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    first = done(tmp_path, gpu_units.unit("good"), gpu_units.unit("refuse"))
    before = entries(tmp_path)
    again = done(tmp_path, gpu_units.unit("good"), gpu_units.unit("good again"))
    assert (first.counts()["done"], again.counts()["done"]) == (1, 2)
    assert entries(tmp_path)["good"] == before["good"]
    with pytest.raises(StageError, match="has bench 'host', not 'gpu'; give another --out"):
        Results(tmp_path, "measure", {**HEAD, "bench": "gpu"})


def test_what_failed_is_tried_again_after_all_else(tmp_path: Path) -> None:
    refused, good = gpu_units.unit("refuse", value=9), gpu_units.unit("good")
    done(tmp_path, refused)
    again = done(tmp_path, refused, good, gpu_units.unit("no memory", value=8))
    assert again.counts() == {"done": 1, "failed": 2}
    assert entries(tmp_path)["no memory"]["why"] == "MemoryError: MemoryError"
    kept = Results(tmp_path, "measure", HEAD)
    order: list[str] = []
    crew: Any = [SimpleNamespace(do=lambda one, _: order.append(one.name))]
    units = [refused, gpu_units.unit("chatter", value=0.5), gpu_units.unit("slow")]
    run_units(units, kept, crew, Deadline.after(100))
    assert order == ["slow", "chatter", "refuse"]


def test_units_are_told_how_much_time_there_is(tmp_path: Path) -> None:
    done(tmp_path, gpu_units.unit("told", deadline_s=600.0), seconds=50.0)
    assert 0 < entries(tmp_path)["told"]["result"]["deadline_s"] <= 50


def test_several_units_at_the_same_time(tmp_path: Path) -> None:
    units = [gpu_units.unit(one) for one in ("slow", "slow again", "good", "crash")]
    kept = Results(tmp_path, "measure", HEAD)
    with crew_of("host", 2) as crew:
        assert run_units(units, kept, crew, Deadline.after(100)) == []
    found = entries(tmp_path)
    assert kept.counts() == {"done": 3, "crashed": 1}
    assert found["slow"]["result"]["pid"] != found["slow again"]["result"]["pid"]


def test_an_interruption_waits_for_no_unit(tmp_path: Path) -> None:
    kept = Results(tmp_path, "measure", HEAD)

    def interrupted(*_: Any) -> NoReturn:
        while crew[1]._child is None:  # until the other one has begun
            time.sleep(0.01)
        raise KeyboardInterrupt

    with crew_of("host", 2) as crew:
        first: Any = SimpleNamespace(do=interrupted)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run_units([gpu_units.unit("hang")] * 2, kept, [first, crew[1]], Deadline.after(100))
        assert time.monotonic() - begin < 30
    assert kept.counts() == {}


def test_a_context_that_is_lost_ends_the_process() -> None:
    """What libraries refuse then looks as if they lacked something."""
    bench: Any = SimpleNamespace(device=lambda: "a GPU", is_sound=lambda: False)
    for kind, why in (("good", "the device takes no more work"), ("refuse", "no GPU here")):
        found = worker.run_unit(gpu_units.unit(kind), lambda: bench)
        assert (found["state"], found["is_spent"]) == ("failed", True)
        assert why in found["why"]
        assert "result" not in found


def test_results_of_two_devices_are_not_mixed(prepared: Prepared, tmp_path: Path) -> None:
    write_prepared(tmp_path, prepared)
    head = {"bench": "gpu", "prepared": read_prepared(tmp_path).digest}
    for step, device in (("measure", "NVIDIA H200"), ("probe", "NVIDIA H100")):
        kept = Results(tmp_path, step, head)
        kept.add("one", {"state": "done", "result": {}, "device": device})
        kept.add("two", {"state": "failed", "why": "is not known here"})
        kept.save()
    again = Results(tmp_path, "measure", head)
    with pytest.raises(StageError, match="results of NVIDIA H200; here is NVIDIA H100: give"):
        again.add("three", {"state": "done", "result": {}, "device": "NVIDIA H100"})
    with pytest.raises(StageError, match="results of NVIDIA H100 and of NVIDIA H200; part them"):
        merge(tmp_path)
    results_path(tmp_path, "measure").unlink()
    results_path(tmp_path, "probe").unlink()
    kept = Results(tmp_path, "probe", head)
    facts = {"device": "NVIDIA H100"}
    kept.add("facts", {"state": "done", "result": facts, **facts})
    kept.save()
    assert "plans were for NVIDIA H200; this is what NVIDIA H100 told" in merge(tmp_path)


def test_without_time_units_are_left(tmp_path: Path) -> None:
    kept = Results(tmp_path, "measure", HEAD)
    good = gpu_units.unit("good")
    long = replace(gpu_units.unit("good again"), least_s=200.0)
    with crew_of("host", 1) as crew:
        assert run_units([good], kept, crew, Deadline.after(0)) == [good]
        assert run_units([long], kept, crew, Deadline.after(100)) == [long]
    assert kept.counts() == {}


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Results(tmp_path, "measure", HEAD)
    kept.add("one", {"state": "done", "result": {}})

    def full(_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        kept.save()
    assert "No space left" in kept.trouble
    assert list(tmp_path.iterdir()) == []
    kept.save()
    assert kept.trouble == ""
    assert set(entries(tmp_path)) == {"one"}


def test_a_file_of_results_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MOST_BYTES", 300)
    kept = Results(tmp_path, "measure", HEAD)
    for number in range(4):
        kept.add(f"{number}", {"state": "done", "result": {"x": "y" * 100}})
    assert kept.counts() == {"done": 2, "failed": 2}
    assert kept.reasons() == {"the file of results is full": 2}


def test_results_are_written_while_units_run(tmp_path: Path) -> None:
    kept = Results(tmp_path, "measure", HEAD)
    with kept.saved_regularly(every_s=0.01):
        kept.add("one", {"state": "done", "result": {}})
        while not kept.path.exists():  # written by another thread
            pass
    assert set(entries(tmp_path)) == {"one"}


# ** timing **


def test_contestants_take_turns_in_changing_orders() -> None:
    order: list[str] = []

    def sampler(name: str, times: list[float]) -> Any:
        left = iter(times)

        def sample() -> float:
            order.append(name)
            return next(left)

        return sample

    times = {"a": [3.0, 1.0, 2.0, 9.0, 2.0], "b": [5.0] * 5, "c": [1.0] * 5}
    found = by_turns({name: sampler(name, values) for name, values in times.items()}, 0.0)
    assert found["a"].samples_us == (3.0, 1.0, 2.0, 9.0, 2.0)
    rounds = [tuple(order[i : i + 3]) for i in range(0, 15, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 1
    measured = found["a"].measurement
    assert (measured.time_us, found["a"].mad_us, measured.wall_us, measured.n) == (2.0, 1.0, 1.0, 5)
    assert measured.clock == "device"
    assert by_turns({}, 1.0) == {}
    assert [runs_for([x, 2 * x]) for x in (0.0, 4.0, 1e9)] == [1000, 250, 1]


# ** plans of kernels **


MODEL = "sru_step"
LIBRARIES = {"MatMul": "cublaslt"}


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    model = model_of(MODEL, "tiny")
    graph = normalise(import_model(load_model(model)))
    plans = []
    for streams in (1, 2):
        plan = make_plan(
            graph,
            stored_tensors(model),
            lambda node: LIBRARIES.get(node.op, "cuda"),
            algorithm_of=lambda node: "heuristic" if node.op in LIBRARIES else "default",
            streams=streams,
            target="h200",
        )
        title = f"as it stands, {streams} streams"
        plans.append(ModelPlan(MODEL, "tiny", title, plan_to_json(plan), 10.0))
    kernels = tuple(kernels_of(plans, load_profile("h200")))
    cases = tuple(islice(operator_cases("h200"), 14))
    return Prepared("h200", tuple(plans), kernels, cases, probes("h200"))


def values(kernel: KernelPlan, plan: Plan) -> list[Array]:
    found = interpret(plan, kernel_constants(kernel, plan), kernel_feeds(kernel, plan))
    return list(found.values())


def test_a_kernel_alone_by_another_way_and_several_times(prepared: Prepared) -> None:
    assert {one.backend for one in prepared.kernels} == {"cuda", "cublaslt"}
    assert {one.backend for one in prepared.cases} == {"cuda", "cublaslt"}
    for kernel in (*prepared.kernels, *prepared.cases):
        wanted = values(kernel, kernel.plan)
        other = by_algorithm(kernel.plan, "another", 1000)
        (launch,) = other.launches
        assert (launch.algorithm, launch.workspace.size_bytes) == ("another", 1000)
        several = repeated(other, 3)
        assert len(several.launches) == 3
        assert several.arena_bytes >= 3 * other.arena_bytes
        for plan in (other, several, crossing(several)):
            check_plan(plan)
            found = values(kernel, plan)
            assert len(found) == len(wanted) * len(plan.launches)
            for number, one in enumerate(found):
                np.testing.assert_array_equal(one, wanted[number % len(wanted)])


class Wrong(HostBench):
    """A device that makes an error."""

    def __init__(self, share: float) -> None:
        self.share = share

    def load(
        self, plan: Plan, constants: Mapping[str, Array], *, is_captured: bool = True
    ) -> Executable:
        changed = {name: (x * (1 + self.share)).astype(x.dtype) for name, x in constants.items()}
        return super().load(plan, changed, is_captured=is_captured)


def test_errors_are_found(prepared: Prepared, tmp_path: Path) -> None:
    write_prepared(tmp_path, prepared)
    units = correctness.units(unit.Task(tmp_path))
    assert len(units) == 2 + len(prepared.kernels) + len(prepared.cases)
    plans = [one for one in units if "plan" in one.request]
    product = next(one for one in units if one.name.startswith("cublaslt"))
    for one in (*plans, product):
        assert correctness.run(one, HostBench())["is_good"]
        assert not correctness.run(one, Wrong(1e-2))["is_good"]
        assert not correctness.run(one, Wrong(float("nan")))["is_good"]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_same_on_a_gpu(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeGpu(tmp_path).install(monkeypatch)
    write_prepared(tmp_path, prepared)
    units = correctness.units(unit.Task(tmp_path))
    one = next(one for one in units if one.request.get("plan", "").endswith("2 streams"))
    found = correctness.run(one, GpuBench())
    assert found["is_good"]
    assert found["is_eager_equal"]
    assert found["equal_runs"] > 0
    bench = GpuBench()
    kernel = next(one for one in prepared.kernels if one.backend == "cublaslt")
    plan = repeated(kernel.plan, 4)
    executable = bench.load(plan, kernel_constants(kernel, plan))
    executable.bind(kernel_feeds(kernel, plan))
    assert bench.sampler(executable, 5)() == pytest.approx(0.0)  # captured work is not queued anew
    assert "fake" in str(bench.facts()["device"]).lower()
    assert bench.is_sound()

    def lost() -> NoReturn:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "deviceSynchronize", lost)
    assert not bench.is_sound()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_every_step_on_a_gpu(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit of each kind; those of many runs, with fewer of them."""
    FakeGpu(tmp_path).install(monkeypatch)
    monkeypatch.setattr(timing, "MOST_ROUNDS", 5)
    monkeypatch.setattr(timing, "_MOST_RUNS", 2)
    monkeypatch.setattr(measuring, "_MOST_COPIES", 2)
    machine = Machine()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(machine))
    monkeypatch.setattr(energy, "SYSTEM_CLOCK", machine)
    write_prepared(tmp_path, prepared)
    bench, task = GpuBench(), unit.Task(tmp_path)

    def found(step: str, name: str) -> dict[str, Any]:
        one = next(one for one in units_of(step, task) if one.name.startswith(name))
        result = worker.run_unit(one, lambda: bench)
        assert result["state"] == "done", result
        assert result["device"] == "Fake"
        return dict(result["result"])

    facts = found("probe", "facts")
    assert (facts["driver"], facts["free_bytes"]) == (13000, 1 << 40)
    assert found("probe", "gelu")["gelu"] == "tanh"
    assert found("probe", "ticks")["tick_ms"] == pytest.approx(100, abs=5)
    timed = found("measure", "cublaslt")["ways"]["heuristic"]
    assert timed["measurement"]["n"] == 5
    assert len(found("compare", f"{MODEL}: plans")["plans"]) == 2
    convolved = next(key for key in recorded("sm_90") if '"x"' in key)
    request = {"specs": [json.loads(convolved)], "target": "h200"}
    asked = unit.Unit("probe", "support", probe.__name__, request=request)
    assert probe.run(asked, bench)["answers"][0][1] == [["eng0", 0]]
    ended_ns = machine.now_ns

    def queued(*_: Any) -> None:
        nonlocal ended_ns
        ended_ns = max(ended_ns, machine.now_ns) + 1_000_000

    monkeypatch.setattr(CudaDevice, "replay", queued)
    monkeypatch.setattr(
        CudaDevice,
        "synchronize",
        lambda _: machine.sleep(max(ended_ns - machine.now_ns, 0) / 1e9),
    )
    plans = found("energy", f"{MODEL}: plans")
    assert [one["time_us"] for one in plans["loads"]] == pytest.approx([1000] * 3, rel=0.05)


def test_the_gelu_that_was_found_becomes_a_table(prepared: Prepared, tmp_path: Path) -> None:
    """Only what a device told, and only if it is one of both forms."""
    base = load_profile("h200")
    for gelu, is_real, expected in (
        ("tanh", True, "tanh"), ("none", True, "none"), ("", True, None), ("none", False, None),
    ):  # fmt: skip
        results = {"gelu": {"gelu": gelu}, "facts": {"cublaslt": 130200}}
        units = {name: {"state": "done", "result": one} for name, one in results.items()}
        made = products_of(Found({"probe": units}, is_real, "2026-01-01"), base)
        assert (None if made is None else (made.gelu, made.version)) == (
            None if expected is None else (expected, 130200)
        )


@pytest.mark.parametrize(("form", "told"), [("none", "none"), ("tanh", "tanh"), ("relu", "")])
def test_which_gelu_is_told_by_its_numbers(
    form: str, told: str, prepared: Prepared, tmp_path: Path
) -> None:
    write_prepared(tmp_path, prepared)
    kernel = next(one for one in prepared.probes if one.name == "gelu")
    (launch,) = kernel.plan.launches
    changed: dict[str, Any] = {"op": "Relu", "attrs": ()} if form == "relu" else {}
    last = replace(launch.body.steps[-1], attrs=attributes(approximate=form))
    body = replace(launch.body, steps=(*launch.body.steps[:-1], replace(last, **changed)))

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        return [
            x.astype(np.float32)
            for x in correctness.exact(body, [feeds[name] for name in launch.reads])
        ]

    bench: Any = SimpleNamespace(load=lambda _plan, _constants: SimpleNamespace(run=run))
    request = {"folder": str(tmp_path), "probe": "gelu"}
    found = probe.run(unit.Unit("probe", "gelu", probe.__name__, request=request), bench)
    assert found["gelu"] == told


# ** a rehearsal **

ABSENT = (
    "egglog", "ortools", "onnxruntime", "rich", "typer", "rustworkx", "platformdirs",
    "scipy", "pandas", "cupy", "cudnn", "nvmath", "torch", "jax", "pynvml", "openvino", "pytest",
    "hypothesis",
)  # fmt: skip
HOOK = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_a_rehearsal_needs_four_packages(prepared: Prepared, tmp_path: Path) -> None:
    folder, hook = tmp_path / "out", tmp_path / "hook"
    folder.mkdir()
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    write_prepared(folder, prepared)
    for _ in range(3):  # where others have the processor, what was stopped for its delay is redone
        ran = subprocess.run(
            [
                sys.executable, "-m", "benchmarks.gpu", "all", "--out", folder, "--dry-run",
                "--budget", "600",
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(hook), str(ROOT)))},
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
        units = [one for step in unit.STEPS for one in read(folder, step)["units"].values()]
        absent = [one for one in units if one.get("why", "").startswith("absent: ")]
        states = {one["state"] for one in units if one not in absent}
        if "stopped" not in states:
            break
    assert states == {"done"}, ran.stdout
    assert len(absent) == len(PEERS)
    assert len(list(folder.iterdir())) == 6
    told = merge(folder)
    assert f"{len(prepared.kernels)} prices" in told
    text = (folder / "tables.md").read_text()
    assert "times are invented" in text
    assert "cuBLASLt computes Gelu as: none" in text  # as the operator is defined
    assert "moves each 100 ms by 3e+07 µJ" in text  # of a counter of 300 W
    assert not (folder / "products.json.gz").exists()  # no device has told that
    assert f"| {MODEL}, as it stands, 2 streams |" in text
    device = load_recorded(folder / "device.json")  # type: ignore[arg-type]
    assert device is not None
    assert device.profile.launch_us.is_assumed
    plan = prepared.plans[0].plan
    times, count = plan_times_us(device, plan)
    assert count == len(plan.launches)
    assert all(time_us > 0 for time_us in times)


def read(folder: Path, step: str) -> dict[str, Any]:
    return results.read_results(results_path(folder, step))


# ** the command line **


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert command.main([str(one) for one in arguments]) == 1
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    return line


def test_what_a_user_did_wrong_is_one_sentence(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object) -> str:
        return failure(capsys, *arguments)

    new, good, file = tmp_path / "new", tmp_path / "good", tmp_path / "file"
    good.mkdir()
    file.write_text("a file")
    write_prepared(good, prepared)
    assert fails("probe") == "error: name one folder: --out DIR"
    assert fails("probe", good, "--out", good) == "error: name one folder: --out DIR"
    assert "cannot make the folder" in fails("probe", "--out", file)
    assert "run python -m benchmarks.gpu prepare" in fails("all", "--out", new)
    assert "run python -m benchmarks.gpu prepare" in fails("merge", "--out", new)
    assert "has no results" in fails("merge", "--out", good)
    assert "'nope' was not prepared; there are sru_step" in fails(
        "all", "--out", good, "--models", "nope", "--dry-run"
    )
    assert "nope" in fails("prepare", "--out", new, "--models", "nope")
    assert "unknown device 'nope'" in fails("prepare", "--out", new, "--target", "nope")
    assert "nothing runs plans on" in fails("prepare", "--out", new, "--target", "xeon")
    assert list(new.iterdir()) == []
    others = [
        replace(one, document={**one.document, "versions": {"cuda": "cuda 0"}})
        for one in prepared.cases
    ]
    write_prepared(good, replace(prepared, cases=tuple(others)))
    assert "was made with cuda 0; here is cuda " in fails("all", "--out", good, "--dry-run")
    for data in (b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b"[]"), gzip.compress(b"{}")):
        prepared_path(good).write_bytes(data)
        assert "is damaged" in fails("probe", "--out", good, "--dry-run")


def test_without_a_gpu_nothing_is_learnt(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(tmp_path, replace(prepared, kernels=(), cases=(), plans=prepared.plans[:1]))
    results_path(tmp_path, "correctness").write_text("{}")
    assert command.main(["correctness", "--out", str(tmp_path), "--dry-run"]) == 1
    assert "is no file of results; remove it" in capsys.readouterr().err
    if find_spec("cupy") is not None:
        pytest.skip("CuPy is here")
    results_path(tmp_path, "correctness").unlink()
    assert command.main(["compare", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.err == "error: nothing was learnt\n"
    assert "1 because: No module named 'cupy'; run pip install 'eqsat-opt[gpu]'" in told.out


def test_what_cannot_be_written_was_not_learnt(
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_prepared(tmp_path, replace(prepared, kernels=(), cases=(), plans=()))

    def full(_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(
        "benchmarks.gpu.__main__.units_of", lambda step, task: [gpu_units.unit("good")]
    )
    assert command.main(["measure", "--out", str(tmp_path), "--dry-run"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "No space left" in told[0]
    assert told[1] == "error: nothing was learnt"


def test_a_step_that_cannot_be_read_costs_no_other_one(
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And what is left over goes to what had too little time."""
    write_prepared(tmp_path, prepared)

    def units(step: str, task: unit.Task) -> list[unit.Unit]:
        if step == "compare":
            raise ValueError("27 is no type")
        good = replace(gpu_units.unit("good"), step=step)
        return [good] if step in ("correctness", "energy") else []

    monkeypatch.setattr(command, "units_of", units)
    monkeypatch.setitem(steps.SHARES, "correctness", 1e-9)
    assert command.main(["all", "--out", str(tmp_path), "--dry-run", "--budget", "60"]) == 0
    told = capsys.readouterr()
    assert told.err == "compare: ValueError: 27 is no type\n"
    assert "correctness: 1 left for want of time" in told.out
    assert [list(read(tmp_path, step)["units"]) for step in ("correctness", "energy")] == [
        ["good"], ["good"],
    ]  # fmt: skip


def test_what_is_wrong_is_not_measured(prepared: Prepared, tmp_path: Path) -> None:
    write_prepared(tmp_path, prepared)
    task = unit.Task(tmp_path)
    every = {one.name for one in measuring.units(task)}
    assert every == {one.name for one in prepared.kernels}
    kept = Results(tmp_path, "correctness", HEAD)
    first, second = (one.name for one in correctness.units(task) if "kernel" in one.request)
    for state, result, is_left_out in (
        ("done", {"is_good": True}, False),
        ("done", {"is_good": False}, True),
        ("failed", {}, False),
        ("crashed", {}, True),
    ):
        kept.add(first, {"state": "done", "result": {"is_good": True}})
        kept.add(second, {"state": state, "result": result})
        kept.save()
        left_out = {second.rpartition(": ")[0]} if is_left_out else set()
        assert {one.name for one in measuring.units(task)} == every - left_out


@pytest.mark.parametrize("step", ["prepare", "merge"])
def test_what_needs_all_of_the_package_says_so(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("benchmarks.gpu.preparing", "benchmarks.gpu.merging"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "this step needs all of the package" in failure(capsys, step, "--out", tmp_path)


def test_damaged_results_are_told(prepared: Prepared, tmp_path: Path) -> None:
    write_prepared(tmp_path, prepared)
    digest = read_prepared(tmp_path).digest
    kept = Results(tmp_path, "measure", {"bench": "host", "prepared": digest})
    kept.add("one", {"state": "done", "result": {"ways": 3}})
    kept.save()
    with pytest.raises(StageError, match="are damaged"):
        merge(tmp_path)
    other = Results(tmp_path, "probe", {"bench": "gpu", "prepared": digest})
    other.tell(note=1)
    other.save()
    with pytest.raises(StageError, match="of a rehearsal and of a device"):
        merge(tmp_path)


def test_an_interruption_keeps_what_is_known(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prepared(tmp_path, prepared)

    def units(step: str, task: unit.Task) -> list[unit.Unit]:
        return [gpu_units.unit("good"), gpu_units.unit("hang", value=0)]

    def interrupt(children: Any, one: unit.Unit, deadline: Deadline) -> Any:
        if one.name == "hang":
            raise KeyboardInterrupt
        return {"state": "done", "result": {}}

    monkeypatch.setattr("benchmarks.gpu.__main__.units_of", units)
    monkeypatch.setattr("benchmarks.gpu.running.Children.do", interrupt)
    assert command.main(["measure", "--out", str(tmp_path), "--dry-run"]) == 130
    assert set(entries(tmp_path)) == {"good"}


@pytest.mark.parametrize("arguments", [["dance"], ["all", "--budget", "-1"], ["all", "--bugdet=1"]])
def test_the_parser_tells_what_there_is(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "usage:" in told
    assert "_seconds" not in told


# ** weights **


@pytest.mark.parametrize("name", ["bert_full", "nasnet_cell", "cnn_training"])
def test_the_zoo_needs_no_onnxruntime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = stored_tensors(zoo.build(name, scale="tiny"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        assert _evaluate.evaluator() is _evaluate._by_registry
        without = stored_tensors(zoo.build(name, scale="tiny"))
    assert usual.keys() == without.keys()
    for key, load in usual.items():
        one, other = load(), without[key]()
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_what_was_prepared_is_read_as_it_was_written(prepared: Prepared, tmp_path: Path) -> None:
    size = write_prepared(tmp_path, prepared)
    assert size == prepared_path(tmp_path).stat().st_size
    found = read_prepared(tmp_path)
    assert replace(found, digest="") == prepared
    assert found.of([MODEL]) == found
    document = json.loads(gzip.decompress(prepared_path(tmp_path).read_bytes()))
    document["target"] = "a100"
    prepared_path(tmp_path).write_bytes(gzip.compress(json.dumps(document).encode()))
    assert read_prepared(tmp_path).target == "a100"
    assert read_prepared(tmp_path).digest != found.digest
