"""Operators that recognition names: what they are exported as computes what the registry says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.lab.testing import GraphMaker, evaluate

Q, K, V = (2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)
X = (2, 3, 8)
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("Scale", {"factor": -0.3}, [X]),
    ("Shift", {"offset": 1.7}, [X]),
    ("Square", {}, [X]),
    ("Rsqrt", {}, [X]),
    ("Repeat", {"axis": 1, "repeats": 3}, [X]),
    ("Swish", {"alpha": 1.0}, [X]),
    ("Swish", {"alpha": 1.702}, [X]),
    ("Center", {"axes": (2,)}, [X]),
    ("Center", {"axes": (0, 1)}, [X]),
    ("RmsN", {"axes": (1, 2), "epsilon": 1e-5}, [X]),
    ("Gelu", {"approximate": "none"}, [X]),
    ("Gelu", {"approximate": "tanh"}, [X]),
    ("HardSwish", {}, [X]),
    ("LayerNormalization", {"axis": 2, "epsilon": 1e-5}, [X, (8,), (8,)]),
    ("RMSNormalization", {"axis": 2, "epsilon": 1e-5}, [X, (8,)]),
    ("Attention", {"scale": 0.4}, [Q, K, V]),
    ("Attention", {"scale": 0.4}, [Q, (2, 2, 5, 8), (2, 2, 5, 6)]),
    ("MaskedAttention", {"scale": 0.4}, [Q, K, V, (2, 1, 1, 5)]),
    ("MaskedAttention", {"scale": 0.4}, [Q, K, V, (3, 5)]),
]


@pytest.mark.parametrize(("op", "attrs", "shapes"), CASES)
def test_export_computes_the_definition(
    op: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]]
) -> None:
    g = GraphMaker()
    names = [g.input(f"x{i}", *shape) for i, shape in enumerate(shapes)]
    graph = g.graph(g(op, *names, **attrs))
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(shape) + 0.1 for name, shape in zip(names, shapes, strict=True)}
    (expected,) = evaluate(graph, feeds)
    proto = model_proto(export_model(graph))
    session = ort.InferenceSession(proto.SerializeToString())
    single = {name: array.astype(np.float32) for name, array in feeds.items()}
    (actual,) = session.run(None, single)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def attention_model(opset: int, *, mask: bool, scale: float | None) -> onnx.ModelProto:
    shapes = [Q, K, V, (3, 5)][: 4 if mask else 3]
    names = ["q", "k", "v", "m"][: len(shapes)]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    attrs: dict[str, Any] = {} if scale is None else {"scale": scale}
    node = helper.make_node("Attention", names, ["y"], **attrs)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (*Q[:3], V[3]))
    graph = helper.make_graph([node], "g", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


@pytest.mark.parametrize("mask", [None, 0.0, -1e4, -np.inf])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_attention_of_opset_23(mask: float | None, scale: float | None) -> None:
    """Its mask must be known: of a row that hides every key, native kernels make zeros."""
    model = attention_model(23, mask=mask is not None, scale=scale)
    if mask is not None:
        array = fixed_mask(model)
        assert import_model(load_model(model)).nodes[0].op == "Opaque"
        array[..., :2, :] = mask
        array[..., :3, 0] = 0.0
        model.graph.initializer.append(numpy_helper.from_array(array, model.graph.input.pop().name))
    graph = import_model(load_model(model))
    assert graph.nodes[0].op == ("Attention" if mask is None else "MaskedAttention")
    rng = np.random.default_rng(1)
    feeds = {
        name: rng.standard_normal(graph.static_type(name).shape).astype(np.float32)
        for name in graph.inputs
    }
    expected = np.asarray(next(iter(ReferenceEvaluator(model).run(None, feeds))))
    (actual,) = evaluate(graph, {n: a.astype(np.float64) for n, a in feeds.items()})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    written = model_proto(export_model(graph))
    assert [node.op_type for node in written.graph.node] == ["Attention"]
    again = np.asarray(next(iter(ReferenceEvaluator(written).run(None, feeds))))
    np.testing.assert_allclose(again, expected, rtol=1e-4, atol=1e-5)


def fixed_mask(model: onnx.ModelProto) -> npt.NDArray[np.float32]:
    """Zeros of the shape of the mask, the last input."""
    dims = model.graph.input[-1].type.tensor_type.shape.dim
    return np.zeros([d.dim_value for d in dims], np.float32)


def test_a_mask_that_hides_every_key_stays_native() -> None:
    model = attention_model(23, mask=True, scale=None)
    array = fixed_mask(model)
    array[..., 1, :] = np.finfo(np.float32).min
    model.graph.initializer.append(numpy_helper.from_array(array, model.graph.input.pop().name))
    assert import_model(load_model(model)).nodes[0].op == "Opaque"


def test_causal_attention_stays_as_it_is() -> None:
    model = attention_model(23, mask=False, scale=None)
    model.graph.node[0].attribute.append(helper.make_attribute("is_causal", 1))
    assert import_model(load_model(model)).nodes[0].op == "Opaque"


def test_groups_of_heads_share_their_keys() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal(s) for s in (Q, (2, 2, 5, 8), (2, 2, 5, 6)))
    attention = get_op("Attention").eval_fn(FLOAT, [q, k, v], {"scale": 1.0})
    for head in range(4):
        one = [q[:, head : head + 1], k[:, head // 2, None], v[:, head // 2, None]]
        alone = get_op("Attention").eval_fn(FLOAT, one, {"scale": 1.0})
        np.testing.assert_allclose(attention[:, head : head + 1], alone)
