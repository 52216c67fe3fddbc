"""Recognition: every spelling reaches its operator, nothing else does, nothing stays behind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.recognition import Outcome, is_spelled, search
from benchmarks.spellings import FAMILIES, Spelling, near_misses, spellings
from eqsat_opt.api import run
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.recognition.fragments import fragments
from eqsat_opt.egraph.recognition.literals import lift
from eqsat_opt.egraph.recognition.recognise import recognise
from eqsat_opt.egraph.saturation.saturate import Budget, saturate, saturate_windows
from eqsat_opt.egraph.terms import Lowered
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import DTYPE_CODES, StaticType, numpy_dtype
from eqsat_opt.lab.testing import GraphMaker, evaluate
from eqsat_opt.lab.testing import random_inputs as graph_inputs
from eqsat_opt.lab.testing.eclasses import BadClass, check_eclasses
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.describe import describe
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import families
from eqsat_opt.rules.rule import Float, Int, Numerics, Phase, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import far, near, ops, real, sqrt
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs
from tests.oracles.substitution import apply, matches
from tests.sampling import sampled

BOOK = {one.name: one for rules in families().values() for one in rules}
NORMAL_FORM = {"Scale", "Shift", "Square", "Rsqrt", "Center", "RmsN", "Repeat"}
EVERY = {"layer-norm": 67, "rms-norm": 97, "attention": 47, "gelu": 37, "gelu-tanh": 43,
         "gelu-sigmoid": 29, "swish": 29, "hard-swish": 13, "softmax": 13}  # fmt: skip
"""The table of benchmarks.recognition has all; a sample of each family runs here."""
SAMPLE = [case for family, step in EVERY.items() for case in spellings(family)[::step]]
MISSES = near_misses()[::23]


def label(case: Spelling) -> str:
    return f"{case.family}: {case.name}"


def assert_sound(outcome: Outcome) -> None:
    for saturation in outcome.saturations:
        assert saturation.report.stopped_by == "saturated"
        report = check_eclasses(saturation)
        assert not report.bad, str(report)


def graph_of(model: onnx.ModelProto) -> Graph:
    return normalise(import_model(load_model(model)))


def test_the_generator_is_large_enough() -> None:
    assert set(EVERY) == set(FAMILIES)
    assert sum(len(spellings(family)) for family in FAMILIES) >= 800
    assert len(near_misses()) >= 150


@pytest.mark.parametrize("case", SAMPLE, ids=label)
def test_spelling_is_recognised(case: Spelling) -> None:
    outcome = search(case.model)
    assert is_spelled(case, outcome)
    assert_sound(outcome)


def retyped(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """The same model of other floats, the numbers of its formula rounded to these."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    to = numpy_dtype(dtype)
    largest = float(ml_dtypes.finfo(to).max)  # type: ignore[no-untyped-call]

    def tensor(old: TensorProto) -> None:
        if old.data_type == TensorProto.FLOAT:
            array = np.clip(numpy_helper.to_array(old).astype(np.float64), -largest, largest)
            if array.size == 1:
                array = np.full(array.shape, lift(array.item(), "float32"))
            old.CopyFrom(numpy_helper.from_array(array.astype(to), old.name))

    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = DTYPE_CODES[dtype]
    for initializer in made.graph.initializer:
        tensor(initializer)
    for attribute in (one for node in made.graph.node for one in node.attribute):
        tensor(attribute.t)
    return made


def _without_floats(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attrs.items() if not isinstance(value, float)}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("case", SAMPLE[::3], ids=label)
def test_spelling_is_recognised_in_every_float(case: Spelling, dtype: str) -> None:
    told = case.attrs if dtype == "float64" else _without_floats(case.attrs)
    assert is_spelled(replace(case, attrs=told), search(retyped(case.model, dtype)))


@pytest.mark.parametrize("case", MISSES, ids=label)
def test_near_miss_is_not(case: Spelling) -> None:
    outcome = search(case.model)
    assert not is_spelled(case, outcome)
    assert_sound(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_whole_table(family: str) -> None:
    cases = spellings(family)
    found = [is_spelled(case, search(case.model)) for case in cases]
    assert sum(found) >= 0.99 * len(cases)
    wrong = [miss for miss in near_misses() if miss.family == family]
    assert not [miss.name for miss in wrong if is_spelled(miss, search(miss.model))]


# Windows ------------------------------------------------------------------------------------------


def gelu(g: GraphMaker, x: str) -> str:
    half, one = (g.constant(np.array(v, np.float32)) for v in (0.5, 1.0))
    gate = g("Erf", g("Mul", x, g.constant(np.array(math.sqrt(0.5), np.float32))))
    return g("Mul", g("Mul", x, half), g("Add", gate, one))


def test_equal_layers_are_searched_once() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 8)
    for _ in range(6):
        x = gelu(g, g("MatMul", x, g.weight(8, 8)))
    graph = g.graph(x)
    (piece,) = fragments(lower(graph))
    assert len(piece.occurrences) == 6
    rules = [one for one in default_rules() if one.phase is Phase.RECOGNISE]
    saturation = saturate(graph, rules)
    assert saturation.report.recognised == {"Gelu": 6}
    assert not check_eclasses(saturation).bad


