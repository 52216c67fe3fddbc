"""The form of a model for one machine: how layers are chosen, its file, and who opens it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.api import run
from eqsat_opt.cli import main
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import ModelError, OptionError, RuntimeFailed
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.forms import tuned as tuned_form
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing import tuned_results
from eqsat_opt.racing.race_result import RaceEntry, RaceResult
from eqsat_opt.runtime.backends.native import library, tuning
from eqsat_opt.runtime.backends.native.convolutions import winograd_name
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.sites import Site, SiteWay, with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import NotTuned, output_error, sites, tune
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.tuned_file import (
    Execution,
    is_tuned,
    open_as_raced,
    portable_of,
    tuned_model,
)
from eqsat_opt.runtime.source import read_structure
from eqsat_opt.validation.compare import Reference

needs_kernels = pytest.mark.skipif(bool(missing()), reason=missing() or "kernels are here")
ONE = OrtOptions(threads=1)
KERNELS = Execution("native", threads=1)
AS_IS = OrtOptions(1, "disabled")
FAST: dict[str, Any] = {"measure": False, "race": False, "threads": 1, "store": "", "check": 1}


def conv_net(
    n_layers: int = 2, channels: int = 32, batch: int | str = 1, activation: str = "Relu"
) -> onnx.ModelProto:
    """A chain of 3 x 3 convolutions, every second with an activation."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(n_layers):
        w = rng.standard_normal((channels, channels, 3, 3)) / math.sqrt(9 * channels)
        weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        value = f"c{i}"
        if i % 2:
            if activation == "SiLU":
                nodes.append(helper.make_node("Sigmoid", [value], [f"s{i}"]))
                nodes.append(helper.make_node("Mul", [value, f"s{i}"], [f"r{i}"]))
            else:
                nodes.append(helper.make_node(activation, [value], [f"r{i}"]))
            value = f"r{i}"
    shape = [batch, channels, 24, 24]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds(batch: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal((batch, 32, 24, 24)).astype(np.float32)}


F2, F4 = winograd_name((2, 2), False), winograd_name((4, 4), False)


def everywhere(model: onnx.ModelProto, name: str = F2) -> onnx.ModelProto:
    """The model as onnxruntime runs it, every site computed in one way."""
    named = with_names(ort_optimized(model, ONE))
    found = sites(named, AS_IS)
    assert found
    return with_ways(named, [(s, way) for s in found for way in s.ways if way.name == name])


def ours_are_faster(model: onnx.ModelProto, *_: Any, **__: Any) -> dict[str, float]:
    """Times of nodes, whatever the machine does beside."""
    return {
        node.name: 10.0 if node.op_type == "WinogradConv" else 100.0 for node in model.graph.node
    }


# ** choosing **


def choice(own: float, **times_us: float) -> tuning.SiteChoice:
    site = Site(("a",), (SiteWay("f2", (), 4), SiteWay("f4", (), 16)))
    return tuning.SiteChoice(site, own, times_us).fastest(math.inf)


def chosen(one: tuning.SiteChoice) -> str:
    return "" if one.way is None else one.way.name


def test_a_site_is_replaced_only_for_a_gain() -> None:
    assert chosen(choice(100, f2=99)) == ""
    assert chosen(choice(100, f2=90, f4=95)) == "f2"
    assert chosen(choice(100, f2=90, f4=50).fastest(16)) == "f2"
    assert chosen(choice(100, f2=99, f4=50).fastest(16)) == ""


