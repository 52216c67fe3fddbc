"""What backends offer: who may run a kernel, in which forms, and at which price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import pytest

from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.egraph import EClasses, saturate
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.options import Options
from eqsat_opt.rules import Term, Var, ops
from eqsat_opt.runtime.backends.ort.backend import BLOCKED, OrtBackend
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.backends.registry import load_backend, portable_names
from eqsat_opt.runtime.measure import Measurement
from eqsat_opt.select import PricedCandidates, tile


@dataclass(frozen=True)
class Fusing:
    """Runs one chain of operators as one kernel, in as many ways as it is told."""

    name: str
    chain: tuple[str, ...]
    ways: tuple[str, ...] = ("default",)

    def version(self) -> str:
        return self.name

    def patterns(self) -> Sequence[KernelPattern]:
        pattern: Term = Var("x")
        for name in self.chain:
            pattern = getattr(ops, name)(pattern)
        return (KernelPattern(f"{self.name}-chain", pattern),)

    def carried(self) -> Sequence[CarriedForm]:
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        is_mine = tuple(step.op for step in kernel.steps) == self.chain
        return tuple(map(Implementation, self.ways)) if is_mine else ()

    def request(self, offer: Offer) -> bytes:
        return offer.kernel.signature.encode()

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        raise NotImplementedError


def eclasses_of(text: str) -> EClasses:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["":17]> {text}')
    return saturate(normalise(import_model(load_model(model))), ()).eclasses


CHAIN = "agraph (float[8] x) => (float[8] y) { a = Exp(x) b = Tanh(a) y = Relu(b) }"


def offered(*backends: Fusing | OrtBackend) -> dict[str, list[str]]:
    """The operators of each kernel, to who offers to run it."""
    candidates = tile(eclasses_of(CHAIN), backends)
    priced = PricedCandidates.of(candidates, backends, (), max_constant_bytes=0)
    return {
        "+".join(step.op for step in item.steps): [offer.by for offer in offers]
        for item, offers in zip(candidates.items, priced.offers, strict=True)
        if item.steps
    }


def test_a_kernel_that_a_pattern_found_is_offered_by_its_backend_alone() -> None:
    found = offered(OrtBackend(), Fusing("mine", ("Exp", "Tanh")))
    assert found == {"Exp": ["ort"], "Tanh": ["ort"], "Relu": ["ort"], "Exp+Tanh": ["mine"]}


def test_a_kernel_that_several_patterns_found_is_offered_by_all_of_them() -> None:
    first, second = Fusing("first", ("Exp", "Tanh")), Fusing("second", ("Exp", "Tanh"), ("a", "b"))
    assert offered(first, second)["Exp+Tanh"] == ["first", "second:a", "second:b"]


def test_single_operators_are_offered_by_who_can() -> None:
    assert offered(OrtBackend(), Fusing("mine", ("Exp",)))["Exp"] == ["ort", "mine"]


def test_what_nobody_runs_may_not_be_chosen() -> None:
    backends = (Fusing("mine", ("Exp",)),)
    candidates = tile(eclasses_of(CHAIN), backends)
    priced = PricedCandidates.of(candidates, backends, (), max_constant_bytes=0)
    chosen = {
        item.steps[0].op: bool(is_offered)
        for item, is_offered in zip(candidates.items, priced.offered, strict=True)
        if item.steps
    }
    assert chosen == {"Exp": True, "Tanh": False, "Relu": False}


def test_every_implementation_is_a_row_of_the_problem() -> None:
    backends = (OrtBackend(), Fusing("mine", ("Exp",), ("a", "b")))
    candidates = tile(eclasses_of(CHAIN), backends)
    priced = PricedCandidates.of(candidates, backends, (0,), max_constant_bytes=0)
    pricer = Pricer(None, 1)
    problem = priced.problem(lambda offer: pricer.price(Offer(offer.kernel, "ort"))).problem
    counts = (problem.impl_ptr[1:] - problem.impl_ptr[:-1]).tolist()
    assert sorted(counts) == [1, 1, 1, 3]  # the input, two kernels, and one that is run three ways


BLOCKS = """
agraph (float[1, 8, 6, 6] x, float[8, 8, 1, 1] w) => (float[1, 4, 6, 6] y, float[1, 4, 6, 6] z)
{
    c = Conv(x, w)
    r = Relu(c)
    y, other = Split<axis = 1>(r)
    first, z = Split<axis = 1>(x)
}
"""


def test_what_passes_blocks_on_says_so() -> None:
    items = tile(eclasses_of(BLOCKS), (OrtBackend(),)).items
    forms = {
        (item.operands[0].form, item.writes)
        for item in items
        if {step.op for step in item.steps} == {"Slice"}
    }
    assert forms == {(PLAIN, PLAIN), (BLOCKED.form, BLOCKED.form)}
    assert all(
        item.writes == PLAIN for item in items if {step.op for step in item.steps} != {"Slice"}
    )


def test_kernels_in_other_forms_have_other_signatures() -> None:
    type_ = TensorType("float32", (1, 8, 6, 6))
    steps = (Step("Relu", attributes(), (0,)),)
    plain = Kernel((Operand(type_, const=False),), steps, (1,))
    reads = Kernel((Operand(type_, const=False, form=BLOCKED.form),), steps, (1,))
    writes = Kernel(plain.operands, steps, (1,), BLOCKED.form)
    assert len({plain.signature, reads.signature, writes.signature}) == 3
    assert reads.with_sizes({}) == reads


def test_forms_are_read_as_they_are_written() -> None:
    assert Form.parse(str(Form("ort", "nchwc"))) == Form("ort", "nchwc")
    for text in ("", "ort", "a/b/c"):
        with pytest.raises(ValueError, match="unpack"):
            Form.parse(text)


def test_bounds_rest_on_the_arithmetic_that_is_done() -> None:
    type_ = TensorType("float32", (512, 512))
    operands = (Operand(type_, const=False), Operand(type_, const=True))
    product = Kernel(operands, (Step("MatMul", attributes(), (0, 1)),), (2,))
    pricer = Pricer(None, 1)
    usual, fewer = (
        pricer.price(Offer(product, "ort", how)).time_us
        for how in (DEFAULT, Implementation("fewer", arithmetic=0.5))
    )
    assert 0.4 < fewer / usual < 0.7


def test_names() -> None:
    assert portable_names()[0] == "ort"
    assert load_backend("ort").name == "ort"
    with pytest.raises(OptionError, match="unknown backend 'nobody'; there are ort"):
        load_backend("nobody")
    assert Options(backends=["x", "ort", "x"]).backends == ("ort", "x")
    with pytest.raises(OptionError, match="add ort"):
        Options(backends=[])
