"""Weights of ONNX files, read without the onnx package, against the onnx package."""

from __future__ import annotations

import runpy
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import helper, numpy_helper

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.onnx.files import external as places
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.values.types import DTYPE_CODES

NUMERIC = sorted(set(DTYPE_CODES.values()) - {DTYPE_CODES["string"]})


def tensors() -> list[onnx.TensorProto]:
    """Every element type, in its own field and as raw bytes; nothing, a scalar, a matrix."""
    generator = np.random.default_rng(0)
    found = []
    for code in NUMERIC:
        dtype = helper.tensor_dtype_to_np_dtype(code)
        for shape in ((), (0, 3), (3, 2)):
            numbers = generator.integers(0, 100, shape) - (50 if dtype.kind in "if" else 0)
            array = np.asarray(numbers).astype(dtype) * np.asarray(
                1 + 2j if dtype.kind == "c" else 1
            )
            array = array.astype(dtype)
            name = f"{code}-{'x'.join(map(str, shape))}"
            found.append(helper.make_tensor(name, code, shape, array.reshape(-1)))
            found.append(helper.make_tensor(f"{name}-raw", code, shape, array.tobytes(), raw=True))
    return found


def model(initializers: list[onnx.TensorProto], *nodes: onnx.NodeProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "g", [], [], initializers))


def check(found: Mapping[str, Callable[[], Any]], wanted: list[onnx.TensorProto]) -> None:
    for tensor in wanted:
        want, got = numpy_helper.to_array(tensor), found[tensor.name]()
        assert (got.shape, got.dtype) == (want.shape, want.dtype), tensor.name
        assert got.tobytes() == want.tobytes(), tensor.name


def test_every_type_in_every_form(tmp_path: Path) -> None:
    wanted = tensors()
    proto = model(wanted)
    check(stored_tensors(proto), wanted)
    check(stored_tensors(proto.SerializeToString()), wanted)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    check(stored_tensors(tmp_path / "m.onnx"), wanted)


def test_constant_nodes() -> None:
    def node(name: str, **value: Any) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], **value)

    matrix = numpy_helper.from_array(np.arange(6).reshape(2, 3))
    foreign = helper.make_node("Constant", [], ["other"], domain="my", value_int=1)
    found = stored_tensors(
        model(
            [],
            node("f", value_float=1.5),
            node("i", value_int=-7),
            node("fs", value_floats=[1.0, 2.0]),
            node("is", value_ints=[1, -2, 1 << 40]),
            node("t", value=matrix),
            node("s", value_string="text"),
            foreign,
        )
    )
    values = {name: load() for name, load in found.items()}
    assert values.keys() == {"f", "i", "fs", "is", "t"}
    for name, dtype, number in (("f", np.float32, 1.5), ("i", np.int64, -7)):
        assert values[name].dtype == dtype
        assert values[name].shape == ()
        assert values[name].item() == number
    assert values["fs"].tolist() == [1.0, 2.0]
    assert values["is"].tolist() == [1, -2, 1 << 40]
    assert values["t"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_strings_are_left_out() -> None:
    text = onnx.TensorProto(name="s", data_type=8, dims=[1], string_data=[b"text"])
    assert stored_tensors(model([text])) == {}


def test_arrays_by_name() -> None:
    found = stored_tensors({"w": np.ones(2, np.float32)})
    assert found["w"]().tolist() == [1.0, 1.0]


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        stored_tensors(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="cannot read"):
        stored_tensors(tmp_path)
    for data in (b"", b"no model", b"\x00", b"\xff" * 20, b"\x3a\x7f"):
        (tmp_path / "m.onnx").write_bytes(data)
        with pytest.raises(ModelError, match="not an ONNX model"):
            stored_tensors(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="int is not a model"):
        stored_tensors(3)


def test_every_cut_is_noticed() -> None:
    """A file cut short is refused, or its last tensors are."""
    tensor = numpy_helper.from_array(np.arange(5, dtype=np.float32), "w")
    data = model([tensor]).SerializeToString()
    graph = data.index(b"g")
    for end in range(graph, len(data) - 20):
        with pytest.raises(ModelError):
            stored_tensors(data[:end])["w"]()


def external(location: str, **more: str) -> onnx.ModelProto:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location="EXTERNAL")
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return model([tensor])


@pytest.mark.parametrize(
    ("location", "more", "message"),
    [
        ("none.bin", {}, "cannot read the weight 'w'"),
        ("w.bin", {"offset": "4"}, "cannot read the weight 'w'"),
        ("w.bin", {"offset": "x"}, "cannot read the weight 'w'"),
        ("../w.bin", {}, "outside the folder"),
        ("/etc/passwd", {}, "outside the folder"),
    ],
)
def test_external_data_that_cannot_be_read(
    tmp_path: Path, location: str, more: dict[str, str], message: str
) -> None:
    (tmp_path / "in").mkdir()
    for folder in (tmp_path, tmp_path / "in"):
        (folder / "w.bin").write_bytes(struct.pack("<2f", 1, 2))
    path = tmp_path / "in" / "m.onnx"
    path.write_bytes(external(location, **more).SerializeToString())
    with pytest.raises(ModelError, match=message):
        stored_tensors(path)["w"]()


def test_external_data_need_a_path() -> None:
    with pytest.raises(ModelError, match="give the model as a path"):
        stored_tensors(external("w.bin"))["w"]()


def test_a_tensor_of_too_few_elements() -> None:
    short = onnx.TensorProto(name="w", data_type=1, dims=[3], float_data=[1.0, 2.0])
    with pytest.raises(ModelError, match="2 of 3 elements"):
        stored_tensors(model([short]))["w"]()


def test_types_of_an_onnx_that_is_newer_than_onnx_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which one knows nothing are not there; the module can be imported."""
    real = onnx_ir.DataType

    class Types:
        UNDEFINED, STRING = real.UNDEFINED, real.STRING

        def __iter__(self) -> Iterator[onnx_ir.DataType]:
            return (one for one in real if one is not real.INT2)

        def __call__(self, code: int) -> onnx_ir.DataType:
            return {int(one): one for one in self}[code]

    monkeypatch.setattr(onnx_ir, "DataType", Types())
    bits = runpy.run_path(places.__file__)["BITS"]
    monkeypatch.undo()
    assert bits.keys() == places.BITS.keys() - {real.INT2}
