"""Operators that models of others have: read, typed at open sizes, shared, priced, written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.kernel_export import export_kernel
from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.inputs import random_inputs

F32, I64, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
Shape = Sequence[int | str]
node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape | None]],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *type_) for name, type_ in inputs.items()],
        [helper.make_tensor_value_info(name, *type_) for name, type_ in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(one: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        one.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def graph_of(one: onnx.ModelProto) -> Graph:
    return normalise(import_model(load_model(one)))


def operators(graph: Graph) -> list[str]:
    return [n.payload.op_type if n.op == OPAQUE else f"+{n.op}" for n in graph.nodes]


def assert_same(one: onnx.ModelProto, feeds: Mapping[str, Array]) -> onnx.ModelProto:
    """What the optimiser writes computes the same; it is returned."""
    options: dict[str, Any] = {"objective": "launches", "budget": 300, "race": False, "store": None}
    found = eqsat_opt.optimize(one, **options)
    written = model_proto(export_model(graph_of(one)))
    for other in (found, written):
        for was, now in zip(run(one, feeds), run(other, feeds), strict=True):
            np.testing.assert_array_equal(was, now)
    return found


# ** Range **


def ranges(opset: int = 17) -> onnx.ModelProto:
    """The mask of a decoder with a cache: past, past + new, and all of them twice."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["past"]),
        node("Gather", ["s", "one"], ["new"]),
        node("Add", ["past", "new"], ["total"]),
        node("Range", ["zero", "total", "one"], ["a"]),
        node("Range", ["past", "total", "one"], ["b"]),
        node("Range", ["zero", "total", "one"], ["c"]),
        node("Range", ["zero", "total", "two"], ["d"]),
        node("Add", ["a", "c"], ["e"]),
    ]
    constants = {name: np.array(i) for i, name in enumerate(("zero", "one", "two"))}
    outputs = {"e": (I64, ["T"]), "b": (I64, ["new"]), "d": (I64, ["half"])}
    return model(nodes, {"x": (F32, ["past", "new"])}, outputs, constants, opset)


def test_a_range_over_sizes_has_as_many_elements() -> None:
    graph = graph_of(ranges())
    assert OPAQUE not in {n.op for n in graph.nodes if n.output in "abcd"}
    assert str(graph.types["a"]) == "int64[new + past]"
    assert str(graph.types["b"]) == "int64[new]"
    assert str(graph.types["d"]) == "int64[floor((1 + new + past)/(2))]"


@pytest.mark.parametrize("sizes", [(3, 2), (1, 1), (0, 4)])
def test_equal_ranges_are_one(sizes: tuple[int, int]) -> None:
    found = assert_same(ranges(), {"x": np.zeros(sizes, np.float32)})
    assert [one.op_type for one in found.graph.node].count("Range") == 3


