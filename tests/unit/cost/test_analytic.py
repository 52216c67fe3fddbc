"""Prices by a profile: algorithms and their workspaces, quotes, and a choice for a device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import ENERGY, METRICS, TIME, WORKSPACE
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import AnyPricer, Quote, Source
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.graph.graph import Graph, attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.graphs import evaluate
from eqsat_opt.runtime.backends.analytic.backend import AnalyticBackend
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.files import plan_from_json, plan_text
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.select import proposal as proposal_module
from eqsat_opt.select.choosing.forms import ConvertedValue, MadeValue
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.proposal import Proposal, SearchOptions, propose
from eqsat_opt.select.rebuilding.assignment import PlacedGraph
from eqsat_opt.select.rebuilding.planning import planned_for
from eqsat_opt.select.stages import read_stage, stage_document, stage_of, write_stage
from eqsat_opt.select.tiling.candidates import Candidate

V100 = load_profile("v100")
MADE_UP = EnergyModel(Figure(50.0, "x"), {"fp32": Figure(8.0, "x")}, Figure(40.0, "x"))


def conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    strides: tuple[int, ...] = (1, 1),
    group: int = 1,
    const: bool = True,
) -> Kernel:
    rank = len(w) - 2
    attrs = attributes(strides=strides, pads=(1,) * 2 * rank, dilations=(1,) * rank, group=group)
    operands = (Operand(TensorType("float32", x), False), Operand(TensorType("float32", w), const))
    return Kernel(operands, (Step("Conv", attrs, (0, 1)),), (2,))


def algorithms(kernel: Kernel) -> dict[str, int]:
    found = AnalyticBackend(V100).implementations(kernel)
    return {how.algorithm: how.workspace_bytes for how in found}


def test_algorithms_of_a_convolution_and_what_they_need() -> None:
    # 6 x 6 outputs are 9 tiles of 4 x 4 numbers for 8 + 16 channels; spectra are 8 x 5.
    assert algorithms(conv((1, 8, 6, 6), (16, 8, 3, 3))) == {
        "direct": 0,
        "gemm": 4 * 8 * 9 * 36,
        "winograd": 4 * 16 * 9 * 24,
        "fft": 4 * 8 * 5 * 2 * 24,
    }
    unknown = algorithms(conv((1, 8, 6, 6), (16, 8, 3, 3), const=False))
    assert unknown["winograd"] == 4 * 16 * (9 * 24 + 8 * 16)
    assert unknown["fft"] == 4 * 8 * 5 * 2 * (24 + 8 * 16)


@pytest.mark.parametrize(
    "kernel",
    [
        conv((1, 8, 6, 6), (16, 8, 3, 3), strides=(2, 2)),
        conv((1, 8, 6, 6), (16, 2, 3, 3), group=4),
        conv((1, 8, 6), (16, 8, 3), strides=(1,)),
        conv((1, 8, 6, 6), (16, 8, 1, 1)),
    ],
    ids=["strided", "grouped", "1D", "pointwise"],
)
def test_transforms_are_for_dense_windows(kernel: Kernel) -> None:
    assert list(algorithms(kernel)) == ["direct", "gemm"]


def test_a_profile_need_not_know_algorithms() -> None:
    kernel = conv((1, 8, 6, 6), (16, 8, 3, 3))
    bare = replace(V100, multipliers={})
    (how,) = AnalyticBackend(bare).implementations(kernel)
    assert (how.algorithm, how.arithmetic) == ("direct", 1.0)
    assert ProfilePricer(bare).price(Offer(kernel, "analytic", how)).source == "analytic"


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_every_type_and_no_image_at_all(batch: int, dtype: str) -> None:
    sized = conv((batch, 8, 6, 6), (16, 8, 3, 3))
    operands = tuple(replace(o, type=replace(o.type, dtype=dtype)) for o in sized.operands)
    kernel = replace(sized, operands=operands)
    pricer = ProfilePricer(V100, energy=MADE_UP)
    for how in AnalyticBackend(V100).implementations(kernel):
        quote = pricer.price(Offer(kernel, "analytic", how))
        assert all(np.isfinite(value) and value >= 0 for value in quote.metrics.values())
        assert quote.time_us >= V100.launch_us.value
        assert (quote.metrics[WORKSPACE] > 0) == (batch > 0 and how.algorithm != "direct")


def test_no_columns_are_needed_where_they_are_the_image() -> None:
    attrs = attributes(strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    kernel = conv((2, 8, 6, 6), (16, 8, 1, 1))
    plain = replace(kernel, steps=(Step("Conv", attrs, (0, 1)),))
    assert algorithms(plain)["gemm"] == 0
    assert algorithms(kernel)["gemm"] == 4 * 2 * 8 * 64  # padded


def test_quotes_say_what_the_profile_says() -> None:
    pricer = ProfilePricer(V100, energy=MADE_UP)
    kernel = conv((1, 64, 56, 56), (64, 64, 3, 3))
    quotes = {
        how.algorithm: pricer.price(Offer(kernel, "analytic", how))
        for how in pricer.backends[0].implementations(kernel)
    }
    assert {quote.source for quote in quotes.values()} == {"analytic"}
    for algorithm, quote in quotes.items():
        workspace = int(quote.metrics[WORKSPACE])
        flops, size_bytes = V100.work(kernel, algorithm, workspace)
        assert quote.time_us == V100.kernel_us(kernel, algorithm, workspace_bytes=workspace)
        assert quote.metrics[ENERGY] == pytest.approx(
            50 * quote.time_us + 8e-6 * flops + 40e-6 * size_bytes
        )
    assert quotes["winograd"].time_us < quotes["direct"].time_us <= quotes["gemm"].time_us
    assert quotes["direct"].metrics[ENERGY] < quotes["gemm"].metrics[ENERGY]
    assert pricer.usual(kernel).implementation.algorithm == "direct"
    assert pricer.is_known(pricer.usual(kernel))


def test_what_is_moved_is_a_copy_or_a_view_that_may_not_do() -> None:
    pricer = ProfilePricer(V100)
    operand = Operand(TensorType("float32", (4, 4)), False)
    kernel = Kernel((operand, operand), (Step("Concat", attributes(axis=0), (0, 1)),), (2,))
    copy, view = (
        pricer.price(Offer(kernel, "analytic", how))
        for how in pricer.backends[0].implementations(kernel)
    )
    assert (copy.source, view.source) == ("analytic", "bound")
    assert copy.time_us > view.time_us == 0.0
    assert pricer.usual(kernel).implementation.algorithm == "default"


def test_a_precision_that_the_device_or_the_energy_lacks_is_refused() -> None:
    with pytest.raises(OptionError, match="v100 has no precision 'tf32'"):
        ProfilePricer(V100, "tf32")
    with pytest.raises(OptionError, match="the energy model knows no precision 'fp16'"):
        ProfilePricer(V100, "fp16", MADE_UP)
    assert ENERGY not in ProfilePricer(V100).metrics


def test_nothing_is_measured() -> None:
    backend = AnalyticBackend(V100)
    offer = ProfilePricer(V100).usual(conv((1, 8, 6, 6), (16, 8, 3, 3)))
    with pytest.raises(PlanError, match="v100 is not here"):
        backend.request(offer)
    with pytest.raises(PlanError, match="v100 is not here"):
        backend.measure(b"", 1, 1.0)


def branching() -> Graph:
    """Three convolutions with what goes between and after them, and a result that is no image."""
    g = GraphMaker()
    x = g("Relu", g.conv(g.input("x", 1, 32, 28, 28), g.weight(64, 32, 3, 3), pad=1))
    left = g("Relu", g.conv(x, g.weight(64, 64, 3, 3), pad=1))
    right = g("Sigmoid", g("Mul", g.conv(x, g.weight(64, 64, 1, 1)), x))
    both = g("Add", g("Concat", left, right, axis=1), g.weight(1, 128, 1, 1))
    rows = g("Reshape", both, shape=(128, 784))
    return normalise(g.graph(g("Softmax", rows, axis=1), left))


def proposed(pricer: AnyPricer, objective: Objective) -> Proposal:
    options = SearchOptions(objective, Budget(nodes=500), {}, gap=1e-3)
    return propose(branching(), (), pricer, options)


def test_a_choice_for_a_device_keeps_a_cap_on_workspace() -> None:
    pricer = ProfilePricer(replace(V100, launch_us=Figure(0.0, "x")), energy=MADE_UP)
    free = proposed(pricer, Objective({TIME: 1.0})).choice
    assert free.extraction.status == "optimal"
    assert free.problem.problem.metrics == tuple(METRICS)
    assert {free.prices[offer].source for offer in free.prices} <= {"analytic", "bound"}
    chosen = [one.implementation for one in free.best.values()]
    needed = free.metrics[WORKSPACE]
    assert needed == max(how.workspace_bytes for how in chosen) > 0
    capped = proposed(pricer, Objective({TIME: 1.0}, caps={WORKSPACE: needed / 2})).choice
    assert capped.metrics[WORKSPACE] <= needed / 2
    assert capped.extraction.cost > free.extraction.cost
    least = proposed(pricer, Objective({ENERGY: 1.0})).choice
    assert least.metrics[ENERGY] <= free.metrics[ENERGY]


def test_forms_of_a_choice_fit_together() -> None:
    pricer = ProfilePricer(V100)
    proposal = proposed(pricer, Objective({TIME: 1.0}))
    choice = proposal.choice
    assert choice.priced.conversions
    plain, images = Form("cuda"), Form("cuda", "nhwc")
    there: set[tuple[int, Form]] = set()
    for one in choice.placed[0]:
        if isinstance(one, ConvertedValue):
            assert (one.cls, one.made) in there
            assert {one.made, one.form} == {plain, images}
        else:
            item, how = one.run.candidate, one.run.implementation
            for ref, form in zip(item.operands, how.reads, strict=bool(how.reads)):
                is_const = proposal.saturation.eclasses.is_const[ref.cls]
                assert is_const or (ref.cls, form) in there
            assert one.form == (how.writes[0] if how.writes else plain)
        there.add((one.cls, one.form))
    assert any(isinstance(one, ConvertedValue) for one in choice.placed[0])
    assert {one.cls for one in choice.placed[0]} == choice.best.keys()
    # Every convolution of the model is there, once, and in its own layout.
    convolutions = [one for one in choice.best.values() if "Conv" in str(one.candidate.steps)]
    assert {one.implementation.writes for one in convolutions} == {(images,)}


def test_the_model_of_energy_knows_algorithms() -> None:
    """Each quote is that of its own algorithm."""
    one = Figure(1.0, "x")
    plain = EnergyModel(one, {"fp32": one}, one)
    saving = replace(plain, of_algorithm={"gemm": Figure(0.5, "x")})
    kernel = conv((1, 64, 28, 28), (64, 64, 3, 3))
    told: dict[str, dict[bool, float]] = {}
    for model in (plain, saving):
        pricer = ProfilePricer(V100, energy=model)
        (backend,) = pricer.backends
        for how in backend.implementations(kernel):
            quote = pricer.price(Offer(kernel, backend.name, how))
            moving = quote.metrics[ENERGY] - quote.metrics[TIME]
            told.setdefault(how.algorithm, {})[model is saving] = moving
    for name, both in told.items():
        assert both[True] == pytest.approx(both[False] * (0.5 if name == "gemm" else 1.0))
    assert {"direct", "gemm"} <= set(told)


def test_the_plan_of_a_choice_has_its_kernels_algorithms_and_layouts() -> None:
    proposal = proposed(ProfilePricer(V100), Objective({TIME: 1.0}))
    best, *_, original = proposal.placed
    weights = {
        name: constant.load
        for one in (best, original)
        for name, constant in one.graph.constants.items()
    }
    drafts = list(planned_for("v100", {"a": best, "b": original}, weights, sizes={}))
    assert [draft.name for draft in drafts] == ["plan of a, as chosen", "plan of b, as chosen"]
    draw = np.random.default_rng(0)
    feeds = {"x": draw.standard_normal((1, 32, 28, 28)).astype(np.float32)}
    wanted = evaluate(branching(), feeds)
    for draft, choice in zip(drafts, (best, original), strict=True):
        plan = draft.plan
        runs = [one for one in choice.placed if not isinstance(one, MadeValue) or one.run.backend]
        ways = Counter(
            "default" if isinstance(one, ConvertedValue) else one.run.implementation.algorithm
            for one in runs
        )
        # What moves nothing has no launch: the Concat, and the Reshape. The elementwise kernel
        # writes the plain layout itself, so its conversion has none either.
        unmoved = Counter(view=1, default=2)
        assert Counter(one.algorithm for one in plan.launches) == ways - unmoved
        assert {one.backend for one in plan.launches} == {"analytic"}
        copies = [one for one in plan.launches if not one.body.steps]
        assert len(copies) == sum(isinstance(one, ConvertedValue) for one in runs) - 1
        images = {buffer.name for buffer in plan.buffers if buffer.form == Form("cuda", "nhwc")}
        convolutions = [one for one in plan.launches if "Conv" in one.body.name]
        assert {name for one in convolutions for name in one.writes} <= images
        assert any(len(one.body.steps) > 1 for one in convolutions)
        outputs = interpret(plan, make_constants(plan, weights), feeds)
        for port, want in zip(plan.outputs, wanted, strict=True):
            assert np.abs(outputs[port.name] - want).max() <= 1e-3 * np.abs(want).max()
        assert plan_from_json(json.loads(plan_text(plan))) == plan
    # The kernel that was joined saves one pass over its data.
    times = V100.launch_times_us(drafts[0].plan.launches)
    assert 0.9 < sum(times) / proposal.choice.extraction.cost < 1


def test_what_takes_no_views_gets_copies_which_have_a_price() -> None:
    g = GraphMaker()
    x = g.conv(g.input("x", 1, 32, 28, 28), g.weight(64, 32, 3, 3), pad=1)
    parts = [g("Relu", g.conv(x, g.weight(64, 64, 3, 3), pad=1)) for _ in range(2)]
    graph = g.graph(g.conv(g("Concat", *parts, axis=1), g.weight(64, 128, 3, 3)))
    options = SearchOptions(Objective({TIME: 1.0}), Budget(nodes=500), {}, gap=1e-3)
    best = propose(graph, (), ProfilePricer(V100), options).placed[0]
    weights = {name: constant.load for name, constant in best.graph.constants.items()}

    def without(makes: Callable[[Candidate], bool]) -> PlacedGraph:
        placed = []
        for one in best.placed:
            if isinstance(one, MadeValue) and makes(one.run.candidate):
                how = replace(one.run.implementation, strided=False)
                one = replace(one, run=replace(one.run, implementation=how))
            placed.append(one)
        return replace(best, placed=tuple(placed))

    makers = [
        one.cls
        for one in best.placed
        if isinstance(one, MadeValue) and "Relu" in (step.op for step in one.run.candidate.steps)
    ]
    graphs = {
        "all": best,
        "one": without(lambda item: item.cls == makers[0]),
        "makers": without(lambda item: item.cls in makers),
        "all of them": without(lambda item: True),
    }
    plans = [draft.plan for draft in planned_for("v100", graphs, weights, sizes={})]
    copied = [sum(not launch.body.steps for launch in plan.launches) for plan in plans]
    assert [number - copied[0] for number in copied] == [0, 1, 0, 0]
    joined = [sum(launch.body.name == "Concat" for launch in plan.launches) for plan in plans]
    assert joined == [0, 0, 1, 1]
    times = [sum(V100.launch_times_us(plan.launches)) for plan in plans]
    assert times[0] < times[1] <= times[2] == times[3]


def test_which_kernels_of_a_device_take_views() -> None:
    backend = AnalyticBackend(V100)
    kernel = conv((1, 8, 6, 6), (8, 8, 3, 3))
    assert all(how.strided for how in backend.implementations(kernel))
    image = Operand(TensorType("float32", (1, 8, 6, 6)), False)
    residual = Kernel(
        (*kernel.operands, image), (*kernel.steps, Step("Add", (), (2, 3))), (4,)
    )  # fmt: skip
    assert not any(how.strided for how in backend.implementations(residual))
    rows = Kernel((image,), (Step("Softmax", attributes(axis=3), (0,)),), (1,))
    assert not any(how.strided for how in backend.implementations(rows))
    relu = Kernel((image,), (Step("Relu", (), (0,)),), (1,))
    assert all(how.strided for how in backend.implementations(relu))


class Later(ProfilePricer):
    """Knows half of each time until it is asked to measure."""

    def __init__(self) -> None:
        super().__init__(V100)
        self.asked: set[Offer] = set()

    def price(self, offer: Offer) -> Quote:
        known = super().price(offer)
        # Which is cheapest changes with what is known.
        share = 1.0 if offer in self.asked else 0.7 + 0.3 * (len(offer.kernel.signature) % 7) / 7
        source: Source = "measured" if offer in self.asked else "bound"
        return Quote({**known.metrics, TIME: known.time_us * share}, source)

    def is_known(self, offer: Offer) -> bool:
        return offer in self.asked

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        self.asked.update(offers)


def test_prices_that_become_known_end_at_the_optimum() -> None:
    """Also where they change which forms may be left out."""
    later = Later()
    choice = proposed(later, Objective({TIME: 1.0})).choice
    assert choice.rounds > 1
    assert choice.unmeasured == 0
    assert len(later.asked) < len(choice.prices)
    known = proposed(ProfilePricer(V100), Objective({TIME: 1.0})).choice
    assert choice.extraction.cost == pytest.approx(known.extraction.cost, rel=2e-3)


def test_an_alternative_is_dropped_with_its_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    pricer = ProfilePricer(V100)
    before = proposed(pricer, Objective({TIME: 1.0})).choice
    assert len(before.placed) == 1 + len(before.alternatives) == 3
    asked: list[object] = []

    def spoilt(_constants: object, selection: object) -> frozenset[int]:
        asked.append(selection)
        return frozenset({0} if len(asked) == 2 else ())

    monkeypatch.setattr(proposal_module, "spoilt_constants", spoilt)
    after = proposed(pricer, Objective({TIME: 1.0})).choice
    assert after.alternatives == before.alternatives[1:]
    assert after.placed == (before.placed[0], *before.placed[2:])


def test_stages_with_forms_go_round(tmp_path: Path) -> None:
    proposal = proposed(ProfilePricer(V100, energy=MADE_UP), Objective({TIME: 1.0}))
    for name in ("candidates", "problem", "selection"):
        value = stage_of(proposal, name)
        path = tmp_path / name
        write_stage(value, path)
        back = read_stage(path)
        assert str(back) == str(value)
        assert stage_document(back) == stage_document(value)
    quoted = read_stage(tmp_path / "candidates")
    assert isinstance(quoted, QuotedCandidates)
    problem = quoted.problem()
    assert problem.has_nodes_of(proposal.choice.problem)
    np.testing.assert_array_equal(
        problem.problem.impl_cost, proposal.choice.problem.problem.impl_cost
    )
    found = extract(problem.problem, Objective({TIME: 1.0}), time_limit_s=60.0)
    assert found.cost == pytest.approx(proposal.choice.extraction.cost)


def test_energy_of_a_processor_follows_from_its_times() -> None:
    plain, modelled = Pricer(None, 1), Pricer(None, 1, energy=MADE_UP)
    offer = plain.usual(conv((1, 8, 6, 6), (16, 8, 3, 3)))
    quote = modelled.price(offer)
    assert quote.is_bound
    assert quote.time_us == plain.price(offer).time_us
    flops, size_bytes = 2 * 8 * 9 * 16 * 36, 4 * (8 * 36 + 16 * 8 * 9 + 16 * 36)
    assert quote.metrics[ENERGY] == pytest.approx(
        50 * quote.time_us + 8e-6 * flops + 40e-6 * size_bytes
    )