def test_small_sites_are_judged_by_the_whole_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiler is wrong about small ones: here only regions and one product gain."""
    seconds = {"own": 10.0, "generated": 4.0, "packed-product": 13.0, "gains": 8.0}

    def time_of(chosen: Sequence[tuning.SiteChoice]) -> float:
        named = ("own" if c.way is None else c.way.name for c in chosen)
        gains = chosen[2].way is not None
        return sum(map(seconds.__getitem__, named)) - (6.0 if gains else 0.0)

    monkeypatch.setattr(tuning, "_built", lambda _, chosen: chosen)
    monkeypatch.setattr(tuning, "time_ratio", lambda a, b, *_, **__: time_of(a) / time_of(b))

    def small(name: str, own: float, other: float) -> tuning.SiteChoice:
        site = Site((name,), (SiteWay(name, (), 1),), is_small=name == "generated")
        return tuning.SiteChoice(site, own, {name: other}).tried()

    choices = (
        small("generated", 3, 9), small("generated", 3, 2), small("packed-product", 9, 2),
        small("packed-product", 9, 5), small("packed-product", 9, 10), small("gains", 9, 12),
    )  # fmt: skip
    assert [chosen(one) for one in choices] == ["generated"] * 2 + ["packed-product"] * 3 + [""]
    empty = onnx.ModelProto()
    kept = tuning.paying_choices(empty, choices, AS_IS, {}, Deadline.never())
    assert [chosen(one) for one in kept] == ["generated"] * 2 + ["packed-product"] + [""] * 3


def test_the_error_is_kept_by_giving_up_what_gains_least() -> None:
    errors = {"": 0.0, "f2": 1.0, "f4": 10.0}

    def error_of(choices: Sequence[tuning.SiteChoice]) -> float:
        return sum(errors[chosen(one)] for one in choices)

    all_ = (choice(100, f2=60, f4=20), choice(100, f2=70, f4=60), choice(100, f2=98, f4=90))
    kept, error = tuning.within_error(all_, error_of, 30.0, Deadline.never())
    assert (kept, error) == (all_, 30.0)
    kept, error = tuning.within_error(all_, error_of, 21.0, Deadline.never())
    assert [chosen(one) for one in kept] == ["f4", "f4", ""]
    kept, error = tuning.within_error(all_, error_of, 12.0, Deadline.never())
    assert error <= 12.0
    with pytest.raises(NotTuned, match="every faster algorithm differs by more"):
        tuning.within_error(all_, error_of, 0.5, Deadline.never())
    with pytest.raises(NotTuned, match="own optimised graph already differs"):
        tuning.within_error((choice(1.0),), lambda _: 1.0, 0.5, Deadline.never())


@needs_kernels
def test_a_planted_inaccurate_kernel_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = conv_net()
    outputs = OrtSession(model, ONE).run(feeds())

    def fast_and_wrong(
        model: onnx.ModelProto, chosen: Sequence[tuple[Site, SiteWay]]
    ) -> onnx.ModelProto:
        made = with_ways(model, chosen)
        rough = {site.nodes[0] for site, way in chosen if way.roughness == 16}
        for node in made.graph.node:
            for attribute in node.attribute:
                if attribute.name == "activation" and node.name in rough:
                    attribute.i = 3
        return made

    monkeypatch.setattr(tuning, "with_ways", fast_and_wrong)
    monkeypatch.setattr(tuning, "node_times_us", ours_are_faster)
    trials = [(feeds(), outputs)]
    found = tune(model, ONE, trials, max_error=1e-4, deadline=Deadline.never())
    assert found.error <= 1e-4
    assert all(not name.startswith("winograd-4x4") for name in found.algorithms)


@needs_kernels
def test_inputs_that_are_not_measured_have_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "node_times_us", ours_are_faster)
    model = conv_net(4)
    trials = [(feeds(), OrtSession(model, ONE).run(feeds()))]
    free = tune(model, ONE, trials, max_error=1e-2, deadline=Deadline.never())
    near = tune(model, ONE, trials, max_error=1.5 * free.error, deadline=Deadline.never())
    assert near.error <= 0.75 * free.error
    assert near.withdrawn


@needs_kernels
def test_nothing_is_tuned_where_no_error_is_allowed_or_no_layer_fits() -> None:
    trials = [(feeds(), OrtSession(conv_net(), ONE).run(feeds()))]
    with pytest.raises(NotTuned, match="no error is allowed"):
        tune(conv_net(), ONE, trials, max_error=0.0, deadline=Deadline.never())
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    simple = onnx.parser.parse_model(header + "g (float[2] x) => (float[2] y) { y = Abs(x) }")
    with pytest.raises(NotTuned, match="no part of the model has another way"):
        tune(simple, ONE, trials, max_error=1e-4, deadline=Deadline.never())


@needs_kernels
def test_without_time_nothing_is_measured() -> None:
    trials = [(feeds(), OrtSession(conv_net(), ONE).run(feeds()))]
    with pytest.raises(NotTuned, match="no time to measure"):
        tune(conv_net(), ONE, trials, max_error=1e-4, deadline=Deadline.after(0.0))


@needs_kernels
def test_errors_that_cannot_be_bounded_in_time_are_not_claimed() -> None:
    now_s = [0.0]

    def slow_error(_: object) -> float:
        now_s[0] += 10.0
        return 1.0

    deadline = Deadline.after(15.0, lambda: now_s[0])
    with pytest.raises(NotTuned, match="no time to bound the errors"):
        tuning.within_error((choice(100, f2=60, f4=20),), slow_error, 0.5, deadline)


@needs_kernels
@pytest.mark.parametrize("run_s", [0.5, 100.0])
def test_what_cannot_be_raced_in_time_is_not_tuned(
    run_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that take long, as the first runs tell; half the time is the race's."""
    tuned: list[float] = []
    limits: dict[str, float] = {}

    def reference(*arguments: Any, **options: Any) -> Reference:
        found = measured(*arguments, **options)
        return replace(found, build_s=run_s, run_s=run_s)

    def stub_race(entrants: Any, *_: Any, **options: Any) -> tuple[RaceResult, str]:
        limits.update(options)
        found: tuple[RaceResult, str] = raced(original=1.0, tuned=0.8)(entrants, *_, **options)
        return found

    def stub_tune(base: onnx.ModelProto, *_: object, deadline: Deadline, **__: object) -> Any:
        tuned.append(deadline.left_s)
        return tuning.Tuning(base, {"any": 1}, 1, 0, 0.0)

    measured = Reference.of
    monkeypatch.setattr(Reference, "of", reference)
    monkeypatch.setattr(tuned_results, "tune", stub_tune)
    monkeypatch.setattr(tuned_results, "hold_race", stub_race)
    monkeypatch.setattr(tuned_results, "promising_settings", lambda *_, **__: ())
    held = tuned_results.race_tuned_forms(
        tuned_results.TunedJob(
            original=conv_net(),
            original_inside=conv_net,
            portable=conv_net(),
            is_original=True,
            session=ONE,
            sizes=(Sizes(),),
            seeds=(0,),
            numerics=Numerics.REASSOCIATE,
            max_error=1e-4,
            deadline=Deadline.after(30.0, lambda: 0.0),
        )
    )
    if run_s > 1:
        assert "--budget" in held.why
        assert not tuned
    else:
        assert tuned == [15.0]
        assert limits["time_limit_s"] + limits["extension_s"] <= 30.0


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([0.0], [0.0], 0.0),
        ([1e-9], [0.0], math.inf),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.0], [np.inf, 2.0], 0.5),
        ([np.inf], [-np.inf], math.inf),
        ([1.0], [np.nan], math.inf),
        ([], [], 0.0),
    ],
)
def test_errors_of_outputs(one: list[float], other: list[float], error: float) -> None:
    left, right = np.array(one, np.float32), np.array(other, np.float32)
    assert output_error([left], [right]) == error