def test_a_range_of_which_data_decide_is_typed_as_it_is_declared() -> None:
    nodes = [
        node("Cast", ["x"], ["n"], to=I64),
        node("Range", ["zero", "n", "one"], ["a"]),
        node("Neg", ["a"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1)}
    one = model(nodes, {"x": (F32, [])}, {"y": (I64, ["count"])}, constants)
    one.graph.value_info.append(helper.make_tensor_value_info("a", I64, ["count"]))
    assert str(import_model(load_model(one)).types["y"]) == "int64[count]"
    assert_same(one, {"x": np.array(5.25, np.float32)})
    assert_same(one, {"x": np.array(-5.25, np.float32)})


def test_a_range_up_to_an_input_has_as_many_elements() -> None:
    nodes = [node("Range", ["zero", "n", "one"], ["a"]), node("Neg", ["a"], ["y"])]
    constants = {"zero": np.array(0), "one": np.array(1)}
    one = model(nodes, {"n": (I64, [])}, {"y": (I64, ["count"])}, constants)
    type_ = import_model(load_model(one)).tensor_type("y")
    assert type_ is not None
    assert [evaluate_dim(type_.shape[0], {"?n:0": 5, "?n:0~": 0})] == [5]
    assert [evaluate_dim(type_.shape[0], {"?n:0": 0, "?n:0~": 5})] == [0]
    assert_same(one, {"n": np.array(5)})
    assert_same(one, {"n": np.array(-5)})


# ** Resize **


def resized(opset: int, sizes: bool) -> onnx.ModelProto:
    """To the size of another image, as a pyramid of features does, or by scales."""
    how: dict[str, Any] = {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
    }  # fmt: skip
    nodes = [
        node("Shape", ["y"], ["sy"], start=2),
        node("Shape", ["x"], ["sx"], end=2),
        node("Concat", ["sx", "sy"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"] if sizes else ["x", "", "scales"], ["r"], **how),
        node("Relu", ["r"], ["z"]),
    ]
    inputs: dict[str, tuple[int, Shape]] = {
        "x": (F32, ["N", 3, "H", "W"]), "y": (F32, ["N", 3, "H2", "W2"]),
    }  # fmt: skip
    constants = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    return model(nodes, inputs, {"z": (F32, ["N", 3, "A", "B"])}, constants, opset)


@pytest.mark.parametrize(
    ("sizes", "type_"),
    [(True, "float32[N,3,H2,W2]"), (False, "float32[N,3,2*H,W + floor((W)/(2))]")],
)
def test_images_of_open_sizes_are_resized(sizes: bool, type_: str) -> None:
    one = resized(17, sizes)
    graph = graph_of(one)
    assert "+Resize" in operators(graph)
    assert str(graph.types["z"]) == type_
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32),
        "y": np.zeros((2, 3, 7, 9), np.float32),
    }
    assert_same(one, feeds)


def test_a_size_times_a_scale_is_rounded_as_the_runtime_does() -> None:
    """0.7 of 10 is 7, though 0.7 in float32 is below it."""
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    scales = {"scales": np.array([1, 1, 0.7, 0.7], np.float32)}
    one = model(nodes, {"x": (F32, [1, 1, 10, 20])}, {"y": (F32, [1, 1, 7, 14])}, scales)
    assert str(graph_of(one).types["y"]) == "float32[1,1,7,14]"
    assert run(one, {"x": np.zeros((1, 1, 10, 20), np.float32)})[0].shape == (1, 1, 7, 14)


@pytest.mark.parametrize("mode", ["cubic", "linear"])
def test_what_the_record_does_not_say_stays_opaque_with_a_type(mode: str) -> None:
    attrs: dict[str, Any] = {"antialias": 1} if mode == "linear" else {}
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode=mode, **attrs)]
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    one = model(nodes, {"x": (F32, ["N", 1, 4, 5])}, {"y": (F32, None)}, scales, opset=19)
    graph = graph_of(one)
    assert operators(graph) == ["Resize"]
    assert str(graph.types["y"]) == "float32[N,1,8,10]"


