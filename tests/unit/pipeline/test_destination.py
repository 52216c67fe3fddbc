"""Where a result goes: standard output, over the model itself, and nowhere to its loss."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.pipeline.options import Options

QUICK = ("--no-measure", "--no-race", "--check", "0", "--threads", "1")
OPTIONS = Options(measure=False, race=False, check=0, store="", threads=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model in one file and the same with external data."""
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save_model(model, work / "m.onnx")
    onnx.save_model(
        model, work / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=0
    )
    monkeypatch.chdir(work)
    return work


def operators(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_model_from_string(data).graph.node]


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_standard_output_takes_the_model_alone(
    quiet: list[str], folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    before = os.listdir(folder)
    assert main(["optimize", "m.onnx", "-o", "-", *QUICK, *quiet]) == 0
    captured = capfdbinary.readouterr()
    assert operators(captured.out) == ["Relu", "MatMul"]
    assert (b"written   standard output" in captured.err) is not bool(quiet)
    assert os.listdir(folder) == before


def test_a_stream_takes_the_model(folder: Path) -> None:
    stream = io.BytesIO()
    assert api.run("m.onnx", OPTIONS, output=stream).model is stream
    assert operators(stream.getvalue()) == ["Relu", "MatMul"]
    with pytest.raises(ModelError, match="a stream cannot hold"):
        api.run("e.onnx", OPTIONS, output=io.BytesIO())


@pytest.mark.parametrize("stream", [io.StringIO(), 3, ["o.onnx"]], ids=["text", "number", "list"])
def test_what_takes_no_bytes_is_refused_at_once(stream: Any, folder: Path) -> None:
    with pytest.raises(OptionError, match="give a path, or a binary stream"):
        api.run("m.onnx", OPTIONS, output=stream)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["m.onnx", "-o", "-", "--json", "-"], "both mean standard output"),
        (["e.onnx", "-o", "-"], "a stream cannot hold"),
        (["m.onnx", "-o", ""], "is empty"),
        (["m.onnx", "-o", "m.onnx"], "--overwrite"),
        (["m.onnx", "-o", "./m.onnx"], "--overwrite"),
        (["m.onnx", "-o", "link"], "--overwrite"),
        (["m.onnx", "-o", "hard"], "--overwrite"),
        (["link", "-o", "m.onnx"], "--overwrite"),
        (["e.onnx", "-o", "e.bin"], "holds data of the model"),
        (["e.onnx", "-o", "e.bin", "--overwrite"], "holds data of the model"),
        (["m.onnx", "-o", "o.onnx", "--json", "o.onnx"], "a file of the model"),
        (["m.onnx", "--json", "m.onnx"], "a file of the model"),
        (["m.onnx", "--json", "link"], "a file of the model"),
        (["m.onnx", "--json", "m.opt.onnx"], "a file of the model"),
        (["e.onnx", "--json", "e.bin"], "a file of the model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_is_lost_by_a_name(
    arguments: list[str], why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to("m.onnx")
    os.link("m.onnx", "hard")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["optimize", *arguments, *QUICK]) == 1
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_terminal_is_no_place_for_a_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["optimize", "m.onnx", "-o", "-", *QUICK]) == 1
    assert "to the terminal" in capsys.readouterr().err


def test_the_model_may_be_replaced_if_that_is_allowed(folder: Path) -> None:
    (folder / "link").symlink_to("m.onnx")
    assert main(["optimize", "m.onnx", "-o", "link", "--overwrite", *QUICK, "-q"]) == 0
    assert (folder / "link").is_symlink()
    assert operators((folder / "m.onnx").read_bytes()) == ["Relu", "MatMul"]
    with pytest.raises(OptionError, match="overwrite=True"):
        api.optimize("m.onnx", output="m.onnx", measure=False, race=False, check=0, store="")


def test_a_model_that_replaces_itself_tells_of_its_old_data(folder: Path) -> None:
    options = Options(measure=False, race=False, check=0, store="", threads=1, overwrite=True)
    report = api.run("e.onnx", options, output="e.onnx").report
    assert [note for note in report.notes if note.startswith("e.bin beside it is no longer read")]
    assert (folder / "e.bin").exists()


# Reports --------------------------------------------------------------------------------------

RULE = '''
from eqsat_opt.rules import Sides, Tensor, ops, rule


@rule("mine/relu-twice")
def relu_twice(x: Tensor) -> Sides:
    """A second one changes nothing."""
    return ops.Relu(ops.Relu(x)), ops.Relu(x)
'''
EGRAPH = """
{"nodes": {"a": {"op": "a", "children": [], "eclass": "a", "cost": 1}}, "root_eclasses": ["a"]}
"""


@pytest.mark.parametrize(
    "command",
    [
        "optimize m.onnx -o o.onnx --json m.onnx", "optimize e.onnx -o o.onnx --json e.bin",
        "explain m.onnx --no-measure --json m.onnx", "explain e.onnx --no-measure --json e.bin",
        "explain m.onnx --no-measure --stage eclasses --json ./m.onnx",
        "bench m.onnx e.onnx --json m.onnx", "bench m.onnx e.onnx --json e.bin",
        "compare m.onnx --json m.onnx",
        "extract g.json --json g.json", "extract . --json g.json", "extract g.json --plot g.json",
        "rules import r.py --json r.py", "rules import r.py --json r.certificates.json",
    ],
)  # fmt: skip
def test_no_report_replaces_what_is_read(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "r.py").write_text(RULE)
    (folder / "r.certificates.json").write_text("{}")
    (folder / "g.json").write_text(EGRAPH)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(command.split()) == 1
    assert "give another name" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
