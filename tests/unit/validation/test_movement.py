"""Who differs from an original by no more than that moves itself is not accused; others are.

Each class of false alarm is a pair of small models of which one is as right as the other; beside
it stands a fault that has to be noticed in the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import eqsat_opt
from benchmarks.subtle_faults import FAULTS, false_alarms, injected
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.pipeline.serving import RuntimeSession
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import input_specs
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.designed_inputs import value_drafts
from eqsat_opt.validation.judge import Judge
from eqsat_opt.validation.narrow_outputs import coarse_outputs, narrow_outputs
from eqsat_opt.validation.noise import noisy
from eqsat_opt.validation.own_movement import neighbouring
from eqsat_opt.validation.reference import Trial
from eqsat_opt.validation.served_sizes import served
from eqsat_opt.validation.trials import InputDraft, size_drafts

OPTIONS = OrtOptions(threads=1)
PLAIN = OrtOptions(threads=1, level="disabled")
node = helper.make_node


def model(nodes: list[Any], shape: list[int], opset: int = 18, **weights: Any) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def verdict(
    first: ModelProto, second: ModelProto, numerics: Numerics = Numerics.REASSOCIATE
) -> str:
    reference = Reference.of(first, OPTIONS, (0, 1, 2))
    (found,) = differences(reference, second, OPTIONS, numerics)
    return found.why


def product(weight: Any, *, turned: bool = False, tail: tuple[Any, ...] = ()) -> ModelProto:
    """A product whose terms are added from the first or from the last."""
    size = weight.shape[0]
    order = np.arange(size)[::-1] if turned else np.arange(size)
    nodes = [
        node("Gather", ["x", "order"], ["t"], axis=1),
        node("MatMul", ["t", "w"], ["p" if tail else "y"]),
        *tail,
    ]
    return model(nodes, [3, size], w=weight[order].copy(), order=order.copy(), low=np.float32(-16))


def weights(scale: float = 1.0) -> Any:
    drawn = np.random.default_rng(5).standard_normal((256, 8))
    return (drawn * scale).astype(np.float32)


SMALL_SIGMOID = (node("Add", ["p", "low"], ["l"]), node("Sigmoid", ["l"], ["y"]))


def test_a_sigmoid_near_zero_accuses_nobody() -> None:
    """Libraries compute it beside a half, so there are steps of 6e-8."""
    right = product(weights(0.02), turned=True, tail=SMALL_SIGMOID)
    assert verdict(product(weights(0.02), tail=SMALL_SIGMOID), right) == ""


def hurried(first: ModelProto, second: ModelProto) -> str:
    """The verdict without time to see how far the original moves."""
    reference = Reference.of(first, OPTIONS, (0, 1, 2), deadline=Deadline.after(0.0))
    (found,) = differences(reference, second, OPTIONS, Numerics.REASSOCIATE)
    return found.why


@pytest.mark.parametrize("moving", [(), (node("Concat", ["s", "s"], ["y"], axis=0),)])
def test_a_sigmoid_near_zero_accuses_nobody_without_time(moving: tuple[Any, ...]) -> None:
    tail = (SMALL_SIGMOID[0], node("Sigmoid", ["l"], ["s" if moving else "y"]), *moving)
    right = product(weights(0.02), turned=True, tail=tail)
    assert hurried(product(weights(0.02), tail=tail), right) == ""


def test_a_sigmoid_at_ordinary_numbers_is_compared_without_time() -> None:
    tail = (node("Sigmoid", ["p"], ["y"]),)
    wrong = weights(0.05)
    wrong[:, 3] *= np.float32(1.01)
    assert hurried(product(weights(0.05), tail=tail), product(wrong, tail=tail))


def test_only_results_of_functions_near_one_are_coarse() -> None:
    scaled = (node("Sigmoid", ["p"], ["s"]), node("Mul", ["s", "low"], ["y"]))
    assert "y" in coarse_outputs(product(weights(), tail=SMALL_SIGMOID))
    assert not coarse_outputs(product(weights(), tail=scaled))


def test_a_sigmoid_at_ordinary_numbers_is_compared() -> None:
    tail = (node("Sigmoid", ["p"], ["y"]),)
    wrong = weights(0.05)
    wrong[:, 3] *= np.float32(1.001)
    assert verdict(product(weights(0.05), tail=tail), product(wrong, tail=tail))


def cancelling(*, turned: bool, factor: float = 1.0) -> ModelProto:
    """A logit behind terms of 1e6 that cancel."""
    weight = weights()
    weight[1:129] *= np.float32(1e6)
    weight[129:] = 0
    weight = np.concatenate([weight[:129], -weight[1:129], weight[:1] * 0])[:257]
    order = np.arange(257)[::-1].copy() if turned else np.arange(257)
    nodes = [
        node("Concat", ["x", "x"], ["two"], axis=1),
        node("Gather", ["two", "places"], ["t"], axis=1),
        node("MatMul", ["t", "w"], ["p"]),
        node("Mul", ["p", "f"], ["y"]),
    ]
    places = np.concatenate([np.arange(129), 129 + np.arange(128) + 1])[order]
    return model(
        nodes, [3, 129], w=weight[order].copy(), places=places.copy(), f=np.float32(factor)
    )


def test_what_is_left_of_a_cancellation_accuses_nobody() -> None:
    assert verdict(cancelling(turned=False), cancelling(turned=True)) == ""


def test_a_factor_behind_a_cancellation_is_compared() -> None:
    assert verdict(cancelling(turned=False), cancelling(turned=True, factor=100.0))


def test_subnormal_numbers_accuse_nobody() -> None:
    first = product(weights(1e-40), tail=(node("Identity", ["p"], ["y"]),))
    second = product(weights(1e-40), turned=True, tail=(node("Identity", ["p"], ["y"]),))
    assert verdict(first, second) == ""


def test_subnormal_numbers_that_are_others_are_noticed() -> None:
    assert verdict(product(weights(1e-40)), product(weights(1.1e-40)))


def halves(*, turned: bool, factor: float = 1.0) -> ModelProto:
    """Float16 inside, float32 at the ends."""
    weight = weights(0.1).astype(np.float16)
    order = np.arange(256)[::-1].copy() if turned else np.arange(256)
    nodes = [
        node("Gather", ["x", "order"], ["t"], axis=1),
        node("Cast", ["t"], ["h"], to=TensorProto.FLOAT16),
        node("MatMul", ["h", "w"], ["p"]),
        node("Tanh", ["p"], ["q"]),
        node("Mul", ["q", "f"], ["r"]),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    return model(nodes, [3, 256], w=weight[order].copy(), order=order, f=np.float16(factor))


def test_half_precision_inside_accuses_nobody() -> None:
    assert verdict(halves(turned=False), halves(turned=True)) == ""


def test_a_factor_in_half_precision_is_compared() -> None:
    assert verdict(halves(turned=False), halves(turned=True, factor=1.1))


@pytest.mark.parametrize("opset", [18, 22, 23])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_sums_of_every_float_and_opset_can_be_moved(opset: int, kind: int) -> None:
    """The runtime draws no narrow numbers, and none at all from opset 22 on."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        node("Cast", ["x"], ["h"], to=kind),
        node("MatMul", ["h", "w"], ["p"]),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    one = model(nodes, [3, 256], opset=opset, w=weights(0.1).astype(dtype))
    reference = Reference.of(one, OPTIONS, (0,))
    assert reference.own is not None
    movement = reference.own.of(reference.feeds[0], reference.outputs[0], Numerics.REASSOCIATE)
    assert reference.own.knows_sums(Numerics.REASSOCIATE)
    (allowed,) = movement.allowed
    assert allowed is not None
    assert (allowed > 0).all()


