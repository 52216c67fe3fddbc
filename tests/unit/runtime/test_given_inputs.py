"""Inputs of a user: generators, names that mean something, samples from files, and bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.generators import parse_generator, suggested_generator
from eqsat_opt.runtime.given_inputs import GivenInputs, load_samples
from eqsat_opt.runtime.inputs import integer_ends, random_inputs
from eqsat_opt.validation.reference import Reference

FAST: dict[str, Any] = {
    "measure": False, "race": False, "budget_s": 600, "threads": 1, "store": "",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[N,3] x, int64[N] k) => (float[N,3] y, int64[N] m)
        { a = Neg(x) b = Neg(a) y = Relu(b) m = Neg(k) }
    """)


def sample(rows: int, start: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
    x = np.arange(start, start + 3 * rows, dtype=np.float32).reshape(rows, 3)
    return {"x": x, "k": np.arange(rows)}


def save(path: str | Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


# ** generators **


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("int(5,9)", 5, 8), (" int( -3 , 1e3 ) ", -3, 999), ("uniform", 0, 1),
        ("uniform(-2,-1)", -2, -1), ("constant(7)", 7, 7), ("mask", 0, 1), ("image(2,4)", 2, 4),
        ("audio", -1, 1), ("normal(3,0)", 3, 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0, 4), (7,), (2, 3, 40, 50)])
def test_generators_keep_to_their_range(
    text: str, low: float, high: float, shape: tuple[int, ...]
) -> None:
    generator = parse_generator(text, "x")
    value = generator.draw(shape, np.dtype(np.float32), np.random.default_rng(0))
    assert value.shape == shape
    assert value.dtype == np.float32
    assert ((low <= value) & (value <= high)).all()
    same = generator.draw(shape, np.dtype(np.float32), np.random.default_rng(0))
    assert (value == same).all()


def test_a_mask_hides_ends_and_never_all() -> None:
    value = parse_generator("mask", "x").draw((50, 9), np.dtype(bool), np.random.default_rng(0))
    assert value[:, 0].all()
    assert (np.diff(value.astype(int), axis=1) <= 0).all()
    assert len({int(row.sum()) for row in value}) > 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ints(0,3)", "choose from int(LOW,END)"), ("int", "write int(LOW,END)"),
        ("int(3)", "write int(LOW,END)"), ("int(3,3)", "the second is above all"),
        ("int(0.5,3)", "give whole numbers"), ("int(a,b)", "write numbers"),
        ("uniform(2,1)", "give the lower number first"), ("normal(0,-1)", "is not negative"),
        ("constant(inf)", "write constant(VALUE)"), ("__import__('os')", "choose from"),
        ("", "choose from"), ("mask(1)", "write mask"),
    ],
)  # fmt: skip
def test_generators_without_a_meaning_are_refused(text: str, expected: str) -> None:
    with pytest.raises(OptionError, match="the input is drawn by") as error:
        parse_generator(text, "the input")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("name", "shape", "is_float", "kind"),
    [
        ("attention_mask", (2, 8), False, "mask"), ("attention_mask", (2, 8), True, ""),
        ("attention_mask", (2, 1, 8, 8), False, ""), ("pixel_values", (1, 3, 8, 8), True, "image"),
        ("image_embeds", (4,), True, ""), ("input_values", (1, 3), True, ""),
        ("audio", (1, 100), True, "audio"), ("waveform", (1, 1, 100), True, "audio"),
        ("x", (1, 3, 8, 8), True, ""), ("images", (1, 3, 8, 8), False, ""),
    ],
)  # fmt: skip
def test_names_suggest_generators(
    name: str, shape: tuple[int, ...], is_float: bool, kind: str
) -> None:
    found = suggested_generator(name, shape, is_float=is_float)
    assert (found.kind if found else "") == kind


