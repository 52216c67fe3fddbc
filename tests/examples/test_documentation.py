"""The blocks of the README and of docs/: programs run, commands are ones that there are."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from typer.main import get_command

import eqsat_opt
from eqsat_opt.cli import main
from eqsat_opt.cli.app import application
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline import options
from eqsat_opt.runtime.plan.files import write_plan

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        page: name of the page.
        line: number of its first line.
        kind: its language; empty for none.
        text: its contents.
    """

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            line = text[: found.start()].count("\n") + 2
            yield Block(path.name, line, found[1], found[2])


BLOCKS = tuple(blocks())


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    some = [one for one in BLOCKS if one.kind in kinds]
    return pytest.mark.parametrize("block", some, ids=str)


def test_every_kind_of_block_is_tested() -> None:
    assert {one.kind for one in BLOCKS} == {"", "json", "python", "sh", "text", "toml", "yaml"}


# ** commands **


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a shell block; a line that ends with a backslash goes on."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield words[:end]
            words = words[end + 1 :]


@pytest.fixture(scope="module")
def command_line() -> Any:
    """The whole command line."""
    return get_command(application())


def parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Parse a command down to its arguments, without running it."""
    context = command.make_context(words[0], words[1:], parent=parent)
    if hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            return
        name, inner, rest = command.resolve_command(context, rest)
        parse(inner, [name, *rest], context)


@of_kind("sh")
def test_commands_are_ones_that_there_are(block: Block, command_line: Any) -> None:
    for words in commands(block.text):
        while "=" in words[0]:
            del words[0]
        if words[0] == "eqsat-opt":
            parse(command_line, words)
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), words
        else:
            assert words[0] in ("pip", "pytest", "mkdir", "cp", "strip"), words


@of_kind("")
def test_transcripts_are_those_of_today(
    block: Block, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, shown = block.text.partition("\n")
    if not first.startswith("$ eqsat-opt "):
        pytest.skip("a picture")
    monkeypatch.setenv("COLUMNS", "160")
    assert main(shlex.split(first)[2:]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()


# ** data **


@of_kind("json", "toml")
def test_data_can_be_read(block: Block) -> None:
    read: Callable[[str], Any] = {"json": json.loads, "toml": tomllib.loads}[block.kind]
    assert read(block.text)


# ** programs **

EGRAPH = {
    "nodes": {
        "a": {"op": "x", "children": [], "eclass": "0", "cost": 1.0},
        "b": {"op": "f", "children": ["a"], "eclass": "1", "cost": 2.0},
    },
    "root_eclasses": ["1"],
}

RULES = """
from eqsat_opt.rules import Tensor, is_float, ops, rule

@rule("mine/relu-of-abs")
def relu_of_abs(x: Tensor):
    return ops.Relu(ops.Abs(x)), ops.Abs(x), is_float(x)
"""


MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Neg (x) b = Neg (a) c = Mul (b, w) y = Relu (c) }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that programs read, in which a search is a short one."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.onnx", "model.opt.onnx"):
        onnx.save(onnx.parser.parse_model(MODEL), name)
    write_plan("model.plan.json", eqsat_opt.plan_model("model.onnx", shapes={"N": 8}))
    onnx.save(zoo.build("sru_step", scale="tiny"), "sru.onnx")
    (tmp_path / "egraph.json").write_text(json.dumps(EGRAPH), encoding="utf-8")
    (tmp_path / "my_rules.py").write_text(RULES, encoding="utf-8")
    short = {
        name: replace(one, budget_s=20.0, measure=False, race=False, check=1)
        for name, one in options._EFFORTS.items()
    }
    monkeypatch.setattr(options, "_EFFORTS", short)
    return tmp_path


@of_kind("python")
def test_programs_run(block: Block, place: Path) -> None:
    compile(block.text, str(block), "exec")
    if "import torch" in block.text:  # the tests' environment has none
        pytest.importorskip("torch")
    if "libraries" in block.text:
        pytest.skip("a program for libraries of operators")
    model = onnx.parser.parse_model(MODEL)
    names: dict[str, Any] = {
        "__name__": "example",
        "eqsat_opt": eqsat_opt,
        "model": onnx_ir.from_proto(model),
        "model_proto": model,
        "x": np.zeros([8, 4], np.float32),
    }
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)
    del place


# ** notebooks **

NOTEBOOKS = tuple(sorted((ROOT / "docs" / "notebooks").glob("*.py")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for number, cell in enumerate(cells):
        kind, _, text = cell.partition("\n")
        if kind.strip() == "[markdown]":
            assert all(line.startswith("#") or not line for line in text.splitlines())
            continue
        _run_cell(text, f"{path.name}, cell {number}", names)
    assert "Traceback" not in "".join(capsys.readouterr())


def _run_cell(text: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell, and show the value of its last expression, as a notebook does."""
    module = ast.parse(text, name)
    last = module.body.pop() if isinstance(module.body[-1], ast.Expr) else None
    exec(compile(module, name, "exec", dont_inherit=True), names)
    if last is None:
        return
    assert isinstance(last, ast.Expr)
    value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), names)
    if hasattr(value, "_repr_html_"):
        assert value._repr_html_()
    assert repr(value)
