"""Peak memory as an objective and as a limit: bounds, orders of files, and what is said of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.api import run
from eqsat_opt.cost.metrics import PEAK
from eqsat_opt.errors import ExtractionError, OptionError, PlanError
from eqsat_opt.extract import Objective
from eqsat_opt.ir import import_model, load_model
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.pipeline.forms.plan_memory import of_least_memory
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.plans import read_plan
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.runtime.memory.session_memory import SessionMemory
from eqsat_opt.select.rebuilding.planning import PlanDraft

FAST = Options(check=1, race=False, measure=False, store="", rules="none", alternatives=0)


def branches() -> Graph:
    """Return a graph that a default session runs in an order of high peak.

    It computes the wide values of both branches first, and then what makes them narrow.
    """
    maker = GraphMaker()
    x = maker.input("x", 4, 8)
    narrow = []
    wide = [maker("Concat", *[maker(op, x)] * 8, axis=1) for op in ("Sin", "Cos", "Exp")]
    narrow = [maker("Slice", maker(op, w), axis=1, lo=0, hi=8)
              for op, w in zip(("Tanh", "Abs", "Neg"), wide, strict=True)]  # fmt: skip
    added = maker("Add", maker("Add", narrow[0], narrow[1]), narrow[2])
    late = [maker("Slice", w, axis=1, lo=8, hi=16) for w in wide]
    return maker.graph(added, *late)


MODEL = model_proto(export_model(branches()))


def optimised(**changes: Any) -> tuple[Any, Report]:
    result = run(MODEL, replace(FAST, **changes))
    return result.model, result.report


def peak_of(model: Any) -> int:
    return SessionMemory(import_model(load_model(model)), {}).peak_bytes()


def test_a_report_tells_the_peak_of_both_files() -> None:
    model, report = optimised(objective="launches")
    assert report.metrics_before[PEAK] == peak_of(MODEL)
    assert report.metrics_after[PEAK] == peak_of(model)


def test_the_least_peak_is_found_by_order_alone() -> None:
    model, report = optimised(objective="peak_bytes")
    assert peak_of(model) == report.metrics_after[PEAK] < peak_of(MODEL)
    assert report.lower_bound <= report.cost == report.metrics_after[PEAK]
    assert report.operators_after == report.operators_before


@pytest.fixture(scope="module")
def least() -> float:
    return optimised(objective="peak_bytes")[1].cost


@pytest.mark.parametrize("objective", ["time", "time*bytes", "flops/time"])
def test_a_limit_is_kept_whatever_is_minimised(objective: str, least: float) -> None:
    model, report = optimised(objective=objective, limits=(f"peak_bytes<={least}",))
    assert peak_of(model) <= least < peak_of(MODEL)
    assert report.limits == (f"peak_bytes<={least:g}",)
    assert report.original_breaks.startswith("peak_bytes is")


def test_a_limit_that_is_kept_changes_nothing() -> None:
    free = optimised(objective="flops")[1]
    kept = optimised(objective="flops", limits=("peak_bytes<=1e9",))[1]
    assert (kept.cost, kept.original_breaks) == (free.cost, "")


def test_a_limit_below_all_bounds_is_an_error_that_names_them() -> None:
    with pytest.raises(ExtractionError, match=r"the least found takes \d+ B, and none can take "):
        optimised(limits=("peak_bytes<=1000",))


def test_a_cap_on_kernels_is_another_thing(least: float) -> None:
    _, report = optimised(objective="flops", limits=(f"max(peak_bytes)<={least}",))
    assert report.original_breaks == ""


def test_kernels_of_a_device_run_in_an_order_of_their_own() -> None:
    _, report = optimised(objective="peak_bytes", target="v100")
    assert report.lower_bound <= report.metrics_after[PEAK] <= report.metrics_before[PEAK]


def test_a_plan_keeps_the_limit_in_its_arena(tmp_path: Path) -> None:
    own: dict[str, Any] = {"plan": str(tmp_path / "x.plan.json"), "backends": ("ort", "numpy")}
    optimised(objective="peak_bytes", **own)
    least = read_plan(own["plan"]).arena_bytes
    own["limits"] = (f"peak_bytes<={least}",)
    optimised(objective="bytes", **own)
    assert read_plan(own["plan"]).arena_bytes == least
    with pytest.raises(OptionError, match="memory inside a session is no part of a plan"):
        optimised(objective="bytes", **{**own, "backends": ("ort",)})


def test_a_plan_for_a_device_has_the_least_arena(tmp_path: Path) -> None:
    path = str(tmp_path / "x.plan.json")
    plans = []
    for objective in ("launches", "peak_bytes"):
        optimised(objective=objective, target="v100", plan=path)
        plans.append(read_plan(path))
    assert plans[1].arena_bytes <= plans[0].arena_bytes
    with pytest.raises(PlanError, match=r"no plan within peak_bytes<=100 was found"):
        of_least_memory(
            [PlanDraft("x", "y", plans[0])], Objective({"flops": 1.0}, limits={PEAK: 100.0})
        )
