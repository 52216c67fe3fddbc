"""Normal form: what does nothing is gone, what is constant is folded, and no meaning changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.handles import Splat, derived_constant, splat_constant
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import StaticType

Array = npt.NDArray[Any]
Node = onnx.NodeProto
node = helper.make_node


def _random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(
    nodes: list[Node],
    weights: dict[str, Any],
    x: tuple[int | str, ...] = (2, 4, 6, 6),
    y: tuple[int | str, ...] | None = None,
    outputs: tuple[str, ...] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, y or x) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _normal(model: onnx.ModelProto, numerics: Numerics = Numerics.REASSOCIATE) -> Graph:
    """The normal form, after checking that it computes what the model computes."""
    graph = normalise(import_model(load_model(model)), numerics=numerics)
    graph.check()
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": _random(*shape, seed=9)}
    results = []
    for proto in (model, model_proto(export_model(graph))):
        session = ort.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        results.append(session.run(None, feeds))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return graph


def _ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


def _bn(width: int) -> dict[str, Array]:
    return {
        "scale": _random(width, seed=1),
        "shift": _random(width, seed=2),
        "mean": _random(width, seed=3),
        "var": np.abs(_random(width, seed=4)) + 0.5,
    }


_BN = ["scale", "shift", "mean", "var"]


# ** batch normalisation **


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_normalisation_folds_into_convolution(bias: bool, group: int) -> None:
    weights = {"w": _random(6, 4 // group, 3, 3), "b": _random(6), **_bn(6)}
    if not bias:
        del weights["b"]
    nodes = [
        node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["c"], group=group),
        node("BatchNormalization", ["c", *_BN], ["y"]),
    ]
    graph = _normal(_model(nodes, weights, y=(2, 6, 4, 4)))
    assert _ops(graph) == ["Conv"]
    assert len(graph.nodes[0].inputs) == 3


def test_batch_normalisation_folds_into_transposed_convolution() -> None:
    nodes = [
        node("ConvTranspose", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", *_BN], ["y"]),
    ]
    weights = {"w": _random(4, 5, 2, 2), **_bn(5)}
    assert _ops(_normal(_model(nodes, weights, y=(2, 5, 7, 7)))) == ["ConvTranspose"]


@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalisation_folds_into_gemm(bias: bool) -> None:
    nodes = [
        node("Gemm", ["x", "w", "b"] if bias else ["x", "w"], ["g"], transB=1),
        node("BatchNormalization", ["g", *_BN], ["y"]),
    ]
    weights = {"w": _random(5, 7), **({"b": _random(5)} if bias else {}), **_bn(5)}
    graph = _normal(_model(nodes, weights, x=(3, 7), y=(3, 5)))
    assert _ops(graph) == ["MatMul", "Add"]


def test_batch_normalisation_that_exporters_hide_folds_too() -> None:
    """A bias that looks dynamic stands between convolution and normalisation (PyTorch's dynamo)."""
    nodes = [
        node("Shape", ["w"], ["n"], start=0, end=1),
        node("Expand", ["n", "one"], ["m"]),
        node("CastLike", ["zero", "x"], ["z"]),
        node("Expand", ["z", "m"], ["b"]),
        node("Conv", ["x", "w", "b"], ["c"]),
        node("BatchNormalization", ["c", *_BN], ["y"]),
    ]
    weights = {"w": _random(6, 4, 3, 3), "one": np.array([1]), "zero": np.float32(0), **_bn(6)}
    assert _ops(_normal(_model(nodes, weights, y=(2, 6, 4, 4)))) == ["Conv"]
    symbolic = _model(nodes, weights, ("batch", 4, "h", "w"), ("batch", 6, None, None))  # type: ignore[arg-type]
    graph = normalise(import_model(load_model(symbolic)))
    assert _ops(graph) == ["Conv"]


def test_scale_and_shift_from_expanded_shapes_fold() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Shape", ["c"], ["n"]),
        node("Expand", ["s", "n"], ["e"]),
        node("Mul", ["c", "e"], ["m"]),
        node("Sub", ["m", "t"], ["y"]),
    ]
    weights = {"w": _random(6, 4, 3, 3), "s": _random(1, 6, 1, 1), "t": _random(6, 1, 1)}
    assert _ops(_normal(_model(nodes, weights, y=(2, 6, 4, 4)))) == ["Conv"]