def test_too_many_windows_leave_the_rarest_out(caplog: pytest.LogCaptureFixture) -> None:
    g = GraphMaker()
    x = g.input("x", 4, 8)
    for width in (8, 16, 16, 16):
        x = gelu(g, g("MatMul", x, g.weight(g.shape(x)[1], width)))
    rules = [one for one in default_rules() if one.phase is Phase.RECOGNISE]
    budget = Budget(recognition_nodes=4 * 12)
    assert saturate(g.graph(x), rules, budget).report.recognised == {"Gelu": 3}
    assert "1 of 2 distinct windows" in caplog.text


def test_a_model_without_anchors_is_not_searched() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 3, 8, 8)
    lowered = lower(
        g.graph(g("Relu", g("Add", g.conv(x, g.weight(4, 3, 3, 3)), g.weight(4, 1, 1))))
    )

    def search_windows(_windows: Lowered) -> EClasses:
        raise AssertionError("searched")

    assert not recognise(lowered, len(lowered.terms), search_windows).terms


@pytest.mark.parametrize("case", [SAMPLE[1], SAMPLE[12], spellings("attention")[3]], ids=label)
def test_nothing_of_the_normal_form_stays(case: Spelling) -> None:
    saturation = saturate(graph_of(case.model), default_rules())
    assert saturation.report.recognised
    assert not NORMAL_FORM & set(saturation.eclasses.op)
    assert not check_eclasses(saturation).bad
    made = {
        saturation.eclasses.rule_of(node)
        for node, op in enumerate(saturation.eclasses.op)
        if op == case.op and saturation.eclasses.origin[node]
    }
    assert made
    assert all(BOOK[str(name)].phase is Phase.RECOGNISE for name in made)


def test_no_rules_no_recognition() -> None:
    report = saturate(graph_of(SAMPLE[0].model), ()).report
    assert report.recognised == {}


def test_only_the_last_step_of_a_spelling_is_named() -> None:
    outcome = search(spellings("layer-norm")[0].model)
    assert [term.op for _, term in outcome.operators()] == ["LayerNormalization"]


def test_a_symbolic_axis_is_left_alone() -> None:
    """A sum over an axis of unknown size is no multiple of a mean; a mean still is a mean."""
    g = GraphMaker()
    x = g.input("x", 2, "n")
    two, epsilon = (g.constant(np.array(v, np.float32)) for v in (2.0, 1e-5))

    def normal(reduction: str) -> Graph:
        centred = g("Sub", x, g("ReduceMean", x, axes=(1,), keepdims=1))
        spread = g(reduction, g("Pow", centred, two), axes=(1,), keepdims=1)
        return g.graph(g("Div", centred, g("Sqrt", g("Add", spread, epsilon))))

    assert saturate(normal("ReduceSum"), default_rules()).report.recognised == {}


# Soundness ----------------------------------------------------------------------------------------

GELU = next(case for case in spellings("gelu"))


def test_a_wrong_rule_is_seen() -> None:
    right = BOOK["activation/gelu"]
    scaled = right.rhs[0]
    assert str(scaled).startswith("Scale(Gelu(x")
    wrong = replace(right, rhs=(scaled.args[0],))  # type: ignore[attr-defined]
    assert check_rule(wrong).refutation is not None
    rules = [wrong if one.name == right.name else one for one in default_rules()]
    lowered = lower(graph_of(GELU.model))
    bad: list[BadClass] = []

    def saturated(windows: Lowered) -> EClasses:
        saturation = saturate_windows(windows, rules, Budget())
        bad.extend(check_eclasses(saturation).bad)
        return saturation.eclasses

    recognise(lowered, len(lowered.terms), saturated)
    assert any("activation/gelu" in str(one.rule) for one in bad)


@rule("wrong/loose-gelu", phase=Phase.RECOGNISE)
def loose_gelu(x: Tensor, c: Float) -> Sides:
    """Forgets the shift."""
    left = x * ops.Erf(ops.Scale(x, factor=c))
    return left, ops.Gelu(x, approximate="none"), near(c, math.sqrt(0.5))


@rule("wrong/scale-through-exponential", phase=Phase.RECOGNISE)
def scale_through(x: Tensor, a: Float) -> Sides:
    """An exponential is not homogeneous."""
    return ops.Exp(ops.Scale(x, factor=a)), ops.Scale(ops.Exp(x), factor=a)


