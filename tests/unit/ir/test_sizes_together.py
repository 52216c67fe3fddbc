"""Sizes that belong together: names that are formulas, equations, and assumptions that run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.equations import Equation, equations, solved
from eqsat_opt.ir.sizes.sizes import Sizes, assumed_size, other_sizes, size_sets
from eqsat_opt.ir.values.dim_names import parsed_name, plain_names, read_name
from eqsat_opt.ir.values.dims import (
    dim_max,
    dim_min,
    dim_names,
    evaluate_dim,
    floor_div,
    substituted,
    sym,
)
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OPTIONS = Options(race=False, measure=False, check=2, threads=1, store="", budget_s=20.0)


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("past + seq", {"past": 3, "seq": 4}, 7),
        ("past+seq", {"past": 0, "seq": 4}, 4),
        ("(((height - 1)//2)) + 1", {"height": 7}, 4),
        ("floor(height/2 - 1/2) + 1", {"height": 7}, 4),
        ("floor(floor(h/2)/2)", {"h": 11}, 2),
        ("CeilToInt(x/3)", {"x": 7}, 3),
        ("ceiling(x/3)", {"x": 6}, 2),
        ("2*s - 1", {"s": 5}, 9),
        ("-(1 - s)", {"s": 5}, 4),
        ("6*s/3", {"s": 5}, 10),
        ("((height//16))**2 + 1", {"height": 48}, 10),
        ("(h//2)*(w//2)", {"h": 5, "w": 7}, 6),
        ("Max(0, Min(8, p + s) - Min(8, p))", {"p": 6, "s": 5}, 2),
        ("Max(0, Min(8, p + s) - Min(8, p))", {"p": 9, "s": 5}, 0),
        ("min(3, n, m)", {"n": 5, "m": 2}, 2),
        ("Mod(h, 7)", {"h": 16}, 2),
    ],
)
def test_formulas_are_read(name: str, sizes: dict[str, int], expected: int) -> None:
    formula = parsed_name(name)
    assert formula is not None
    assert evaluate_dim(formula, sizes) == expected


@pytest.mark.parametrize(
    "name",
    ["", "?", "x", "batch size", "a.b", "2x", "1or 2", "x is y", "x**9", "x**y", "f(x)", "h/2",
     "floor(x", "7", "-1", "Best(1, s)", "Max(s)", "x if y else z", "a" * 600 + "+b", "ünï + x",
     "x[0]", "1/0*x"],
)  # fmt: skip
def test_other_names_are_no_formulas(name: str) -> None:
    assert parsed_name(name) is None


def test_a_formula_speaks_of_sizes_of_inputs_only() -> None:
    plain = plain_names(["past", "seq", "past + seq", "", "?"])
    assert plain == {"past", "seq"}
    assert read_name("past + seq", plain) == sym("past") + sym("seq")
    assert read_name("past + other", plain) == sym("past + other")


def test_substitution_reaches_into_quotients() -> None:
    size = floor_div(sym("total") - 1, 2) * sym("n") + 3
    inner = substituted(size, {"total": sym("past") + sym("seq"), "n": 5})
    assert evaluate_dim(inner, {"past": 4, "seq": 3}) == 18
    assert set(dim_names(inner)) == {"past", "seq"}


def test_linear_equations_are_solved() -> None:
    past, seq, total, other = map(sym, ("past", "seq", "total", "other"))
    wanted = [
        Equation(total, past + seq, "", is_strict=False),
        Equation(other + 1, total, "", is_strict=True),
        Equation(past * seq, total, "", is_strict=True),  # not linear
    ]
    found = solved(wanted, ["total", "other", "past", "seq"])
    assert found == {"total": past + seq, "other": past + seq - 1}
    assert solved([Equation(total, 7, "", is_strict=True)], ["total"]) == {"total": 7}
    assert solved([Equation(total * 2, 7, "", is_strict=True)], ["total"]) == {}


def test_a_total_is_found_of_which_another_size_is_a_part() -> None:
    new = sym("total") - dim_min(sym("past"), sym("total"))
    for wanted in (new, dim_max(0, new)):
        (found,) = solved([Equation(wanted, sym("seq"), "", True)], ["total", "seq"]).items()
        assert found == ("total", sym("past") + sym("seq"))
    assert solved([Equation(dim_max(0, sym("n") - 3), 0, "", True)], ["n"]) == {}
    assert solved([Equation(dim_min(4, sym("n")), sym("n"), "", True)], ["n"]) == {}
    assert solved([Equation(dim_min(4, sym("n")), 3, "", True)], ["n"]) == {"n": 3}


def decoder(total: str, *, is_gathered: bool) -> onnx.ModelProto:
    """One attention with a cache, and a mask of ``total`` columns: added whole, or gathered."""

    def const(name: str, value: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(value, np.int64), name)

    node = helper.make_node
    nodes = [
        node("Concat", ["past", "new"], ["k"], axis=2),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["new", "kt"], ["s"]),
        node("Cast", ["mask"], ["m0"], to=FLOAT),
    ]
    if is_gathered:
        nodes += [
            node("Shape", ["k"], ["length"], start=2, end=3),
            node("Squeeze", ["length"], ["count"]),
            node("Range", ["zero", "count", "one"], ["places"]),
            node("Gather", ["m0", "places"], ["m1"], axis=1),
        ]
    nodes += [
        node("Unsqueeze", ["m1" if is_gathered else "m0", "axes"], ["m"]),
        node("Add", ["s", "m"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "k"], ["o"]),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        node("Transpose", ["t"], ["y"], perm=[0, 2, 1, 3]),
    ]
    shape: list[str | int | None] = ["batch", 2, "sequence_length", 4]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("mask", INT64, ["batch", total]),
            helper.make_tensor_value_info("past", FLOAT, ["batch", 2, "past_length", 4]),
            helper.make_tensor_value_info("new", FLOAT, shape),
        ],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        [const("zero", 0), const("one", 1), const("axes", [1, 2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("total", ["past_length + sequence_length", "total_length", "n"])
@pytest.mark.parametrize("is_gathered", [True, False])
def test_decoders_with_a_cache_are_optimised(total: str, is_gathered: bool) -> None:
    result = run(decoder(total, is_gathered=is_gathered), OPTIONS)
    report = result.report
    assert not any("not run" in note or "none of" in note for note in report.notes)
    assert not report.warnings
    assert report.operators_after.get("Transpose", 0) < report.operators_before["Transpose"]
    sizes = {**report.sizes[0]["assumed"]}
    length = sizes.pop(total, sizes["past_length"] + sizes["sequence_length"])
    assert length == sizes["past_length"] + sizes["sequence_length"]


def test_equations_come_of_what_could_not_be_typed() -> None:
    graph = import_model(load_model(decoder("total_length", is_gathered=False)))
    (first, *_) = equations(graph)
    assert {first.left, first.right} == {
        sym("total_length"), sym("past_length") + sym("sequence_length"),
    }  # fmt: skip
    sizes = Sizes.of(graph, {"past_length": 0})
    assert sizes.inputs["total_length"] == sizes.inputs["sequence_length"]


def test_inputs_follow_when_one_size_changes() -> None:
    model = decoder("past_length + sequence_length", is_gathered=True)
    for past in (0, 5):
        drawn = random_inputs(model, 0, {"past_length": past, "sequence_length": 3})
        assert drawn["mask"].shape == (2, past + 3)
    derived = sym("past_length") + sym("sequence_length")
    specs = input_specs(decoder("n", is_gathered=True), {"n": derived})
    drawn = random_inputs(specs, 0, {"past_length": 0, "sequence_length": 3})
    assert drawn["mask"].shape == (2, 3)


@pytest.mark.parametrize("total", ["total", "s64"])
def test_other_assumptions_are_sums_equals_and_ones(total: str) -> None:
    sizes = Sizes({}, {"batch": 2, "past": 16, "seq": 16, total: 16})
    found = [one.inputs for one in other_sizes(sizes)]
    assert found[0] == {"batch": 2, "past": 16, "seq": 16, total: 32}
    assert {"batch": 1, "past": 1, "seq": 1, total: 1} in found
    assert len(found) == len({tuple(one.items()) for one in found})
    given = Sizes({"total": 9, "past": 4}, {"batch": 2, "seq": 16})
    assert {"batch": 2, "seq": 5, "total": 9, "past": 4} in [
        one.inputs for one in other_sizes(given)
    ]


@pytest.mark.parametrize(
    ("name", "rank", "axis", "expected"),
    [
        ("batch_size", 4, 0, 2), ("past_sequence_length", 4, 2, 16), ("height", 4, 2, 32),
        ("p2o.0", 4, 2, 32), ("x", 3, 0, 2), ("x", 2, 1, 16), ("num_tokens", 4, 3, 16),
    ],
)  # fmt: skip
def test_names_tell_what_a_size_is(name: str, rank: int, axis: int, expected: int) -> None:
    assert assumed_size(name, rank, axis) == expected


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"past_length + sequence_length": 12, "past_length": 4, "sequence_length": 3},
            "is 7 where past_length=4, sequence_length=3, not 12; give sizes that belong together",
        ),
        ({"past_length + sequence_length": 12}, "follows from others; give sizes of past_length"),
        ({"mask": (2, 3), "past_length": 9}, "follows from others; give sizes of sequence_length"),
    ],
)
def test_sizes_that_contradict_each_other(shapes: dict[str, Any], message: str) -> None:
    model = decoder("past_length + sequence_length", is_gathered=True)
    with pytest.raises(OptionError, match=message):
        run(model, Options(shapes=shapes, store="", race=False))


def test_a_part_follows_from_the_sum() -> None:
    model = decoder("past_length + sequence_length", is_gathered=True)
    given = Options(
        shapes={"mask": (3, 9), "sequence_length": 2}, race=False, measure=False, store=""
    )
    sizes = run(model, given).report.sizes[0]["given"]
    assert sizes == {"batch": 3, "past_length": 7, "sequence_length": 2}


def test_where_no_sizes_run_the_reason_is_said() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=0),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Reshape", ["r", "target"], ["t"]),
        helper.make_node("Neg", ["t"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "target": np.array([7, 11, 13])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", INT64, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    report = run(model, OPTIONS).report
    assert report.status == "unchanged"
    (note, *_) = [one for one in report.notes if "sets of sizes" in one]
    assert "nothing was tried" in note
    assert "--input-shape columns:SIZE" in note


def rows_of(size: int, **flags: Any) -> onnx.ModelProto:
    """All elements of an input, in rows as long as another input."""
    nodes = [
        helper.make_node("Shape", ["y"], ["m"]),
        helper.make_node("Concat", ["inferred", "m"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"], **flags),
        *(helper.make_node("Relu", [a], [b]) for a, b in (("r", "s"), ("s", "t"))),
        helper.make_node("Exp", ["t"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, [size or "N", 16]),
            helper.make_tensor_value_info("y", FLOAT, ["M"]),
        ],
        [helper.make_tensor_value_info("z", FLOAT, ["rows", "M"])],
        [numpy_helper.from_array(np.array([-1]), "inferred")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_quotient_by_zero_is_no_elements() -> None:
    quotient = floor_div(16 * sym("N"), sym("M"))
    assert evaluate_dim(quotient + 3, {"N": 2, "M": 0}) == 3
    assert evaluate_dim(quotient + 3, {"N": 2, "M": 3}) == 13


@pytest.mark.parametrize("shapes", [{"M": 0}, {"M": 0, "N": 0}])
def test_prices_at_a_divisor_of_zero(shapes: dict[str, Any]) -> None:
    report = run(rows_of(0), replace(OPTIONS, shapes=shapes)).report
    assert not report.warnings


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("size", [0, 2])
def test_an_inferred_size_is_inferred_by_the_runtime(size: int, flag: int) -> None:
    """A computed 0 copies a size, or is one, as in the original; a quotient would divide by it."""
    found = run(rows_of(size, allowzero=flag), OPTIONS)
    assert not found.report.warnings
    assert "Div" not in found.report.operators_after
    assert found.report.operators_after["Relu"] == 1


# ** sizes with names of their own that must be equal **


def operator_on(
    op: str,
    *shapes: list[int | str | None],
    weights: list[tuple[int, ...]] | None = None,
    **attrs: Any,
) -> onnx.ModelProto:
    """One operator on inputs of these shapes and on constants, between two Relus."""
    names = [f"i{place}" for place in range(len(shapes))]
    held = {
        f"w{place}": np.full(shape, 0.5, np.float32) for place, shape in enumerate(weights or [])
    }
    nodes = [
        helper.make_node("Relu", ["i0"], ["a"]),
        helper.make_node(op, ["a", *names[1:], *held], ["b"], **attrs),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, FLOAT, shape)
            for name, shape in zip(names, shapes, strict=True)
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


EQUAL: dict[str, onnx.ModelProto] = {
    "two names": operator_on("MatMul", ["n", "k"], ["m", "p"]),
    "no names": operator_on("MatMul", [None, None], [None, None]),
    "four axes": operator_on("MatMul", ["n", "c", 4, "k"], ["n", "c", "m", "p"]),
    "a vector": operator_on("MatMul", ["n", "k"], ["m"]),
    "a number": operator_on("MatMul", ["n", "k"], weights=[(8, 4)]),
    "transposed": operator_on("Gemm", ["k", "n"], weights=[(4, 8)], transA=1, transB=1),
    "channels": operator_on("Conv", ["n", "c", "h", "w"], weights=[(4, 2, 3, 3)], group=2),
    "channels back": operator_on("ConvTranspose", ["n", "c", "h", "w"], weights=[(4, 2, 3, 3)]),
    "statistics": operator_on("BatchNormalization", ["n", "c", "h"], weights=[(6,)] * 4),
    **{
        op: operator_on(op, ["t", "n", "k"], weights=[(1, n * 8, 4), (1, n * 8, 8)], hidden_size=8)
        for op, n in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    },
    "features": operator_on("Concat", ["n", "k", 3], ["m", "p", 3], axis=1),
}


@pytest.mark.parametrize("name", EQUAL)
def test_sizes_that_must_be_equal_are_one(name: str) -> None:
    """The operator is in the e-graph, and inputs are drawn at sizes at which it runs."""
    model = EQUAL[name]
    graph = import_model(load_model(model))
    assert all(node.op != OPAQUE for node in graph.nodes)
    result = run(model, replace(OPTIONS, effort="quick"))
    assert not any("sizes" in note for note in result.report.notes)
    assert sum(result.report.operators_after.values()) < 4


@pytest.mark.parametrize("given", ["k", "m"])
def test_either_name_of_one_size_may_be_given(given: str) -> None:
    model = EQUAL["two names"]
    sizes = Sizes.of(import_model(load_model(model)), {given: 5})
    assert sizes.inputs["k"] == sizes.inputs["m"] == 5
    options = replace(OPTIONS, effort="quick")
    for one in (replace(options, shapes={given: 5}), replace(options, fixed={given: 5})):
        assert sum(run(model, one).report.operators_after.values()) == 3
    with pytest.raises(OptionError, match="no input of the model"):
        run(model, replace(options, shapes={"q": 5}))


def classifier(shape: list[Any], target: list[int], *, perm: list[int], window: int) -> Any:
    """Convolve and pool a picture, and multiply its rows by a weight of ``target[-1]`` rows."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=perm),
        helper.make_node("Conv", ["t", "w"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "target"], ["r"])
        if target[0]
        else helper.make_node("Flatten", ["p"], ["r"]),
        helper.make_node("Gemm", ["r", "v"], ["y"]),
    ]
    constants = {
        "w": np.ones((2, 3, window, window), np.float32),
        "v": np.ones((target[-1], 3), np.float32),
        "target": np.array(target),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "model",
    [
        classifier(["n", 3, 16, "w"], [-1, 2 * 7 * 13], perm=[0, 1, 2, 3], window=3),
        classifier(["n", 3, "h", "w"], [0, 2 * 6 * 6], perm=[0, 1, 2, 3], window=5),
        classifier(["n", "h", "w", 3], [-1, 2 * 6 * 6], perm=[0, 3, 1, 2], window=5),
        classifier([1, 3, 4, "w"], [-1, 9], perm=[0, 1, 2, 3], window=1),
        classifier(["a", 3, "b", "c"], [2, 5 * 6 * 2], perm=[0, 1, 3, 2], window=1),
    ],
)
def test_sizes_fit_what_a_classifier_flattens(model: onnx.ModelProto, tmp_path: Path) -> None:
    """Products and quotients of sizes are no linear equations; numbers are tried."""
    onnx.save(model, tmp_path / "m.onnx")
    (sizes,) = size_sets(import_model(load_model(model)), ({},))
    specs = input_specs(str(tmp_path / "m.onnx"), sizes.derived)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    session.run(None, random_inputs(specs, 1, sizes_for(specs, sizes.inputs)))
