"""Algorithms of convolutions as implementations: what is offered, priced, and chosen among."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.metrics import metric_name
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import parse_objective
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.runtime.backends.native import backend as native
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.ort.measuring import measure_kernel
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.select.proposal import SearchOptions, propose, repropose

if missing():
    pytest.skip(missing(), allow_module_level=True)

PLAIN = attributes(strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)


def conv(
    channels: int = 32,
    size: int = 8,
    kernel: tuple[int, int] = (3, 3),
    const: bool = True,
    dtype: str = "float32",
    group: int = 1,
    **changes: Any,
) -> Kernel:
    attrs = attributes(**{**dict(PLAIN), "group": group, **changes})
    x = TensorType(dtype, (1, channels, size, size))
    w = TensorType(dtype, (channels, channels // group, *kernel))
    operands = (Operand(x, const=False), Operand(w, const=const))
    return Kernel(operands, (Step("Conv", attrs, (0, 1)),), (2,))


def names(kernel: Kernel) -> list[str]:
    return [one.algorithm for one in load_backend("native").implementations(kernel)]


def test_what_is_offered() -> None:
    assert names(conv()) == [
        "winograd-2x2",
        "winograd-2x2-in-run",
        "winograd-4x4",
        "winograd-4x4-in-run",
        "winograd-6x6",
    ]
    assert names(conv(kernel=(1, 7))) == ["winograd-1x2", "winograd-1x2-in-run"]
    relu = conv()
    relu = replace(relu, steps=(*relu.steps, Step("Relu", (), (2,))), outputs=(3,))
    assert len(names(relu)) == 5
    assert names(conv(group=32, kernel=(5, 5), strides=(2, 2))) == ["depthwise"]


def sequence(group: int = 1) -> Kernel:
    attrs = attributes(strides=(1,), pads=(1, 1), dilations=(1,), group=group)
    types = (
        TensorType("float32", (16, 12, 4)),
        TensorType("float32", (24, 12 // group, 3)),
    )
    operands = tuple(Operand(type_, const=i > 0) for i, type_ in enumerate(types))
    return Kernel(operands, (Step("Conv", attrs, (0, 1)),), (2,))


def test_sequences_have_a_price_relative_to_the_runtimes_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(model: onnx.ModelProto, *_: Any) -> float:
        return 25.0 if model.graph.node[0].op_type == "SequenceConv" else 100.0

    backend = load_backend("native")
    measured: list[float] = []

    def kept(*arguments: Any, **options: Any) -> Any:
        found = measure_kernel(*arguments, **options)
        measured.append(found.time_us)
        return found

    monkeypatch.setattr(native, "_time_us", timed)
    monkeypatch.setattr(native, "measure_kernel", kept)
    (how,) = backend.implementations(sequence())
    found = backend.measure(backend.request(Offer(sequence(), "native", how)), 1, 0.01)
    assert found.time_us == pytest.approx(0.25 * measured[0])


@pytest.mark.parametrize(
    "kernel",
    [
        sequence(group=3),
        conv(kernel=(7, 7), size=9),
        conv(kernel=(1, 1)),
        conv(strides=(2, 2)),
        conv(dilations=(2, 2)),
        conv(group=2),
        conv(group=32, dilations=(2, 2)),
        conv(const=False),
        conv(dtype="float64"),
        conv(channels=31),
        Kernel(
            (Operand(TensorType("float32", (4,)), const=False),), (Step("Relu", (), (0,)),), (1,)
        ),
    ],
)
def test_what_is_not_offered(kernel: Kernel) -> None:
    assert names(kernel) == []


def test_fewer_products_have_a_lower_bound_and_larger_errors() -> None:
    two, _, four, _, six = load_backend("native").implementations(conv())
    assert two.arithmetic == pytest.approx(4 / 9)
    assert four.arithmetic == pytest.approx(1 / 4)
    assert six.arithmetic == pytest.approx(16 / 81)
    assert 0 < two.error < four.error < six.error < 1e-4


@pytest.mark.parametrize(
    ("kernel", "ours"), [(conv(), "WinogradConv"), (conv(group=32), "GroupedConv")]
)
def test_the_price_is_relative_to_the_runtimes_own(
    kernel: Kernel, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def timed(model: onnx.ModelProto, *_: Any) -> float:
        ran.append([node.op_type for node in model.graph.node])
        return 40.0 if ours in ran[-1] else 100.0

    monkeypatch.setattr(native, "_time_us", timed)
    native._own.cache_clear()
    backend = load_backend("native")
    offers = [Offer(kernel, "native", how) for how in backend.implementations(kernel)[:2]]
    found = [backend.measure(backend.request(offer), 1, 0.01) for offer in offers]
    alone = native._own(*_arguments_of(backend.request(offers[0])))
    assert alone is not None
    for one in found:
        assert one.time_us == pytest.approx(0.4 * alone[0].time_us)
    # Onnxruntime's own is measured once for all algorithms, among several kernels of its kind.
    assert [set(nodes) for nodes in ran] == [{"Conv"}, *[{ours}] * len(offers)]
    assert all(len(nodes) >= 2 for nodes in ran)
    native._own.cache_clear()


def _arguments_of(request: bytes) -> tuple[bytes, int, float]:
    model = onnx.load_model_from_string(request)
    model.metadata_props.pop()
    return model.SerializeToString(), 1, 0.01


def test_a_kernel_without_blocks_has_the_price_of_the_runtimes_own() -> None:
    """Five channels fill no block here, though they were offered elsewhere."""
    backend = load_backend("native")
    how = backend.implementations(conv())[0]
    found = backend.measure(backend.request(Offer(conv(channels=5), "native", how)), 1, 0.01)
    assert found.time_us > 0


def siblings(channels: int = 32, size: int = 5) -> onnx.ModelProto:
    """A 1 x 1 and a 3 x 3 convolution of one input, joined."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            rng.standard_normal((channels, channels, k, k)).astype("f"), f"w{k}"
        )
        for k in (1, 3)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Conv", ["x", "w3"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "siblings",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2 * channels, size, size])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_graph_that_suits_our_kernels_may_do_more_arithmetic() -> None:
    """Merged, the 1 x 1 kernel is filled up with zeros: dear directly, cheap by tiles."""
    relaxed = Numerics.parse("relaxed")
    graph = normalise(import_model(load_model(siblings())), numerics=relaxed)
    options = SearchOptions(
        parse_objective("time", (), metric=metric_name), Budget(nodes=2_000), {}, measure=False
    )
    proposal = propose(graph, load_rules("default", relaxed), Pricer(None, 1), options)
    assert proposal.best.operator_counts()["Conv"] == 2
    pricer = Pricer(None, 1, ("ort", "native"))
    (merged, *_), choice = repropose(proposal, pricer, options, max_error=1e-4)
    assert merged.graph.operator_counts() == {"Conv": 1}
    assert choice.extraction.status == "optimal"
    assert choice.extraction.cost < proposal.choice.extraction.cost
    assert {one.backend for one in choice.best.values()} == {"", "native"}
    # With smaller errors allowed than any tile keeps, everything is as before.
    (same, *_), choice = repropose(proposal, pricer, options, max_error=1e-7)
    assert same.graph.operator_counts()["Conv"] == 2
    assert choice.extraction.cost == pytest.approx(proposal.choice.extraction.cost)


def test_the_portable_result_has_none_of_them() -> None:
    with pytest.raises(OptionError, match="--tuned"):
        Options(backends=("ort", "native"))
