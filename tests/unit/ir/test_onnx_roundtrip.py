"""ONNX in, ONNX out: nothing valid is refused, nothing is lost, nothing changes its meaning."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import (
    RULES_KEY,
    SOURCES_KEY,
    export_model,
    model_proto,
    to_same_type,
)
from eqsat_opt.ir.onnx.files.load import ModelSource, load_model
from eqsat_opt.ir.onnx.files.save import save_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import sym
from eqsat_opt.ir.values.types import TensorType
from tests.sampling import sampled

Array = npt.NDArray[Any]
F32, I64 = TensorProto.FLOAT, TensorProto.INT64
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    **graph: Any,
) -> onnx.ModelProto:
    proto = helper.make_graph(nodes, "g", inputs, outputs, initializers or [], **graph)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(proto, opset_imports=imports, ir_version=ir_version)


def _value(name: str, shape: list[int | str] | None, dtype: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _through(model: onnx.ModelProto, numerics: str = "reassociate") -> onnx.ModelProto:
    """Import, normalise, export; the argument must survive untouched."""
    before = model.SerializeToString()
    result = model_proto(
        export_model(normalise(import_model(load_model(model)), numerics=Numerics.parse(numerics)))
    )
    assert model.SerializeToString() == before
    onnx.checker.check_model(result)
    return result


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _init(name: str, array: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ** whole models **


@pytest.mark.parametrize("path", sampled(LIGHT, 3), ids=lambda p: p.stem)
def test_light_models_compute_the_same(path: Path) -> None:
    original = onnx.load(path)
    result = _through(original)
    weights = {t.name for t in original.graph.initializer}
    (data,) = (v for v in original.graph.input if v.name not in weights)
    feeds = {data.name: _random(*(d.dim_value for d in data.type.tensor_type.shape.dim))}
    (expected,), (found,) = _run(original, feeds), _run(result, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    defaults = {t.name for t in result.graph.initializer}
    assert [v.name for v in result.graph.input if v.name not in defaults] == [data.name]


_SAMPLE = 12  # every twelfth of the 1,900 cases
_NOT_VALID = {
    "test_affine_grid_2d_expanded": "feeds Range with vectors where ONNX demands scalars; "
    "onnxruntime notices once the shape of the vectors is known",
    "test_affine_grid_2d_align_corners_expanded": "the same",
}


def _node_cases() -> list[Any]:
    with np.errstate(all="ignore"):
        from onnx.backend.test.case.node import collect_testcases

        return [c for c in collect_testcases(None) if c.name not in _NOT_VALID][::_SAMPLE]


def _same(found: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            _same(left, right, rtol, atol)
    elif isinstance(expected, np.ndarray) and expected.dtype.kind in "fiubc":
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    elif expected is None:
        assert found is None
    else:
        assert np.array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # onnx's cases overflow on purpose
@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")
def test_backend_node_cases_compute_the_same() -> None:
    compared = 0
    for case in _node_cases():
        result = model_proto(export_model(normalise(import_model(load_model(case.model)))))
        assert [str(o) for o in result.graph.output] == [str(o) for o in case.model.graph.output]
        kinds = {n.op_type for n in case.model.graph.node}
        if any("Random" in k or k in ("Bernoulli", "Multinomial", "Dropout") for k in kinds):
            continue
        names = [i.name for i in case.model.graph.input]
        feeds = [dict(zip(names, inputs, strict=False)) for inputs, _ in case.data_sets]
        try:
            expected = [_run(case.model, f) for f in feeds]
        except Exception:  # onnxruntime does not run every case; those are only imported
            continue
        opaque = all(n.op == OPAQUE for n in normalise(import_model(load_model(case.model))).nodes)
        tolerance = (0.0, 0.0) if opaque else (1e-4, 1e-5)
        for feed, wanted in zip(feeds, expected, strict=True):
            _same(_run(result, feed), wanted, *tolerance)
        compared += 1
    assert compared > 75


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator"])
def test_backend_models_of_old_opsets_pass(kind: str) -> None:
    for case in load_model_tests(kind=kind):
        assert case.model_dir is not None
        model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
        result = _through(model)
        assert [o.name for o in result.graph.output] == [o.name for o in model.graph.output]


# ** traps **


def test_random_nodes_are_never_merged() -> None:
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[64], dtype=F32) for name in "ab"]
    nodes.append(helper.make_node("Sub", ["a", "b"], ["y"]))
    result = _through(_model(nodes, [], [_value("y", [64])]))
    assert np.abs(_run(result, {})[0]).max() > 0.1


def test_overridable_initializer_stays_an_input_with_its_default() -> None:
    nodes = [
        helper.make_node("Add", ["w", "w"], ["d"]),
        helper.make_node("Mul", ["x", "d"], ["y"]),
    ]
    interface = [_value("x", [2]), _value("w", [2])]
    result = _through(_model(nodes, interface, [_value("y", [2])], [_init("w", [1, 2])]))
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(_run(result, {"x": x})[0], [2, 4])
    np.testing.assert_array_equal(_run(result, {"x": x, "w": 3 * x})[0], [6, 6])


def test_initializers_that_are_inputs_are_constants_before_ir_version_4() -> None:
    nodes = [
        helper.make_node("Add", ["w", "w"], ["d"]),
        helper.make_node("Mul", ["x", "d"], ["y"]),
    ]
    interface = [_value("x", [2]), _value("w", [2])]
    model = _model(
        nodes, interface, [_value("y", [2])], [_init("w", [1, 2])], ir_version=3, opset=9
    )
    graph = normalise(import_model(load_model(model)))
    assert graph.inputs == ("x",)
    assert [n.op for n in graph.nodes] == ["Mul"]
    assert _through(model).ir_version == 3


def test_an_input_that_is_an_output_keeps_its_name() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    outputs = [_value(n, [2]) for n in ("x", "y", "z")]
    result = _through(_model(nodes, [_value("x", [2])], outputs))
    assert [i.name for i in result.graph.input] == ["x"]
    assert [o.name for o in result.graph.output] == ["x", "y", "z"]
    x = np.array([-1, 1], np.float32)
    for found, expected in zip(_run(result, {"x": x}), [x, x, [0, 1]], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_equal_outputs_and_constant_outputs_keep_their_names() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Add", ["w", "w"], ["c"]),
    ]
    outputs = [_value(n, [2]) for n in ("a", "b", "c", "w")]
    result = _through(_model(nodes, [_value("x", [2])], outputs, [_init("w", [1, 2])]))
    found = _run(result, {"x": np.array([-1, 1], np.float32)})
    for array, expected in zip(found, [[0, 1], [0, 1], [2, 4], [1, 2]], strict=True):
        np.testing.assert_array_equal(array, expected)


def test_interface_opset_and_metadata_are_preserved() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu", doc_string="why")
    node.metadata_props.add(key="origin", value="here")
    model = _model(
        [node, helper.make_node("Flatten", ["y"], ["z"])],
        [_value("x", ["batch", 3, "rows", None])],  # type: ignore[list-item]
        [_value("z", ["batch", "features"])],
        ir_version=7,
        opset=13,
        doc_string="graph doc",
    )
    model.producer_name, model.doc_string, model.model_version = "maker", "model doc", 5
    helper.set_model_props(model, {"k": "v"})
    model.graph.input[0].doc_string = "pixels"
    model.opset_import.append(helper.make_opsetid("unused.domain", 3))
    result = _through(model)
    assert result.graph.input[0] == model.graph.input[0]
    assert result.graph.output[0] == model.graph.output[0]
    assert (result.ir_version, result.producer_name, result.model_version) == (7, "maker", 5)
    assert (result.doc_string, result.graph.doc_string) == ("model doc", "graph doc")
    assert result.metadata_props == model.metadata_props
    assert [(o.domain, o.version) for o in result.opset_import] == [("", 13)]
    relu = result.graph.node[0]
    assert (relu.name, relu.doc_string, relu.metadata_props) == ("relu", "why", node.metadata_props)


def test_new_nodes_carry_their_rules_and_sources() -> None:
    types = {n: TensorType("float32", (2,)) for n in "xy"}
    node = Node("Relu", ("x",), ("y",), sources=("a", "b"), rules=("family/rule",))
    (written,) = model_proto(export_model(Graph(("x",), ("y",), (node,), {}, types))).graph.node
    props = {p.key: p.value for p in written.metadata_props}
    assert props == {RULES_KEY: "family/rule", SOURCES_KEY: "a,b"}


def _sparse(name: str) -> onnx.SparseTensorProto:
    values = helper.make_tensor(name, F32, [2], [3.0, 4.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("i", I64, [2], [1, 3]), [2, 2])


def test_sparse_tensors_survive() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=_sparse("c")),
        helper.make_node("Add", ["x", "s"], ["t"]),
        helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    interface = [_value("x", [2, 2])], [_value("y", [2, 2])]
    model = _model(nodes, *interface, sparse_initializer=[_sparse("s")])
    result = _through(model)
    assert list(result.graph.sparse_initializer) == list(model.graph.sparse_initializer)
    (constant,) = (n for n in result.graph.node if n.op_type == "Constant")
    assert constant.attribute[0].sparse_tensor == _sparse("c")
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(_run(result, {"x": x})[0], [[0, 6], [0, 8]])


def test_a_sparse_default_of_an_input_stays_a_default() -> None:
    nodes = [helper.make_node("Add", ["x", "s"], ["y"])]
    inputs = [_value("x", [2, 2]), _value("s", [2, 2])]
    model = _model(nodes, inputs, [_value("y", [2, 2])], sparse_initializer=[_sparse("s")])
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(_run(_through(model), {"x": x})[0], [[0, 3], [0, 4]])


def test_local_functions_and_custom_domains_survive() -> None:
    body = [helper.make_node("Det", ["a"], ["s"]), helper.make_node("Identity", ["s"], ["r"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "Square", ["a"], ["r"], body, imports[:1])
    nodes = [
        helper.make_node("Square", ["x"], ["y"], domain="mine"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    model = _model(nodes, [_value("x", ["n", 1, 1])], [_value("z", ["n"])])
    model.opset_import.append(imports[1])
    model.functions.append(function)
    assert import_model(load_model(model)).types["y"] == TensorType("float32", (sym("n"),))
    result = _through(model)
    assert [f.name for f in result.functions] == ["Square"]
    x = np.array([[[2]], [[-3]]], np.float32)
    np.testing.assert_array_equal(_run(result, {"x": x})[0], [2, 0])


def test_sequences_and_strings_survive() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        helper.make_node("Concat", ["t", "u"], ["z"], axis=0),
    ]
    words = numpy_helper.from_array(np.array(["tail"], object), "u")
    outputs = [
        _value("y", [4]),
        _value("z", [2], TensorProto.STRING),
        helper.make_tensor_sequence_value_info("s", F32, None),
    ]
    inputs = [_value("x", [2]), _value("t", [1], TensorProto.STRING)]
    result = _through(_model(nodes, inputs, outputs, [words]))
    x = np.ones(2, np.float32)
    y, z, s = _run(result, {"x": x, "t": np.array(["head"], object)})
    np.testing.assert_array_equal(y, np.ones(4))
    assert list(z) == ["head", "tail"]
    assert len(s) == 2


def test_captured_values_keep_their_names() -> None:
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        inner = [helper.make_node("Add", ["t", "w"], [f"{name}_a"])]
        inner.append(helper.make_node(op, [f"{name}_a"], [f"{name}_o"]))
        branches[name] = helper.make_graph(inner, name, [], [_value(f"{name}_o", [2])])
    nodes = [
        helper.make_node("Identity", ["x"], ["t"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    inputs = [_value("x", [2]), _value("c", [], TensorProto.BOOL)]
    model = _model(nodes, inputs, [_value("y", [2])], [_init("w", [1, -9])])
    result = _through(model)
    x = np.array([1, 2], np.float32)
    for condition, expected in ((True, [2, 0]), (False, [-2, 7])):
        np.testing.assert_array_equal(_run(result, {"x": x, "c": np.array(condition)})[0], expected)


def test_element_types_that_are_not_ours_pass_through() -> None:
    quantised = helper.make_tensor("q", TensorProto.INT4, [2], [1, -2])
    nodes = [helper.make_node("Cast", ["q"], ["y"], to=F32)]
    result = _through(_model(nodes, [], [_value("y", [2])], [quantised], opset=21, ir_version=10))
    assert result.graph.initializer[0] == quantised


def test_unsorted_nodes_are_sorted() -> None:
    nodes = [helper.make_node("Relu", ["t"], ["y"]), helper.make_node("Neg", ["x"], ["t"])]
    result = _through(_model(nodes, [_value("x", [2])], [_value("y", [2])]))
    assert [n.op_type for n in result.graph.node] == ["Neg", "Relu"]


@pytest.mark.parametrize("form", [lambda proto: proto, onnx_ir.from_proto])
def test_unsorted_models_can_be_copied(form: Callable[[onnx.ModelProto], ModelSource]) -> None:
    """Copies are made by onnx-ir, which sorts nothing; a body reads what comes later, too."""
    bodies = {
        name: helper.make_graph(
            [helper.make_node(op, ["t"], ["r"])], name, [], [_value("r", ["N", 2])]
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Abs"))
    }
    nodes = [helper.make_node("If", ["c"], ["y"], **bodies), helper.make_node("Neg", ["x"], ["t"])]
    inputs = [_value("x", ["N", 2]), _value("c", [], TensorProto.BOOL)]
    source = form(_model(nodes, inputs, [_value("y", ["N", 2])]))
    model = load_model(source)
    assert [node.op_type for node in model.clone().graph] == ["Neg", "If"]
    assert [node.op_type for node in fixed_model(model, {"N": 1}).graph] == ["Neg", "If"]


# ** operators **


def _round_trip(
    op: str, *inputs: Array, opset: int = 20, constants: int = 0, **attrs: Any
) -> Graph:
    """One node, its last ``constants`` operands initializers; the results must agree."""
    names = [f"i{k}" for k in range(len(inputs))]
    fed = len(inputs) - constants
    model = _model(
        [helper.make_node(op, names, ["y"], **attrs)],
        [_value(n, list(a.shape), helper.np_dtype_to_tensor_dtype(a.dtype))
         for n, a in zip(names[:fed], inputs, strict=False)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in zip(names[fed:], inputs[fed:], strict=True)],
        opset=opset,
    )  # fmt: skip
    graph = normalise(import_model(load_model(model)))
    feeds = dict(zip(names[:fed], inputs, strict=False))
    (expected,) = _run(model, feeds)
    (found,) = _run(model_proto(export_model(graph)), feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return graph


_X = _random(1, 4, 9, 8)
_AXES = np.array([1, 3], np.int64)


@pytest.mark.parametrize(
    ("opset", "op", "inputs", "constants", "attrs", "expected"),
    [
        (9, "Slice", (_X,), 0, {"starts": [1, -3], "ends": [99, -1], "axes": [2, 3]},
         ["Slice", "Slice"]),
        (13, "Slice", (_X, np.array([1]), np.array([-1]), np.array([-1])), 3, {}, ["Slice"]),
        (13, "Slice", (_X, np.array([0]), np.array([8]), np.array([3]), np.array([2])), 4, {},
         ["StridedSlice"]),
        (9, "Slice", (_X,), 0, {"starts": [2], "ends": [2], "axes": [2]}, ["StridedSlice"]),
        (13, "Tile", (_X, np.array([1, 1, 1, 1])), 1, {}, [OPAQUE]),
        (13, "Tile", (_X, np.array([2, 1, 1, 1])), 1, {}, ["Expand"]),
        (13, "Tile", (_X, np.array([2, 3, 1, 2])), 1, {}, ["Reshape", "Expand", "Reshape"]),
        (13, "Tile", (_X, np.array([1, 0, 1, 1])), 1, {}, [OPAQUE]),
        (11, "ReduceSum", (_X,), 0, {"axes": [-1], "keepdims": 0}, ["ReduceSum"]),
        (13, "ReduceSum", (_X, _AXES), 1, {}, ["ReduceSum"]),
        (13, "ReduceMean", (_X,), 0, {"axes": [1, 3]}, ["ReduceMean"]),
        (18, "ReduceMean", (_X, _AXES), 1, {}, ["ReduceMean"]),
        (18, "ReduceMax", (_X,), 0, {}, ["ReduceMax"]),
        (9, "Pad", (_X,), 0, {"pads": [0, 0, 1, 1, 0, 0, 2, 0], "value": 1.5}, ["Pad"]),
        (13, "Pad", (_X, np.array([0, 0, 1, 1, 0, 0, 2, 0]), np.float32(2)), 2, {}, ["Pad"]),
        (18, "Pad", (_X, np.array([1, 2]), np.float32(2), np.array([-1])), 3, {}, ["Pad"]),
        (7, "Clip", (_X,), 0, {"min": -0.5}, ["Clip"]),
        (13, "Clip", (_X, np.float32(-0.5), np.float32(0.5)), 2, {}, ["Clip"]),
        (11, "Unsqueeze", (_X,), 0, {"axes": [0, -1]}, ["Reshape"]),
        (13, "Unsqueeze", (_X, np.array([0, -1])), 1, {}, ["Reshape"]),
        (11, "Squeeze", (_X,), 0, {"axes": [0]}, ["Reshape"]),
        (13, "Squeeze", (_X,), 0, {}, ["Reshape"]),
        (13, "Reshape", (_X, np.array([0, -1, 8])), 1, {}, ["Reshape"]),
        (13, "Flatten", (_X,), 0, {"axis": -2}, ["Reshape"]),
        (13, "Softmax", (_X,), 0, {"axis": 1}, ["Softmax"]),
        (11, "Softmax", (_X,), 0, {"axis": 3}, ["Softmax"]),
        (11, "Softmax", (_X,), 0, {"axis": 1}, [OPAQUE]),
        (13, "GlobalAveragePool", (_X,), 0, {}, ["GlobalAveragePool"]),
        (13, "MaxPool", (_X,), 0,
         {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, ["MaxPool"]),
        (13, "AveragePool", (_X,), 0, {"kernel_shape": [2, 3], "ceil_mode": 1, "strides": [2, 2]},
         ["AveragePool"]),
        (13, "Conv", (_X, _random(6, 2, 3, 3)), 1, {"group": 2, "auto_pad": "SAME_LOWER"},
         ["Conv"]),
        (13, "ConvTranspose", (_X, _random(4, 2, 3, 3)), 1,
         {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}, ["ConvTranspose"]),
        *(
            (13, "ConvTranspose", (_X, _random(4, 2, 3, 4)), 1, {"strides": [2, 2], **pads},
             ["ConvTranspose"])
            for pads in (
                {"auto_pad": "SAME_UPPER"},
                {"auto_pad": "SAME_LOWER", "output_padding": [1, 0]},
                {"output_shape": [_X.shape[2] * 2, _X.shape[3] * 2 - 1]},
                {"auto_pad": "SAME_UPPER", "output_shape": [_X.shape[2] * 2, _X.shape[3] * 2]},
            )
        ),
        (13, "ConvTranspose", (_X, _random(4, 2, 1, 2)), 1,
         {"strides": [2, 3], "auto_pad": "SAME_UPPER"}, [OPAQUE]),
        (13, "Gemm", (_X[0, 0], _X[0, 1], _random(9)), 0, {"transB": 1, "alpha": 0.5, "beta": 2.0},
         ["Transpose", "MatMul", "Mul", "Mul", "Add"]),
        (13, "Sum", (_X, _X[:, :1], _X[..., :1]), 0, {}, ["Add", "Add"]),
        (13, "Mean", (_X, _X[:, :1]), 0, {}, ["Add", "Mul"]),
        (13, "Max", (_X, _X[:, :1], _X[..., :1]), 0, {}, ["Max", "Max"]),
        (13, "LRN", (_X,), 0, {"size": 3}, ["LRN"]),
        (13, "InstanceNormalization", (_X, _random(4), _random(4)), 2, {},
         ["InstanceNormalization"]),
        (17, "LayerNormalization", (_X, _random(8), _random(8)), 2, {}, ["LayerNormalization"]),
        (13, "Gather", (_X, np.array([[0, -1]])), 1, {"axis": 3}, ["Gather"]),
        (13, "Expand", (_X, np.array([3, 1, 1, 1])), 1, {}, ["Expand"]),
        (13, "HardSigmoid", (_X,), 0, {}, ["HardSigmoid"]),
        (13, "LeakyRelu", (_X,), 0, {"alpha": 0.3}, ["LeakyRelu"]),
        (20, "Gelu", (_X,), 0, {"approximate": "tanh"}, ["Gelu"]),
        (13, "Cast", (_X,), 0, {"to": TensorProto.DOUBLE}, ["Cast"]),
        (15, "CastLike", (_X, np.zeros(1, np.int32)), 1, {}, ["Cast"]),
        (13, "Dropout", (_X,), 0, {}, [OPAQUE]),  # the Identity that the output name needs
    ],
)  # fmt: skip
def test_operators_translate_both_ways(
    opset: int,
    op: str,
    inputs: tuple[Any, ...],
    constants: int,
    attrs: dict[str, Any],
    expected: list[str],
) -> None:
    arrays = [np.asarray(i) for i in inputs]
    graph = _round_trip(op, *arrays, opset=opset, constants=constants, **attrs)
    assert [n.op for n in graph.nodes] == expected


@pytest.mark.parametrize(
    ("opset", "sizes", "attrs"),
    [(11, [], {"split": [1, 3]}), (13, ["n"], {}), (18, [], {"num_outputs": 2})],
)
def test_split_becomes_slices(opset: int, sizes: list[str], attrs: dict[str, Any]) -> None:
    widths = (2, 2) if opset == 18 else (1, 3)
    node = helper.make_node("Split", ["x", *sizes], ["a", "b"], axis=1, **attrs)
    outputs = [_value(name, [2, width]) for name, width in zip("ab", widths, strict=True)]
    weights = [_init("n", [1, 3], np.int64)] if sizes else []
    model = _model([node], [_value("x", [2, 4])], outputs, weights, opset=opset)
    graph = import_model(load_model(model))
    assert [n.op for n in graph.nodes] == ["Slice", "Slice"]
    feeds = {"x": _random(2, 4)}
    for found, expected in zip(_run(_through(model), feeds), _run(model, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("read", ["abc", "ab", "bc", "a", "b", "c"])
def test_parts_that_nobody_reads_are_parts(opset: int, read: str) -> None:
    """Equal parts are as many as the node has results, not as many as are read."""
    attrs: dict[str, Any] = {"num_outputs": 3} if opset == 18 else {}
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1, **attrs)
    outputs = [_value(name, [2, 2]) for name in read]
    model = _model([node], [_value("x", [2, 6])], outputs, [], opset=opset)
    assert {n.op for n in import_model(load_model(model)).nodes} == {"Slice"}
    feeds = {"x": _random(2, 6)}
    for found, expected in zip(_run(_through(model), feeds), _run(model, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("op", "attrs", "opset"),
    [
        ("Gelu", {"approximate": "none"}, 13),
        ("Gelu", {"approximate": "tanh"}, 9),
        ("HardSwish", {}, 11),
        ("Mish", {}, 13),
        ("Celu", {"alpha": 0.7}, 11),
        ("Softmax", {"axis": 1}, 11),
    ],
)
def test_operators_that_the_opset_lacks_are_lowered(
    op: str, attrs: dict[str, Any], opset: int
) -> None:
    base = _model([helper.make_node("Relu", ["x"], ["y"])], [_value("x", [2, 3, 4])],
                  [_value("y", [2, 3, 4])], opset=opset)  # fmt: skip
    graph = import_model(load_model(base))
    node = Node(op, ("x",), ("y",), attributes(**attrs), rules=("some/rule",))
    result = model_proto(export_model(graph.with_nodes((node,))))
    onnx.checker.check_model(result)
    modern = helper.make_node(op, ["x"], ["y"], **attrs)
    reference = _model([modern], list(base.graph.input), list(base.graph.output), opset=20)
    x = _random(2, 3, 4)
    np.testing.assert_allclose(
        _run(result, {"x": x})[0], _run(reference, {"x": x})[0], rtol=1e-5, atol=1e-6
    )
    assert all(RULES_KEY in {p.key for p in n.metadata_props} for n in result.graph.node)


def test_layer_normalisation_is_lowered_before_opset_17() -> None:
    base = _model([helper.make_node("Mul", ["x", "w"], ["y"])], [_value("x", [2, 5])],
                  [_value("y", [2, 5])], [_init("w", np.arange(5))], opset=13)  # fmt: skip
    graph = import_model(load_model(base))
    node = Node("LayerNormalization", ("x", "w"), ("y",), attributes(axis=1, epsilon=1e-5))
    result = model_proto(export_model(graph.with_nodes((node,))))
    x = _random(2, 5)
    centred = x - x.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * np.arange(5)
    np.testing.assert_allclose(_run(result, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


# ** symbolic shapes **


def test_shape_scaffolding_becomes_a_constant_target() -> None:
    """reshape(x, [shape(x)[0], shape(x)[1], 3, -1]) as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["b"]),
        helper.make_node("Unsqueeze", ["b", "axis"], ["b1"]),
        helper.make_node("Slice", ["s", "one", "two"], ["q"]),
        helper.make_node("Concat", ["b1", "q", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    ints = {"zero": 0, "axis": [0], "one": [1], "two": [2], "rest": [3, -1]}
    inits = [_init(n, v, np.int64) for n, v in ints.items()]
    model = _model(nodes, [_value("x", ["b", "q", 12])], [_value("y", ["b", "q", 3, 4])], inits)
    graph = normalise(import_model(load_model(model)))
    assert [n.op for n in graph.nodes] == ["Reshape"]
    assert graph.types["y"] == TensorType("float32", (sym("b"), sym("q"), 3, 4))
    result = model_proto(export_model(graph))
    (target,) = result.graph.initializer
    assert list(numpy_helper.to_array(target)) == [0, 0, 3, 4]
    x = _random(2, 5, 12)
    np.testing.assert_array_equal(_run(result, {"x": x})[0], x.reshape(2, 5, 3, 4))


def test_an_inexpressible_target_is_computed_from_the_inputs() -> None:
    types = {"x": TensorType("float32", (sym("a"), sym("b"), 6))}
    shape = (sym("b") * 2, sym("a"), 3)
    types["y"] = TensorType("float32", shape)
    node = Node("Reshape", ("x",), ("y",), attributes(shape=shape))
    result = model_proto(export_model(Graph(("x",), ("y",), (node,), {}, types)))
    x = _random(2, 5, 6)
    np.testing.assert_array_equal(_run(result, {"x": x})[0], x.reshape(10, 2, 3))


def test_given_sizes_replace_symbols_inside_only() -> None:
    model = _model(
        [helper.make_node("Relu", ["x"], ["y"])], [_value("x", ["n", 3])], [_value("y", ["n", 3])]
    )
    graph = import_model(load_model(model), {"x": [7, 3]})
    assert graph.types["y"] == TensorType("float32", (7, 3))
    assert model_proto(export_model(graph)).graph.input[0] == model.graph.input[0]
    with pytest.raises(ModelError, match="does not fit"):
        import_model(load_model(model), {"x": [7, 4]})
    with pytest.raises(ModelError, match="no input 'q'"):
        import_model(load_model(model), {"q": [1]})


# ** forms and files **


def test_the_result_has_the_type_of_the_argument(tmp_path: Path) -> None:
    proto = _model([helper.make_node("Relu", ["x"], ["y"])], [_value("x", [2])], [_value("y", [2])])
    result = export_model(import_model(load_model(proto)))
    assert isinstance(to_same_type(result, proto), onnx.ModelProto)
    assert isinstance(to_same_type(result, onnx_ir.from_proto(proto)), onnx_ir.Model)
    save_model(result, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert isinstance(to_same_type(result, str(tmp_path / "m.onnx")), onnx_ir.Model)


def _external(folder: Path) -> tuple[Path, onnx.ModelProto]:
    big = _random(512, 64)
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [_value("x", [1, 512])],
                   [_value("y", [1, 64])], [numpy_helper.from_array(big, "w")])  # fmt: skip
    path = folder / "big.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    return path, model


def test_external_weights_stay_external_and_unread(tmp_path: Path) -> None:
    path, model = _external(tmp_path)
    loaded = load_model(path)
    graph = normalise(import_model(loaded))
    tensor = loaded.graph.initializers["w"].const_value
    assert isinstance(tensor, onnx_ir.ExternalTensor)
    assert tensor.raw is None  # never mapped, so never read
    (tmp_path / "out").mkdir()
    save_model(export_model(graph), tmp_path / "out" / "small.onnx")
    file, data = sorted(os.listdir(tmp_path / "out"))
    assert (data[:11], data[-5:], file) == ("small.onnx.", ".data", "small.onnx")
    x = _random(1, 512)
    session = ort.InferenceSession(
        tmp_path / "out" / "small.onnx", providers=["CPUExecutionProvider"]
    )
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], _run(model, {"x": x})[0])


