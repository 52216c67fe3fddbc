"""Models with open sizes and with subgraphs go through the whole search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing import examination
from eqsat_opt.racing.race_result import RaceEntry, RaceResult
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import sandbox

FLOAT = TensorProto.FLOAT
OPTIONS = Options(store="", measure=False, race=False, check=1, strict=True, threads=1)


def model_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], weights: dict[str, Any]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def strided(count: int) -> onnx.ModelProto:
    """Unpadded pools that halve the image `count` times, so small ones vanish."""
    values = ["x", *(f"h{i}" for i in range(count))]
    nodes = [
        helper.make_node("MaxPool", [a], [b], kernel_shape=[2, 2], strides=[2, 2])
        for a, b in pairwise(values)
    ]
    nodes.append(helper.make_node("Conv", [values[-1], "w"], ["c"], kernel_shape=[3, 3]))
    nodes.append(helper.make_node("Mul", ["c", "two"], ["y"]))
    return model_of(nodes, ["n", 1, "h", "w_"], {"w": np.ones((1, 1, 3, 3)), "two": 2.0})


def test_assumed_images_are_large_enough() -> None:
    model = strided(4)
    graph = import_model(load_model(model))
    assert Sizes.of(graph, {}).inputs == {"n": 2, "h": 64, "w_": 64}
    assert Sizes.of(graph, {"h": 48}).inputs == {"n": 2, "h": 48, "w_": 64}
    result = run(model, OPTIONS)
    assert result.report.status == "unmeasured"
    assert "Mul" not in result.report.operators_after
    assert result.report.metrics_before["flops"] > 0


def test_an_assumption_that_fails_is_named() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Mul", ["c", "two"], ["d"]),
        helper.make_node("Flatten", ["d"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    weights = {"k": np.ones((1, 1, 1, 1)), "w": np.ones((35, 2)), "two": 2.0}
    model = model_of(nodes, [2, 1, "h", "w_"], weights)
    report = run(model, OPTIONS).report
    assert report.status == "unchanged"
    (note,) = report.notes
    assert re.search(r"were assumed, .* at h=32, w_=32 .*; give .*--input-shape h:SIZE", note)
    options = Options(store="", measure=False, race=False, threads=1, shapes={"h": 5, "w_": 7})
    assert run(model, options).report.status == "unmeasured"


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info("r", FLOAT, None)])


def test_captured_values_keep_their_names() -> None:
    """Equal constants, a value that is computed twice, and one that is only captured."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["c"]),
        helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch(
                helper.make_node("Add", ["a", "one"], ["p"]),
                helper.make_node("Mul", ["p", "uno"], ["r"]),
            ),
            else_branch=branch(helper.make_node("Sub", ["b", "uno"], ["r"])),
        ),
    ]
    model = model_of(nodes, [2, 3], {"zero": 0.0, "one": np.ones(3), "uno": np.ones(3)})
    result = run(model, OPTIONS)
    assert result.proposal is not None
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for graph in (result.proposal.best, result.proposal.original):
        session = OrtSession(model_proto(export_model(graph)), OrtOptions(threads=1))
        for value in (x, -np.abs(x)):
            expected = np.maximum(value, 0)
            expected = expected + 1 if expected.sum() > 0 else expected - 1
            np.testing.assert_array_equal(session.run({"x": value})[0], expected)


def test_a_captured_output_that_equals_another_output() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["c"]),
        helper.make_node(
            "If",
            ["c"],
            ["u"],
            then_branch=branch(helper.make_node("Add", ["y", "z"], ["r"])),
            else_branch=branch(helper.make_node("Neg", ["z"], ["r"])),
        ),
    ]
    model = model_of(nodes, [2, 3], {"zero": 0.0})
    model.graph.output.extend(
        helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in ("z", "u")
    )
    result = run(model, OPTIONS)
    assert result.proposal is not None
    best = model_proto(export_model(result.proposal.best))
    assert [value.name for value in best.graph.output] == ["y", "z", "u"]
    assert [node.op_type for node in best.graph.node].count("Relu") == 1
    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    y, z, u = OrtSession(best, OrtOptions(threads=1)).run({"x": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(z, y)
    np.testing.assert_array_equal(u, y + z)


def expanded(long: str, short: str) -> onnx.ModelProto:
    """A column expanded to as many as p has more elements than q, and then normalised."""
    nodes = [
        helper.make_node("Shape", ["p"], ["ps"]),
        helper.make_node("Shape", ["q"], ["qs"]),
        helper.make_node("Sub", ["ps", "qs"], ["difference"]),
        helper.make_node("Concat", ["four", "difference"], ["shape"], axis=0),
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Mul", ["wide", "wide"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "last"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "epsilon"], ["shifted"]),
        helper.make_node("Sqrt", ["shifted"], ["root"]),
        helper.make_node("Div", ["wide", "root"], ["y"]),
    ]
    model = model_of(nodes, [4, 1], {"epsilon": 1e-3})
    for name, values in (("four", [4]), ("last", [-1])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(values), name))
    for name, size in (("p", long), ("q", short)):
        model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, [size]))
    return model


