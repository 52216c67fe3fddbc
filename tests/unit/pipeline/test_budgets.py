"""Budgets and efforts: what is bounded by counts, and what a deadline that has passed cuts off.

No test waits: deadlines have clocks that only the test moves, or have passed from the start.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest
from rich.console import Console

from benchmarks.budgets import Outcome, verdict
from benchmarks.explosive import KINDS, SIZES, build
from eqsat_opt.api import explain, run
from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost import pricing
from eqsat_opt.cost.metrics import with_ties_broken
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.egraph import Budget, EClasses, saturate
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph import handles
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.handles import folding_s
from eqsat_opt.ir.graph.kernel import Kernel, Operand
from eqsat_opt.ir.graph.kernel import Step as KernelStep
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.pipeline import optimise as optimising
from eqsat_opt.pipeline import terms
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.racing import examination
from eqsat_opt.racing.examination import RaceTerms, affordable, examine
from eqsat_opt.runtime import processor
from eqsat_opt.runtime.backends.ort import backend
from eqsat_opt.runtime.backends.ort.backend import OrtBackend
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.sandbox import Sandbox, sandbox
from eqsat_opt.runtime.backends.workers import KernelWorker, MeasurementRequest, measure_kernels
from eqsat_opt.select import proposal as proposal_module
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.proposal import SearchOptions, propose
from eqsat_opt.select.rebuilding.constants import Constants, late_constants
from eqsat_opt.select.tiling.candidates import Candidate, Candidates, Selection
from eqsat_opt.select.tiling.concatenations import concatenations
from eqsat_opt.select.tiling.tiling import tile
from eqsat_opt.validation import reference
from eqsat_opt.validation.compare import Reference

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


def test_a_late_tiling_flattens_no_concatenation_that_rules_made() -> None:
    eclasses = saturate(graph_of("slices@40"), default_rules(), Budget(nodes=2_000)).eclasses
    made = [n for n in range(eclasses.n_nodes) if eclasses.origin[n]]
    pairs = [n for n in made if eclasses.op[n] == "Concat"]
    assert pairs
    full = list(concatenations(eclasses, pairs))
    late = list(concatenations(eclasses, pairs, Deadline.after(-1.0)))
    assert max(len(item.nodes) for item in full) > 1
    assert {len(item.nodes) for item in late} == {1}
    assert {item.cls for item in late} == {item.cls for item in full}


# ** searching **


def test_what_cannot_be_chosen_in_time_is_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    graph = graph_of("sums_and_products@12")
    priced: list[int] = []

    def slowly(eclasses: EClasses, *rest: Any) -> Candidates:
        clock.now_s += 6.0
        return tile(eclasses, *rest)

    def pricing_of(saturation: Any, *rest: Any, **named: Any) -> PricedCandidates:
        priced.append(saturation.eclasses.n_nodes)
        return original(saturation, *rest, **named)

    original = proposal_module._priced
    monkeypatch.setattr(proposal_module, "tile", slowly)
    monkeypatch.setattr(proposal_module, "_priced", pricing_of)
    deadline = Deadline.after(10.0, clock)
    search = SearchOptions(BY_TIME, Budget(), {}, measure=False, deadline=deadline)
    proposal = propose(graph, default_rules(), Pricer(None, 1), search)
    assert priced == [proposal.saturation.eclasses.n_nodes]
    assert proposal.saturation.report.stopped_by == "time"
    assert proposal.best.operator_counts() == graph.operator_counts()


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

    def measure(
        self, request: MeasurementRequest, threads: int, *, deadline: Deadline
    ) -> str | None:
        self.asked += 1
        self.clock.now_s += 10.0
        return None if deadline.expired else request.content.decode()


def test_what_a_deadline_cuts_off_is_not_measured_and_no_failure() -> None:
    clock = Clock()
    worker = StubWorker(clock)
    requests = [
        MeasurementRequest("ort", name.encode()) for name in ("one", "two", "three", "four")
    ]
    found = measure_kernels(
        requests, 1, worker=cast(KernelWorker, worker), deadline=Deadline.after(25.0, clock)
    )
    assert [str(one) for one in found] == ["one", "two"]
    assert worker.asked == 3


# ** checking and racing **


@pytest.mark.parametrize(("left_s", "expected"), [(0.0, 0), (6.0, 2), (8.0, 3), (20.0, 9)])
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

    for module in (examination, reference):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
    terms = RaceTerms(
        threads=1,
        numerics=Numerics.REASSOCIATE,
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
    late = RaceTerms(1, Numerics.REASSOCIATE, (0,), (), 1.0, deadline=Deadline.after(-1.0))
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
        assert pricer.price(Offer(large, "ort")).is_bound
        pricer.measure([Offer(_product(3), "ort")], deadline=Deadline.after(0.0, Clock()))
        assert made == [small]
    finally:
        pricer.close()


# ** what takes long beyond any search **


def _endless() -> onnx.ModelProto:
    """A loop that no budget is long enough for."""
    return onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["":17]> g (float[1] x) => (float[1] y) {
            most = Constant <value_int = 9223372036854775807> ()
            go_on = Constant <value = bool {1}> ()
            y = Loop (most, go_on, x) <body = b (int64 i, bool c, float[1] s) =>
                (bool c_out, float[1] s_out) { c_out = Identity(c) s_out = Neg(s) }>
        }
        """
    )


