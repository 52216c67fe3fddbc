"""Random inputs: every type, shared symbolic dims, valid indices, clear refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.runtime.inputs import InputSpec, input_specs, random_inputs


def spec(
    element: int,
    shape: tuple[int | str, ...] | None = (50,),
    index_bound: int | None = None,
) -> InputSpec:
    return InputSpec("x", element, shape, index_bound=index_bound)


def embedding(vocabulary: int) -> onnx.ModelProto:
    table = np.zeros((vocabulary, 4), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "wide"], ["embedded"]),
            helper.make_node("Not", ["flag"], ["unused"]),
        ],
        "embedding",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT32, ["batch", "length"]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
            helper.make_tensor_value_info("table", TensorProto.FLOAT, [vocabulary, 4]),
        ],
        [helper.make_tensor_value_info("embedded", TensorProto.FLOAT, ["batch", "length", 4])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph)


TENSOR_TYPES = [
    value
    for name, value in TensorProto.DataType.items()
    if name != "UNDEFINED" and not name.startswith("FLOAT8E8")
]


@pytest.mark.parametrize("element", TENSOR_TYPES, ids=TensorProto.DataType.Name)
def test_every_element_type(element: int) -> None:
    values = random_inputs([spec(element)], seed=0)["x"]
    assert values.shape == (50,)
    assert values.dtype == helper.tensor_dtype_to_np_dtype(element)
    assert len({str(value) for value in values}) > 1


def test_seed_decides() -> None:
    first, again, other = (
        random_inputs([spec(TensorProto.FLOAT)], seed)["x"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_floats_are_standard_normal() -> None:
    values = random_inputs([spec(TensorProto.FLOAT, (10_000,))], 0)["x"]
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 1) < 0.05


def test_signature_of_a_model() -> None:
    specs = input_specs(embedding(100))
    assert [s.name for s in specs] == ["ids", "mask", "flag"]
    assert specs[0].index_bound == 100
    assert specs[1].index_bound is None
    assert specs[0].shape == ("batch", "length")


def test_indices_cover_their_table_and_stay_inside() -> None:
    feeds = random_inputs(embedding(100), 0, {"batch": 8, "length": 64})
    assert feeds["ids"].shape == feeds["mask"].shape == (8, 64)
    assert feeds["ids"].min() >= 0
    assert 50 < feeds["ids"].max() < 100
    assert set(np.unique(feeds["mask"])) == {0, 1}


def test_one_name_has_one_size() -> None:
    specs = [
        InputSpec("a", TensorProto.FLOAT, ("n", "c")),
        InputSpec("b", TensorProto.FLOAT, ("c", "n", 3)),
    ]
    feeds = random_inputs(specs, 0)
    assert feeds["a"].shape == feeds["b"].shape[1::-1]


def test_images_survive_strides() -> None:
    feeds = random_inputs([spec(TensorProto.FLOAT, ("n", 3, "h", "w"))], 0)
    assert feeds["x"].shape == (2, 3, 32, 32)


def test_unknown_rank_and_zero_size() -> None:
    assert random_inputs([spec(TensorProto.FLOAT, None)], 0)["x"].ndim == 1
    assert random_inputs([spec(TensorProto.FLOAT, (0, 3))], 0)["x"].shape == (0, 3)


def test_sequences_and_optionals() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    graph = helper.make_graph(
        [],
        "containers",
        [
            helper.make_value_info("s", helper.make_optional_type_proto(sequence)),
            helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
        ],
        [],
    )
    feeds = random_inputs(helper.make_model(graph), 0)
    assert [value.shape for value in feeds["s"]] == [(2,), (2,)]
    assert feeds["o"].shape == (2,)


def test_maps_have_a_few_keys() -> None:
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    for key, expected in ((TensorProto.STRING, str), (TensorProto.INT64, int)):
        value = helper.make_value_info("m", helper.make_map_type_proto(key, number))
        feed = random_inputs(helper.make_model(helper.make_graph([], "g", [value], [])), 0)["m"]
        assert {type(one) for one in feed} == {expected}
        assert {type(one) for one in feed.values()} == {float}


def test_opaque_values_are_refused() -> None:
    value = helper.make_value_info("m", onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque()))
    with pytest.raises(ModelError, match="opaque_type"):
        random_inputs(helper.make_model(helper.make_graph([], "g", [value], [])), 0)


def test_bad_dims_are_refused() -> None:
    with pytest.raises(OptionError, match="symbolic dims: batch"):
        random_inputs([spec(TensorProto.FLOAT, ("batch",))], 0, {"bacth": 2})
    with pytest.raises(OptionError, match="-1"):
        random_inputs([spec(TensorProto.FLOAT, ("batch",))], 0, {"batch": -1})
    with pytest.raises(ModelError, match="too large"):
        random_inputs([spec(TensorProto.FLOAT, (2**20, 2**20))], 0)


def test_not_a_model() -> None:
    with pytest.raises(ModelError, match="not an ONNX model"):
        random_inputs(b"garbage", 0)
    with pytest.raises(ModelError, match="cannot read"):
        random_inputs("/nowhere/model.onnx", 0)


_CHOICE = """<ir_version: 10, opset_import: ["" : 18]>
g (float[2] x, int64 rate) => (float[2] y) {
    high = Constant <value = int64[1] {16000}> ()  one = Constant <value = int64[1] {1}> ()
    r = Reshape (rate, one)  e = Equal (r, high)  c = Squeeze (e)
    y = If (c) <then_branch = a () => (float[2] p) { p = Relu (x) },
        else_branch = b () => (float[2] q) { USE }> }"""


@pytest.mark.parametrize(
    ("use", "values"), [("q = Neg (x)", (16000,)), ("f = Cast <to = 1> (rate) q = Mul (x, f)", ())]
)
def test_an_integer_that_chooses_a_branch_chooses_one(use: str, values: tuple[int, ...]) -> None:
    model = onnx.parser.parse_model(_CHOICE.replace("USE", use))
    specs = {spec.name: spec for spec in input_specs(model)}
    assert specs["rate"].choices == values
    drawn = {int(random_inputs(model, seed)["rate"]) for seed in range(8)}
    assert drawn == (set(values) or {0, 1})