@rule("wrong/root-of-any-scale", phase=Phase.RECOGNISE)
def any_root(x: Tensor, a: Float) -> Sides:
    """Forgets the inverse."""
    return ops.Rsqrt(ops.Scale(x, factor=a)), ops.Scale(ops.Rsqrt(x), factor=sqrt(a)), a > 0.0


@rule("wrong/sum-is-mean", phase=Phase.RECOGNISE)
def sum_is_mean(x: Tensor, i: Int) -> Sides:
    """Takes the number of another axis."""
    mean = ops.ReduceMean(x, axes=(i,), keepdims=1)
    left = ops.ReduceSum(x, axes=(i,), keepdims=1)
    return left, ops.Scale(mean, factor=real(x.dim(0))), x.rank == 2


@rule("wrong/layer-per-row", phase=Phase.RECOGNISE)
def layer_per_row(x: Tensor, g: Tensor, i: Int, e: Float) -> Sides:
    """A scale per row is none per channel, even where their numbers agree."""
    last = x.rank - 1
    core = ops.RmsN(x, axes=(i,), epsilon=e)
    right = ops.RMSNormalization(x, ops.Reshape(g, shape=(x.dim(last),)), axis=i, epsilon=e)
    return core * g, right, x.rank == 2, g.rank == 2, i == 1, g.dim(1) == 1


@pytest.mark.parametrize(
    "wrong",
    [loose_gelu, scale_through, any_root, sum_is_mean, layer_per_row],
    ids=lambda one: str(one.name),
)
def test_wrong_rules_are_refuted(wrong: Rule) -> None:
    assert check_rule(wrong).refutation is not None


NEEDED = [
    ("activation/gelu", "s ≈ 1.0 (relative tolerance 1e-06)"),
    ("activation/gelu", "c ≈ 0.7071067811865476 (relative tolerance 1e-06)"),
    ("affine/root-of-scale", "0.0 < a"),
    ("affine/scale-cancels", "(a * b) ≈ 1.0 (relative tolerance 1e-12)"),
    ("activation/clip-of-scale", "0.0 < a"),
    ("activation/clip-min-max", "lo <= hi"),
    ("normalisation/center", "c ≈ -1.0 (relative tolerance 1e-06)"),
    ("normalisation/layer-scale", "x.rank == (i + 1)"),
    ("attention/exponential-less-logarithm", "c == -1.0"),
]


@pytest.mark.parametrize(("name", "condition"), sampled([pytest.param(*one) for one in NEEDED], 2))
def test_rule_needs_its_condition(name: str, condition: str) -> None:
    guarded = BOOK[name]
    kept = tuple(one for one in guarded.when if str(one) != condition)
    assert len(kept) == len(guarded.when) - 1
    report = check_rule(replace(guarded, when=kept))
    assert report.refutation is not None or report.guarded > 0


# Rules as other readers see them ------------------------------------------------------------------


def test_description_of_floats_and_of_replacing() -> None:
    text = describe(BOOK["affine/scale-cancels"])
    assert "(a * b) ≈ 1.0 (relative tolerance 1e-12)" in text
    assert "phase recognise, replaces its left side" in text
    assert "sqrt(a)" in describe(BOOK["affine/root-of-scale"])
    assert str(far(BOOK["affine/scale-one"].when[0].args[0], 2.0)).startswith("a ≉ 2.0")


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        (
            "activation/gelu",
            [("Scale", {"factor": 0.5**0.5}), ("Erf", {}), ("Shift", {"offset": 1.0})],
        ),
        ("activation/swish-scaled", [("Scale", {"factor": 1.702}), ("Sigmoid", {})]),
    ],
)  # fmt: skip
def test_rules_of_recognition_rewrite_graphs_too(
    name: str, steps: list[tuple[str, dict[str, float]]]
) -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    gate = x
    for op, attrs in steps:
        gate = g(op, gate, **attrs)
    graph = g.graph(g("Mul", x, gate))
    (match,) = matches(graph, BOOK[name])
    rewritten = apply(graph, match)
    assert {node.op for node in rewritten.nodes} <= {"Scale", "Gelu", "Swish"}
    feeds = graph_inputs(graph)
    np.testing.assert_allclose(evaluate(rewritten, feeds), evaluate(graph, feeds))


# Constants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("real_value", "wanted"),
    [(math.sqrt(2.0), math.sqrt(2.0)), (-math.sqrt(0.5), -math.sqrt(0.5)), (1 / 768, 1 / 768),
     (64**-0.5, 0.125), (48**-0.5, 48**-0.5), (1e-12, 1e-12), (0.044715, 0.044715), (24.0, 24.0),
     (0.0, 0.0), (math.inf, math.inf)],
)  # fmt: skip
def test_rounded_constants_are_what_they_were(real_value: float, wanted: float) -> None:
    assert lift(float(np.float32(real_value)), "float32") == wanted