def test_outputs_are_judged_by_the_floats_in_which_they_are_computed() -> None:
    one = halves(turned=False)
    assert narrow_outputs(one) == {"y": "float16"}
    stored = model(
        [node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), node("MatMul", ["x", "f"], ["y"])],
        [3, 256],
        w=weights().astype(np.float16),
    )
    assert narrow_outputs(stored) == {}


@pytest.mark.parametrize(("factor", "is_wrong"), [(1.002, False), (1.2, True)])
def test_special_values_in_half_precision_accuse_by_its_rounding(
    factor: float, is_wrong: bool
) -> None:
    first, second = halves(turned=False), halves(turned=True, factor=factor)
    draft = InputDraft("with an infinity", "special", one_infinite)
    feeds = draft.draw(0)
    reference = Reference.of(first, OPTIONS, (0, 1), drafts=[draft])
    plain = tuple(OrtSession(first, OPTIONS).run(feeds))
    trial = Trial(draft, feeds, plain)
    judge = Judge(
        reference=reference,
        model=second,
        options=OPTIONS,
        numerics=Numerics.REASSOCIATE,
        open_session=OrtSession,
        open_candidate=OrtSession,
        precision=Precision.STRICT,
    )
    assert (judge.on(trial, OrtSession(second, OPTIONS)) is not None) is is_wrong