def test_a_model_may_be_saved_over_itself(tmp_path: Path) -> None:
    path, model = _external(tmp_path)
    once = tmp_path / "again.onnx"
    save_model(export_model(import_model(load_model(path))), once)
    save_model(export_model(import_model(load_model(once))), once)
    x = _random(1, 512)
    session = ort.InferenceSession(once, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], _run(model, {"x": x})[0])


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    model = onnx.load(LIGHT[0])
    for name in ("a.onnx", "b.onnx"):
        save_model(export_model(normalise(import_model(load_model(model)))), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize("target", ["missing/m.onnx", "."])
def test_a_failed_save_leaves_nothing(tmp_path: Path, target: str) -> None:
    proto = _model([helper.make_node("Relu", ["x"], ["y"])], [_value("x", [2])], [_value("y", [2])])
    with pytest.raises(ModelError, match=r"does not exist; create it|is a folder; give"):
        save_model(load_model(proto), tmp_path / target)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path, _ = _external(tmp_path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ModelError, match="No space left on device"):
        save_model(load_model(path), tmp_path / "new.onnx")
    assert sorted(os.listdir(tmp_path)) == before


# ** bad input **


def _relu(**changes: Any) -> onnx.ModelProto:
    inputs = changes.pop("inputs", [_value("x", [2])])
    outputs = changes.pop("outputs", [_value("y", [2])])
    nodes = changes.pop("nodes", [helper.make_node("Relu", ["x"], ["y"])])
    return _model(nodes, inputs, outputs, changes.pop("initializers", []), **changes)


def _node(op: str, inputs: str, outputs: str) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs))


