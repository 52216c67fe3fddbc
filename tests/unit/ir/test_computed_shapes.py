"""Shapes that are computed: what the importer says of them is what the runtime makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.folding import exact_value
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.conditions import import_decided
from eqsat_opt.ir.passes.coverage import coverage_of
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import Dim, evaluate_dim, floor_div, sym
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, list[int | str | None]],
    constants: Mapping[str, Any],
    outputs: Mapping[str, int],
    opset: int = 17,
    dtypes: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    declared = dtypes or {}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, declared.get(name, FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def grid() -> onnx.ModelProto:
    """Two Reshapes: one behind quotients of sizes, one that only holds for some of them."""
    return model_of(
        [
            node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Shape", ["c"], ["s"]),
            node("Gather", ["s", "i0"], ["n"], axis=0),
            node("Gather", ["s", "i2"], ["h"], axis=0),
            node("Gather", ["s", "i3"], ["v"], axis=0),
            node("Mul", ["h", "v"], ["hv"]),
            node("Concat", ["n", "four", "hv"], ["flat"], axis=0),
            node("Reshape", ["c", "flat"], ["t"]),
            node("Transpose", ["t"], ["u"], perm=[0, 2, 1]),
            node("Relu", ["u"], ["a"]),
            node("Concat", ["n", "one", "v", "four"], ["row"], axis=0),
            node("Reshape", ["a", "row"], ["b"]),
            node("Relu", ["b"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {
            "w": np.ones((4, 3, 3, 3), np.float32), "i0": np.array([0]), "i2": np.array([2]),
            "i3": np.array([3]), "four": np.array([4]), "one": np.array([1]),
        },
        {"a": FLOAT, "y": FLOAT},
    )  # fmt: skip


def resized(mode: str) -> onnx.ModelProto:
    """Resize by factors or to sizes of another value, and a sum that needs its type."""
    last = {"scales": ["", "scales"], "sizes": ["", "", "sizes"]}[mode]
    return model_of(
        [
            node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Shape", ["x"], ["sizes"]),
            node("Resize", ["p", *last], ["r"], mode="nearest"),
            node("Add", ["r", "r"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {"scales": np.array([1, 1, 2, 0.5], np.float32)},
        {"y": FLOAT},
    )


def ones() -> onnx.ModelProto:
    """ConstantOfShape of open sizes, as masks begin."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["o"], value=numpy_helper.from_array(np.ones(1, "f"))),
            node("Mul", ["x", "o"], ["m"]),
            node("Relu", ["m"], ["y"]),
        ],
        {"x": ["batch", "height"]},
        {},
        {"y": FLOAT},
    )


def best_of() -> onnx.ModelProto:
    """TopK of as many as another value has rows."""
    return model_of(
        [
            node("Shape", ["z"], ["k"], start=0, end=1),
            node("TopK", ["x", "k"], ["values", "indices"], axis=-1),
            node("Neg", ["values"], ["n"]),
            node("Relu", ["n"], ["y"]),
        ],
        {"x": ["batch", 40], "z": ["height"]},
        {},
        {"y": FLOAT},
    )


def blocks() -> onnx.ModelProto:
    """Channels that become blocks of pixels, and blocks that become channels."""
    return model_of(
        [
            node("DepthToSpace", ["x"], ["d"], blocksize=2),
            node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
            node("Slice", ["r", "zero", "one", "one"], ["c"]),
            node("Add", ["d", "c"], ["a"]),
            node("SpaceToDepth", ["a"], ["s"], blocksize=2),
            node("Add", ["s", "x"], ["b"]),
            node("Relu", ["b"], ["y"]),
        ],
        {"x": ["batch", 4, "height", "width"]},
        {"scales": np.array([1, 1, 2, 2], np.float32), "zero": np.array([0]), "one": np.array([1])},
        {"y": FLOAT},
    )