@pytest.mark.parametrize("objective", ["time", "flops", "launches"])
@pytest.mark.parametrize(
    "names", [("total", "past"), ("n", "m"), ("m", "n"), ("N", "M"), ("seq", "past")]
)
def test_a_difference_of_sizes_is_no_number(names: tuple[str, str], objective: str) -> None:
    long, short = names
    model = expanded(long, short)
    options = Options(
        store="", measure=False, race=False, check=1, strict=True, threads=1, objective=objective,
        shapes={long: 9, short: 4},
    )  # fmt: skip
    result = run(model, options)
    assert result.report.status == "unmeasured"
    assert result.proposal is not None
    sessions = [
        OrtSession(one, OrtOptions(threads=1))
        for one in (model, model_proto(export_model(result.proposal.best)))
    ]
    x = np.array([[1], [-2], [3], [4]], np.float32)
    for total, past in ((9, 4), (5, 4), (7, 0), (100, 1)):
        feeds = {"x": x, "p": np.zeros(total, np.float32), "q": np.zeros(past, np.float32)}
        expected, actual = (session.run(feeds)[0] for session in sessions)
        assert actual.shape == (4, total - past)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def cached(batch: str | int, past: str, new: str | int) -> onnx.ModelProto:
    """Attention of new tokens over a cache and themselves, which is returned without its oldest."""
    nodes = [
        helper.make_node("Concat", ["pk", "k"], ["keys"], axis=2),
        helper.make_node("Concat", ["pv", "v"], ["values"], axis=2),
        helper.make_node("Transpose", ["keys"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "kt"], ["logits"]),
        helper.make_node("Mul", ["logits", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "values"], ["heads"]),
        helper.make_node("Transpose", ["heads"], ["tokens"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["tokens", "shape"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["positive"]),
        helper.make_node("Reshape", ["positive", "wide"], ["y"]),
    ]
    model = model_of(nodes, [batch, 2, new, 4], {"scale": 0.5})
    for name, values in (("shape", [0, 0, 8]), ("wide", [0, 0, 2, 4])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(values), name))
    for name, size in (("k", new), ("v", new), ("pk", past), ("pv", past)):
        model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, [batch, 2, size, 4]))
    return model


@pytest.mark.parametrize("numerics", ["reassociate", "relaxed"])
def test_attention_over_a_cache_at_several_sizes(numerics: str) -> None:
    model = cached("batch", "past", "sequence")
    sizes = {"batch": 2, "past": 3, "sequence": 4}
    options = Options(
        store="",
        measure=False,
        race=False,
        check=1,
        strict=True,
        threads=1,
        shapes=sizes,
        numerics=numerics,
    )
    result = run(model, options)
    assert result.proposal is not None
    assert result.report.operators_after.get("Reshape", 0) <= 1
    sessions = [
        OrtSession(one, OrtOptions(threads=1))
        for one in (model, model_proto(export_model(result.proposal.best)))
    ]
    rng = np.random.default_rng(0)
    for batch, past, new in ((2, 3, 4), (1, 0, 6), (3, 7, 1)):
        lengths = {"x": new, "k": new, "v": new, "pk": past, "pv": past}
        feeds = {
            name: rng.standard_normal((batch, 2, size, 4)).astype(np.float32)
            for name, size in lengths.items()
        }
        expected, actual = (session.run(feeds)[0] for session in sessions)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_kernel_of_symbolic_extent_is_not_made() -> None:
    """Where the channels are open, a normalisation over them becomes no constant matrix."""
    nodes = [helper.make_node("LRN", ["x"], ["y"], size=3, alpha=0.1, beta=0.75, bias=1.0)]
    model = model_of(nodes, [1, "c", 4, 4], {})
    options = Options(
        store="", measure=False, race=False, check=1, strict=True, threads=1, shapes={"c": 6}
    )
    result = run(model, options)
    assert result.report.status in ("unchanged", "unmeasured")
    assert "Conv" not in result.report.operators_after


# Sizes -------------------------------------------------------------------------------------------


def test_prices_check_and_race_use_the_sizes_that_are_reported() -> None:
    model = strided(2)
    result = run(model, replace(OPTIONS, shapes={"n": 3}))
    (sizes,) = result.report.to_json()["sizes"]
    assert sizes == {"given": {"n": 3}, "assumed": {"h": 32, "w_": 32}, "data": {}}
    assert result.proposal is not None
    assert result.proposal.choice.priced.sizes == {"n": 3, "h": 32, "w_": 32}


