"""Rulebooks of users: what counts as a rule, which mistakes are named, and how they are chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

import eqsat_opt.rules
from eqsat_opt.errors import RuleError
from eqsat_opt.proving import selection as selection_module
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules import Numerics, Rule, Sides, Tensor, ops, rule, term
from eqsat_opt.rules import rulebooks as rulebooks_module
from eqsat_opt.rules.rulebooks import read_rulebook

HEAD = "from eqsat_opt.rules import *\n\n"
RIGHT = """@rule("mine/abs")
def absolute(x: Tensor):
    "Twice is once."
    return ops.Abs(ops.Abs(x)), ops.Abs(x)
"""
MANY = """
RULES = []
for name in ("Relu", "Abs"):
    @rule(f"mine/{name.lower()}")
    def law(x: Tensor):
        return getattr(ops, name)(getattr(ops, name)(x)), getattr(ops, name)(x)
    RULES.append(law)

@rule("mine/lost")
def law(x: Tensor, y: Tensor):
    return x - y, y - x

law = declared("mine/ceil", "Once.", {"x": "Tensor"}, lambda v: (
    ops.Ceil(ops.Ceil(v["x"])), ops.Ceil(v["x"])
))
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def book(tmp_path: Path) -> Callable[[str], Path]:
    """A rulebook of the given text."""

    def written(text: str, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.write_text(HEAD + text)
        return path

    return written


def names(rules: list[Rule]) -> list[str]:
    return [one.name for one in rules]


def test_one_import_is_enough_for_a_rulebook() -> None:
    inner = {"MAP", "Apply", "AttrPattern", "Function", "Size", "directed", "made_in"}
    inner |= {"applied", "offset", "opposite", "parts", "shown"}  # for readers of rules
    needed = {*import_module("eqsat_opt.rules.rule").__all__, *term.__all__} - inner
    assert needed <= set(eqsat_opt.rules.__all__)


# Files -------------------------------------------------------------------------------------------


def test_every_rule_that_a_file_makes_counts(
    book: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a list nor a second definition of one Python name hides a rule from the gate."""
    other = RIGHT.replace("mine/abs", "other/abs")
    book(other + other.replace("/abs", "/named").replace("absolute", "named"), "others.py")
    monkeypatch.syspath_prepend(tmp_path)
    found = read_rulebook(book(f"import others\nfrom others import named\n{MANY}"))
    sys.modules.pop("others")
    made = ["mine/relu", "mine/abs", "mine/lost", "mine/ceil"]
    assert names(found) == [*made, "other/named"]


def test_a_file_may_be_what_any_module_may(
    book: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(sys.modules)
    path = book(
        RIGHT + "from dataclasses import dataclass, field\n@dataclass\nclass A:\n  b: int\n"
    )
    path.write_text("from __future__ import annotations\n" + path.read_text() + "print('loaded')")
    assert names(read_rulebook(path)) == ["mine/abs"]
    assert capsys.readouterr() == ("", "loaded\n")  # standard output is for JSON
    with pytest.raises(RuleError):
        read_rulebook(book("1 / 0"))
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "/abs",
            "/abs-reversed",
            "line 3: rule name 'mine/abs-reversed' ends in -reversed, .* ren",
        ),
        ('("mine/abs")', "", r"line 3: @rule takes a name; write @rule\("),
        (
            'abs")',
            'abs", numerics="relaxed")',
            "line 3: .*'relaxed' is not one of Numerics.BITEXACT",
        ),
        ('abs")', 'abs", phase="explode")', "line 3: .*'explode' is not one of Phase.RECOGNISE"),
        (
            "ops.Abs(x)\n",
            "ops.Abs(x), True\n",
            "line 3: mine/abs: True is not a condition, such as",
        ),
        ("ops.Abs(x)\n", "1\n", "line 3: mine/abs: 1 is not a term; return tensors and"),
        ("ops.Abs(x)\n", "x * 0.5\n", r"line 6: 0.5 is no operand .* ops.Scalar\(value=0.5"),
        ("ops.Abs(x)\n", "1 - x\n", r"line 6: 1 is no operand of a rule; a number beside"),
        ("ops.Abs(x)\n", "ops.Relu('x')\n", "line 6: 'x' is no operand of a rule; give tensors"),
        ("ops.Abs(x)\n", "-x\n", "cannot be loaded: line 6: TypeError: bad .*; correct it, or see"),
        ("ops.Abs(x)\n", "1 / 0\n", "cannot be loaded: line 6: ZeroDivisionError"),
        ("@rule", "raise SystemExit(3)\n@rule", "cannot be loaded: line 3: SystemExit: 3; correct"),
        ("@rule", "import nothing_so_called\n@rule", "loaded: line 3: ModuleNotFoundError"),
        ("mine/abs", "matmul/assoc", "'matmul/assoc' is in the book already; rename yours"),
        (RIGHT, RIGHT + RIGHT, "defines rule 'mine/abs' twice; rename one"),
    ],
)
def test_mistakes_in_a_file(old: str, new: str, message: str, book: Callable[[str], Path]) -> None:
    path = book(RIGHT.replace(old, new))
    with pytest.raises(RuleError, match=rf"mine\.py.*{message}") as caught:
        load_rules([str(path)], Numerics.RELAXED)
    assert "\n" not in str(caught.value)


# Installed rulebooks -----------------------------------------------------------------------------


def _wrong(x: Tensor) -> Sides:
    return ops.Relu(x), ops.Abs(x)


def _twice(x: Tensor) -> Sides:
    return ops.Abs(ops.Abs(x)), ops.Abs(x)


def _exit() -> NoReturn:
    raise SystemExit(3)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: dict[str, Callable[[], object]] = {
        "good": lambda: (rule("mine/abs")(_twice),),
        "bad": lambda: [rule("mine/relu")(_wrong)],
        "malformed": lambda: [rule("Mine")(_wrong)],
        "twins": lambda: [rule("mine/abs")(_twice), rule("mine/abs")(_wrong)],
        "number": lambda: 3,
        "exits": _exit,
        "none": lambda: [rule("mine/abs")(_twice)],
        "conv": lambda: [rule("mine/abs")(_twice)],
    }
    points = [SimpleNamespace(name=name, load=load) for name, load in loads.items()]
    monkeypatch.setattr(
        rulebooks_module,
        "entry_points",
        lambda group, name=None: [p for p in points if name in (None, p.name)],
    )
    anew = selection_module._refuse_installed.__wrapped__
    monkeypatch.setattr(selection_module, "_refuse_installed", anew)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("bad", "bad: rule mine/relu is wrong"),
        ("malformed", "rulebook 'malformed': rule name 'Mine'"),
        ("twins", "rulebook 'twins' defines rule 'mine/abs' twice"),
        ("number", "rulebook 'number' holds no rules; it must name a module of rules or a list"),
        ("exits", "rulebook 'exits' cannot be loaded: SystemExit: 3"),
        ("conv", "an installed rulebook is called 'conv', which is taken; uninstall it"),
        ("none", "an installed rulebook is called 'none', which is taken"),
        ("goood", r"did you mean good\? give .* an installed rulebook \(bad, conv, exits, good"),
    ],
)
def test_mistakes_in_an_installed_rulebook(selection: str, message: str, installed: None) -> None:
    with pytest.raises(RuleError, match=message):
        load_rules(selection, Numerics.RELAXED)


def test_an_installed_rulebook_can_be_left_out(installed: None) -> None:
    assert names(load_rules("good", Numerics.RELAXED)) == ["mine/abs"]
    assert load_rules("good,-good", Numerics.RELAXED) == []


# Selection ---------------------------------------------------------------------------------------


def test_spellings_of_a_file(
    book: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book(RIGHT)
    book(RIGHT, "MINE.PY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for selection in ("mine.py,./mine.py", "~/mine.py", "MINE.PY", "mine.py,-pool,MINE.PY,"):
        assert names(load_rules(selection, Numerics.RELAXED)) == ["mine/abs"]
    assert load_rules("mine.py,-~/MINE.PY", Numerics.RELAXED) == []
    book(RIGHT.replace("ops.Abs", "ops.Relu"), "relu.py")
    with pytest.raises(RuleError, match="'mine/abs' is defined twice; rename one"):
        load_rules("mine.py,relu.py", Numerics.RELAXED)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("", "--rules is empty; give none for no rules"),
        (" ,", "--rules is empty; give none for no rules"),
        (
            "graph_subst.pb",
            "graph_subst.pb is not a rulebook; eqsat-opt rules import graph_subst.pb shows",
        ),
        ("layer-norm", "no rule or family 'layer-norm'; did you mean layernorm"),
        ("-matmul/assoc-reversed", "did you mean matmul/assoc"),
        ("recurrence", "give default, none, a rule, a FILE.py or a family: elementwise, matmul"),
    ],
)
def test_mistakes_in_a_selection(selection: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        load_rules(selection, Numerics.RELAXED)