def test_errors_of_what_is_no_float() -> None:
    whole = np.array([1, 2])
    assert output_error([whole], [whole]) == 0.0
    assert output_error([whole], [whole + 1]) == math.inf
    assert output_error([whole], [whole.astype(np.int32)]) == math.inf
    assert output_error([[whole]], [[whole]]) == 0.0
    assert output_error([[whole]], [[whole, whole]]) == math.inf
    assert output_error([None], [None]) == 0.0
    assert output_error([whole], []) == math.inf


# ** nodes **


@needs_kernels
@pytest.mark.parametrize("batch", [1, 3])
def test_replaced_nodes_compute_the_same(batch: int) -> None:
    model = conv_net(4, batch="n")
    expected = OrtSession(model, ONE).run(feeds(batch))
    options = OrtOptions(1, "disabled", custom_ops=(library.library_path(),))
    for name in (F2, F4, winograd_name((4, 4), True)):
        found = OrtSession(everywhere(model, name), options).run(feeds(batch))
        assert output_error(found, expected) < 2e-5


@needs_kernels
@pytest.mark.parametrize(
    "changes",
    [{"strides": [2, 2]}, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, {"group": 2}],
)
def test_other_convolutions_keep_their_kernels(changes: dict[str, Any]) -> None:
    model = conv_net(1)
    node = model.graph.node[0]
    weights = numpy_helper.to_array(model.graph.initializer[0])
    if "group" in changes:
        model.graph.initializer[0].CopyFrom(
            numpy_helper.from_array(np.ascontiguousarray(weights[:, :16]), "w0")
        )
    kept = {a.name: helper.get_attribute_value(a) for a in node.attribute} | changes
    node.CopyFrom(helper.make_node("Conv", node.input, node.output, **kept))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    named = with_names(ort_optimized(model, ONE))
    assert not sites(named, AS_IS)


