"""Budgets and efforts: what is bounded by counts, and what a deadline that has passed cuts off.

No test waits: deadlines have clocks that only the test moves, or have passed from the start.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest
from rich.console import Console

from benchmarks.budgets import Outcome, verdict
from benchmarks.explosive import KINDS, SIZES, build
from eqsat_opt.api import explain, run
from eqsat_opt.contest import compare
from eqsat_opt.contest import examination as contest
from eqsat_opt.contest.examination import Terms, affordable, examine
from eqsat_opt.cost import pricing
from eqsat_opt.cost.metrics import with_ties_broken
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.deadline import Deadline
from eqsat_opt.egraph import Budget, EClasses, saturate
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.kernel import Kernel, Operand
from eqsat_opt.ir.kernel import Step as KernelStep
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.sizes import Sizes
from eqsat_opt.ir.types import TensorType
from eqsat_opt.options import Options
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.runtime.backends.ort import backend
from eqsat_opt.runtime.backends.ort.backend import OrtBackend
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.sandbox import Sandbox
from eqsat_opt.runtime.backends.workers import KernelWorker, Request, measure_kernels
from eqsat_opt.select.candidates import Candidate, Candidates
from eqsat_opt.select.proposal import SearchOptions, propose
from eqsat_opt.select.tiling import tile

BY_TIME = Objective(with_ties_broken({"time_us": 1.0}))


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def graph_of(name: str) -> Graph:
    return normalise(import_model(load_model(build(name))))


def eclasses_of(name: str) -> EClasses:
    return saturate(graph_of(name), ()).eclasses


# ** efforts **


def test_an_effort_sets_defaults_and_yields_to_what_is_given() -> None:
    assert Options() == Options(effort="normal")
    assert Options().budget_s == 30.0
    quick = Options(effort="quick")
    assert not quick.measure
    assert quick.budget_s < Options().budget_s < Options(effort="max").budget_s
    assert Options(effort="max").gap == 0.0
    assert Options(effort="quick", measure=True, budget_s=7.0).measure
    assert Options(effort="quick", budget_s=7.0).budget_s == 7.0
    assert Options(effort="max", check=0, race=False).check == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"effort": "huge"}, "unknown effort 'huge'; choose from quick"),
        ({"gap": 1.0}, "the gap is"),
    ],
)
def test_efforts_and_gaps_without_a_meaning(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        Options(**options)


# ** tiling **


def operands(candidates: Candidates) -> int:
    return sum(len(item.operands) for item in candidates.items)


@pytest.mark.parametrize("kind", ["growing_concat", "open_concat", "slices", "wide_layers"])
def test_candidates_are_linear_in_the_e_graph(kind: str) -> None:
    for size in (40, 160):
        eclasses = eclasses_of(f"{kind}@{size}")
        candidates = tile(eclasses, (OrtBackend(),))
        assert len(candidates.items) < 8 * eclasses.n_nodes
        assert operands(candidates) < 5_000 + 8 * eclasses.n_nodes


@pytest.mark.parametrize(("size", "kernels"), [(100, 1), (400, 2)])
def test_a_long_concatenation_is_one_kernel_or_few(size: int, kernels: int) -> None:
    items = tile(eclasses_of(f"open_concat@{size}"), (OrtBackend(),)).items
    longest: dict[int, Candidate] = {}
    for item in items:
        known = longest.get(item.cls)
        if item.kind == "concat" and (known is None or len(item.nodes) > len(known.nodes)):
            longest[item.cls] = item
    cls = next(item.reads[0] for item in items if item.nodes and item.kind == "op")  # of the Relu
    used = []
    while cls in longest:
        used.append(longest[cls])
        cls = used[-1].reads[0]
    assert sum(len(item.nodes) for item in used) == size - 1
    assert len(used) == kernels


def test_a_late_tiling_still_covers_the_model() -> None:
    graph = graph_of("low_rank_layers@4")
    eclasses = saturate(graph, default_rules(), Budget(nodes=2_000)).eclasses
    full = tile(eclasses, (OrtBackend(),))
    late = tile(eclasses, (OrtBackend(),), Deadline.after(-1.0))
    assert len(late.items) < len(full.items)
    own = {item.cls for item in full.items if all(eclasses.origin[n] == 0 for n in item.nodes)}
    assert own <= {item.cls for item in late.items}


# ** searching **


def test_a_late_search_ends_with_the_model_as_it_came() -> None:
    graph = graph_of("sums_and_products@12")
    search = SearchOptions(BY_TIME, Budget(), {}, measure=False, deadline=Deadline.after(-1.0))
    proposal = propose(graph, default_rules(), Pricer(None, 1), search)
    assert proposal.saturation.report.stopped_by == "time"
    assert proposal.choice.extraction.cost == pytest.approx(proposal.choice.original_cost)
    assert proposal.best.operator_counts() == graph.operator_counts()
    assert proposal.alternatives == ()


@dataclass
class StubWorker:
    """Takes ten seconds for each kernel; the third never ends in time."""

    clock: Clock
    asked: int = 0

    def measure(self, request: Request, threads: int, *, deadline: Deadline) -> str | None:
        self.asked += 1
        self.clock.now_s += 10.0
        return None if deadline.expired else request.content.decode()


def test_what_a_deadline_cuts_off_is_not_measured_and_no_failure() -> None:
    clock = Clock()
    worker = StubWorker(clock)
    requests = [Request("ort", name.encode()) for name in ("one", "two", "three", "four")]
    found = measure_kernels(
        requests, 1, worker=cast(KernelWorker, worker), deadline=Deadline.after(25.0, clock)
    )
    assert [str(one) for one in found] == ["one", "two"]
    assert worker.asked == 3


# ** checking and racing **


@pytest.mark.parametrize(("left_s", "expected"), [(6.0, 2), (8.0, 3), (20.0, 9)])
def test_as_many_race_as_can_be_built_twice_beside_the_twin(left_s: float, expected: int) -> None:
    assert affordable(2.0, Deadline.after(left_s, Clock())) == expected


def test_everybody_races_where_nothing_presses() -> None:
    assert affordable(1.0, Deadline.never()) > 100


def test_what_starts_slowly_is_not_taken_for_a_slow_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, clock = build("sums@3").SerializeToString(), Clock()

    class SlowToStart:
        def wait(self, deadline: Deadline) -> None:
            clock.now_s += 60.0

        def open(self, model: Any, options: OrtOptions, deadline: Deadline) -> OrtSession:
            return OrtSession(model, options)

    for module in (contest, compare):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
    terms = Terms(
        threads=1,
        numerics="reassociate",
        seeds=(0,),
        sizes=(Sizes(),),
        race_s=1.0,
        deadline=Deadline.after(61.0, clock),
        box=cast(Sandbox, SlowToStart()),
    )
    examined = examine({"best": model}, model, terms)
    assert examined.is_sound("best")
    assert examined.seconds == 60.0


def test_a_late_check_claims_nothing() -> None:
    model = build("sums@3").SerializeToString()
    late = Terms(1, "reassociate", (0,), (), 1.0, deadline=Deadline.after(-1.0))
    examined = examine({"best": model}, model, late)
    assert "--budget" in examined.obstacle
    assert not examined.is_sound("best")


def test_a_budget_that_loading_spends_leaves_the_original(tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    model = build("sums@5")
    result = run(model, Options(budget_s=1e-6, store=""), output=target)
    assert (result.report.status, result.report.winner) == ("unchanged", "original")
    assert "--budget" in result.report.notes[0]
    shown = Console(width=200, file=io.StringIO())
    shown.print(result.report)
    assert result.report.to_json()["optimality"] == "no other graph was looked for"
    assert onnx.load(target) == model
    with pytest.raises(OptionError, match="--budget"):
        explain(model, Options(budget_s=1e-6, store=""))


# ** the benchmark **


def test_explosive_graphs_can_be_built_at_any_size() -> None:
    assert SIZES.keys() == KINDS.keys()
    for kind in KINDS:
        assert build(f"{kind}@3").graph.node


@pytest.mark.parametrize(
    ("wall_s", "floor_s", "error", "expected"),
    [
        (7.0, 0.0, "", "ok"),
        (7.1, 0.0, "", "late"),
        (7.1, 0.2, "", "floor"),
        (0.0, 0.0, "x", "error"),
    ],
)
def test_verdicts_on_budgets(wall_s: float, floor_s: float, error: str, expected: str) -> None:
    assert verdict(Outcome("m", 5.0, wall_s=wall_s, floor_s=floor_s, error=error)) == expected


# ** kernels that are too large to be made in time **


def _product(columns: int) -> Kernel:
    operands = (
        Operand(TensorType("float32", (1, 1024)), const=False),
        Operand(TensorType("float32", (1024, columns)), const=True),
    )
    return Kernel(operands, (KernelStep("MatMul", (), (0, 1)),), (2,))


def test_no_kernel_is_made_that_cannot_be_measured_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = _product(2), _product(1 << 18)  # a gigabyte
    made: list[Kernel] = []

    def export(kernel: Kernel) -> bytes:
        made.append(kernel)
        return kernel.signature.encode()

    monkeypatch.setattr(backend, "export_kernel", export)
    monkeypatch.setattr(pricing, "measure_kernels", lambda *_args, **_options: [])
    pricer = pricing.Pricer(None, 1)
    try:
        pricer.measure(
            [Offer(large, "ort"), Offer(small, "ort")], deadline=Deadline.after(2.0, Clock())
        )
        assert made == [small]
        assert pricer.is_known(Offer(large, "ort"))
        assert not pricer.price(Offer(large, "ort")).measured
        pricer.measure([Offer(_product(3), "ort")], deadline=Deadline.after(0.0, Clock()))
        assert made == [small]
    finally:
        pricer.close()