def one_infinite(seed: int) -> dict[str, Any]:
    values = np.random.default_rng(seed).standard_normal((3, 256)).astype(np.float32)
    values[0, 0] = np.inf
    return {"x": values}


def index(*, turned: bool, other: int = 0) -> ModelProto:
    """The place of the largest of numbers of which two are equal but for rounding."""
    weight = weights()
    weight[:, 1] = weight[:, 0][::-1] if other else weight[:, 0]
    tail = (node("ArgMax", ["p"], ["y"], axis=1),)
    result = product(weight, turned=turned, tail=tail)
    result.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return result


def test_another_index_is_noticed() -> None:
    assert verdict(index(turned=False), index(turned=False, other=1))


def test_nan_before_a_maximum_is_not_tried() -> None:
    """Runtimes drop it there or not."""
    pool = [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])]
    convolution = [node("Conv", ["x", "w"], ["y"])]
    for nodes, is_tried in ((pool, False), (convolution, True)):
        one = model(nodes, [1, 1, 4, 4], w=np.ones((1, 1, 2, 2), np.float32))
        drafts = value_drafts(one.graph, input_specs(one), {}, Numerics.REASSOCIATE)
        assert any("nan" in draft.what for draft in drafts) is is_tried


def quotient(*, turned: bool) -> ModelProto:
    """1 / (x · 0), or 1 / -(x · -0): zeros of both signs."""
    zero = np.float32(-0.0 if turned else 0.0)
    nodes = [node("Mul", ["x", "z"], ["m"]), node("Div", ["one", "m"], ["y"])]
    return model(nodes, [2, 8], z=zero, one=np.float32(1))


def test_the_sign_of_zero_behind_a_quotient_accuses_nobody() -> None:
    assert verdict(quotient(turned=False), quotient(turned=True)) == ""