def test_batch_normalisation_that_cannot_fold_stays_one_operator() -> None:
    nodes = [node("BatchNormalization", ["x", *_BN], ["n"]), node("Relu", ["n"], ["y"])]
    assert _ops(_normal(_model(nodes, _bn(4)))) == ["BatchNormalization", "Relu"]


def test_bitexact_keeps_batch_normalisation() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", *_BN], ["y"]),
    ]
    model = _model(nodes, {"w": _random(4, 4, 1, 1), **_bn(4)})
    assert _ops(_normal(model, Numerics.BITEXACT)) == ["Conv", "BatchNormalization"]


def test_a_product_that_others_read_is_not_changed() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Mul", ["c", "s"], ["y"]),
        node("Relu", ["c"], ["z"]),
    ]
    model = _model(nodes, {"w": _random(4, 4, 1, 1), "s": np.float32(3)}, outputs=("y", "z"))
    assert sorted(_ops(_normal(model))) == ["Conv", "Mul", "Relu"]


def test_weights_that_others_use_are_not_copied() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Mul", ["c", "s"], ["d"]),
        node("Conv", ["d", "w"], ["y"]),
    ]
    model = _model(nodes, {"w": _random(4, 4, 1, 1), "s": np.float32(3)})
    assert _ops(_normal(model)) == ["Conv", "Mul", "Conv"]


def test_factors_that_vary_within_a_channel_are_not_folded() -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "s"], ["y"])]
    model = _model(nodes, {"w": _random(4, 4, 1, 1), "s": _random(6)})
    assert _ops(_normal(model)) == ["Conv", "Mul"]


# ** what does nothing **


@pytest.mark.parametrize(
    ("op", "extra", "attrs"),
    [
        ("Identity", [], {}),
        ("Dropout", [], {}),
        ("Cast", [], {"to": TensorProto.FLOAT}),
        ("CastLike", ["one"], {}),
        ("Transpose", [], {"perm": [0, 1, 2, 3]}),
        ("Reshape", ["same"], {}),
        ("Expand", ["ones"], {}),
        ("Concat", [], {"axis": 1}),
        ("Mul", ["one"], {}),
        ("Div", ["one"], {}),
        ("Pow", ["one"], {}),
        ("Sub", ["zero"], {}),
        ("Add", ["minus_zero"], {}),
        ("Slice", ["starts", "ends"], {}),
    ],
)
def test_operators_that_do_nothing_go(op: str, extra: list[str], attrs: dict[str, Any]) -> None:
    weights = {
        "one": np.ones((1, 1), np.float32),
        "zero": np.float32(0),
        "minus_zero": np.float32(-0.0),
        "same": np.array([0, 0, -1, 6]),
        "ones": np.array([1, 1]),
        "starts": np.array([0, 0]),
        "ends": np.array([2**40, 4]),
    }
    nodes = [
        node("Neg", ["x"], ["n"]),
        node(op, ["n", *extra], ["m"], **attrs),
        node("Relu", ["m"], ["y"]),
    ]
    assert _ops(_normal(_model(nodes, weights))) == ["Neg", "Relu"]


def test_adding_zero_goes_only_where_the_sign_of_zero_may_change() -> None:
    model = _model(
        [node("Add", ["x", "zero"], ["t"]), node("Neg", ["t"], ["y"])], {"zero": np.float32(0)}
    )
    for numerics in Numerics:
        kept = numerics is not Numerics.RELAXED
        assert _ops(_normal(model, numerics)) == (["Add", "Neg"] if kept else ["Neg"])


def test_a_factor_of_one_that_broadcasts_stays() -> None:
    nodes = [node("Mul", ["x", "ones"], ["y"])]
    model = _model(nodes, {"ones": np.ones((2, 1), np.float32)}, x=(1, 3), y=(2, 3))
    assert _ops(_normal(model)) == ["Mul"]


def test_dead_nodes_and_constants_go() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Mul", ["x", "w"], ["dead"])]
    graph = _normal(_model(nodes, {"w": _random(6)}))
    assert _ops(graph) == ["Relu"]
    assert not graph.constants


# ** sharing **


def test_equal_nodes_are_shared_and_the_commutative_ones_in_either_order() -> None:
    nodes = [
        node("Add", ["x", "w"], ["a"]),
        node("Add", ["v", "x"], ["b"]),
        node("Relu", ["a"], ["c"]),
        node("Relu", ["b"], ["d"]),
        node("Mul", ["c", "d"], ["y"]),
    ]
    w = _random(6)
    graph = _normal(_model(nodes, {"w": w, "v": w.copy()}))
    assert _ops(graph) == ["Add", "Relu", "Mul"]
    assert len(graph.constants) == 1