@pytest.mark.parametrize("height", [1, 4, 7])
def test_a_table_of_positions_is_resized_to_the_image(height: int) -> None:
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Resize", ["table", "", "", "sizes"], ["positions"], mode="linear"),
        node("Add", ["x", "positions"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    table = {"table": rng.standard_normal((1, 2, 3, 5)).astype(np.float32)}
    image: tuple[int, Shape] = (F32, [1, 2, "H", "W"])
    one = model(nodes, {"x": image}, {"y": image}, table)
    assert "+Resize" in operators(graph_of(one))
    assert_same(one, {"x": rng.standard_normal((1, 2, height, 6)).astype(np.float32)})


def test_a_table_that_is_resized_to_a_known_size_is_rounded_as_by_the_runtime() -> None:
    nodes = [
        node("Resize", ["table", "", "", "sizes"], ["positions"], mode="linear"),
        node("Add", ["x", "positions"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1, 2, 3, 5)).astype(np.float32)
    image = (F32, [1, 2, 4, 6])
    constants = {"table": table, "sizes": np.array([1, 2, 4, 6])}
    one = model(nodes, {"x": image}, {"y": image}, constants)
    assert operators(graph_of(one)) == ["+Add"]
    assert_same(one, {"x": np.zeros((1, 2, 4, 6), np.float32)})


# ** Pad **


@pytest.mark.parametrize("value", [0.0, -2.5])
def test_pads_that_crop_an_axis_of_open_size(value: float) -> None:
    nodes = [node("Pad", ["x", "pads", "value"], ["p"]), node("Relu", ["p"], ["y"])]
    pads = {"pads": np.array([0, -1, 0, 2]), "value": np.asarray(value, np.float32)}
    one = model(nodes, {"x": (F32, ["N", "M"])}, {"y": (F32, ["N", "K"])}, pads)
    graph = graph_of(one)
    assert operators(graph) == ["+Continued", "+Relu"]
    assert str(graph.types["y"]) == "float32[N,1 + M]"
    assert_same(one, {"x": np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)})


@pytest.mark.parametrize("length", [3, 16, 21])
def test_widths_that_are_computed_from_sizes(length: int) -> None:
    """A signal is padded to whole frames, by ``-length mod 8``, and not at all if it fits."""
    nodes = [
        node("Shape", ["x"], ["t"], start=1, end=2),
        node("Add", ["t", "seven"], ["above"]),
        node("Div", ["above", "eight"], ["frames"]),
        node("Mul", ["frames", "eight"], ["whole"]),
        node("Sub", ["whole", "t"], ["behind"]),
        node("Concat", ["zeros", "behind"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["p"]),
        node("Relu", ["p"], ["y"]),
    ]
    numbers = {"seven": [7], "eight": [8], "zeros": [0, 0, 0]}
    constants = {name: np.array(value) for name, value in numbers.items()}
    one = model(nodes, {"x": (F32, ["N", "T"])}, {"y": (F32, ["N", "S"])}, constants)
    assert operators(graph_of(one))[-2:] == ["+Continued", "+Relu"]
    feeds = np.random.default_rng(0).standard_normal((2, length)).astype(np.float32)
    assert_same(one, {"x": feeds})


@pytest.mark.parametrize(("length", "other"), [(4, 9), (9, 4), (5, 5), (6, 7), (7, 6)])
def test_widths_in_pairs_from_the_last_axis_whose_sign_is_open(length: int, other: int) -> None:
    """A signal is centred in the length of another, or cropped, as TorchScript exports it."""
    nodes = [
        node("Shape", ["x"], ["t"], start=1, end=2),
        node("Shape", ["z"], ["s"], start=1, end=2),
        node("Sub", ["s", "t"], ["more"]),
        node("Div", ["more", "two"], ["left"]),
        node("Sub", ["more", "left"], ["right"]),
        node("Concat", ["left", "right", "zeros"], ["flat"], axis=0),
        node("Reshape", ["flat", "pairs"], ["paired"]),
        node("Slice", ["paired", "last", "least", "first", "last"], ["reversed"]),
        node("Transpose", ["reversed"], ["by_side"], perm=[1, 0]),
        node("Reshape", ["by_side", "last"], ["pads"]),
        node("Pad", ["x", "pads"], ["p"]),
        node("Add", ["p", "z"], ["y"]),
    ]
    numbers = {"two": [2], "zeros": [0, 0], "pairs": [-1, 2], "last": [-1], "first": [0]}
    constants = {name: np.array(value) for name, value in numbers.items()}
    constants["least"] = np.array([np.iinfo(np.int64).min + 1])
    inputs = {"x": (F32, ["N", "T"]), "z": (F32, ["N", "S"])}
    one = model(nodes, inputs, {"y": (F32, ["N", "S"])}, constants)
    graph = graph_of(one)
    assert operators(graph)[-2:] == ["+Continued", "+Add"]
    assert str(graph.types["p"]) == "float32[N,S]"
    rng = np.random.default_rng(0)
    sizes = {"x": (2, length), "z": (2, other)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    assert_same(one, feeds)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_signal_of_open_length_goes_on_beyond_its_ends(mode: str) -> None:
    nodes = [node("Pad", ["x", "pads"], ["p"], mode=mode), node("Relu", ["p"], ["y"])]
    pads = {"pads": np.array([0, 2, 0, 1])}
    one = model(nodes, {"x": (F32, ["N", "T"])}, {"y": (F32, ["N", "S"])}, pads)
    graph = graph_of(one)
    assert operators(graph) == ["+Continued", "+Relu"]
    assert str(graph.types["y"]) == "float32[N,3 + T]"
    assert_same(one, {"x": np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)})


# ** recurrences **


def recurrent(outputs: Sequence[str], twice: bool = False) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((2, 12, 4)).astype(np.float32),
        "r": rng.standard_normal((2, 12, 3)).astype(np.float32),
    }
    types: dict[str, tuple[int, Shape]] = {
        "y": (F32, ["T", 2, "N", 3]), "h": (F32, [2, "N", 3]), "c": (F32, [2, "N", 3]),
        "y2": (F32, ["T", 2, "N", 3]), "h2": (F32, [2, "N", 3]),
    }  # fmt: skip
    operands = ["x", "w", "r", "", "lengths", "", "state"]
    attrs: dict[str, Any] = {"hidden_size": 3, "direction": "bidirectional"}
    nodes = [node("LSTM", operands, outputs, name="first", **attrs)]
    if twice:
        nodes.append(node("LSTM", operands, ["y2", "h2"], name="second", **attrs))
    inputs: dict[str, tuple[int, Shape]] = {
        "x": (F32, ["T", "N", 4]), "lengths": (I32, ["N"]), "state": (F32, [2, "N", 3]),
    }  # fmt: skip
    named = [name for one in nodes for name in one.output if name]
    ends = [node("Tanh", [name], [f"{name}_"]) for name in named]
    return model([*nodes, *ends], inputs, {f"{name}_": types[name] for name in named}, arrays)


FEEDS = {
    "x": np.random.default_rng(1).standard_normal((5, 2, 4)).astype(np.float32),
    "lengths": np.array([5, 3], np.int32),
    "state": np.random.default_rng(2).standard_normal((2, 2, 3)).astype(np.float32),
}


@pytest.mark.parametrize("outputs", [("y",), ("", "h"), ("y", "", "c"), ("y", "h", "c")])
def test_outputs_of_a_recurrence_that_nobody_reads_are_absent(outputs: tuple[str, ...]) -> None:
    one = recurrent(outputs)
    found = assert_same(one, FEEDS)
    (kept,) = [n for n in found.graph.node if n.op_type == "LSTM"]
    assert [bool(name) for name in kept.output] == [bool(name) for name in outputs]
    assert [bool(name) for name in kept.input] == [True, True, True, False, True, False, True]


def test_equal_recurrences_are_one() -> None:
    found = assert_same(recurrent(("y", "", "c"), twice=True), FEEDS)
    (kept,) = [n for n in found.graph.node if n.op_type == "LSTM"]
    assert all(kept.output)


@pytest.mark.parametrize(
    "attrs",
    [{"clip": 1.0}, {"activations": ["Tanh", "Tanh", "Tanh"]}, {"input_forget": 1}],
)
def test_recurrences_of_other_kinds_stay_opaque_with_a_type(attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.random((1, 12, 4), np.float32), "r": rng.random((1, 12, 3), np.float32)}
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3, **attrs)]
    one = model(nodes, {"x": (F32, ["T", "N", 4])}, {"y": (F32, None)}, arrays)
    graph = graph_of(one)
    assert operators(graph) == ["LSTM"]
    assert str(graph.types["y"]) == "float32[T,1,N,3]"