def infinite(*, moved: bool) -> ModelProto:
    """An infinite factor behind a convolution, or before it."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Mul", ["c", "k"], ["y"])]
    if moved:
        nodes = [node("Mul", ["x", "k"], ["c"]), node("Conv", ["c", "w"], ["y"], pads=[1] * 4)]
    return model(nodes, [1, 3, 5, 5], w=weight, k=np.float32(np.inf))


def test_an_infinity_that_fusions_hide_is_noticed() -> None:
    assert verdict(infinite(moved=False), infinite(moved=False)) == ""
    assert verdict(infinite(moved=False), infinite(moved=True))


@pytest.mark.parametrize("objective", ["flops", "launches", "bytes"])
def test_a_known_infinity_stays_behind_a_convolution(objective: str) -> None:
    one = infinite(moved=False)
    found = eqsat_opt.optimize(
        one, effort="quick", race=False, check=0, objective=objective, threads=1
    )
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 5, 5)).astype(np.float32)}
    wanted, given = (OrtSession(m, PLAIN).run(feeds)[0] for m in (one, found))
    assert np.array_equal(wanted, given, equal_nan=True)
    assert np.isinf(given).all()


def test_inputs_beside_others_keep_flags_and_infinities() -> None:
    values = np.array([0.0, 1.0, -3.0, np.inf, 0.3, -1e-3, 1e9], np.float32)
    moved = neighbouring({"x": values}, np.random.default_rng(0))["x"]
    assert moved.dtype == values.dtype
    assert np.array_equal(moved[:4], values[:4])
    assert (moved[4:] != values[4:]).all()
    assert np.allclose(moved[4:], values[4:], rtol=1e-6)


def test_noise_is_put_into_models_whose_nodes_have_names() -> None:
    """No two nodes may have one name."""
    one = model(
        [node("MatMul", ["x", "w"], ["p"], name="first"), node("Sigmoid", ["p"], ["y"], name="s")],
        [2, 4],
        opset=11,
        w=np.ones((4, 4), np.float32),
    )
    changed = noisy(one, partly=True)
    assert changed is not None
    feeds = {"x": np.full((2, 4), 0.3, np.float32)}
    wanted, given = (OrtSession(m, PLAIN).run(feeds)[0] for m in (one, changed))
    assert 0 < np.max(np.abs(wanted - given)) < 1e-4


def added(*, nested: bool) -> ModelProto:
    """Three numbers, added from the first or from the last."""
    nodes = [node("Add", ["x", "a"], ["t"]), node("Add", ["t", "b"], ["y"])]
    if nested:
        nodes = [node("Add", ["a", "b"], ["t"]), node("Add", ["x", "t"], ["y"])]
    values = np.random.default_rng(2).standard_normal((2, 16)).astype(np.float32)
    return model(nodes, [3, 16], a=values[0], b=values[1])


def test_no_bit_may_differ_where_the_class_promises_it() -> None:
    first, second = added(nested=False), added(nested=True)
    assert verdict(first, first, Numerics.BITEXACT) == ""
    assert verdict(first, second, Numerics.REASSOCIATE) == ""
    assert verdict(first, second, Numerics.BITEXACT)


def test_orders_of_libraries_are_excused_where_every_bit_counts() -> None:
    """How a product adds is a matter of its shape."""
    assert (
        verdict(product(weights(0.1)), product(weights(0.1), turned=True), Numerics.BITEXACT) == ""
    )
    wrong = weights(0.1)
    wrong[:, 3] *= np.float32(1.0001)
    assert verdict(product(weights(0.1)), product(wrong), Numerics.BITEXACT)


def test_no_class_is_looser_than_it_was() -> None:
    """What `bitexact` allows is never more than its own bound."""
    right = product(weights(0.02), turned=True, tail=SMALL_SIGMOID)
    first = product(weights(0.02), tail=SMALL_SIGMOID)
    exact = verdict(first, right, Numerics.BITEXACT)
    assert exact or verdict(first, right, Numerics.REFACTOR) == ""


def test_subtle_faults_are_noticed_and_right_models_are_not_accused() -> None:
    tally = injected(60, seed=1)
    assert tally.missed == []
    assert len(tally.noticed) > len(FAULTS) // 2
    assert false_alarms() == []


class FullOnly:
    """A session of a runtime that runs nothing empty."""

    def __init__(self, one: ModelProto) -> None:
        self._inner = OrtSession(one, OPTIONS)
        self.input_names = self._inner.input_names
        self.output_names = self._inner.output_names

    def run(self, feeds: Any) -> list[Any]:
        if any(np.size(value) == 0 for value in feeds.values()):
            raise RuntimeFailed("it has no elements")
        return self._inner.run(feeds)


def batched() -> ModelProto:
    one = model([node("MatMul", ["x", "w"], ["y"])], [2, 4], w=np.ones((4, 3), np.float32))
    one.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    return one


def test_a_runtime_that_cannot_run_an_empty_batch_serves_the_others() -> None:
    one = batched()
    drafts = tuple(size_drafts(input_specs(one), [{"N": 2}]))
    reference = Reference.of(one, OPTIONS, (0,), {"N": 2}, drafts=drafts)
    peer = FullOnly(one)
    kept, text = served(reference, peer, "peer")
    assert "peer does not run at N=0" in text
    assert len(kept.trials) == len(reference.trials) - 1 >= 1
    (found,) = differences(kept, one, OPTIONS, Numerics.REASSOCIATE, open_candidate=lambda *_: peer)
    assert found.why == ""
    same, nothing = served(reference, OrtSession(one, OPTIONS), "peer")
    assert (same, nothing) == (reference, "")


def test_what_a_runtime_does_not_run_is_run_by_onnxruntime() -> None:
    one = batched()
    session = RuntimeSession(FullOnly(one), one, "peer", lambda: OrtSession(one, OPTIONS))
    for size in (2, 0):
        (given,) = session.run(None, {"x": np.ones((size, 4), np.float32)})
        assert given.shape == (size, 3)