def _without_opset() -> onnx.ModelProto:
    model = _relu()
    del model.opset_import[:]
    return model


def _wrong_size() -> onnx.TensorProto:
    tensor = _init("w", [1, 2, 3])
    tensor.dims[0] = 4
    return tensor


def _untyped() -> onnx.TensorProto:
    tensor = _init("w", [1])
    tensor.data_type = 99
    return tensor


_BAD: list[tuple[str, Callable[[], onnx.ModelProto], str]] = [
    ("nothing", onnx.ModelProto, "not an ONNX model"),
    ("empty graph", lambda: _relu(nodes=[], outputs=[]), "no outputs"),
    ("no opset", _without_opset, "imports no operator set"),
    ("future opset", lambda: _relu(opset=999), "operator set 999"),
    ("future ir", lambda: _relu(ir_version=999), "IR version 999"),
    ("missing input", lambda: _relu(nodes=[_node("Relu", "q", "y")]), "reads 'q'"),
    ("missing output", lambda: _relu(outputs=[_value("z", [2])]), "'z' is never defined"),
    ("cycle", lambda: _relu(nodes=[_node("Add", "xy", "z"), _node("Relu", "z", "y")]), "cycle"),
    ("redefinition", lambda: _relu(nodes=[_node("Relu", "x", "y")] * 2), "'y' is defined twice"),
    ("input redefined", lambda: _relu(nodes=[_node("Relu", "x", "x")]), "'x' is defined twice"),
    ("two inputs", lambda: _relu(inputs=[_value("x", [2])] * 2), "'x' is defined twice"),
    ("two weights", lambda: _relu(initializers=[_init("w", [1])] * 2), "'w' is defined twice"),
    ("wrong byte count", lambda: _relu(initializers=[_wrong_size()]), "12 bytes .* need 16"),
    ("unknown type", lambda: _relu(initializers=[_untyped()]), "unknown element type 99"),
    ("wrong operand", lambda: _relu(inputs=[_value("x", [2]), _value("i", [2], I64)],
                                    nodes=[_node("Add", "xi", "y")]), "inconsistent type"),
    ("wrong output", lambda: _relu(outputs=[_value("y", [2], I64)]), "declared int64 but computes"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [b[1:] for b in _BAD], ids=[b[0] for b in _BAD])
def test_bad_models_are_refused_in_one_line(
    make: Callable[[], onnx.ModelProto], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        import_model(load_model(make()))
    assert "\n" not in str(caught.value)


def test_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    data = LIGHT[0].read_bytes()
    contents = {"empty.onnx": b"", "text.onnx": b"hello world", "half.onnx": data[: len(data) // 2]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match="truncated or not an ONNX model"):
            load_model(tmp_path / name)
    with pytest.raises(ModelError, match="no such file"):
        load_model(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="cannot read"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("gone.bin", "is missing"),
        ("../outside.bin", "outside the model's folder"),
        ("/etc/hostname", "outside the model's folder"),
        ("short.bin", "truncated"),
        ("link.bin", "leaves the model's folder"),
    ],
)
def test_bad_external_data_is_refused(tmp_path: Path, location: str, message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path, _ = _external(folder)
    (folder / "short.bin").write_bytes(b"1234")
    (tmp_path / "outside.bin").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    proto = onnx.load(path, load_external_data=False)
    next(
        e for e in proto.graph.initializer[0].external_data if e.key == "location"
    ).value = location
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=message):
        load_model(path)