def _terms(box: Sandbox, deadline: Deadline) -> RaceTerms:
    return RaceTerms(1, Numerics.REASSOCIATE, (0, 1), (Sizes(),), 1.0, deadline=deadline, box=box)


def test_a_model_that_runs_longer_than_the_budget_claims_nothing() -> None:
    with sandbox() as box:
        examined = examine({"best": _endless()}, _endless(), _terms(box, Deadline.after(0.5)))
        assert "--budget" in examined.obstacle
        assert not examined.is_sound("best")
        with pytest.raises(OutOfTime):
            box.open(_endless(), OrtOptions(1), Deadline.after(-1.0))
        assert box.open(build("sums@3"), OrtOptions(1)).input_names  # the next one is not concerned


def test_a_candidate_that_runs_longer_than_the_budget_is_left_out() -> None:
    original, slow = build("sums@3"), build("sums@3")

    class Box:
        def wait(self, deadline: Deadline) -> None:
            pass

        def open(self, model: Any, options: OrtOptions, deadline: Deadline) -> OrtSession:
            if model is slow:
                raise OutOfTime
            return OrtSession(model, options)

    terms = _terms(cast(Sandbox, Box()), Deadline.never())
    examined = examine({"best": slow, "clean": original}, original, terms)
    assert examined.skipped == ("best",)
    assert examined.is_sound("clean")


def test_nothing_is_compared_where_loading_alone_would_be_late() -> None:
    terms = RaceTerms(
        1,
        Numerics.REASSOCIATE,
        (0,),
        (Sizes(),),
        1.0,
        deadline=Deadline.after(5.0, Clock()),
        bulk_s=6.0,
    )
    assert "--budget" in examine({}, build("sums@3"), terms).obstacle


@pytest.mark.parametrize(("left_s", "is_held"), [(0.5, False), (20.0, False), (1e9, True)])
def test_no_race_begins_that_would_end_too_late(left_s: float, is_held: bool) -> None:
    model = build("sums@3")
    reference = replace(Reference.of(model, OrtOptions(1), (0,)), build_s=1.0, run_s=1.0)
    terms = RaceTerms(
        1, Numerics.REASSOCIATE, (0,), (Sizes(),), 1e-9, deadline=Deadline.after(left_s, Clock())
    )
    examined = examination.Examination(reference, {}, {}, 0.0)
    held = examination.race_candidates({"best": model}, model, graph_of("sums@3"), examined, terms)
    assert (held.race is not None) == is_held
    assert ("--budget" in held.obstacle) != is_held