def raced(**ratios: float) -> Any:
    """A race that ends with these times of the entrants, relative to the original."""

    def race(entrants: Any, original: str, *_: Any, **__: Any) -> tuple[RaceResult, str]:
        assert set(entrants) == set(ratios)
        entries = {
            name: RaceEntry(name, one, one, 0.0, one, (one,) * (4 if name == original else 2), 4)
            for name, one in ratios.items()
        }
        result = RaceResult(
            original, original, entries, 0.01, 0.03, 0.03, 2, "cpu", builds=2, rounds=2, seconds=1.0
        )
        return result, ""

    return race


@needs_kernels
@pytest.mark.parametrize(
    ("ratios", "entrant", "wins"),
    [
        ({"tuned": 0.8, "tuned-suited": 0.7}, "tuned-suited", True),
        ({"tuned": 0.7, "tuned-suited": 0.8}, "tuned", True),
        ({"tuned": 1.1, "tuned-suited": 1.0}, "tuned-suited", False),
    ],
)
def test_the_fastest_of_two_tuned_graphs_wins(
    monkeypatch: pytest.MonkeyPatch, ratios: dict[str, float], entrant: str, wins: bool
) -> None:
    monkeypatch.setattr(tuning, "node_times_us", ours_are_faster)
    monkeypatch.setattr(tuned_results, "hold_race", raced(original=1.0, **ratios))
    monkeypatch.setattr(tuned_results, "promising_settings", lambda *_, **__: ())
    model, other = conv_net(), conv_net()
    other.graph.name = "another"
    held = tuned_results.race_tuned_forms(
        tuned_results.TunedJob(
            original=model,
            original_inside=conv_net,
            portable=model,
            suited=other,
            is_original=True,
            session=ONE,
            sizes=(Sizes(),),
            seeds=(0,),
            numerics=Numerics.REASSOCIATE,
            max_error=1e-4,
        )
    )
    assert held.entrant == entrant
    assert (held.model is not None) == wins
    if held.model is not None:
        graph = "another" if entrant == "tuned-suited" else "net"
        assert held.model.graph.name == graph
        assert read_structure(portable_of(held.model)).graph.name == "net"


