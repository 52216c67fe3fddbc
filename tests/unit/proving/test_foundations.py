"""Which edit makes which certificates stale: exactly those that rest on what it changes."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat_opt.proving
from eqsat_opt.ir.ops import OPS, domains
from eqsat_opt.ir.ops._base import OnnxForm, per_element
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.ops.index import signatures
from eqsat_opt.ir.ops.index.integers import AllOf, AnyOf
from eqsat_opt.ir.ops.index.polynomials import Poly
from eqsat_opt.ir.ops.pointwise import _applied
from eqsat_opt.ir.values.dims import floor_div, sym
from eqsat_opt.proving.certificates import foundations as module
from eqsat_opt.proving.certificates import meaning
from eqsat_opt.proving.certificates.certificate import why_invalid
from eqsat_opt.proving.certificates.foundations import (
    JUDGES,
    Foundations,
    computed,
    foundations,
    sources,
)
from eqsat_opt.proving.certificates.meaning import Meaning
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.proving.certificates.syntax import Syntax, _parts
from eqsat_opt.proving.checks.exact import check_rule
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.selection import standings
from eqsat_opt.rules import Numerics, Rule, families
from eqsat_opt.rules.rule import Phase
from eqsat_opt.rules.term import applied
from tests.sampling import sampled

PACKAGE = Path(eqsat_opt.__file__).parent
BOOK = {one.name: one for rules in families().values() for one in rules}
OPS_MODULES = "eqsat_opt.ir.ops."
VERIFY = "eqsat_opt.proving."
MANIFEST = PACKAGE / "rules" / "books" / "sources.json"
OTHERS = {"admission", "certificates", "describe", "evidence", "rule_sets", "selection", "taso"}
"""What asks for verdicts, keeps and shows them, and makes none."""


@cache
def syntax() -> Syntax:
    """The sources as they are; what was parsed and written once is shared by all tests."""
    return Syntax(sources())


@cache
def as_it_is() -> Foundations:
    return computed(syntax())


@pytest.fixture(autouse=True)
def unchanged() -> Foundations:
    """What there is before any edit of a test."""
    standings()
    return as_it_is()


def edited(name: str, old: str, new: str) -> Syntax:
    """The sources as if a text were another, wherever it stands in a module."""
    now = syntax()
    text = now.sources[name].decode()
    assert old in text, old
    assert old.count("\n") == new.count("\n")  # functions are found by their lines
    trees = {one: tree for one, tree in now.trees.items() if one != name}
    found = {**now.sources, name: text.replace(old, new).encode()}
    return Syntax(found, trees, now.spellings)


def verifier(now: Syntax) -> str:
    return module._digest(module._verifier(now)[0])


def stale(now: Foundations) -> set[str]:
    """The operators whose records are others."""
    return {name for name, mark in as_it_is().operators.items() if now.operators[name] != mark}


# The verifier ------------------------------------------------------------------------------------


def judges() -> list[str]:
    found = pkgutil.walk_packages(eqsat_opt.proving.__path__, VERIFY)
    names = (one.name for one in found if not one.ispkg)
    return [name for name in names if name.split(".")[2] in JUDGES]


def test_every_module_of_the_verifier_counts() -> None:
    """None is forgotten: it judges, or it only keeps and shows what others found."""
    names = {one.name for one in pkgutil.iter_modules(eqsat_opt.proving.__path__)}
    assert names == {*JUDGES, *OTHERS}
    assert len(judges()) > 60


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a tree that are no annotations."""
    yield node
    for _, parts in _parts(node):
        for part in parts:
            if isinstance(part, ast.AST):
                yield from at_run_time(part)


def flips(tree: ast.AST) -> Iterator[Callable[[], None]]:
    """What turns a comparison, a sum or a number into another one."""
    for node in at_run_time(tree):
        match node:
            case ast.Compare(ops=[first, *_]):
                relation = ast.NotEq() if isinstance(first, ast.Eq) else ast.Eq()
                yield partial(node.ops.__setitem__, 0, relation)
            case ast.BinOp():
                operation = ast.Add() if isinstance(node.op, ast.Sub) else ast.Sub()
                yield partial(setattr, node, "op", operation)
            case ast.Constant(value=bool() | int() as value):
                yield partial(setattr, node, "value", value + 2)