def _folded(n: int) -> tuple[Constants, Selection]:
    """A search that folds n weights into one, with the selection that does."""
    graph = graph_of(f"matrix_chain@{n}")
    search = SearchOptions(Objective({"flops": 1.0}), Budget(), {}, measure=False)
    proposal = propose(graph, default_rules(), Pricer(None, 1), search)
    saturation = proposal.saturation
    return Constants(saturation.lowered, saturation.eclasses), proposal.choice.best


def test_constants_that_cannot_be_folded_in_time_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constants, selection = _folded(3)
    (folded,) = (c for c, one in selection.items() if one.candidate.kind == "const")
    needed_s = folding_s([constants.handle(folded)])
    assert needed_s * 5e9 == 2 * 2 * 8**3  # two products of 8 x 8 matrices
    assert late_constants(constants, selection, 0.9 * needed_s) == {folded}
    assert not late_constants(constants, selection, needed_s)
    constants.handle(folded).load()
    assert not late_constants(constants, selection, 0.0)  # it is computed already
    monkeypatch.setattr(handles, "_FLOPS_PER_S", 1e-3)
    monkeypatch.setattr(proposal_module, "_FOLDING_S", 0.0)
    search = SearchOptions(
        Objective({"flops": 1.0}), Budget(), {}, measure=False, deadline=Deadline.after(60.0)
    )
    proposal = propose(graph_of("matrix_chain@3"), default_rules(), Pricer(None, 1), search)
    assert proposal.best.operator_counts()["MatMul"] == 3


def test_a_constant_that_is_dear_is_never_computed_only_to_be_looked_at() -> None:
    def compute() -> Any:
        raise AssertionError("it was computed")

    dear = handles.derived_constant(StaticType("float32", (1,)), compute, ("dear",), 1e10)
    assert handles.splat_value(dear) is None
    assert handles.uniform_value(dear) is None
    assert handles.folding_s([dear]) == 2.0


def test_a_model_whose_own_constants_are_dear_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, target = build("matrix_chain@1"), tmp_path / "out.onnx"
    w = model.graph.node[0].input[1]
    model.graph.node[0].input[1] = "product"
    model.graph.node.insert(0, onnx.helper.make_node("MatMul", [w, w], ["product"]))
    monkeypatch.setattr(handles, "_FLOPS_PER_S", 1e-3)
    options = Options(effort="quick", race=False, check=0, store="", budget_s=60.0)
    result = run(model, options, output=target)
    assert result.report.winner == "original"
    assert any("compute the constants" in note for note in result.report.notes)
    assert [node.op_type for node in onnx.load(target).graph.node] == ["MatMul", "MatMul"]


@pytest.mark.parametrize(
    ("weight_bytes", "load_s", "expected"),
    [
        (0, 9.0, 0.0),  # libraries were loaded, not weights
        (3e7, 9.0, 1.0),
        (3e8, 4.0, 6.0),
        (3e8, 0.01, 2.0),  # they are mapped, and will be copied
    ],
)
def test_what_loading_tells_of_writing(weight_bytes: int, load_s: float, expected: float) -> None:
    assert terms.estimate_bulk_s(weight_bytes, load_s) == pytest.approx(expected)


def test_writing_has_its_time_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimising, "estimate_bulk_s", lambda *_: 60.0)
    result = run(build("sums@5"), Options(budget_s=60.0, store="", race=False, check=0))
    assert "loading left no time" in result.report.notes[0]


@pytest.mark.parametrize(("load", "is_told"), [(2.0, False), (25.3, True)])
def test_a_busy_machine_is_named_where_time_was_short(
    load: float, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    expected = "; the machine is busy (25 processes for 2 cores)" if is_told else ""
    assert processor.crowd() == expected
    monkeypatch.setattr(optimising, "estimate_bulk_s", lambda *_: 60.0)
    result = run(build("sums@5"), Options(budget_s=60.0, store="", race=False, check=0))
    assert result.report.notes[0].endswith(f"of 60 s{expected}; allow more with --budget")


def test_a_machine_that_tells_no_load_is_not_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", fail, raising=False)
    assert processor.crowd() == ""
