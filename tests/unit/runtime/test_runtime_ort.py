"""The onnxruntime executor: binding, odd types, one-line errors, mapped weights."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized

ONE_THREAD = OrtOptions(threads=1)


def model_of(
    *nodes: onnx.NodeProto,
    inputs: dict[str, onnx.TypeProto],
    outputs: dict[str, onnx.TypeProto],
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_value_info(name, type_) for name, type_ in inputs.items()],
        [helper.make_value_info(name, type_) for name, type_ in outputs.items()],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def tensor(element: int, *shape: int | str) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(element, shape)


def relu() -> onnx.ModelProto:
    type_ = tensor(TensorProto.FLOAT, 2, 3)
    return model_of(
        helper.make_node("Relu", ["x"], ["y"]), inputs={"x": type_}, outputs={"y": type_}
    )


X = np.array([[1, -2, 3], [-4, 5, -6]], dtype=np.float32)


@pytest.mark.parametrize("kind", ["proto", "bytes", "path", "string"])
def test_accepts_every_model_source(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(relu(), path)
    sources = {
        "proto": relu(),
        "bytes": relu().SerializeToString(),
        "path": path,
        "string": str(path),
    }
    session = OrtSession(sources[kind], ONE_THREAD)
    assert session.input_names == ("x",)
    assert session.output_names == ("y",)
    np.testing.assert_array_equal(session.run({"x": X})[0], np.maximum(X, 0))


def test_numpy_scalars_are_tensors() -> None:
    type_ = tensor(TensorProto.FLOAT)
    negate = model_of(
        helper.make_node("Neg", ["x"], ["y"]), inputs={"x": type_}, outputs={"y": type_}
    )
    session = OrtSession(negate, ONE_THREAD)
    assert session.run({"x": np.float32(3)})[0] == -3
    session.bind({"x": np.float32(3)})()


def test_a_session_ends_with_its_bound_runs() -> None:
    """Sessions hold weights, so none waits until Python collects garbage."""
    gc.disable()
    try:
        session = OrtSession(relu(), ONE_THREAD)
        call = session.bind({"x": X})
        call()
        ended = weakref.ref(session._session)
        del session, call
        assert ended() is None
    finally:
        gc.enable()


def test_binding_reads_the_memory_it_was_given() -> None:
    session = OrtSession(relu(), ONE_THREAD)
    # A transposed view has to be copied, and the copy has to outlive this function's names.
    call = session.bind({"x": np.ascontiguousarray(X.T).T})
    for _ in range(3):
        call()
    session.bind({"x": X})()


def test_an_output_of_another_rank_than_declared_runs_again() -> None:
    """Onnxruntime refuses the memory of such an output in the second run of a binding."""
    reshape = model_of(
        helper.make_node("Reshape", ["x", "s"], ["y"]),
        inputs={"x": tensor(TensorProto.FLOAT, 4), "s": tensor(TensorProto.INT64, "R")},
        outputs={"y": tensor(TensorProto.FLOAT, 1, "N")},
    )
    call = OrtSession(reshape, ONE_THREAD).bind(
        {"x": np.zeros(4, np.float32), "s": np.array([2, 1, 2])}
    )
    for _ in range(4):
        call()


@pytest.mark.parametrize(
    "feeds",
    [{}, {"x": np.zeros((5, 5), np.float32)}, {"x": X.astype(np.float64)}],
    ids=["missing", "shape", "dtype"],
)
def test_bad_feeds_fail_in_one_line(
    feeds: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    session = OrtSession(relu(), ONE_THREAD)
    for attempt in (session.run, lambda given: session.bind(given)()):
        with pytest.raises(RuntimeFailed) as caught:
            attempt(feeds)
        message = str(caught.value)
        assert "\n" not in message
        assert "ONNXRuntimeError" not in message
    assert capfd.readouterr() == ("", "")


def test_kernel_failure_is_wrapped_and_silent(capfd: pytest.CaptureFixture[str]) -> None:
    gather = model_of(
        helper.make_node("Gather", ["x", "i"], ["y"]),
        inputs={"x": tensor(TensorProto.FLOAT, 4), "i": tensor(TensorProto.INT64, 1)},
        outputs={"y": tensor(TensorProto.FLOAT, 1)},
    )
    feeds = {"x": np.zeros(4, np.float32), "i": np.array([9])}
    session = OrtSession(gather, ONE_THREAD)
    with pytest.raises(RuntimeFailed, match="out of data bounds"):
        session.run(feeds)
    with pytest.raises(RuntimeFailed, match="out of data bounds"):
        session.bind(feeds)()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("source", [b"garbage", "/nowhere/model.onnx"])
def test_unusable_model_is_refused(source: bytes | str) -> None:
    with pytest.raises(RuntimeFailed, match="refuses the model"):
        OrtSession(source, ONE_THREAD)


def test_reason_of_a_refusal_is_readable() -> None:
    future = relu()
    future.ir_version = 99
    with pytest.raises(RuntimeFailed, match=r"^onnxruntime refuses the model: Unsupported"):
        OrtSession(future, ONE_THREAD)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="threads"):
        OrtOptions(threads=0)
    with pytest.raises(OptionError, match="all, extended, basic, disabled"):
        OrtOptions(threads=1, level="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("element", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN])
def test_types_without_numpy_equivalent(element: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    there = model_of(
        helper.make_node("Cast", ["x"], ["y"], to=element),
        helper.make_node("Cast", ["b"], ["f"], to=TensorProto.FLOAT),
        inputs={"x": tensor(TensorProto.FLOAT, 2, 3), "b": tensor(element, 2, 3)},
        outputs={"y": tensor(element, 2, 3), "f": tensor(TensorProto.FLOAT, 2, 3)},
    )
    session = OrtSession(there, ONE_THREAD)
    feeds = {"x": X, "b": X.astype(dtype)}
    y, f = session.run(feeds)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float32), X)
    np.testing.assert_array_equal(f, X)
    session.bind(feeds)()


@pytest.mark.parametrize("element", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("shape", [(3, 3), (4,), ()])
def test_types_of_half_a_byte(element: int, shape: tuple[int, ...]) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    low = -8 if element == TensorProto.INT4 else 0
    values = np.random.default_rng(0).integers(low, low + 16, shape).astype(np.float32)
    both = model_of(
        helper.make_node("Cast", ["x"], ["q"], to=element),
        helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
        inputs={"x": tensor(TensorProto.FLOAT, *shape), "p": tensor(element, *shape)},
        outputs={"q": tensor(element, *shape), "y": tensor(TensorProto.FLOAT, *shape)},
    )
    q, y = OrtSession(both, ONE_THREAD).run({"x": values, "p": values.astype(dtype)})
    assert q.dtype == dtype
    np.testing.assert_array_equal(q.astype(np.float32), values)
    np.testing.assert_array_equal(y, values)


def test_scalar_bfloat16() -> None:
    type_ = tensor(TensorProto.BFLOAT16)
    cast = model_of(
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT),
        inputs={"x": type_},
        outputs={"y": tensor(TensorProto.FLOAT)},
    )
    (y,) = OrtSession(cast, ONE_THREAD).run({"x": np.array(2.5, ml_dtypes.bfloat16)})
    assert y.shape == ()
    assert y == 2.5


def test_strings_run_bound_the_plain_way() -> None:
    type_ = tensor(TensorProto.STRING, 2)
    concat = model_of(
        helper.make_node("StringConcat", ["x", "x"], ["y"]),
        inputs={"x": type_},
        outputs={"y": type_},
    )
    session = OrtSession(concat, ONE_THREAD)
    feeds = {"x": np.array(["a", "bc"], dtype=object)}
    assert session.run(feeds)[0].tolist() == ["aa", "bcbc"]
    session.bind(feeds)()


def test_sequences_and_optionals() -> None:
    sequence = helper.make_sequence_type_proto(tensor(TensorProto.FLOAT, 2, 3))
    optional = helper.make_optional_type_proto(tensor(TensorProto.FLOAT, 2, 3))
    both = model_of(
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("OptionalHasElement", ["o"], ["h"]),
        inputs={"s": sequence, "x": tensor(TensorProto.FLOAT, 2, 3), "o": optional},
        outputs={"t": sequence, "h": tensor(TensorProto.BOOL)},
    )
    session = OrtSession(both, ONE_THREAD)
    longer, has_element = session.run({"s": [X], "x": -X, "o": None})
    assert len(longer) == 2
    np.testing.assert_array_equal(longer[1], -X)
    assert not has_element
    session.bind({"s": [X], "x": -X, "o": X})()


def test_external_weights_are_found_beside_the_file(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    matmul = model_of(
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        inputs={"x": tensor(TensorProto.FLOAT, 2, 3)},
        outputs={"y": tensor(TensorProto.FLOAT, 2, 4)},
        weights={"w": weight},
    )
    path = tmp_path / "external.onnx"
    onnx.save(matmul, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").exists()
    np.testing.assert_allclose(OrtSession(path, ONE_THREAD).run({"x": X})[0], X @ weight)


def test_optimized_graph_is_what_runs() -> None:
    type_ = tensor(TensorProto.FLOAT, 2, 3)
    chain = model_of(
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Identity", ["b"], ["y"]),
        inputs={"x": type_},
        outputs={"y": type_},
    )
    kept = ort_optimized(chain, OrtOptions(threads=1, level="disabled"))
    assert len(kept.graph.node) == 3
    assert [n.op_type for n in ort_optimized(chain, ONE_THREAD).graph.node] == ["Relu"]
    spared = OrtOptions(threads=1, disabled_optimizers=("EliminateIdentity",))
    assert len(ort_optimized(chain, spared).graph.node) == 3