@pytest.mark.parametrize("name", sampled(judges(), 4))
def test_an_edit_of_the_verifier(name: str) -> None:
    now = syntax()
    tree = copy.deepcopy(now.tree(name))
    assert isinstance(tree, ast.Module)
    # Some modules hold names only.
    possible = [*flips(tree)] or [lambda: tree.body.extend(ast.parse("changed = True").body)]
    random.Random(name).choice(possible)()
    assert verifier(Syntax(now.sources, {**now.trees, name: tree}, now.spellings)) != (
        as_it_is().verifier
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        ("eqsat_opt.rules.bindings", "left <= right", "left < right", True),
        ("eqsat_opt.rules.rule", "lhs=self.rhs", "lhs=self.lhs", True),
        ("eqsat_opt.ir.values.dims", "//", "%", True),
        (f"{OPS_MODULES}domains", "a + b) % self.prime", "a - b) % self.prime", True),
        (f"{OPS_MODULES}domains", "keepdims=True", "keepdims=False", True),
        (f"{OPS_MODULES}index.integers", "numerator.constant", "denominator.constant", True),
        ("eqsat_opt.rules.matcher", "len(roots) > 1", "len(roots) > 2", False),
        (f"{VERIFY}selection", "is left out", "is not used", False),
        (f"{VERIFY}certificates.certificate", "FORMAT = 2", "FORMAT = 3", False),
    ],
)
def test_what_the_verifier_rests_on(name: str, old: str, new: str, counts: bool) -> None:
    assert (verifier(edited(name, old, new)) != as_it_is().verifier) == counts


def test_sources_are_all_that_can_change_a_value() -> None:
    """A module of which something counts imports only modules whose edits are seen."""
    modules = {*syntax().sources, "eqsat_opt", "eqsat_opt.errors"}
    todo = list(syntax().trees)
    assert len(todo) > 100
    for name in todo:
        for node in ast.parse(syntax().sources[name]).body:
            source = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if source.startswith("eqsat_opt"):
                assert source in modules, name
                todo += {source} & syntax().sources.keys() - set(todo)


def judged_by(monkeypatch: pytest.MonkeyPatch, other: Foundations | None) -> None:
    monkeypatch.setattr("eqsat_opt.proving.certificates.semantics.foundations", lambda: other)


def test_a_certificate_of_another_verifier_or_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = BOOK["matmul/assoc"], BOOK["matmul/block-sum"]
    certificate = standings()[one.name].certificate
    assert certificate is not None
    assert why_invalid(one, certificate) == ""
    assert "stale" in why_invalid(other, replace(certificate, rule=other.name).sealed())
    marks = {level: fingerprint(one, level) for level in (0, 1, 2, 3)}
    assert marks[0] == marks[1] != marks[2] == marks[3]
    assert "stale" in why_invalid(one, replace(certificate, level=1).sealed())
    judged_by(monkeypatch, replace(as_it_is(), verifier="another"))
    assert "stale" in why_invalid(one, certificate)
    assert {fingerprint(one, 1), fingerprint(one, 2)}.isdisjoint(marks.values())


@pytest.mark.parametrize("name", ["Conv", "Softmax", "Transpose"])
def test_rules_rest_on_their_own_operators(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_by(monkeypatch, replace(as_it_is(), operators={**as_it_is().operators, name: "another"}))
    changed = {one for one, rule in BOOK.items() if why_invalid(rule, standings()[one].certificate)}
    assert changed == {one for one, rule in BOOK.items() if name in operators_of(rule)}


def operators_of(rule: Rule) -> set[str]:
    return {term.op for term in applied((*rule.lhs, *rule.rhs))}


# Operators ---------------------------------------------------------------------------------------


@cache
def tables() -> tuple[object, ...]:
    return module._verifier(syntax())[1]


def test_tables_are_found_by_value() -> None:
    assert {id(one) for one in tables()} == {
        id(one) for one in (OPS, FUNCTIONS, domains._BINARY, domains._TRUTHS)
    }


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        # the functions of a record: types, evaluation, exact numbers, index function
        ("linear", "inner sizes differ", "inner extents differ", {"MatMul"}),
        ("pointwise", "lambda d, x, _a: d.sub(*x)", "lambda d, x, _a: d.add(*x)", {"Sub"}),
        ("functions", "x / (1 + np.abs(x))", "x / (2 + np.abs(x))", {"Softsign"}),
        ("functions", "lambda x, _a: abs(x)", "lambda x, _a: -abs(x)", {"Abs"}),
        ("pointwise", "Plus((x[0], Times((MINUS_ONE", "Times((x[0], Times((MINUS_ONE", {"Sub"}),
        ("index.movement", "position - pads[i]", "position + pads[i]", {"Pad"}),
        # helpers of these, and operators that name them
        ("linear", '== w.shape[1] * attrs["group"]', '>= w.shape[1] * attrs["group"]', {"Conv"}),
        ("functions", "small = np.exp(-np", "small = np.exp(np",
         {"Gelu", "Sigmoid", "Swish", "GRU", "LSTM", "RNN"}),
        ("index.linear", "share = quotient(outputs, group)", "share = group",
         {"Conv", "ConvTranspose"}),
    ],
)  # fmt: skip
def test_an_edit_of_an_operator(name: str, old: str, new: str, expected: set[str]) -> None:
    now = computed(edited(OPS_MODULES + name, old, new))
    assert stale(now) == expected
    assert now.verifier == as_it_is().verifier


