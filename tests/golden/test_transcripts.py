"""Transcripts of every command: what is printed for good and bad input, at 80 and 120 columns.

A file is a session of a shell: a line `$ eqsat-opt …` runs a command, and the lines below are what
it prints, those of standard error behind `! `, and its exit code where that is not 0. Output is
piped and 80 columns wide; `COLUMNS=120` and `PYTHONIOENCODING=ascii` before a command change that.
Commands of a file share a folder with the files of :func:`_prepare`. What differs between
machines and versions stands as <time>, <size> and the like, and the columns of such an output are
not aligned. `pytest --write-transcripts` writes the files again: read them as a user would.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.core import TyperGroup
from typer.main import get_command

import eqsat_opt
from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.cli.app import application
from eqsat_opt.lab.experiments import whole, worker
from eqsat_opt.racing.race_result import RaceEntry, RaceResult

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))

MODELS = {
    "chain.onnx": """<ir_version: 9, opset_import: ["" : 17]>
chain (float[4,32] x, float[32,32] a, float[32,1] b) => (float[4,1] y) {
  h = MatMul(x, a)
  y = MatMul(h, b)
}""",
    "turned.onnx": """<ir_version: 9, opset_import: ["" : 17]>
turned (float[4,32] x, float[32,32] a, float[32,1] b) => (float[4,1] y) {
  h = MatMul(a, b)
  y = MatMul(x, h)
}""",
    "wrong.onnx": """<ir_version: 9, opset_import: ["" : 17]>
wrong (float[4,32] x, float[32,32] a, float[32,1] b) => (float[4,1] y) {
  h = MatMul(a, b)
  z = MatMul(x, h)
  y = Neg(z)
}""",
    "open.onnx": """<ir_version: 9, opset_import: ["" : 17]>