def test_sizes_that_the_data_decide_are_named_as_such() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("NonZero", ["s"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    (sizes,) = run(model_of(nodes, [4, 5], {}), OPTIONS).report.sizes
    assert not sizes["given"]
    assert not sizes["assumed"]
    assert list(sizes["data"].values()) == [16]


def test_an_axis_without_a_name_has_one_size_everywhere() -> None:
    model = strided(2)
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.Clear()
    assert run(model, OPTIONS).report.status == "unmeasured"
    result = run(model, replace(OPTIONS, shapes={"x": (3, 1, 40, 44)}))
    (sizes,) = result.report.sizes
    assert dict(sizes["given"]) == {"x.0": 3, "x.2": 40, "x.3": 44}
    assert run(model, replace(OPTIONS, shapes=dict(sizes["given"]))).report.sizes == (sizes,)


@pytest.mark.parametrize("shapes", [[{"N": 1}, {"N": 8}], ({"x": (1, 4)}, {"x": [8, 4]})])
def test_several_sets_of_sizes(shapes: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    report = run(model_of(nodes, ["N", 4], {}), replace(OPTIONS, shapes=shapes)).report
    assert [dict(one["given"]) for one in report.sizes] == [{"N": 1}, {"N": 8}]


def race_of(faster: dict[int, tuple[str, ...]], seen: list[int]) -> Any:
    """A race that a script decides, by the size of the first axis."""

    def race(entrants: dict[str, Any], original: str, feeds: Any, **_: Any) -> RaceResult:
        size = len(feeds["x"])
        seen.append(size)
        times = {name: 0.5 if name in faster[size] else 1.0 for name in entrants}
        entries = {
            name: RaceEntry(name, us, us, 0.0, us, (us,) * (6 if name == original else 3), 3)
            for name, us in times.items()
        }
        winner = min(times, key=times.__getitem__)
        return RaceResult(winner, original, entries, 0.0, 0.03, 0.03, 2, "wall", 3, 3, 0.0)

    return race


@pytest.mark.parametrize(
    ("faster", "expected", "n_races"),
    [
        ({1: ("best", "clean"), 8: ("best", "clean")}, "best", 2),
        ({1: ("best", "clean"), 8: ("clean",)}, "clean", 2),
        ({1: ("best",), 8: ("clean",)}, "original", 2),
        ({1: (), 8: ("best",)}, "original", 1),
    ],
)
def test_a_win_must_hold_on_every_set(
    faster: dict[int, tuple[str, ...]], expected: str, n_races: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(examination, "race", race_of(faster, seen))
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    model = model_of(nodes, ["N", 4], {})
    found = examination.examine({"best": model, "clean": model}, model, TERMS)
    result = examination.race_candidates(
        {"best": model, "clean": model}, model, import_model(load_model(model)), found, TERMS
    )
    assert result.verdict.winner == expected
    assert seen == [1, 8][:n_races]
    assert result.race is not None
    assert len(result.further_races) == n_races - 1


TERMS = examination.RaceTerms(
    1, Numerics.REASSOCIATE, (0,), (Sizes({"N": 1}), Sizes({"N": 8})), 1.0
)


def wrong_at(size: int) -> onnx.ModelProto:
    """The input, but for one extent."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Equal", ["s", "odd"], ["e"]),
        helper.make_node("Cast", ["e"], ["f"], to=FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    model = model_of(nodes, ["N", 4], {})
    model.graph.initializer.append(numpy_helper.from_array(np.array([size]), "odd"))
    return model


@pytest.mark.parametrize("size", [1, 8, 0, 5])
def test_the_check_tries_other_sizes(size: int) -> None:
    """All given ones, 1 and an odd one; where nothing is computed, nothing can differ."""
    right = wrong_at(1000)
    found = examination.examine({"best": wrong_at(size)}, right, replace(TERMS, sizes=SETS))
    assert bool(found.wrong) == (size > 0)
    if size:
        assert f"at N={size}" in found.wrong["best"].why


SETS = (Sizes({}, {"N": 4}), Sizes({"N": 8}))


def test_a_candidate_that_fails_where_the_original_runs_is_wrong() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    right, wrong = (model_of(nodes, ["N", 4], {}) for _ in range(2))
    for model, shape in ((right, [0, 2, 2]), (wrong, [2, -1, 2])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape), "shape"))
    sizes = (Sizes({}, {"N": 2}),)
    found = examination.examine({"best": wrong}, right, replace(TERMS, sizes=sizes))
    assert "at N=1" in found.wrong["best"].why or "does not run at" in found.wrong["best"].why


def test_a_size_at_which_the_original_fails_says_nothing() -> None:
    """An unpadded pool of an image that is too small ends the process, or refuses."""
    terms = replace(TERMS, sizes=(Sizes({}, {"n": 2, "h": 32, "w_": 32}),))
    with sandbox() as box:
        found = examination.examine({"best": strided(2)}, strided(2), replace(terms, box=box))
    assert not found.wrong
    assert not found.refused
    assert found.reference is not None
    assert 2 <= len(found.reference.trials) < 8