def functions_in(value: object) -> Iterator[FunctionType]:
    """Functions that a value holds, or that they enclose."""
    match value:
        case FunctionType():
            yield value
            yield from functions_in([cell.cell_contents for cell in value.__closure__ or ()])
        case partial():
            yield from functions_in([value.func, *value.args])
        case list() | tuple():
            for one in value:
                yield from functions_in(one)


@pytest.mark.parametrize("name", sampled(sorted(OPS), 3))
def test_every_function_of_an_operator_counts(name: str) -> None:
    op, now, before = OPS[name], syntax(), module._record(name, tables(), syntax())
    held: list[object] = [op.type_fn, op.eval_fn, op.index_fn, op.exact]
    if name in FUNCTIONS:
        held.append(FUNCTIONS[name].evaluate)
    held += [table[name] for table in (domains._BINARY, domains._TRUTHS) if name in table]
    found = [one for one in functions_in(held) if one.__module__.startswith("eqsat_opt.")]
    assert len(found) >= 2 + (op.index_fn is not None)
    for function in found:
        (node,) = now.functions(function.__code__, function.__module__)
        changed = {**now.spellings, node: now.spellings[node]._replace(text="changed")}
        after = module._record(name, tables(), Syntax(now.sources, now.trees, changed))
        assert after != before, function


BUILT_ON_EXP = {"Exp", "Softmax", "LogSoftmax", "Attention", "MaskedAttention"}


def test_properties_count(monkeypatch: pytest.MonkeyPatch) -> None:
    real = OPS["Exp"]

    def changed(**facts: Any) -> set[str]:
        monkeypatch.setitem(OPS, "Exp", replace(real, **facts))
        return stale(computed(syntax()))

    assert changed(traits=frozenset({"pole"})) == BUILT_ON_EXP
    assert changed(commutative=True) == BUILT_ON_EXP
    assert changed(flops=per_element(99), onnx=OnnxForm(99), doc="other words") == set()
    monkeypatch.setitem(FUNCTIONS, "Exp", replace(FUNCTIONS["Exp"], flops=99, since=99))
    assert stale(computed(syntax())) == set()


def test_what_a_function_was_made_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators may share the source of a function that holds something else for each."""
    monkeypatch.setitem(OPS, "Sin", replace(OPS["Sin"], eval_fn=OPS["Cos"].eval_fn))
    assert stale(computed(syntax())) == {"Sin"}
    monkeypatch.setitem(OPS, "Sin", replace(OPS["Sin"], index_fn=OPS["Neg"].index_fn))
    assert stale(computed(syntax())) == {"Sin"}


def test_entries_of_tables_count_for_their_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new operator changes nothing for the others; LRN is made of powers."""
    monkeypatch.setitem(OPS, "Cube", replace(OPS["Abs"], name="Cube"))
    monkeypatch.setitem(FUNCTIONS, "Cube", FUNCTIONS["Abs"])
    monkeypatch.setitem(domains._BINARY, "Cube", np.minimum)
    now = computed(syntax())
    assert now.verifier == as_it_is().verifier
    assert stale(now) == set()
    assert now.operators["Cube"] not in as_it_is().operators.values()
    monkeypatch.setitem(domains._BINARY, "Cube", np.maximum)
    assert computed(syntax()).operators["Cube"] != now.operators["Cube"]
    monkeypatch.setitem(domains._BINARY, "Pow", np.maximum)
    assert stale(computed(syntax())) == {"Pow", "LRN"}


