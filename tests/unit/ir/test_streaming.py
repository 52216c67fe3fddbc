"""Model files that are written piece by piece: the bytes are those that protobuf gives."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import InternalError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files import streaming
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.streaming import write_serialised

DTYPES = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.INT4,
    TensorProto.FLOAT8E4M3FN,
)


@pytest.fixture(autouse=True)
def _every_weight_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_LARGE_BYTES", 1)


def written(model: onnx_ir.Model) -> bytes:
    file = io.BytesIO()
    write_serialised(model, file)
    return file.getvalue()


def encoded(model: onnx_ir.Model) -> bytes:
    return bytes(model_proto(model).SerializeToString(deterministic=True))


def weight(name: str, dtype: int, size: int, raw: bool, text: str) -> onnx.TensorProto:
    """A tensor of zeros and ones, as raw bytes or as typed elements, with a description."""
    ones = [i % 2 for i in range(size)]
    made = helper.make_tensor(name, dtype, [size], ones)
    if raw:
        array = numpy_helper.to_array(made)
        made = onnx_ir.to_proto(onnx_ir.tensor(array, onnx_ir.DataType(dtype), name=name))
    if text:
        made.doc_string = text
    return made


def holding(weights: list[onnx.TensorProto], text: str = "") -> onnx.ModelProto:
    """A model that computes -x and returns its weights."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    outputs = [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights]
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y, *outputs], weights, doc_string=text)
    graph.metadata_props.add(key="place", value="after the weights")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    model.metadata_props.add(key="k", value=text)
    return model


weights_of_models = st.lists(
    st.tuples(
        st.sampled_from(DTYPES),
        st.integers(0, 300),
        st.booleans(),
        st.sampled_from(["", "a weight", "é" * 200]),
    ),
    max_size=5,
)


@given(weights_of_models, st.sampled_from(["", "text"]))
@settings(deadline=None, max_examples=30)
def test_the_bytes_are_those_of_protobuf(
    drawn: list[tuple[int, int, bool, str]], text: str
) -> None:
    made = holding([weight(f"w{i}", *one) for i, one in enumerate(drawn)], text)
    model = load_model(made)
    assert written(model) == encoded(model)
    assert encoded(model) == encoded(load_model(made))  # nothing in it was replaced for good


@pytest.mark.parametrize(
    "view",
    [lambda a: a, lambda a: a[::2], lambda a: a.T, lambda a: a[0, 0]],
)
def test_arrays_in_any_layout(view: Callable[[np.ndarray], np.ndarray]) -> None:
    array = view(np.arange(64, dtype=np.float32).reshape(8, 8))
    model = load_model(holding([]))
    for name, tensor in (
        ("now", onnx_ir.tensor(np.asarray(array), name="now")),
        ("late", onnx_ir.LazyTensor(
            lambda: onnx_ir.tensor(np.asarray(array)), dtype=onnx_ir.DataType.FLOAT,
            shape=onnx_ir.Shape(array.shape), name="late",
        )),
    ):  # fmt: skip
        value = onnx_ir.Value(name=name, const_value=tensor, shape=onnx_ir.Shape(array.shape))
        model.graph.register_initializer(value)
    assert written(model) == encoded(model)


def test_a_weight_of_another_size_than_it_says_is_not_written() -> None:
    model = load_model(holding([]))
    tensor = onnx_ir.LazyTensor(
        lambda: onnx_ir.tensor(np.zeros(3, np.float32)), dtype=onnx_ir.DataType.FLOAT,
        shape=onnx_ir.Shape([4]), name="w",
    )  # fmt: skip
    value = onnx_ir.Value(name="w", const_value=tensor, shape=onnx_ir.Shape([4]))
    model.graph.register_initializer(value)
    with pytest.raises(InternalError, match="'w' has 12 bytes instead of 16"):
        written(model)