@needs_kernels
@pytest.mark.parametrize("activation", ["SiLU", "HardSwish", "LeakyRelu", "Tanh"])
def test_activations_go_with_their_convolutions(activation: str) -> None:
    model = conv_net(4, activation=activation)
    named = with_names(ort_optimized(model, ONE))
    found = [site for site in sites(named, AS_IS) if not site.is_small]
    silus = sum(node.op_type == "QuickGelu" for node in named.graph.node)
    assert silus == (2 if activation == "SiLU" else 0)
    assert sum(len(site.nodes) == 2 for site in found) == silus
    replaced = with_ways(named, [(site, site.ways[0]) for site in found])
    assert all(node.op_type != "QuickGelu" for node in replaced.graph.node)
    options = OrtOptions(1, "disabled", custom_ops=(library.library_path(),))
    expected = OrtSession(model, ONE).run(feeds())
    assert output_error(OrtSession(replaced, options).run(feeds()), expected) < 2e-5


def branches_on(name: str) -> onnx.NodeProto:
    """An If of which both branches read a value from outside."""
    value = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([helper.make_node("Abs", [name], ["inner"])], "body", [], [value])
    return helper.make_node("If", ["on"], ["z"], name="if", then_branch=body, else_branch=body)


@needs_kernels
def test_a_convolution_that_is_read_twice_keeps_its_output() -> None:
    named = with_names(ort_optimized(conv_net(2, activation="SiLU"), ONE))
    silu = next(node for node in named.graph.node if node.op_type == "QuickGelu")
    read_twice, captured, gelu = (onnx.ModelProto() for _ in range(3))
    captured.CopyFrom(named)
    captured.graph.node.append(branches_on(silu.input[0]))
    assert [site.nodes[1:] for site in sites(captured, AS_IS)] == [(), ()]
    read_twice.CopyFrom(named)
    read_twice.graph.node.append(helper.make_node("Abs", [silu.input[0]], ["z"], name="abs"))
    assert [site.nodes[1:] for site in sites(read_twice, AS_IS)] == [(), ()]
    silu.attribute[0].f = 1.702
    gelu.CopyFrom(named)
    assert [site.nodes[1:] for site in sites(gelu, AS_IS)] == [(), ()]


# ** files **


@needs_kernels
def test_a_tuned_file_holds_the_portable_model(tmp_path: Path) -> None:
    portable = conv_net()
    portable.metadata_props.add(key="author", value="Ada")
    tuned = tuned_model(everywhere(portable), portable, KERNELS)
    path = tmp_path / "tuned.onnx"
    path.write_bytes(tuned.SerializeToString())
    assert is_tuned(path)
    assert not is_tuned(portable)
    assert portable_of(path) == portable
    expected = OrtSession(portable, ONE).run(feeds())
    for source in (str(path), path.read_bytes(), tuned):
        found = eqsat_opt.session(source, threads=1).run(None, feeds())
        assert output_error(found, expected) < 1e-5
    properties = eqsat_opt.session(path).get_modelmeta().custom_metadata_map
    assert properties["author"] == "Ada"


def test_a_tuned_file_says_what_the_portable_model_says() -> None:
    def described(model: onnx.ModelProto) -> tuple[object, ...]:
        values = (*model.graph.input, *model.graph.output)
        said = [
            (v.name, v.doc_string, [(e.key, e.value) for e in v.metadata_props]) for v in values
        ]
        graph = [(entry.key, entry.value) for entry in model.graph.metadata_props]
        return model.doc_string, model.graph.doc_string, graph, said

    portable, bare = onnx.ModelProto(), onnx.ModelProto()
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([], "g", [value], [value])
    for model in (portable, bare):
        model.CopyFrom(onnx.helper.make_model(graph))
    portable.doc_string, portable.graph.doc_string = "model", "graph"
    portable.graph.metadata_props.add(key="unit", value="volt")
    for one in (*portable.graph.input, *portable.graph.output):
        one.doc_string = f"what {one.name} is"
        one.metadata_props.add(key="range", value="0..1")
    made = tuned_model(bare, portable, Execution("ort", threads=1))
    assert described(made) == described(portable) != described(bare)