def test_names_decide_where_the_user_does_not() -> None:
    dims: tuple[Any, ...] = ("N", 9)
    given = helper.make_model(
        helper.make_graph(
            [helper.make_node("Cast", ["attention_mask"], ["y"], to=TensorProto.FLOAT)],
            "g",
            [helper.make_tensor_value_info("attention_mask", TensorProto.INT64, dims)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        )
    )
    drawn = random_inputs(given, 0, {"N": 20})["attention_mask"]
    assert (np.diff(drawn, axis=1) <= 0).all()
    mine = GivenInputs(generators={"attention_mask": parse_generator("int(5,7)", "x")})
    specs = mine.specs(given)
    (drawn,) = (one["attention_mask"] for one in mine.feeds(specs, [0], {"N": 20}))
    assert set(np.unique(drawn)) == {5, 6}
    assert integer_ends(specs[0]) == (5, 6)


# ** samples **


def test_samples_of_a_folder_come_by_name(folder: Path) -> None:
    (folder / "d").mkdir()
    for number in (2, 0, 1):
        save(folder / "d" / f"{number}.npz", **sample(2, number))
    (folder / "d" / "notes.txt").write_text("no sample")
    found = load_samples("d")
    assert [one.file for one in found] == ["d/0.npz", "d/1.npz", "d/2.npz"]
    assert [float(one.feeds["x"][0, 0]) for one in found] == [0, 1, 2]
    assert len(load_samples("d", 2)) == 2


def test_texts_become_objects(folder: Path) -> None:
    np.savez("s.npz", words=np.array(["a", "bc"]))
    assert load_samples("s.npz")[0].feeds["words"].dtype == object


def test_check_and_sizes_are_those_of_the_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "d").mkdir()
    for number, rows in enumerate((4, 4, 7, 4)):
        save(folder / "d" / f"{number}.npz", **sample(rows, number))
    compared: list[Reference] = []
    real = Reference.of

    def of(*arguments: Any, **more: Any) -> Reference:
        compared.append(real(*arguments, **more))
        return compared[-1]

    monkeypatch.setattr(Reference, "of", of)
    options = Options(**FAST, check=3, input_data="d")
    report = api.run(model(), options).report
    assert [one["given"]["N"] for one in report.sizes] == [4, 7]
    (reference,) = compared
    assert [float(one["x"][0, 0]) for one in reference.feeds] == [0, 1]
    assert reference.trials[0].draft.what == "with d/2.npz"
    assert reference.trials[0].feeds["x"].shape == (7, 3)
    assert "check and race ran on d/0.npz and 2 more" in report.details


def test_generators_reach_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Reference] = []
    real = Reference.of

    def of(*arguments: Any, **more: Any) -> Reference:
        compared.append(real(*arguments, **more))
        return compared[-1]

    monkeypatch.setattr(Reference, "of", of)
    api.run(model(), Options(**FAST, check=1, inputs={"k": "int(100,200)"}))
    assert compared
    assert min(feeds["k"].min() for one in compared for feeds in one.feeds) >= 100


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x": sample(2)["x"]}, "lacks 'k'; inputs are x, k"),
        ({**sample(2), "z": np.zeros(1)}, "has 'z'; inputs are x, k"),
        ({**sample(2), "x": np.zeros((2, 3))}, "'x' is of float64, and the model takes float32"),
        ({**sample(2), "x": np.zeros((2, 4), np.float32)}, r"the model takes \(N, 3\)"),
        ({**sample(2), "x": np.zeros(3, np.float32)}, r"has the shape \(3,\)"),
    ],
)
def test_samples_of_another_model_are_refused(
    arrays: dict[str, Any], expected: str, folder: Path
) -> None:
    save("s.npz", **arrays)
    with pytest.raises(OptionError, match=expected):
        api.run(model(), Options(**FAST, check=1, input_data="s.npz"))


def test_samples_replace_sizes(folder: Path) -> None:
    save("s.npz", **sample(2))
    with pytest.raises(OptionError, match="the sizes are those of the data"):
        Options(input_data="s.npz", shapes={"N": 3})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--input-data", "no.npz"), "cannot read no.npz: No such file"),
        (("--input-data", "empty"), "the folder empty holds no .npz file"),
        (("--input-data", "text.npz"), "text.npz is no .npz file, or holds other things"),
        (("--input-data", "one.npz"), "one.npz is a single array; write all inputs by their names"),
        (("--input-data", "object.npz"), "object.npz is no .npz file, or holds other things"),
        (("--input-data", "short.npz"), "short.npz holds no plain arrays"),
        (("--input", "x"), "--input 'x' is not NAME=HOW"),
        (("--input", "x=mask", "--input", "x=mask"), "--input gives 'x' twice"),
        (("--input", "x=int(1,2"), "the input 'x' is drawn by 'int(1,2'"),
        (("--input", "z=mask"), "--input names 'z'; inputs are x, k"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model(), "m.onnx")
    (folder / "empty").mkdir()
    (folder / "text.npz").write_text("no arrays")
    with open("one.npz", "wb") as file:
        np.save(file, np.zeros(3))
    np.savez("object.npz", x=np.array([{}], dtype=object))
    save("good.npz", **sample(2))
    whole = (folder / "good.npz").read_bytes()
    (folder / "short.npz").write_bytes(whole[: len(whole) // 2])
    assert main(["optimize", "m.onnx", *arguments]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {expected}")
    assert errors.count("\n") == 1
    assert not (folder / "m.opt.onnx").exists()