# ** Einsum **


def test_products_by_letters_at_open_sizes() -> None:
    nodes = [node("Einsum", ["q", "k"], ["y"], equation="bqhd,bkhd->bhqk")]
    shapes: dict[str, tuple[int, Shape]] = {
        "q": (F32, ["B", "Q", 4, 8]), "k": (F32, ["B", "K", 4, 8]),
    }  # fmt: skip
    one = model(nodes, shapes, {"y": (F32, ["B", 4, "Q", "K"])})
    graph = graph_of(one)
    assert sorted(operators(graph)) == ["+MatMul", "+Transpose", "+Transpose"]
    assert str(graph.types["y"]) == "float32[B,4,Q,K]"
    rng = np.random.default_rng(0)
    feeds = {
        "q": rng.standard_normal((2, 3, 4, 8)).astype(np.float32),
        "k": rng.standard_normal((2, 5, 4, 8)).astype(np.float32),
    }
    np.testing.assert_allclose(
        run(model_proto(export_model(graph)), feeds)[0], run(one, feeds)[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,bj->bij"])
def test_products_of_batches_that_have_two_names(equation: str) -> None:
    """The axes are equal, or one of them is 1, in each run that succeeds."""
    right: Shape = ["C", 4, 5] if "bjk" in equation else ["C", 4]
    shapes: dict[str, tuple[int, Shape]] = {"q": (F32, ["B", 3, 4]), "k": (F32, right)}
    one = model([node("Einsum", ["q", "k"], ["y"], equation=equation)], shapes, {"y": (F32, None)})
    graph = graph_of(one)
    assert "Einsum" not in operators(graph)
    rng, written = np.random.default_rng(0), model_proto(export_model(graph))
    for left, other in ((2, 2), (1, 3), (3, 1)):
        feeds = {
            "q": rng.standard_normal((left, 3, 4)).astype(np.float32),
            "k": rng.standard_normal((other, *right[1:])).astype(np.float32),  # type: ignore[arg-type]
        }
        np.testing.assert_allclose(run(written, feeds)[0], run(one, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", ["ii->i", "ij,ij,ik->kj", "i...->..."])
def test_sums_that_are_no_products_of_matrices_keep_their_values(equation: str) -> None:
    terms = equation.partition("->")[0].split(",")
    names = [f"x{i}" for i in range(len(terms))]
    rank = {"ii": 2, "i...": 3}
    shapes: dict[str, tuple[int, list[int]]] = {
        n: (F32, [3] * rank.get(t, 2)) for n, t in zip(names, terms, strict=True)
    }
    one = model([node("Einsum", names, ["y"], equation=equation)], shapes, {"y": (F32, None)})
    graph = graph_of(one)
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s[1]).astype(np.float32) for n, s in shapes.items()}
    written = model_proto(export_model(graph))
    np.testing.assert_allclose(run(written, feeds)[0], run(one, feeds)[0], rtol=1e-5, atol=1e-5)


# ** prices **

KERNELS: Sequence[tuple[str, Sequence[str], dict[str, Any]]] = [
    ("Mod", ["float32[5,2]", "float32[2]"], {"fmod": 1}),
    ("GatherND", ["float32[3,1,4]", "int64[5,2]"], {"batch_dims": 0}),
    ("GatherElements", ["float32[1,7]", "int64[1,7]"], {"axis": 0}),
    ("ScatterElements", ["float32[5,1]", "int64[2,1]", "float32[2,1]"],
     {"axis": 1, "reduction": "none"}),
    ("ScatterND", ["float32[1,6]", "int64[1,1]", "float32[1,6]"], {"reduction": "add"}),
    ("ReverseSequence", ["float32[4,2]", "int64[2]"], {"batch_axis": 1, "time_axis": 0}),
    ("CumSum", ["float32[4,2]"], {"axis": 1, "exclusive": 0, "reverse": 1}),
    ("Continued", ["float32[4,2]"], {"pads": (0, 1, 2, 0), "mode": "wrap", "value": 0.0}),
    ("Continued", ["float32[4,2]"], {"pads": (-1, 0, 0, 2), "mode": "constant", "value": 3.0}),
    ("LSTM", ["float32[5,2,4]", "float32[1,12,4]", "float32[1,12,3]", "int32[2]"],
     {"given": (0, 1, 2, 4), "direction": "reverse", "output": 1}),
    ("Resize", ["float32[1,2,4,5]"],
     {"mode": "linear", "coordinates": "half_pixel", "rounding": "floor", "sizes": (1, 2, 7, 3),
      "up": (), "down": ()}),
]  # fmt: skip


def _type(text: str) -> TensorType:
    dtype, _, sizes = text.rstrip("]").partition("[")
    return TensorType(dtype, tuple(int(size) for size in sizes.split(",") if size))


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("op", "operands", "attrs"), KERNELS, ids=[one[0] for one in KERNELS])
def test_a_kernel_alone_runs_on_inputs_that_are_drawn(
    op: str, operands: Sequence[str], attrs: dict[str, Any], fixed: bool
) -> None:
    """Places that are drawn lie within what they are places in."""
    types = [_type(text) for text in operands]
    step = Step(op, tuple(sorted(attrs.items())), tuple(range(len(types))))
    kernel = Kernel(
        tuple(Operand(t, fixed and i > 0) for i, t in enumerate(types)), (step,), (len(types),)
    )
    one = onnx.load_from_string(export_kernel(kernel))
    for seed in range(5):
        (result,) = run(one, random_inputs(one, seed))
        assert result.dtype == np.dtype(kernel.types[-1].dtype)
        assert result.shape == kernel.types[-1].shape
    assert isinstance(kernel.flops, int)