def test_different_attributes_are_not_shared() -> None:
    nodes = [
        node("LeakyRelu", ["x"], ["a"], alpha=0.1),
        node("LeakyRelu", ["x"], ["b"], alpha=0.2),
        node("Sub", ["a", "b"], ["y"]),
    ]
    assert _ops(_normal(_model(nodes, {}))) == ["LeakyRelu", "LeakyRelu", "Sub"]


def test_opaque_nodes_are_never_shared() -> None:
    nodes = [
        node("Hardmax", ["x"], ["a"]),
        node("Hardmax", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["y"]),
    ]
    assert _ops(_normal(_model(nodes, {}))) == [OPAQUE, OPAQUE, "Sub"]


# ** constants **


def test_constant_expressions_fold_and_stay_lazy() -> None:
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Exp", ["t"], ["e"]),
        node("MatMul", ["x", "e"], ["y"]),
    ]
    graph = _normal(_model(nodes, {"w": _random(5, 6)}, x=(3, 6), y=(3, 5)))
    assert _ops(graph) == ["MatMul"]
    calls = []

    def compute() -> Array:
        calls.append(1)
        return np.zeros(3)

    constant = derived_constant(StaticType("float32", (3,)), compute, ["recipe"])
    assert not calls
    assert constant.load().dtype == np.float32
    constant.load()
    assert len(calls) == 1


def test_bitexact_folds_movement_but_no_transcendental_function() -> None:
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Exp", ["t"], ["e"]),
        node("Mul", ["x", "e"], ["y"]),
    ]
    graph = _normal(_model(nodes, {"w": _random(5, 6)}, x=(6, 5)), Numerics.BITEXACT)
    assert _ops(graph) == ["Exp", "Mul"]


def test_opaque_standard_nodes_on_constants_fold() -> None:
    nodes = [node("CumSum", ["w", "axis"], ["c"]), node("Add", ["x", "c"], ["y"])]
    model = _model(nodes, {"w": _random(4, 6), "axis": np.array(1)}, x=(4, 6))
    assert _ops(_normal(model)) == ["Add"]


def test_splats_take_no_memory_and_leave_as_they_came() -> None:
    nodes = [
        node("ConstantOfShape", ["big"], ["c"], value=helper.make_tensor("v", 1, [1], [2.0])),
        node("Sqrt", ["c"], ["s"]),
        node("Mul", ["x", "s"], ["y"]),
    ]
    model = _model(nodes, {"big": np.array([64, 4096])}, x=(64, 4096))
    graph = _normal(model)
    (constant,) = graph.constants.values()
    assert isinstance(constant.source, Splat)
    assert constant.load().strides == (0, 0)
    exported = model_proto(export_model(graph))
    assert [n.op_type for n in exported.graph.node] == ["ConstantOfShape", "Mul"]
    assert exported.ByteSize() < 2000


def test_expansions_of_constants_above_the_limit_stay_nodes() -> None:
    nodes = [node("Expand", ["w", "shape"], ["e"]), node("MatMul", ["x", "e"], ["y"])]
    weights = {"w": _random(1, 2048), "shape": np.array([1024, 2048])}
    assert _ops(_normal(_model(nodes, weights, x=(1, 1024), y=(1, 2048)))) == ["Expand", "MatMul"]


def test_a_constant_condition_chooses_its_branch() -> None:
    nodes = [node("Where", ["c", "x", "zero"], ["w"]), node("Relu", ["w"], ["y"])]
    model = _model(nodes, {"c": np.ones((6, 6), bool), "zero": np.float32(0)})
    assert _ops(_normal(model)) == ["Relu"]


def test_digests_tell_contents_apart() -> None:
    one, two = np.ones((), np.float32), np.full((), 2, np.float32)
    constants = [
        splat_constant(one, (2,)),
        splat_constant(two, (2,)),
        splat_constant(one, (1, 2)),
        splat_constant(one.astype(np.float64), (2,)),
    ]
    assert len({c.digest for c in constants}) == 4


# ** contract **


def test_the_argument_is_not_changed_and_the_normal_form_is_stable() -> None:
    nodes = [node("Add", ["x", "w"], ["a"]), node("Identity", ["a"], ["y"])]
    graph = import_model(load_model(_model(nodes, {"w": _random(6)})))
    before = str(graph)
    once = normalise(graph)
    assert str(graph) == before
    assert str(normalise(once)) == str(once)
    assert once.outputs == ("y",)