# Values ------------------------------------------------------------------------------------------


def text_of(value: object) -> str:
    return Meaning(syntax()).of_values([value])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ((1, 2), (2, 1)), ((1, 2), [1, 2]),
        ({1: 2}, {1: 3}), ({"a"}, {"a": 1}),
        (np.float32(1), np.float64(1)), (np.uint64(1), np.uint64(2)),
        (Fraction(1, 2), Fraction(1, 3)), (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (int | str, int | bytes), (Phase.EXPLORE, Phase.SIMPLIFY),
        (Numerics.RELAXED, Numerics.REFACTOR),
        (per_element(1), per_element(2)), (_applied("Sin"), _applied("Cos")),
        (partial(per_element, 1), partial(per_element, 2)), (partial(max, key=abs), partial(max)),
        (domains.FLOAT.add, domains.FLOAT.sub),
        (domains.FieldDomain(7).add, domains.FieldDomain(11).add),
        (signatures.signatures, signatures.functions_of), (np.add, np.subtract),
        (OPS["Sin"].type_fn, OPS["Neg"].type_fn), (domains.FieldDomain, domains.FloatDomain),
        (signatures, domains),
    ],
)  # fmt: skip
def test_different_values_have_different_texts(one: object, other: object) -> None:
    assert text_of(one) != text_of(other)
    assert text_of([one, one]) != text_of([one, other])
    assert text_of(one) == text_of(one)


def test_the_order_of_sets_and_mappings_says_nothing() -> None:
    assert text_of({"a": 1, "b": 2}) == text_of({"b": 2, "a": 1})
    assert text_of(frozenset({1, 2, 9})) == text_of(frozenset({9, 2, 1}))
    assert "another" in text_of({"Sin": "other", "b": "another"})
    assert "other" not in text_of({"Sin": "other"})


