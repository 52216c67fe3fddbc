"""All backends of plans in one problem: kernels inside sessions, and launches beside them."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_opt.cost.in_plans import IN_SESSION, PlanPricer
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.registry import load_backend, load_launcher, portable_names
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.select.choosing.forms import ConvertedValue
from eqsat_opt.select.proposal import Proposal, SearchOptions, propose
from eqsat_opt.select.rebuilding.planning import planned_here

BESIDE = ("launched:generated", "launched:native", "launched:numpy")


def graph() -> Graph:
    """What each of them has a kernel for, and what only onnxruntime runs here."""
    g = GraphMaker()
    x = g.input("x", 1, 4, 6, 6)
    image = g("Relu", g.conv(x, g.weight(8, 4, 3, 3)))
    rows = g("Reshape", image, shape=(8, 16))
    product = g("MatMul", rows, g.weight(16, 5))
    return g.graph(g("Softmax", product, axis=1), g("Tanh", g("Mul", product, g.weight(8, 5))))


def proposed(*beside: str) -> Proposal:
    pricer = PlanPricer(Pricer(None, 1, ("ort", *beside)), ("ort",))
    options = SearchOptions(Objective({TIME: 1.0}), Budget(nodes=200), {}, measure=False)
    return propose(graph(), (), pricer, options)


def matmul(dtype: str = "float32") -> Kernel:
    operands = (Operand(TensorType(dtype, (2, 3)), False), Operand(TensorType(dtype, (3, 4)), True))
    return Kernel(operands, (Step("MatMul", (), (0, 1)),), (2,))


@pytest.mark.parametrize("beside", [BESIDE[:1], BESIDE[2:], BESIDE], ids=["g", "n", "all"])
def test_a_choice_among_all_backends_becomes_a_plan(beside: tuple[str, ...]) -> None:
    if (missing() and len(beside) > 1) or compiler_missing():
        pytest.skip("no compiler, or no compiled kernels")
    proposal = proposed(*beside)
    best = proposal.placed[0]
    runs = [one for one in best.placed if not isinstance(one, ConvertedValue) and one.run.backend]
    inside = [one for one in runs if one.run.backend == "ort"]
    assert {one.form for one in inside} == {IN_SESSION}
    # NumPy is not chosen before it is known to be faster.
    others = {one.form for one in runs if one not in inside}
    assert others == ({PLAIN} if BESIDE[0] in beside else set())
    weights = {name: one.load for name, one in best.graph.constants.items()}
    (draft,) = planned_here({"it": best}, weights, sizes={})
    called = {one.run.backend.removeprefix("launched:") for one in runs}
    assert {launch.backend for launch in draft.plan.launches} <= called
    assert {"Conv", "Softmax"} <= {
        step.op
        for launch in draft.plan.launches
        if launch.backend == "ort"
        for step in launch.body.steps
    }
    launchers = {one: load_launcher(one) for one in called}
    constants = make_constants(draft.plan, weights)
    runner = Executable(draft.plan, constants, HostDevice(), launchers)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)}
    for got, want in zip(runner.run(feeds), evaluate(graph(), feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_crosses_costs_nothing_and_nothing_costs_less_in_a_session() -> None:
    plain = Pricer(None, 1, ("ort", "launched:numpy"))
    pricer = PlanPricer(plain, ("ort",))
    inside = pricer.usual(matmul())
    assert set(inside.implementation.writes) == {IN_SESSION}
    # Weights are packed beforehand, so they have no form.
    assert inside.implementation.reads == (IN_SESSION, PLAIN)
    assert pricer.price(inside) == plain.price(plain.usual(matmul()))
    assert not pricer.is_known(inside)
    crossing = Kernel((Operand(TensorType("float32", (2,)), False, form=IN_SESSION),), (), (0,))
    (how,) = pricer.backends[0].implementations(crossing)
    offer = Offer(crossing, "ort", how)
    assert pricer.is_known(offer)
    assert pricer.price(offer).metrics == {TIME: 0.0}
    beside = Offer(matmul(), "launched:numpy")
    assert pricer.price(beside).time_us > plain.price(beside).time_us
    pricer.measure([offer])  # nothing to do
    assert pricer.n_measured == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_a_launch_is_measured_alone(dtype: str) -> None:
    backend = load_backend("launched:numpy")
    request = backend.request(Offer(matmul(dtype), backend.name))
    assert backend.measure(request, 1, 0.01).time_us > 0
    with pytest.raises(RuntimeFailed, match="on one thread"):
        backend.measure(request, 2, 0.01)


def test_kernels_that_launches_do_not_have() -> None:
    blocked = Kernel(
        (Operand(TensorType("float32", (2, 3)), False, form=IN_SESSION),),
        (Step("Relu", (), (0,)),),
        (1,),
    )
    for name in BESIDE:
        assert load_backend(name).implementations(blocked) == ()
    assert len(load_backend("launched:numpy").implementations(matmul("int32"))) == 1
    assert load_backend("launched:generated").implementations(matmul("int32")) == ()
    assert load_backend("launched:native").implementations(matmul("float64")) == ()


def test_a_reduction_is_not_generated_before_it_is_known_to_be_faster() -> None:
    pricer = PlanPricer(Pricer(None, 1, ("ort", BESIDE[0])), ("ort",))
    inside, alone = pricer.usual(matmul()), Offer(matmul(), BESIDE[0])
    assert pricer.price(inside).time_us < pricer.price(alone).time_us
    assert not pricer.is_known(alone)
    operands = (Operand(TensorType("float32", (2, 3)), False),)
    joined = Offer(Kernel(operands, (Step("Relu", (), (0,)),), (1,)), BESIDE[0])
    assert pricer.price(joined).time_us == pricer.price(pricer.usual(joined.kernel)).time_us
    assert pricer.is_known(joined)


def around(op: str) -> Graph:
    """A reduction or a window with elementwise operators before and behind it."""
    g = GraphMaker()
    x = g.input("x", 2, 3, 8, 8)
    before = g("Mul", x, x) if "Pool" in op else g("Add", x, g.weight(8))
    table: dict[str, dict[str, object]] = {
        "ReduceMean": {"axes": (3,), "keepdims": 1},
        "Softmax": {"axis": 3},
        "LayerNormalization": {"axis": 3, "epsilon": 1e-5},
        "AveragePool": {
            "kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1),
            "ceil": 0, "count_include_pad": 0,
        },
    }  # fmt: skip
    weights = [g.weight(8), g.weight(8)] if op == "LayerNormalization" else []
    middle = g(op, before, *weights, **table[op])
    return g.graph(g("Sub", x, middle) if op == "ReduceMean" else g("Tanh", middle))


class Cheap(Pricer):
    """Where a generated kernel of several operators is what everybody wants."""

    def price(self, offer: Offer) -> Quote:
        quote = super().price(offer)
        time_us = {"ort": 100.0, BESIDE[0]: 1.0}[offer.backend]
        return Quote({**quote.metrics, TIME: time_us}, "measured")

    def is_known(self, offer: Offer) -> bool:
        return True


@pytest.mark.skipif(bool(compiler_missing()), reason="no compiler")
@pytest.mark.parametrize("op", ["ReduceMean", "Softmax", "LayerNormalization", "AveragePool"])
def test_a_reduction_and_what_stands_around_it_are_one_launch(op: str) -> None:
    graph = around(op)
    pricer = PlanPricer(Cheap(None, 1, ("ort", BESIDE[0])), ("ort",))
    options = SearchOptions(Objective({TIME: 1.0}), Budget(nodes=200), {}, measure=False)
    best = propose(graph, (), pricer, options).placed[0]
    (run,) = (
        one.run
        for one in best.placed
        if not isinstance(one, ConvertedValue) and len(one.run.candidate.steps) > 1
    )
    assert run.backend == BESIDE[0]
    assert op in {step.op for step in run.candidate.steps}
    weights = {name: one.load for name, one in best.graph.constants.items()}
    (draft,) = planned_here({"it": best}, weights, sizes={})
    backends = {launch.backend for launch in draft.plan.launches}
    assert backends == {"generated"}
    # What has them on one side alone leaves one operator over.
    assert len(draft.plan.launches) == (2 if op == "AveragePool" else 1)
    launchers = {one: load_launcher(one) for one in backends}
    constants = make_constants(draft.plan, weights)
    runner = Executable(draft.plan, constants, HostDevice(), launchers)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    for got, want in zip(runner.run(feeds), evaluate(graph, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_a_kernel_takes_no_less_than_its_longest_operator() -> None:
    class Slow(Pricer):
        """Knows what a Softmax takes by itself."""

        def price(self, offer: Offer) -> Quote:
            if offer.kernel.name == "Softmax":
                return Quote({TIME: 77.0}, "measured")
            return super().price(offer)

    operands = (Operand(TensorType("float32", (4, 32)), False),)
    attrs = (("axis", 1),)
    for steps in (
        (Step("Relu", (), (0,)), Step("Softmax", attrs, (1,))),
        (Step("Softmax", attrs, (0,)), Step("Relu", (), (1,))),
    ):
        offer = Offer(Kernel(operands, steps, (2,)), BESIDE[0])
        for made, least in ((Pricer, 0.0), (Slow, 77.0)):
            quote = PlanPricer(made(None, 1, ("ort", BESIDE[0])), ("ort",)).price(offer)
            assert quote.is_bound
            assert quote.time_us == 77.0 if least else 0.0 < quote.time_us < 77.0


def test_users_do_not_ask_for_them() -> None:
    assert not set(BESIDE) & set(portable_names())
    with pytest.raises(OptionError, match="unknown backend 'launched:cray'"):
        load_backend("launched:cray")