@needs_kernels
def test_a_server_with_nothing_but_onnxruntime_loads_it(tmp_path: Path) -> None:
    portable = conv_net()
    path = tmp_path / "tuned.onnx"
    tuned = tuned_model(everywhere(portable), portable, KERNELS)
    path.write_bytes(tuned.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(eqsat_opt.native_library())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert output_error(session.run(None, feeds()), OrtSession(portable, ONE).run(feeds())) < 1e-5


@needs_kernels
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"onnxruntime": "0.9"}, "onnxruntime '0.9' is not"),
        ({"library": "0" * 16}, "library"),
        ({"instructions": "avx1024"}, "instructions 'avx1024' is not"),
        ({"block": 3}, "block 3 is not"),
        ({"format": 99}, "format 99 is not"),
        (None, "record cannot be read"),
    ],
)
def test_on_another_machine_the_portable_model_runs(
    change: dict[str, Any] | None, word: str
) -> None:
    portable = conv_net()
    tuned = tuned_model(everywhere(portable), portable, KERNELS)
    entry = next(one for one in tuned.metadata_props if one.key == "eqsat_opt.tuned")
    entry.value = "?" if change is None else json.dumps({**json.loads(entry.value), **change})
    with pytest.warns(RuntimeWarning, match=word):
        session = open_as_raced(tuned, ONE)
    expected = OrtSession(portable, ONE).run(feeds())
    np.testing.assert_array_equal(session.run(feeds())[0], expected[0])


@needs_kernels
def test_a_damaged_tuned_file_is_a_sentence() -> None:
    portable = conv_net()
    tuned = tuned_model(everywhere(portable), portable, KERNELS)
    for entry in tuned.metadata_props:
        entry.value = "?"
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(ModelError, match="make the file again with --tuned"),
    ):
        open_as_raced(tuned, ONE)


def test_without_kernels_the_portable_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_found", lambda: ("", "", "the kernels were not compiled"))
    options = Options(tuned=str(tmp_path / "tuned.onnx"), **FAST)
    report = run(conv_net(), options, output=tmp_path / "out.onnx").report
    assert report.tuned is not None
    assert not report.tuned.won
    assert "were not compiled" in report.tuned.text
    assert (tmp_path / "tuned.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()
    with pytest.raises(RuntimeFailed, match="were not compiled"):
        eqsat_opt.native_library()


# ** the commands **


@needs_kernels
def test_tuned_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "node_times_us", ours_are_faster)
    source, fast, tuned = (tmp_path / name for name in ("m.onnx", "fast.onnx", "tuned.onnx"))
    onnx.save(conv_net(3, channels=64), source)
    arguments = ["optimize", str(source), "-o", str(fast), "--tuned", str(tuned), "--no-race"]
    arguments += ["--no-measure", "--threads", "1", "--json", str(tmp_path / "r.json")]
    assert main(arguments) == 0
    output = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["tuned"]
    assert found["output"] == str(tuned)
    assert found["max_error"] == 1e-4
    assert found["won"]
    assert found["error"] <= 1e-4
    assert "3 of 3 sites computed otherwise" in output
    assert is_tuned(tuned)
    assert main(["bench", str(source), str(tuned), "--threads", "1", "--budget", "1"]) == 0
    assert "agrees" in capsys.readouterr().out
    for command in (["optimize", str(tuned), "-o", str(fast)], ["compare", str(tuned)]):
        assert main(command) == 1
        assert "give the portable model" in " ".join(capsys.readouterr().err.split())