def test_values_from_elsewhere_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only named has no contents that an edit could change, or a state."""
    real, only_named = meaning._foreign, set()

    def foreign(value: object) -> str:
        name = real(value)
        if name and not hasattr(value, "__name__"):
            only_named.add(name)
        return name

    monkeypatch.setattr(meaning, "_foreign", foreign)
    computed(syntax())
    assert only_named <= {"itertools.count", "a name of a type"}


def test_use_changes_no_digest() -> None:
    """Sizes that a process has met, and verdicts that it has made, are no part of the verifier."""
    floor_div(sym("size_of_this_test"), 7)
    check_rule(BOOK["pool/max-in-steps"])
    assert verifier(syntax()) == as_it_is().verifier


def test_without_its_source_a_function_is_always_another() -> None:
    assert text_of(per_element(1)) == text_of(per_element(1))
    bare = Syntax(dict.fromkeys(sources(), b""))
    first, second = per_element(1), per_element(1)
    assert Meaning(bare).of_values([first]) != Meaning(bare).of_values([second])


# Syntax ------------------------------------------------------------------------------------------


def spelled(text: str) -> str:
    made = Syntax({"one": text.encode()})
    return made.spelling(made.tree("one")).text


def test_only_the_meaning_of_a_text_counts() -> None:
    bare = "def f(a, b=1):\n    return f'{a:<{b}}' + 'cd'\n"
    dressed = '''
"""A module."""
from collections.abc import Mapping  # a comment
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import z

__all__ = ["f"]

def f(
    a: Mapping[str, int],
    b: int = 0x1,
) -> str:
    """A function."""
    import z
    return (f"{a:<{b}}" + "c" "d")
'''
    assert spelled(bare) == spelled(dressed)
    for old, new in (("b=1", "b=2"), ("b=1", "b=1.0"), ("'cd'", "'ce'"), ("<", ">"), ("+", "-")):
        assert spelled(bare.replace(old, new)) != spelled(bare)
    assert spelled("x = {'a': '', 'b': 'c'} or ''") != spelled("x = {'a': 'c', 'b': ''}")
    assert spelled("if TYPE_CHECKING:\n a = 1\nelse:\n a = 2") == spelled("a = 2")


def test_versions_of_python_call_a_union_alike() -> None:
    assert text_of(int | str).splitlines()[1].startswith("UnionType tuple ")  # Union in 3.14


def test_versions_of_python_spell_a_tree_alike() -> None:
    """Python 3.12 puts empty constants into formatted strings, and fields into functions."""
    one, other = (Syntax({"one": b"def f(a): return f'{a:<{a}}'"}) for _ in range(2))
    for node in ast.walk(other.tree("one")):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
        if isinstance(node, ast.FunctionDef):
            node.type_params = []  # type: ignore[attr-defined, unused-ignore]
    assert one.spelling(one.tree("one")).text == other.spelling(other.tree("one")).text


LAMBDAS = """
a, b = lambda x: x < 0, lambda x: x > 0; c = lambda x: lambda y: x + y
@decorated
@decorated
def d(): return [lambda x: x, lambda: 3]
"""


def test_lambdas_on_one_line_are_distinguished() -> None:
    space: dict[str, Any] = {"decorated": lambda function: function}
    exec(compile(LAMBDAS, "lambdas", "exec"), space)
    made = Syntax({"one": LAMBDAS.encode()})

    def found(function: FunctionType) -> list[str]:
        return [ast.unparse(one) for one in made.functions(function.__code__, "one")]

    assert found(space["a"]) == ["lambda x: x < 0"]
    assert found(space["b"]) == ["lambda x: x > 0"]
    assert found(space["c"]) == ["lambda x: lambda y: x + y"]
    assert found(space["c"](1)) == ["lambda y: x + y"]
    assert [found(one) for one in space["d"]()] == [["lambda x: x"], ["lambda: 3"]]
    assert found(space["d"])[0].startswith("@decorated\n@decorated\ndef d")
    code: Any = SimpleNamespace(co_name="<lambda>", co_firstlineno=2, co_positions=lambda: [])
    assert len(made.functions(code, "one")) == 4  # an edit of any of them is seen


# Stored digests ----------------------------------------------------------------------------------


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where digests are kept; none are beside the book, and nobody edits the sources."""
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_manifest", lambda: None)
    monkeypatch.setattr(module, "_is_settled", lambda: True)
    return tmp_path / "foundations"


def asked() -> Foundations | None:
    """The foundations as a new process finds them."""
    return foundations.__wrapped__()


def test_the_manifest_has_the_digests_of_the_present() -> None:
    """Without them the book has other certificates than its sources: verify it with --write."""
    data = json.loads(MANIFEST.read_text())
    assert {key: data[key] for key in ("verifier", "operators")} == asdict(as_it_is())


def test_what_a_process_has_proven_changes_nothing() -> None:
    """Formulas remember their hashes, and some of them are constants of modules."""
    before = computed(Syntax(sources()))
    hash((AnyOf(()), AllOf(()), Poly(())))
    for name in ("concat/slice-left", "transpose/compose-2d", "elementwise/add-commute"):
        prove(BOOK[name])
    assert computed(Syntax(sources())) == before


def test_with_the_manifest_nothing_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = module._storable(as_it_is(), module._mark(sources()))
    monkeypatch.setattr(module, "_manifest", lambda: data)
    monkeypatch.setattr(ast, "parse", None)
    assert asked() == as_it_is()


