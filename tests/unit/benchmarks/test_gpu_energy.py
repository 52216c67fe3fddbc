"""The step that measures energy, and the model that is fitted to kernels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu import energy
from benchmarks.gpu.bench import HostBench
from benchmarks.gpu.energy_fit import (
    EnergySample,
    fit_energy,
    model_to_json,
    non_negative,
    plan_uj,
)
from benchmarks.gpu.prepared import ModelPlan, Prepared, model_of, write_prepared
from benchmarks.gpu.preparing import kernels_of
from benchmarks.gpu.tables import tables
from benchmarks.gpu.unit import Task
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.runtime.devices.energy import load_energy_model
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.files import plan_to_json
from eqsat_opt.runtime.planning.planner import make_plan

# ** the fit **

TRUE: dict[str, Any] = {
    "static_w": 80.0,
    "flop": 2.0,
    "byte": 60.0,
    "of": {"eng0": 1.0, "eng51": 0.5},
}


def sample(number: int, algorithm: str, noise: float = 0.0) -> EnergySample:
    draw = np.random.default_rng(number)
    time_us, flops, size_bytes = draw.uniform([5, 1e6, 1e4], [500, 5e9, 5e7])
    moving = TRUE["flop"] * flops + TRUE["byte"] * size_bytes
    energy_uj = TRUE["static_w"] * time_us + TRUE["of"][algorithm] * moving * 1e-6
    energy_uj *= 1 + noise * draw.standard_normal()
    return EnergySample(f"{algorithm} {number}", algorithm, time_us, flops, size_bytes, energy_uj)


SAMPLES = [sample(n, "eng0") for n in range(6)] + [sample(n, "eng51") for n in range(6, 11)]


def test_a_fit_finds_what_samples_were_made_of(tmp_path: Path) -> None:
    fitted = fit_energy(SAMPLES, "made up")
    model = fitted.model
    assert model.static_w.value == pytest.approx(80, rel=1e-3)
    assert model.pj_per_flop["fp32"].value == pytest.approx(2, rel=1e-3)
    assert model.pj_per_byte.value == pytest.approx(60, rel=1e-3)
    assert model.of_algorithm["eng51"].value == pytest.approx(0.5, rel=1e-3)
    assert fitted.median_error < 1e-3
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model_to_json(model)))
    assert load_energy_model(path) == model


def test_noise_moves_a_fit_a_little() -> None:
    noisy = [sample(n, "eng0", 0.02) for n in range(12)]
    assert fit_energy(noisy, "x").median_error < 0.03


def test_a_plan_is_the_sum_of_its_launches() -> None:
    model = fit_energy(SAMPLES, "x").model
    both = [SAMPLES[0], SAMPLES[-1]]
    work = {one.algorithm: (one.flops, one.size_bytes) for one in both}
    said = plan_uj(model, sum(one.time_us for one in both), work)
    assert said == pytest.approx(sum(one.energy_uj for one in both), rel=1e-3)


def test_too_few_samples_make_no_model() -> None:
    odd = [replace(one, energy_uj=math.nan) for one in SAMPLES]
    for few in (SAMPLES[:3], odd, [replace(one, energy_uj=0.0) for one in SAMPLES]):
        with pytest.raises(OptionError, match="a model needs 4"):
            fit_energy(few, "x")


@given(st.integers(0, 1000), st.integers(1, 4))
def test_least_squares_without_negative_numbers(seed: int, terms: int) -> None:
    """At the solution the slope is 0 where a number is positive, and upwards where it is 0."""
    draw = np.random.default_rng(seed)
    columns, target = draw.standard_normal((8, terms)), draw.standard_normal(8)
    found = non_negative(columns, target)
    slope = columns.T @ (columns @ found - target)
    assert (found >= 0).all()
    assert (slope >= -1e-9).all()
    assert np.abs(slope * found).max() < 1e-9


# ** the step **


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("energy")
    plans = []
    for name in ("sru_step", "bert_taso"):
        model = model_of(name, "tiny")
        graph = normalise(import_model(load_model(model)))
        for streams in (1, 2):
            plan = make_plan(graph, stored_tensors(model), lambda _: "cuda", streams=streams,
                             target="h200")  # fmt: skip
            plans.append(ModelPlan(name, "tiny", f"{streams} streams", plan_to_json(plan), 10.0))
    kernels = tuple(kernels_of(plans, load_profile("h200")))
    write_prepared(made, Prepared("h200", tuple(plans), kernels, (), ()))
    return made


def test_plans_and_kernels_in_a_rehearsal(folder: Path) -> None:
    units = energy.units(Task(folder))
    names = [one.name for one in units]
    assert names[:2] == ["sru_step: plans", "bert_taso: plans"]
    assert len(names) == len(set(names)) == 2 + energy._KERNELS
    found = {one.name: dict(energy.run(one, HostBench())) for one in units}
    plans = found["sru_step: plans"]
    assert {one["load"] for one in plans["loads"]} == {
        "1 streams", "1 streams again", "2 streams",
    }  # fmt: skip
    assert len(plans["windows"]) == 15
    assert all(not one["refusal"] for one in plans["windows"])
    assert plans["least_energy"] in plans["work"]
    for one in plans["loads"]:
        assert one["energy_uj"] == pytest.approx(300 * one["time_us"], rel=0.02)
    kernel = found[names[2]]
    assert kernel["energy_uj"] == pytest.approx(300 * kernel["time_us"], rel=0.02)
    assert (kernel["flops"] > 0) or (kernel["size_bytes"] > 0)
    steps = {"energy": {n: {"state": "done", "result": json.loads(json.dumps(r))}
                        for n, r in found.items()}}  # fmt: skip
    told = SimpleNamespace(
        steps=steps, is_real=False, written_at="2026-01-01", source=lambda what: what,
        done=lambda step: ((n, e["result"]) for n, e in steps.get(step, {}).items()),
    )  # fmt: skip
    base = load_profile("h200")
    text = tables(told, base, base)  # type: ignore[arg-type]
    assert "| sru_step, 1 streams |" in text
    assert "| plan | µs | W | mJ | saved | noise | model |" in text


def test_chosen_kernels_lie_apart() -> None:
    def kernel(number: int, flops: float, size_bytes: float) -> Any:
        return SimpleNamespace(name=str(number), backend="cuda", work=(flops, size_bytes))

    kernels = [kernel(0, 1e9, 1e6), kernel(1, 1e9, 1.1e6), kernel(2, 0, 1e6), kernel(3, 1e3, 1e3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "_place", lambda k: tuple(math.log(x + 1) for x in k.work))
        chosen = [one.name for one in energy.chosen_kernels(kernels, 3)]
        assert sorted(chosen)[1:] == ["2", "3"]
        assert energy.chosen_kernels([], 3) == []


def test_without_a_gpu_the_reason_is_one_sentence(folder: Path) -> None:
    bench: Any = SimpleNamespace(name="gpu")
    with pytest.raises(RuntimeFailed, match=r"^there is no GPU: ") as caught:
        energy.run(energy.units(Task(folder))[0], bench)
    assert "\n" not in str(caught.value)


def test_what_time_does_not_allow_is_left(folder: Path) -> None:
    hurried = replace(energy.units(Task(folder))[0], deadline_s=0.0)
    assert len(energy.run(hurried, HostBench())["windows"]) == 1