@needs_kernels
def test_no_data_of_the_model_give_way_to_the_tuned_form(tmp_path: Path) -> None:
    source, output, data = (tmp_path / name for name in ("m.onnx", "out.onnx", "w.data"))
    onnx.save_model(
        conv_net(), source, save_as_external_data=True, location=data.name, size_threshold=0
    )
    before = data.read_bytes()
    with pytest.raises(ModelError, match="holds data of the model"):
        run(source, Options(**FAST, tuned=str(data)), output=output)
    assert data.read_bytes() == before
    assert not output.exists()  # it is known before anything is written


def test_an_interrupted_tuning_tells_of_the_result_that_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuned_form, "_tuned", stop)
    onnx.save(zoo.build("weight_chain", scale="tiny"), tmp_path / "m.onnx")
    output, tuned = tmp_path / "out.onnx", tmp_path / "tuned.onnx"
    command = ["optimize", str(tmp_path / "m.onnx"), "-o", str(output), "--tuned", str(tuned)]
    assert main([*command, "--effort", "quick", "--no-race", "--check", "0"]) == 1
    assert "interrupted;" in (error := capsys.readouterr().err)
    assert "out.onnx is complete" in error
    assert output.exists()
    assert not tuned.exists()


@needs_kernels
def test_a_graph_whose_constants_take_too_long_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def dear(_constants: object) -> float:
        seen.append(math.inf)
        return math.inf

    def made(_graph: object) -> NoReturn:
        raise AssertionError("its constants would be folded")

    monkeypatch.setattr(tuned_form, "structure", lambda _graph: object())  # always another graph
    monkeypatch.setattr(tuned_form, "folding_s", dear)
    monkeypatch.setattr(tuned_form, "export_model", made)
    options = Options(**{**FAST, "measure": True}, tuned=str(tmp_path / "tuned.onnx"))
    run(conv_net(), options, output=tmp_path / "out.onnx")
    assert seen


def test_a_tuned_form_in_the_way_is_no_earlier_result(tmp_path: Path) -> None:
    model, place = conv_net(), tmp_path / "out.onnx"
    tuned = tuned_model(everywhere(model), model, KERNELS)
    place.write_bytes(tuned.SerializeToString())
    options = Options(measure=False, threads=1, store="", check=1, budget_s=5)
    report = run(model, options, output=place).report
    assert any("it is a tuned form" in note for note in report.notes)
    assert not is_tuned(place)


@needs_kernels
def test_our_library_may_be_given_twice(tmp_path: Path) -> None:
    tuned = tuned_model(everywhere(conv_net()), conv_net(), KERNELS)
    session = eqsat_opt.session(tuned, threads=1, custom_ops=(eqsat_opt.native_library(),))
    assert session.run(None, feeds())[0].shape == (1, 32, 24, 24)


@needs_kernels
def test_no_error_allowed_writes_the_portable_model(tmp_path: Path) -> None:
    options = Options(tuned=str(tmp_path / "tuned.onnx"), max_error=0, **FAST)
    report = run(conv_net(), options, output=tmp_path / "out.onnx").report
    assert report.tuned is not None
    assert "no error is allowed" in report.tuned.text
    assert not is_tuned(tmp_path / "tuned.onnx")


def test_bad_options(tmp_path: Path) -> None:
    for wrong in (-0.1, 1.0, math.nan, math.inf):
        with pytest.raises(OptionError, match="max_error"):
            Options(max_error=wrong)
    source = tmp_path / "m.onnx"
    onnx.save(conv_net(1), source)
    output = tmp_path / "out.onnx"
    for place, message in (
        (str(output), "is the output already"),
        (str(source), "is the model itself"),
        ("-", "needs a file"),
    ):
        with pytest.raises(OptionError, match=message):
            run(source, Options(tuned=place, **FAST), output=output)
    with pytest.raises(ModelError, match="does not exist; create it first"):
        run(source, Options(tuned=str(tmp_path / "none" / "t.onnx"), **FAST), output=output)
    assert not output.exists()