open (float[N,8] x) => (float[N,8] y) {
  h = Relu(x)
  y = Relu(h)
}""",
}

RULES = '''
from eqsat_opt.rules import Numerics, Sides, Tensor, ops, rule


@rule("mine/relu-twice", numerics=Numerics.BITEXACT)
def relu_twice(x: Tensor) -> Sides:
    """relu(relu(x)) = relu(x)."""
    return ops.Relu(ops.Relu(x)), ops.Relu(x), x.rank == {rank}
'''
WRONG_RULES = RULES.replace("ops.Relu(ops.Relu(x)), ops.Relu(x)", "ops.Relu(x), x")

EGRAPH = {
    "nodes": {
        "top.0": {"op": "f", "children": ["left.0"], "eclass": "top", "cost": 1},
        "left.0": {"op": "a", "children": ["one.0"], "eclass": "left", "cost": 1},
        "left.1": {"op": "b", "children": [], "eclass": "left", "cost": 3},
        "one.0": {"op": "d", "children": [], "eclass": "one", "cost": 1},
    },
    "root_eclasses": ["top"],
}

_DIFFERING = (
    (re.compile(rf"\b{re.escape(eqsat_opt.__version__)}\b"), "<version>"),
    (re.compile(r"\b(onnxruntime|numpy) \d[\w.]*"), r"\1 <version>"),
    (re.compile(r"(?<![\w.-])\d[\d.,]*(e[+-]?\d+)? ?(ns|[µu]s|ms|s)(?![\w/])"), "<time>"),
    (re.compile(r"^seconds  .*(\n   .*)*", re.MULTILINE), "seconds  <time>"),
    (re.compile(r"\b\d\.\d+(?= +bound\b)"), "<time>"),
    (re.compile(r"(?<![\w.])(\d[\d.]*e-\d+|\d\.\d\de\+\d\d)"), "<error>"),
    (re.compile(r"\d\.\d(?= +all sizes)"), "<time>"),
    (re.compile(r"^cpu +here .*", re.MULTILINE), "cpu  here  <processor>"),
    (re.compile(r"(?<=peak memory).*"), "  <size>"),
    (re.compile(r"(?<=profile.sqlite3 \().*(?=\))"), "<size>"),
    (re.compile(r"\b\d+(?= rules,)"), "<number>"),
    (re.compile(r"(?<=left sides compared).*"), "  <number>"),
    (re.compile(r"(?<=families )\s*elementwise \(.*?equations \(\d+\)", re.DOTALL), " <families>"),
    (re.compile(r"elementwise, matmul, .*?equations\b"), "<families>"),
    (re.compile(r"(?<=choose from )Abs, .*, Xor"), "<operators>"),
)
"""What differs between machines, versions and runs, and grows with the rulebook."""


def _prepare(folder: Path) -> None:
    for name, text in MODELS.items():
        onnx.save(onnx.parser.parse_model(text), folder / name)
    (folder / "broken.onnx").write_bytes(b"\xf3\x01\x02 no model")
    (folder / "rules.py").write_text(RULES.format(rank=2))
    (folder / "rank3.py").write_text(RULES.format(rank=3))
    (folder / "wrong.py").write_text(WRONG_RULES.format(rank=2))
    (folder / "syntax.py").write_text("def half(:\n")
    (folder / "egraph.json").write_text(json.dumps(EGRAPH))
    (folder / "broken.json").write_text('{"nodes": ')
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 32), "a": (32, 32), "b": (32, 1)}
    arrays: dict[str, Any] = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    np.savez(folder / "inputs.npz", **arrays)


def _raced(entrants: Any, original: str, *_: Any, **__: Any) -> RaceResult:
    """A race that the first entrant besides the original wins: nobody's time is in a transcript."""
    entry = RaceEntry(original, 20.0, 20.4, 0.01, 1.0, (20.0, 20.2) * 3, 90)
    others = {
        name: replace(
            entry, name=name, time_us=10.0, median_us=10.2, ratio=0.5, session_us=(10.0,) * 3,
            ahead=3, wins=True,
        )
        for name in entrants
        if name != original
    }  # fmt: skip
    return RaceResult(
        winner=next(iter(others)), original=original, entries={original: entry, **others},
        noise=0.01, tie=0.03, threshold=0.03, needed=3, clock="cpu", builds=3, rounds=90,
        seconds=1.5,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with models, rules, an e-graph and inputs, and an empty store."""
    _prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_OPT_CACHE", "store")
    monkeypatch.setattr(api, "race", _raced)
    monkeypatch.setattr(whole, "run_apart", worker.run_here)
    return tmp_path


def _transcript(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a transcript after running its commands; what stands above the first remains."""
    head, *rest = re.split(r"^(?=\$ )", text, flags=re.MULTILINE)
    yield head
    for command in rest:
        line = command.splitlines()[0]
        yield f"{line}\n"
        yield from _run(shlex.split(line[2:]), folder, monkeypatch)


def _run(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield what a command prints, and its exit code where that is not 0."""
    settings = {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    assert words.pop(0) == "eqsat-opt"
    encoding = settings["PYTHONIOENCODING"]
    pipes = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(pipe, encoding, write_through=True) for pipe in pipes]
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", settings["COLUMNS"])
        patch.setattr("sys.stdout", streams[0])
        patch.setattr("sys.stderr", streams[1])
        code = main(words)
    for pipe, mark in zip(pipes, ("", "! "), strict=True):
        text = pipe.getvalue().decode(encoding)
        assert "?s" not in text, "characters that the encoding lacks are spelt"
        text = _normalised(text, folder)
        yield re.sub(r"^(?=.)", mark, text, flags=re.MULTILINE)
    if code:
        yield f"[exit {code}]\n"


def _normalised(text: str, folder: Path) -> str:
    package = str(Path(eqsat_opt.__file__).parent)
    text = text.replace(str(folder), ".").replace(package, "<package>")
    text = before = re.sub(r" +$", "", text, flags=re.MULTILINE)
    for pattern, word in _DIFFERING:
        text = pattern.sub(word, text)
    return text if text == before else re.sub(r"(?<=\S) {2,}(?=\S)", "  ", text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    text = path.read_text(encoding="utf-8")
    made = "".join(_transcript(text, folder, monkeypatch))
    if pytestconfig.getoption("--write-transcripts"):
        path.write_text(made, encoding="utf-8")
    else:
        assert made == text


def test_every_command_has_a_transcript() -> None:
    """And every group of commands; what `eqsat-opt GROUP` alone shows is typer's."""
    sessions = "".join(path.read_text(encoding="utf-8") for path in FILES)
    root = get_command(application())
    assert isinstance(root, TyperGroup)
    for name, command in root.commands.items():
        parts = command.commands if isinstance(command, TyperGroup) else ("",)
        for part in parts:
            assert f"eqsat-opt {name} {part}".rstrip() in sessions