# From model to model ------------------------------------------------------------------------------

OFFLINE = Options(
    measure=False, race=False, check=1, strict=True, store="", threads=1, budget_s=600.0
)


def mixed(opset: int) -> onnx.ModelProto:
    """A layer normalisation and a Gelu, spelled out, with weights between them."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("w", (16, 16)), ("g", (16,)), ("b", (16,)))
    }
    scalars = {"two": 2.0, "e": 1e-5, "h": 0.5, "one": 1.0, "r": math.sqrt(2.0)}
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["root"]),
        helper.make_node("Div", ["d", "root"], ["n"]),
        helper.make_node("Mul", ["n", "g"], ["ng"]),
        helper.make_node("Add", ["ng", "b"], ["ln"]),
        helper.make_node("MatMul", ["ln", "w"], ["u"]),
        helper.make_node("Div", ["u", "r"], ["ur"]),
        helper.make_node("Erf", ["ur"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["gate"]),
        helper.make_node("Mul", ["u", "gate"], ["ug"]),
        helper.make_node("Mul", ["ug", "h"], ["y"]),
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    constants += [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in scalars.items()]
    shape = [2, 8, 16]
    graph = helper.make_graph(
        nodes, "mixed", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("opset", [13, 17])
def test_the_model_keeps_its_opset(opset: int, dtype: str) -> None:
    model = retyped(mixed(opset), dtype)
    result = run(model, OFFLINE).model
    assert isinstance(result, onnx.ModelProto)
    assert [(o.domain, o.version) for o in result.opset_import] == [("", opset)]
    named = {node.op_type for node in result.graph.node}
    assert ("LayerNormalization" in named) == (opset >= 17)
    feeds = random_inputs(model, 0)
    single = OrtOptions(threads=1)
    expected, actual = (OrtSession(m, single).run(feeds)[0] for m in (model, result))
    tolerance = 1e-4 if dtype == "float32" else 5e-3
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance / 10)


FIRST = [spellings(family)[0] for family in FAMILIES]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in FIRST[::2] for dtype in ("float16", "float64")
     if (case.family, dtype) != ("gelu", "float64")],
    ids=lambda one: one if isinstance(one, str) else label(one),
)  # fmt: skip
def test_the_result_runs_in_every_float(case: Spelling, dtype: str) -> None:
    """But for a Gelu of doubles: onnxruntime has no error function of these."""
    model = retyped(case.model, dtype)
    result = run(model, OFFLINE).model
    feeds, single = random_inputs(model, 0), OrtOptions(threads=1)
    expected, actual = (OrtSession(m, single).run(feeds)[0] for m in (model, result))
    tolerance = 1e-7 if dtype == "float64" else 5e-3
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_a_guard_against_nan_needs_relaxed_numerics() -> None:
    g = GraphMaker()
    q, k, v = (g.input(name, 1, 2, 3, 4) for name in "qkv")
    weights = g("Softmax", g("MatMul", q, g("Transpose", k, perm=(0, 1, 3, 2))), axis=3)
    zero = g.constant(np.zeros(1, np.float32))
    graph = g.graph(g("MatMul", g("Where", g("IsNaN", weights), zero, weights), v))
    strict = saturate(graph, default_rules(Numerics.REASSOCIATE)).report
    relaxed = saturate(graph, default_rules(Numerics.RELAXED)).report
    assert strict.recognised == {}
    assert relaxed.recognised == {"Attention": 1}


def test_a_mask_that_is_expanded_to_an_open_batch_is_no_constant() -> None:
    """As exporters write it: the mask is chosen by a condition, and both are known but their batch.

    A constant that recognition sees must have a size, and this one has none.
    """

    def whole(name: str, values: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(values), name)

    nodes = [
        helper.make_node("Shape", ["x"], ["batch"], start=0, end=1),
        helper.make_node("Concat", ["batch", "rest"], ["shape"], axis=0),
        helper.make_node("Expand", ["keep", "shape"], ["kept"]),
        helper.make_node("Where", ["kept", "zero", "low"], ["mask"]),
        helper.make_node("Transpose", ["x"], ["xt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "xt"], ["logits"]),
        helper.make_node("Add", ["logits", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "vit",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 5, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 5, 5])],
        [
            whole("rest", np.array([1, 5, 5])),
            whole("keep", np.tril(np.ones((1, 1, 5, 5), bool))),
            whole("zero", np.float32(0)),
            whole("low", np.float32(-3e38)),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    lowered = lower(normalise(import_model(load_model(model))))
    pieces = fragments(lowered)
    assert pieces
    for piece in pieces:
        types = [piece.terms[local].type for local in piece.constant]
        assert all(isinstance(type_, StaticType) for type_ in types)
    result = run(model, Options(effort="quick", race=False, store="", check=1))
    assert not result.report.warnings