def padded_by_sizes() -> onnx.ModelProto:
    """As many columns appended as another value has rows, so that the sum has one shape."""
    return model_of(
        [
            node("Shape", ["z"], ["more"], start=0, end=1),
            node("Concat", ["zero", "zero", "zero", "more"], ["pads"], axis=0),
            node("Pad", ["x", "pads"], ["p"]),
            node("Neg", ["p"], ["n"]),
            node("Add", ["n", "p"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        {"x": ["batch", "width"], "z": ["height"]},
        {"zero": np.array([0])},
        {"y": FLOAT},
    )


def cut_somewhere() -> onnx.ModelProto:
    """Rows from a place that is not known to lie behind the begin; the columns stay known."""
    return model_of(
        [
            node("Shape", ["z"], ["rows"], start=0, end=1),
            node("Sub", ["eight", "rows"], ["low"]),
            node("Slice", ["table", "low", "eight", "zero"], ["s"]),
            node("MatMul", ["s", "w"], ["m"]),
            node("Relu", ["m"], ["y"]),
        ],
        {"z": ["height"]},
        {
            "zero": np.array([0]), "eight": np.array([8]), "w": np.ones((5, 2), np.float32),
            "table": np.random.default_rng(0).random((8, 5), np.float32),
        },
        {"y": FLOAT},
    )  # fmt: skip


def parted(how: str) -> onnx.ModelProto:
    """An open axis in equal parts, or in parts of sizes that are computed."""
    return model_of(
        [
            node("Shape", ["z"], ["size"], start=0, end=1),
            node("Concat", ["size", "size"], ["sizes"], axis=0),
            node("Concat", ["z", "z"], ["both"], axis=0),
            node("Split", ["both", "sizes"] if how == "sizes" else ["both"], ["p", "q"], axis=-2),
            node("Mul", ["p", "q"], ["m"]),
            node("Add", ["m", "z"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        {"z": ["height", 3]},
        {},
        {"y": FLOAT},
    )


def of_integers() -> onnx.ModelProto:
    """A convolution of integers behind an open width."""
    return model_of(
        [
            node("ConvInteger", ["x", "w"], ["c"], strides=[2, 1], pads=[1, 0, 1, 0]),
            node("Cast", ["c"], ["f"], to=FLOAT),
            node("Relu", ["f"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {"w": np.ones((4, 3, 3, 3), np.uint8)},
        {"y": FLOAT},
        dtypes={"x": TensorProto.UINT8},
    )


def beyond() -> onnx.ModelProto:
    """Ends of Slices that no tensor reaches, as TensorFlow writes them."""
    return model_of(
        [node("Slice", ["x", "b", "e", "axes"], ["s"]), node("Relu", ["s"], ["y"])],
        {"x": ["batch", 512, 256]},
        {"b": np.zeros(3, np.int32), "e": np.full(3, 10**9, np.int32),
         "axes": np.arange(3, dtype=np.int32)},
        {"y": FLOAT},
    )  # fmt: skip


def padded_alike() -> onnx.ModelProto:
    """Windows padded to SAME: by a number where the stride is 1, and where it divides the size."""
    same: dict[str, Any] = {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}
    return model_of(
        [
            node("Conv", ["x", "w"], ["c"], **same),
            node("MaxPool", ["c"], ["p"], **same),
            node("Resize", ["p", "", "scales"], ["r"], mode="nearest"),
            node("AveragePool", ["r"], ["q"], strides=[2, 2], **same),
            node("Relu", ["q"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {"w": np.ones((4, 3, 3, 2), np.float32), "scales": np.array([1, 1, 4, 2], np.float32)},
        {"y": FLOAT},
    )


def padded_somehow() -> onnx.ModelProto:
    """Windows padded to SAME at sizes that decide the pads: one per stride, whatever they are."""
    same: dict[str, Any] = {"auto_pad": "SAME_UPPER", "strides": [2, 5]}
    return model_of(
        [
            node("Conv", ["x", "w"], ["c"], **same),
            node("MaxPool", ["c"], ["p"], kernel_shape=[1, 3], **same),
            node("AveragePool", ["c"], ["a"], kernel_shape=[3, 5], **same),
            node("Cast", ["x"], ["u"], to=TensorProto.UINT8),
            node("ConvInteger", ["u", "v"], ["i"], **same),
            node("Cast", ["i"], ["f"], to=FLOAT),
            *(node("Relu", [name], [f"y{name}"]) for name in "paf"),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {"w": np.ones((4, 3, 3, 2), np.float32), "v": np.ones((4, 3, 3, 2), np.uint8)},
        {f"y{name}": FLOAT for name in "paf"},
    )


def named_again() -> onnx.ModelProto:
    """Targets, bounds and limits behind an Identity, as PyTorch names what is stored once."""
    return model_of(
        [
            *(node("Identity", [name], [f"{name}s"]) for name in ("target", "begin", "low")),
            node("Reshape", ["x", "targets"], ["r"]),
            node("Slice", ["r", "begins", "end"], ["s"]),
            node("Clip", ["s", "lows"], ["c"]),
            node("Relu", ["c"], ["y"]),
        ],
        {"x": ["batch", 3, 4]},
        {"target": np.array([0, 12]), "begin": np.array([0, 2]), "end": np.array([999, 9]),
         "low": np.float32(1)},
        {"y": FLOAT},
    )  # fmt: skip


def counted_down() -> onnx.ModelProto:
    """Positions from a length down to its negative, every third, as relative attention has them."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i1"], ["length"], axis=0),
            node("Neg", ["length"], ["below"]),
            node("Range", ["length", "below", "step"], ["places"]),
            node("Cast", ["places"], ["f"], to=FLOAT),
            node("Relu", ["f"], ["y"]),
        ],
        {"x": ["batch", "height"]},
        {"i1": np.array(1), "step": np.array(-3)},
        {"y": FLOAT},
    )


def repeated_evenly() -> onnx.ModelProto:
    """Queries repeated as often as there are windows: the quotient of two batches."""
    return model_of(
        [
            node("Reshape", ["x", "windows"], ["w"]),
            *(node("Shape", [name], [f"s{name}"]) for name in "xw"),
            *(node("Gather", [f"s{name}", "i0"], [f"n{name}"], axis=0) for name in "xw"),
            node("Div", ["nw", "nx"], ["count"]),
            node("Concat", ["count", "one"], ["counts"], axis=0),
            node("Tile", ["q", "counts"], ["t"]),
            node("Mul", ["t", "w"], ["m"]),
            node("Relu", ["m"], ["y"]),
        ],
        {"x": ["batch", 12], "q": ["batch", 3]},
        {"windows": np.array([-1, 3]), "i0": np.array([0]), "one": np.array([1])},
        {"y": FLOAT},
    )


def places_of_ones(count: str) -> onnx.ModelProto:
    """Elements chosen by the places of ones, as PyTorch's older exporter counts."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i1"], ["height"], axis=0),
            node("ConstantOfShape", [count], ["ones"],
                 value=numpy_helper.from_array(np.array([1]))),
            node("NonZero", ["ones"], ["places"]),
            node("Squeeze", ["places", "i0"], ["p"]),
            node("Gather", ["x", "p"], ["g"], axis=1),
            node("Relu", ["g"], ["y"]),
        ],
        {"x": ["batch", "height"]},
        {"i0": np.array([0]), "i1": np.array([1]), "three": np.array([3])},
        {"y": FLOAT},
    )  # fmt: skip


def chunked() -> onnx.ModelProto:
    """A sequence in chunks of two, which it must have, then all its elements in one row."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i1"], ["length"], axis=0),
            node("Div", ["length", "two"], ["count"]),
            node("Concat", ["zero", "count", "two", "eight"], ["parted"], axis=0),
            node("Reshape", ["x", "parted"], ["chunks"]),
            node("Reshape", ["chunks", "row"], ["all"]),
            node("Relu", ["all"], ["positive"]),
            node("Reshape", ["positive", "s"], ["back"]),
            node("Relu", ["back"], ["y"]),
        ],
        {"x": ["batch", "height", 8]},
        {"i1": np.array([1]), "two": np.array([2]), "zero": np.array([0]),
         "eight": np.array([8]), "row": np.array([-1])},
        {"y": FLOAT},
    )  # fmt: skip


def squared(patches: int = 16) -> onnx.ModelProto:
    """Patches as rows and columns of a square, whose sides are the root of their number."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i0"], ["n"], axis=0),
            node("Gather", ["s", "i1"], ["patches"], axis=0),
            node("Cast", ["patches"], ["number"], to=FLOAT),
            node("Pow", ["number", "half"], ["root"]),
            node("Cast", ["root"], ["side"], to=INT64),
            node("Concat", ["n", "side", "side", "four"], ["parted"], axis=0),
            node("Reshape", ["x", "parted"], ["square"]),
            node("Relu", ["square"], ["y"]),
        ],
        {"x": ["batch", patches, 4]},
        {"i0": np.array([0]), "i1": np.array([1]), "half": np.float32(0.5), "four": np.array([4])},
        {"y": FLOAT},
    )


def pyramid() -> onnx.ModelProto:
    """Sums of two scales: what was doubled is never 1, and the other one is as large, or 1."""
    half: Any = {"strides": [2, 2], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return model_of(
        [
            node("MaxPool", ["x"], ["a"], **half),
            node("MaxPool", ["a"], ["b"], **half),
            node("Resize", ["b", "", "scales"], ["c"], mode="nearest"),
            node("Add", ["a", "c"], ["d"]),
            node("Greater", ["d", "a"], ["f"]),
            node("Where", ["f", "d", "a"], ["g"]),
            node("Resize", ["g", "", "scales"], ["e"], mode="nearest"),
            node("Relu", ["e"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        {"y": FLOAT},
    )


def arithmetic() -> onnx.ModelProto:
    """Shapes by signs, comparisons, reductions, and elements that constants choose."""
    return model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Slice", ["s", "i2", "i4"], ["sides"]),
            node("Neg", ["sides"], ["below"]),
            node("Slice", ["x", "below", "far", "axes"], ["whole"]),
            node("Relu", ["whole"], ["a"]),
            node("Abs", ["below"], ["above"]),
            node("ReduceProd", ["above"], ["area"], keepdims=1),
            node("ReduceSum", ["sides", "first"], ["half"], keepdims=1),
            node("ReduceMax", ["sides"], ["longest"], keepdims=1),
            node("ReduceMin", ["longest"], ["same"], keepdims=1),
            node("Less", ["area", "zero"], ["never"]),
            node("Not", ["never"], ["always"]),
            node("GreaterOrEqual", ["half", "zero"], ["also"]),
            node("And", ["always", "also"], ["both"]),
            node("Where", ["both", "area", "same"], ["columns"]),
            node("Concat", ["zero", "three", "columns"], ["flat"], axis=0),
            node("Reshape", ["a", "flat"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("Concat", ["one", "longest"], ["values"], axis=0),
            node("OneHot", ["second", "rank", "values"], ["hot"]),
            node("Reshape", ["hot", "rest"], ["counts"]),
            node("Tile", ["column", "counts"], ["wide"]),
            node("Relu", ["wide"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {
            "i2": np.array([2]), "i4": np.array([4]), "far": np.array([9999, 9999]),
            "axes": np.array([2, 3]), "first": np.array([0]), "zero": np.array([0]),
            "three": np.array([3]), "one": np.array([1]), "second": np.array([1]),
            "rank": np.array(2), "rest": np.array([-1]), "column": np.ones((3, 1), np.float32),
        },
        {"a": FLOAT, "c": FLOAT, "y": FLOAT},
    )  # fmt: skip


def padded_before_extrema(opset: int) -> onnx.ModelProto:
    """A Pad to the size of another value, in operator sets whose Max takes no integers."""
    return model_of(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Shape", ["c"], ["wanted"]),
            node("Shape", ["p"], ["given"]),
            node("Sub", ["wanted", "given"], ["missing"]),
            node("Concat", ["missing", "none"], ["pads"], axis=0),
            node("Pad", ["p", "pads"], ["q"]),
            node("Relu", ["q"], ["r"]),
            node("Shape", ["x"], ["s"]),
            node("Slice", ["s", "i2", "i3"], ["h"]),
            node("Sub", ["h", "four"], ["end"]),
            node("Slice", ["x", "zero", "end", "i2"], ["upper"]),
            node("Relu", ["upper"], ["y"]),
        ],
        {"x": ["batch", 3, "height", "width"]},
        {
            "w": np.ones((3, 3, 3, 3), np.float32), "none": np.zeros(4, np.int64),
            "i2": np.array([2]), "i3": np.array([3]), "four": np.array([4]), "zero": np.array([0]),
        },
        {"r": FLOAT, "y": FLOAT},
        opset=opset,
    )  # fmt: skip


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "grid": grid,
    "resized by factors": lambda: resized("scales"),
    "resized to sizes": lambda: resized("sizes"),
    "constants": ones,
    "the best": best_of,
    "blocks": blocks,
    "padded by sizes": padded_by_sizes,
    "cut somewhere": cut_somewhere,
    "parts": lambda: parted("equal"),
    "parts of sizes": lambda: parted("sizes"),
    "integers": of_integers,
    "beyond": beyond,
    "padded alike": padded_alike,
    "squared": squared,
    "named again": named_again,
    "counted down": counted_down,
    "repeated evenly": repeated_evenly,
    "chunked": chunked,
    "places of all": lambda: places_of_ones("height"),
    "places of three": lambda: places_of_ones("three"),
    "pyramid": pyramid,
    "arithmetic": arithmetic,
    "before extrema": lambda: padded_before_extrema(11),
}
TYPED = {**CASES, "padded somehow": padded_somehow}
"""Those besides that have types, and pass through for what they are."""

SIZES = {"batch": 2, "height": 6, "width": 12}
HEIGHTS = {"grid": 2, "pyramid": 8}
"""Where a model runs at some heights only."""


def feeds_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Any]:
    feeds = {}
    for one in model.graph.input:
        tensor = one.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[one.name] = np.random.default_rng(0).uniform(0, 9, shape).astype(dtype)
    return feeds


def outputs_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds_of(model, sizes)), strict=True))


def imported(model: onnx.ModelProto) -> Graph:
    return import_model(load_model(model))


@pytest.mark.parametrize("name", TYPED)
def test_every_float_is_typed_as_the_runtime_computes_it(name: str) -> None:
    model = TYPED[name]()
    graph = imported(model)
    sizes = {**SIZES, "height": HEIGHTS.get(name, SIZES["height"])}
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {one.name for one in model.graph.output}
    for one in model.graph.node:
        for value in one.output:
            type_ = graph.types.get(value)
            if isinstance(type_, TensorType) and type_.dtype == "float32" and value not in known:
                whole.graph.output.append(helper.make_tensor_value_info(value, FLOAT, None))
    for value, array in outputs_of(whole, sizes).items():
        type_ = graph.types[value]
        assert isinstance(type_, TensorType), value
        assert type_.rank == array.ndim, value
        for dim, size in zip(type_.shape, array.shape, strict=True):
            assert "?" in str(dim) or evaluate_dim(dim, sizes) == size, value
    assert name in CASES or not coverage_of(graph).known


@pytest.mark.parametrize("name", CASES)
def test_what_reads_a_computed_shape_is_no_opaque_node(name: str) -> None:
    graph = imported(CASES[name]())
    through = {one.payload.op_type for one in graph.nodes if one.op == OPAQUE}
    # A unit of integers stays as it came, OneHot has no record, and an alias is an Identity until
    # it is normalised.
    integers = {"Cast", "ConvInteger", "NonZero", "OneHot"}
    # Records of elementwise operators know of no two sizes that they are equal in every run.
    integers |= {"Add", "Greater", "Where"} if name == "pyramid" else set()
    unread = {"DepthToSpace", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "TopK"}
    assert through <= {"Shape", "Identity"} | unread | integers
    assert graph.operator_counts()["Relu"] > 0


@pytest.mark.parametrize(
    "name",
    ["named again", "counted down", "repeated evenly", "places of all", "places of three"],
)
def test_every_size_is_known_by_those_of_the_inputs(name: str) -> None:
    graph = imported(CASES[name]())
    assert not coverage_of(graph).known
    assert "?" not in str(graph.types["y"])


def test_sizes_that_floats_compute_are_known_once_they_are_folded() -> None:
    """A detector scales pictures by a factor; its sizes are literal, but no arithmetic of sizes."""
    model = model_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Cast", ["s"], ["sizes"], to=FLOAT),
            node("Mul", ["sizes", "factors"], ["larger"]),
            node("Floor", ["larger"], ["whole"]),
            node("Cast", ["whole"], ["wanted"], to=INT64),
            node("Resize", ["x", "", "", "wanted"], ["r"], mode="nearest"),
            node("Flatten", ["r"], ["f"]),
            node("Gemm", ["f", "w"], ["g"]),
            node("Relu", ["g"], ["y"]),
        ],
        {"x": [2, 3, 5, 7]},
        {"factors": np.array([1, 1, 1.5, 1.5], np.float32), "w": np.ones((210, 4), np.float32)},
        {"y": FLOAT},
    )
    imported_once, clean = import_decided(load_model(model), normalise, exact=False)
    assert not coverage_of(imported_once).known
    assert clean is not None
    assert str(clean.types["y"]) == "float32[2,4]"
    (found,) = (one for one in clean.nodes if one.op == "Resize")
    assert clean.types[found.output] == TensorType("float32", (2, 3, 7, 10))


@pytest.mark.parametrize("name", CASES)
def test_a_target_is_the_type_of_its_result(name: str) -> None:
    """Where facts rename a size, the e-graph would have two types for one term."""
    graph = imported(CASES[name]())
    targets = [one for one in graph.nodes if one.op in ("Expand", "Reshape")]
    for one in targets:
        type_ = graph.tensor_type(one.output)
        assert type_ is not None
        assert dict(one.attrs)["shape"] == type_.shape, one


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_computes_the_same_at_other_sizes(name: str) -> None:
    model = CASES[name]()
    height = HEIGHTS.get(name, SIZES["height"])
    shapes = {k: v for k, v in {**SIZES, "height": height}.items() if k in str(model.graph.input)}
    options = Options(race=False, measure=False, check=1, store="", threads=1, shapes=shapes)
    result = run(model, options)
    assert not result.report.warnings
    for batch in (1, 3):
        sizes = {**SIZES, "height": height, "batch": batch}
        before, after = outputs_of(model, sizes), outputs_of(result.model, sizes)
        for value, array in before.items():
            np.testing.assert_allclose(after[value], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("height", [1, 2, 3, 4, 7, 8])
def test_a_sum_of_sizes_has_that_which_is_never_one(height: int) -> None:
    model = pyramid()
    graph = imported(model)
    for name in "dfgy":
        type_ = graph.types[name]
        assert isinstance(type_, TensorType)
        assert "?" not in str(type_)
        assert type_.dtype == ("bool" if name == "f" else "float32")
        if name in "df":
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
    sizes = {"batch": 2, "height": height, "width": 4}
    for value, array in outputs_of(model, sizes).items():
        known = graph.types[value]
        assert isinstance(known, TensorType)
        assert tuple(evaluate_dim(dim, sizes) for dim in known.shape) == array.shape


def test_a_root_that_is_a_whole_number_is_known() -> None:
    graph = imported(squared(49))
    assert graph.types["y"] == TensorType("float32", (sym("batch"), 7, 7, 4))
    assert OPAQUE not in {one.op for one in graph.nodes if one.outputs == ("square",)}


def test_a_root_that_libraries_round_is_left_to_them() -> None:
    graph = imported(squared(48))
    assert "root" not in graph.constants
    assert graph.operator_counts()["Pow"] == 1


@pytest.mark.parametrize("exponent", [0.5, 0.25, 1.5, -0.5, -2.0, 3.0])
def test_powers_that_are_folded_are_those_of_the_runtime(exponent: float) -> None:
    bases = np.concatenate([np.arange(1, 300), 2.0 ** np.arange(-20, 20)]).astype(np.float32)
    model = model_of([node("Pow", ["x", "e"], ["y"])], {"x": []}, {"e": np.float32(exponent)},
                     {"y": FLOAT})  # fmt: skip
    session, folded = onnxruntime.InferenceSession(model.SerializeToString()), 0
    for base in (*bases, *bases**2):
        known = Node("Pow", ("x", "e"), ("y",))
        operands = [np.asarray(base), np.asarray(np.float32(exponent))]
        value = exact_value(known, operands, TensorType("float32", ()))
        if value is not None:
            folded += 1
            assert value == session.run(None, {"x": operands[0]})[0]
    assert folded > 8


def test_quotients_of_polynomials_are_exact_where_one_divides() -> None:
    a, b, c = map(sym, "abc")
    rows: Dim = floor_div(a - 1, 2) + 1
    assert floor_div(rows * 1024 * b, rows * b) == 1024
    assert floor_div((a + b) * (a - b + 3) * c, (a + b) * c) == a - b + 3
    assert floor_div(a * b + b, b) == a + 1
    for above, below in ((a + 1, a), (6 * a, 4), (a * a, a + b)):
        quotient = floor_div(above, below)
        assert quotient * below != above
        sizes = {"a": 5, "b": 3}
        expected = evaluate_dim(above, sizes) // evaluate_dim(below, sizes)
        assert evaluate_dim(quotient, sizes) == expected


def test_how_many_are_kept_may_be_a_value() -> None:
    """TopK of k elements keeps the other axes, Tile only the rank, where data decide on k."""
    nodes = [
        node("Cast", ["f"], ["k"], to=INT64),
        node("Cast", ["f2"], ["k2"], to=INT64),
        node("TopK", ["x", "k"], ["values", "places"], axis=1),
        node("Tile", ["values", "k2"], ["t"]),
        node("Relu", ["values"], ["y"]),
    ]
    inputs: dict[str, list[int | str | None]] = {"x": ["batch", 40], "f": [1], "f2": [2]}
    one = model_of(nodes, inputs, {}, {"y": FLOAT, "t": FLOAT})
    graph = import_model(load_model(one))
    assert str(graph.types["y"]) == "float32[batch,?values.1]"
    assert str(graph.types["places"]).startswith("int64[batch,?")
    assert str(graph.types["t"]) == "float32[?t.0,?t.1]"


# ** values of inputs **


def _valued(
    nodes: list[onnx.NodeProto], constants: Mapping[str, Any], dtype: int = INT64, opset: int = 17
) -> onnx.ModelProto:
    """A model with rows of nine numbers and a whole number ``k`` as inputs."""
    inputs: Mapping[str, list[int | str | None]] = {"x": ["n", 9], "k": []}
    return model_of(nodes, inputs, constants, {"y": FLOAT}, opset, {"k": dtype})


def _agrees(model: onnx.ModelProto, k: Any, rows: int = 3) -> bool:
    """Return whether the model as it is written again runs and computes the same."""
    feeds = {"x": np.random.default_rng(0).standard_normal((rows, 9)).astype(np.float32), "k": k}
    written = onnx_ir.to_proto(export_model(import_model(load_model(model))))
    found = []
    for one in (model, written):
        try:
            found.append(OrtSession(one, OrtOptions(threads=1)).run(feeds)[0])
        except RuntimeFailed:
            found.append(None)
    if found[0] is None or found[1] is None:
        return found[0] is found[1]
    return found[0].shape == found[1].shape and bool((found[0] == found[1]).all())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_as_many_elements_as_an_input_says_are_kept(dtype: type) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("Cast", ["k"], ["wide"], to=INT64),
        node("Reshape", ["wide", "one"], ["count"]),
        node("TopK", ["x", "count"], ["y", "places"]),
    ]
    model = _valued(nodes, {"one": np.asarray([1])}, code)
    graph = import_model(load_model(model))
    assert [one.op for one in graph.nodes if one.op == "TopK"] == ["TopK"]
    for k in (1, 4, 9, -1, 12):
        assert _agrees(model, np.asarray(k, dtype))


@pytest.mark.parametrize("k", [-20, -9, -4, -1, 0, 1, 4, 9, 12])
def test_a_bound_from_an_input_may_be_negative(k: int) -> None:
    nodes = [
        node("Reshape", ["k", "one"], ["end"]),
        node("Slice", ["x", "begin", "end", "axis"], ["part"]),
        node("Relu", ["part"], ["y"]),
    ]
    constants = {"one": np.asarray([1]), "begin": np.asarray([1]), "axis": np.asarray([1])}
    model = _valued(nodes, constants)
    graph = import_model(load_model(model))
    assert {"StridedSlice", "Relu"} <= {one.op for one in graph.nodes}
    assert _agrees(model, np.asarray(k))


@pytest.mark.parametrize("k", [-1, 0, 1, 3])
def test_rows_are_repeated_as_an_input_says(k: int) -> None:
    nodes = [
        node("Reshape", ["k", "one"], ["count"]),
        node("Concat", ["count", "one"], ["counts"], axis=0),
        node("Tile", ["x", "counts"], ["y"]),
    ]
    model = _valued(nodes, {"one": np.asarray([1])})
    graph = import_model(load_model(model))
    assert not any(one.payload and one.payload.op_type == "Tile" for one in graph.nodes)
    assert _agrees(model, np.asarray(k))


@pytest.mark.parametrize("k", [-1, 0, 3, 9])
def test_the_target_of_a_reshape_may_ask_for_the_rest(k: int) -> None:
    """A size of -1 or 0 means another one there, so no value of an input is taken for the size."""
    nodes = [
        node("Reshape", ["k", "one"], ["rows"]),
        node("Concat", ["rows", "nine"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["whole"]),
        node("Relu", ["whole"], ["y"]),
    ]
    model = _valued(nodes, {"one": np.asarray([1]), "nine": np.asarray([9])})
    assert _agrees(model, np.asarray(k))
    type_ = import_model(load_model(model)).tensor_type("whole")
    assert type_ is not None
    assert not any(":" in str(dim) for dim in type_.shape)


def test_a_value_that_selects_is_no_size() -> None:
    nodes = [node("Gather", ["table", "k"], ["row"]), node("Mul", ["x", "row"], ["y"])]
    model = _valued(nodes, {"table": np.arange(9).reshape(3, 3)}, opset=17)
    model.graph.node[1].CopyFrom(node("Cast", ["row"], ["y"], to=FLOAT))
    graph = import_model(load_model(model))
    assert "Gather" in {one.op for one in graph.nodes}
    assert _agrees(model, np.asarray(2))


def test_a_model_with_sizes_of_values_is_optimised(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", ["k", "one"], ["count"]),
        node("TopK", ["x", "count"], ["top", "places"], axis=0),
        node("Tile", ["top", "twice"], ["y"]),
    ]
    model = _valued(nodes, {"one": np.asarray([1]), "twice": np.asarray([2, 1])})
    source = tmp_path / "model.onnx"
    onnx.save(model, source)
    options = Options(effort="quick", budget_s=60.0, race=False, measure=False, strict=True)
    run(source, options, output=tmp_path / "fast.onnx")
    written = onnx.load(tmp_path / "fast.onnx")
    feeds = {"x": np.eye(4, 9, dtype=np.float32), "k": np.asarray(3)}
    sessions = [onnxruntime.InferenceSession(one.SerializeToString()) for one in (model, written)]
    left, right = (session.run(None, feeds)[0] for session in sessions)
    np.testing.assert_array_equal(left, right)