@pytest.mark.parametrize(
    "spoilt",
    [
        {"sources": "0" * 64}, {"format": 1}, {"operators": 3}, {"operators": {"Relu": "0"}}, {},
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_fit_decides_nothing(spoilt: dict[str, Any]) -> None:
    data = module._storable(as_it_is(), "mark")
    assert module._stored(data, "mark") == as_it_is()
    assert module._stored({**data, **spoilt} if spoilt else spoilt, "mark") is None
    assert module._stored([data], "mark") is None


@pytest.mark.parametrize("text", ["", "[" * 100_000, None])
def test_a_damaged_manifest_is_none(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "sources.json").write_text(text)
    monkeypatch.setattr(module, "files", lambda _package: tmp_path)
    assert module._manifest() is None


def test_an_edit_is_seen_and_computed_once(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked() == as_it_is()
    done: list[Syntax] = []
    other = replace(as_it_is(), verifier="another")

    def anew(found: Syntax) -> Foundations:
        done.append(found)
        return other

    monkeypatch.setattr(module, "computed", anew)
    assert asked() == as_it_is()
    assert not done
    found = {**sources(), f"{VERIFY}gate": b"changed = True\n"}
    monkeypatch.setattr(module, "sources", lambda: found)
    assert asked() == asked() == other
    assert len(done) == 1
    for entry in entries.glob("*.json"):  # nobody else says what is valid
        entry.write_text(entry.read_text().replace("another", "forged"))
    assert asked() == other
    assert len(done) == 2


def test_what_may_have_changed_since_is_not_kept(
    entries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values would be from before an edit, and definitions from after it."""
    monkeypatch.setattr(module, "_is_settled", lambda: False)
    assert asked() == as_it_is()
    module.write_manifest(entries.parent)
    assert not list(entries.parent.rglob("*.json"))


@pytest.mark.parametrize(("loaded", "settled"), [(0, False), (1 << 62, True)])
def test_sources_are_settled_before_they_are_loaded(
    loaded: int, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADED_NS", loaded)
    assert module._is_settled() == settled
    monkeypatch.setattr(module, "_files", lambda: iter(()))
    assert not module._is_settled()


def test_the_manifest_is_written_with_certificates(entries: Path) -> None:
    module.write_manifest(entries.parent)
    data = json.loads((entries.parent / "sources.json").read_text())
    assert module._stored(data, module._mark(sources())) == as_it_is()


def test_without_sources_certificates_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = standings()["matmul/assoc"]
    monkeypatch.setattr(module, "sources", dict)
    assert asked() is None
    module.write_manifest(tmp_path)
    assert list(tmp_path.iterdir()) == []
    judged_by(monkeypatch, None)
    assert fingerprint(one.rule) is None
    assert why_invalid(one.rule, one.certificate) == ""


# Copies of the package ---------------------------------------------------------------------------

PRINT = (
    "import json; from dataclasses import asdict\n"
    "from eqsat_opt.proving.certificates import foundations as f\n"
    "print(json.dumps([f.__file__, asdict(f.foundations())]))"
)


def foundations_of(path: Path) -> Foundations:
    """Those of a copy, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, cwd="/",
        env={**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    file, found = json.loads(done.stdout)
    assert Path(file).is_relative_to(path)
    return Foundations(**found)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to edit."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "copy" / "eqsat_opt", ignore=ignored)
    return tmp_path / "copy"


def test_layout_comments_and_docstrings_change_nothing(package: Path) -> None:
    """Every module that may count is written anew, without comments, with other docstrings."""
    rooms = ("common", "ir", "proving", "rules")
    for path in (one for room in rooms for one in (package / "eqsat_opt" / room).rglob("*.py")):
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str()) as words):
                    words.value = "Other words."
        path.write_text("# A comment.\n\n\n" + ast.unparse(tree) + "\n")
    assert foundations_of(package) == as_it_is()


def test_a_package_in_an_archive(package: Path, tmp_path: Path) -> None:
    archive = tmp_path / "eqsat_opt.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.rglob("*"):
            file.write(path, path.relative_to(package))
    assert foundations_of(archive) == as_it_is()


def test_edits_of_a_copy(package: Path) -> None:
    """An index function, the lines of all others in its module, and a constant are changed."""
    ops = package / "eqsat_opt" / "ir" / "ops"
    path = ops / "index" / "movement.py"
    text = path.read_text().replace("position - pads[i]", "position + pads[i]")
    path.write_text(text.replace("__all__", "\n\n\n__all__", 1))
    path = ops / "pointwise.py"
    path.write_text(
        path.read_text().replace("neutral={1: 1},\n    traits=_D", "neutral={1: 2},\n    traits=_D")
    )
    found = foundations_of(package)
    assert found.verifier == as_it_is().verifier
    assert stale(found) == {"Pad", "Div"}


def test_line_endings_change_nothing(package: Path) -> None:
    for path in package.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert foundations_of(package) == as_it_is()


def test_a_wheel_holds_the_manifest() -> None:
    import tomllib

    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["eqsat_opt"]
    assert any(MANIFEST in PACKAGE.glob(one) for one in patterns)
    assert importlib.util.find_spec("eqsat_opt.rules.books") is not None
