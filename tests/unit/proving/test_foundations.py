"""Which edit of which source makes which certificates stale: exactly those that rest on it."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import eqsat_opt.proving
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.certificates import dependencies, sources
from eqsat_opt.proving.certificates import foundations as module
from eqsat_opt.proving.certificates.certificate import why_invalid
from eqsat_opt.proving.certificates.dependencies import Foundations
from eqsat_opt.proving.certificates.foundations import foundations
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.proving.certificates.syntax import UNSAID, is_text, piece_of
from eqsat_opt.proving.selection import standings
from eqsat_opt.rules import Numerics, Rule, families
from eqsat_opt.rules.term import Apply

PACKAGE = Path(eqsat_opt.__file__).parent
BOOK = {one.name: one for rules in families().values() for one in rules}
OPS_MODULES = "eqsat_opt.ir.ops."
VERIFY = "eqsat_opt.proving."
READERS = {"admission", "describe", "rule_sets", "selection"}
"""What asks for verdicts, and makes none."""
RECORDS = {
    "certificates.cache",
    "certificates.certificate",
    "certificates.dependencies",
    "certificates.foundations",
    "certificates.plain",
    "certificates.semantics",
    "certificates.sources",
    "certificates.syntax",
}
PROVER = "proof."


@cache
def as_it_is() -> Foundations:
    found = dependencies.computed()
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def unchanged() -> Foundations:
    """What there is before any edit of a test."""
    standings()
    return as_it_is()


Edit = Callable[[ast.Module], object]


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Edit]], None]:
    """Makes the sources of some modules read as if they were changed."""

    def edit(edits: dict[str, Edit]) -> None:
        real = sources.module
        changed = {}
        for name, change in edits.items():
            source = sources.read(name)
            assert source is not None
            tree = ast.parse(source)
            change(tree)
            changed[name] = sources._module(name, ast.fix_missing_locations(tree))
        monkeypatch.setattr(sources, "module", lambda name: changed.get(name) or real(name))

    return edit


def replaced(old: str, new: str) -> Edit:
    """Another literal, name or operator, wherever it stands."""

    def change(tree: ast.Module) -> None:
        text = ast.unparse(tree)
        assert old in text, old
        # Lines stay: a lambda is found in its source by them.
        other = ast.parse(text.replace(old, new))
        for one, two in zip(ast.walk(tree), ast.walk(other), strict=True):
            for field in one._fields:
                value = getattr(two, field, None)
                plain = isinstance(value, ast.operator | ast.unaryop | str | int | float)
                if plain or (isinstance(value, list) and value and isinstance(value[0], ast.cmpop)):
                    setattr(one, field, value)

    return change


def stale() -> tuple[set[str], set[str]]:
    """The operators of which something changed, at level 1 and at level 2."""
    now = dependencies.computed()
    assert now is not None
    before = as_it_is().operators
    return tuple(  # type: ignore[return-value]
        {name for name, marks in now.operators.items() if marks[level] != before[name][level]}
        for level in (0, 1)
    )


def verifiers() -> tuple[str, str]:
    gate, prover = dependencies._judges()
    return dependencies._digest(dependencies._text(gate)), dependencies._digest(
        dependencies._text(prover)
    )


# What judges -------------------------------------------------------------------------------------


def modules_of_the_verifier() -> list[str]:
    found = pkgutil.walk_packages(eqsat_opt.proving.__path__, VERIFY)
    names = {one.name.removeprefix(VERIFY) for one in found if not one.ispkg}
    return sorted(name for name in names - READERS if not name.startswith("taso."))


def test_every_module_of_the_verifier_counts() -> None:
    """None is forgotten: a fingerprint covers it, or it only keeps what others found."""
    gate, prover = ({place[0] for place in judge} for judge in dependencies._judges())
    every = set(modules_of_the_verifier())
    assert {name for name in every if VERIFY + name not in prover} == RECORDS
    assert len(RECORDS) == 8
    assert {name for name in every if VERIFY + name not in gate} - RECORDS <= {
        name for name in every if name.startswith(PROVER)
    }
    # What a condition means, what a rule is, and the numbers it is tried on.
    assert {"eqsat_opt.rules.bindings", "eqsat_opt.rules.term", f"{OPS_MODULES}domains"} <= gate
    assert {f"{OPS_MODULES}index.integers", f"{OPS_MODULES}index.scalars"} <= prover


def tokens(tree: ast.AST) -> list[ast.AST]:
    """What can be turned into its opposite, outside of annotations and texts for people."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.ImportFrom) or is_text(node):
            return
        if isinstance(node, ast.Compare | ast.BinOp) or (
            isinstance(node, ast.Constant) and type(node.value) in (int, bool)
        ):
            found.append(node)
        for field in node._fields:
            if field not in UNSAID:
                value = getattr(node, field, None)
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        visit(child)

    visit(tree)
    return found


def flip(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = ast.NotEq() if isinstance(node.ops[0], ast.Eq) else ast.Eq()
    elif isinstance(node, ast.BinOp):
        node.op = ast.Add() if isinstance(node.op, ast.Sub) else ast.Sub()
    else:
        assert isinstance(node, ast.Constant)
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]


@pytest.mark.parametrize("name", modules_of_the_verifier())
def test_an_edit_of_the_verifier(name: str, edited: Callable[[dict[str, Edit]], None]) -> None:
    """What judges at level 1 makes all stale, what proves only what was proven."""
    draw = random.Random(name)

    def change(tree: ast.Module) -> None:
        if found := [node for node in tokens(tree) if not in_table(node, tree)]:
            flip(draw.choice(found))
        else:  # a module of names only
            tree.body.append(ast.parse("changed = True").body[0])

    before = verifiers()
    gate = {place[0] for place in dependencies._judges()[0]}
    edited({VERIFY + name: change})
    expected = (False, False) if name in RECORDS else (VERIFY + name in gate, True)
    assert tuple(a != b for a, b in zip(before, verifiers(), strict=True)) == expected


def in_table(node: ast.AST, tree: ast.Module) -> bool:
    """Whether it is of one operator only."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for table in sources._tables(statement.value):
                for _, entry in sources._entries(table):
                    if any(node is part for part in ast.walk(entry)):
                        return True
    return False


@pytest.mark.parametrize(
    ("name", "old", "new", "levels"),
    [
        ("eqsat_opt.rules.bindings", "left <= right", "left < right", (True, True)),
        ("eqsat_opt.rules.rule", "lhs=self.rhs", "lhs=self.lhs", (True, True)),
        ("eqsat_opt.ir.values.dims", "//", "%", (True, True)),
        (f"{OPS_MODULES}domains", "a + b) % self.prime", "a - b) % self.prime", (True, True)),
        (f"{OPS_MODULES}domains", "keepdims=True", "keepdims=False", (True, True)),
        (
            f"{OPS_MODULES}index.integers",
            "numerator.constant",
            "denominator.constant",
            (True, True),
        ),
        ("eqsat_opt.errors", "exit_code = 1", "exit_code = 2", (False, False)),
        ("eqsat_opt.rules.matcher", "len(roots) > 1", "len(roots) > 2", (False, False)),
    ],
)
def test_what_the_verifier_rests_on(
    name: str, old: str, new: str, levels: tuple[bool, bool],
    edited: Callable[[dict[str, Edit]], None],
) -> None:  # fmt: skip
    before = verifiers()
    edited({name: replaced(old, new)})
    assert tuple(a != b for a, b in zip(before, verifiers(), strict=True)) == levels


def test_a_rule_rests_on_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = BOOK["matmul/assoc"], foundations()
    assert real is not None
    marks = {level: fingerprint(one, level) for level in (0, 1, 2, 3)}
    assert marks[0] == marks[1] != marks[2] == marks[3]
    gate, _ = real.verifiers
    monkeypatch.setattr(
        "eqsat_opt.proving.certificates.semantics.foundations",
        lambda: replace(real, verifiers=(gate, "another")),
    )
    assert fingerprint(one, 1) == marks[1]
    assert fingerprint(one, 2) != marks[2]
    certificate = standings()[one.name].certificate
    assert certificate is not None
    assert certificate.level == 2
    assert "stale" in why_invalid(one, certificate)


def test_rules_rest_on_their_own_operators() -> None:
    real = foundations()
    assert real is not None

    def rules_with(name: str, level: int) -> set[str]:
        marks = list(real.operators[name])
        marks[level] = "another"
        changed = replace(real, operators={**real.operators, name: (marks[0], marks[1])})
        with pytest.MonkeyPatch.context() as patch:
            before = {n: fingerprint(r, level + 1) for n, r in BOOK.items()}
            patch.setattr("eqsat_opt.proving.certificates.semantics.foundations", lambda: changed)
            return {n for n, r in BOOK.items() if fingerprint(r, level + 1) != before[n]}

    for name in ("Conv", "Softmax", "Transpose"):
        for level in (0, 1):
            assert rules_with(name, level) == {
                n for n, r in BOOK.items() if name in operators_of(r)
            }


def operators_of(rule: Rule) -> set[str]:
    terms = (term for root in (*rule.lhs, *rule.rhs) for term in root.walk())
    return {term.op for term in terms if isinstance(term, Apply)}


# Operators ---------------------------------------------------------------------------------------

BUILT_ON_EXP = {"Exp", "Softmax", "LogSoftmax", "Attention", "MaskedAttention"}


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("linear", "inner sizes differ", "inner extents differ", {"MatMul"}),
        ("pointwise", "lambda d, x, _a: d.sub(*x)", "lambda d, x, _a: d.add(*x)", {"Sub"}),
        ("pointwise", "Plus((x[0], Times((MINUS_ONE", "Times((x[0], Times((MINUS_ONE", {"Sub"}),
        ("functions", "x / (1 + np.abs(x))", "x / (2 + np.abs(x))", {"Softsign"}),
        ("domains", "np.power(a, np.maximum(b, 0))", "np.power(a, np.maximum(b, 1))",
         {"Pow", "LRN"}),
        ("index.movement", "position - pads[i]", "position + pads[i]", {"Pad"}),
        ("index.linear", "padded and (not ceil)", "padded and (+ceil)", {"AveragePool"}),
    ],
)  # fmt: skip
def test_an_edit_of_an_operator(
    name: str, old: str, new: str, expected: set[str], edited: Callable[[dict[str, Edit]], None]
) -> None:
    edited({OPS_MODULES + name: replaced(old, new)})
    assert stale() == (expected, expected)
    assert verifiers() == as_it_is().verifiers


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_function_of_an_operator_counts(
    name: str, edited: Callable[[dict[str, Edit]], None]
) -> None:
    gate, prover = dependencies._judges()

    def said() -> list[str]:
        return [dependencies._operator(name, judge).text for judge in (gate, prover)]

    before = said()
    places, _ = dependencies._functions([name])
    assert len(places) >= 2 + (OPS[name].index_fn is not None)
    for inside, number in dict.fromkeys(places):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "module", sources.module)
            edited({inside: changed_at(inside, number, name)})
            after = (
                dependencies._operator(name, gate).text,
                dependencies._operator(name, prover).text,
            )
        assert after[0] != before[0], (inside, number)
        assert after[1] != before[1], (inside, number)


def changed_at(inside: str, number: int, operator: str) -> Edit:
    """An edit of one statement; in a table, of one operator."""
    statement = sources.module(inside).statements[number]  # type: ignore[union-attr]

    def change(tree: ast.Module) -> None:
        (node,) = (n for n in tree.body if statement.lines[1] == n.end_lineno)
        if operator in statement.entries and isinstance(node, ast.Assign | ast.AnnAssign):
            tables = list(sources._tables(node.value))
            entries = (entry for table in tables for entry in sources._entries(table))
            parts = list(ast.walk(next(entry for name, entry in entries if name == operator)))
        else:
            parts = list(ast.walk(node))
        names = [part for part in parts if isinstance(part, ast.Name | ast.arg)]
        bodies = [part for part in parts if isinstance(part, ast.FunctionDef)]
        if bodies:
            bodies[-1].body.insert(0, ast.parse("changed = True").body[0])
        else:
            assert isinstance(names[-1], ast.Name)
            names[-1].id += "_changed"

    return change


def test_traits_and_arities_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPS, "Exp", replace(OPS["Exp"], traits=frozenset({"pole"})))
    assert stale() == (BUILT_ON_EXP, BUILT_ON_EXP)
    monkeypatch.setitem(OPS, "Exp", replace(OPS["Exp"], commutative=True))
    assert "Exp" in stale()[0]


def test_what_a_function_was_made_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators may share the source of a function that holds something else for each."""
    monkeypatch.setitem(OPS, "Sin", replace(OPS["Sin"], eval_fn=OPS["Cos"].eval_fn))
    assert stale() == ({"Sin"}, {"Sin"})
    monkeypatch.setitem(OPS, "Sin", replace(OPS["Sin"], index_fn=OPS["Neg"].index_fn))
    assert stale()[1] == {"Sin"}


def test_a_new_elementwise_function_makes_nothing_stale(
    monkeypatch: pytest.MonkeyPatch, edited: Callable[[dict[str, Edit]], None]
) -> None:
    def entry(table: str, text: str) -> Edit:
        def change(tree: ast.Module) -> None:
            for node in tree.body:
                targets = (
                    node.targets
                    if isinstance(node, ast.Assign)
                    else [getattr(node, "target", None)]
                )
                if any(isinstance(t, ast.Name) and t.id == table for t in targets):
                    (display,) = sources._tables(node.value)  # type: ignore[attr-defined]
                    added = ast.parse(f"{{'Cube': {text}}}", mode="eval").body
                    assert isinstance(display, ast.Dict)
                    assert isinstance(added, ast.Dict)
                    display.keys += added.keys
                    display.values += added.values
                    return
            raise AssertionError(table)

        return change

    def in_functions(tree: ast.Module) -> None:
        entry("FUNCTIONS", "ScalarFunction(_cube)")(tree)
        tree.body += ast.parse("def _cube(x, _a): return x * x * x").body

    monkeypatch.setitem(OPS, "Cube", replace(OPS["Abs"], name="Cube"))
    edited({
        f"{OPS_MODULES}functions": in_functions,
        f"{VERIFY}numbers.shapes": entry("_FUNCTIONS", "lambda x, a, seed: x * x * x"),
        f"{VERIFY}numbers.definitions": entry("_DEFINITIONS", "lambda x, a: _TWO"),
    })  # fmt: skip
    now = dependencies.computed()
    assert now is not None
    assert now.verifiers == as_it_is().verifiers
    cube = now.operators.pop("Cube")
    assert now.operators == as_it_is().operators
    assert "_cube" in dependencies._operator("Cube", dependencies._judges()[0]).text
    assert cube not in as_it_is().operators.values()


# The manifest ------------------------------------------------------------------------------------


@pytest.fixture
def afresh() -> Iterator[None]:
    """Sources and manifest are read anew, before and after."""
    module.refresh()
    yield
    module.refresh()


def test_the_manifest_is_current() -> None:
    """Without it every start parses the verifier: verify any rule with --write."""
    assert module.is_manifest_current()
    assert foundations() == as_it_is()


def test_with_the_manifest_nothing_is_parsed() -> None:
    code = "import ast, eqsat_opt.proving as r\nast.parse = None\nprint(len(r.default_rules()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=False, cwd=PACKAGE.parent)  # fmt: skip
    assert done.stderr == ""
    assert int(done.stdout) > 100


def test_a_manifest_that_does_not_fit_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sources.json"
    data = json.loads((PACKAGE / "rules" / "books" / "sources.json").read_text())
    spoilt = [
        {**data, "sources": "0" * 64},
        {**data, "modules": data["modules"][1:]},
        {**data, "modules": [*data["modules"], "eqsat_opt.absent"]},
        {**data, "format": 0},
        {**data, "operators": 3},
        {**data, "verifiers": ["one"]},
        [data],
        {},
    ]
    monkeypatch.setattr(module, "files", lambda _package: tmp_path)
    path.write_text(json.dumps(data))
    assert module.is_manifest_current()
    for text in [*map(json.dumps, spoilt), "", "[" * 100_000]:
        path.write_text(text)
        assert not module.is_manifest_current()
    path.unlink()
    assert not module.is_manifest_current()
    # Of other operators than there are it says too little.
    path.write_text(json.dumps({**data, "operators": {"Relu": data["operators"]["Relu"]}}))
    assert module.foundations.__wrapped__() == as_it_is()


def test_an_edit_is_seen_through_the_manifest(
    afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, relu = sources.read, BOOK["elementwise/relu-idempotent"]

    def read(name: str) -> bytes | None:
        source = real(name)
        if name != f"{VERIFY}proof.sums.signs" or source is None:
            return source
        return source + b"\nCHANGED = True\n"

    monkeypatch.setattr(sources, "read", read)
    module.foundations.cache_clear()
    sources.module.cache_clear()
    assert not module.is_manifest_current()
    certificate = standings()[relu.name].certificate
    assert certificate is not None
    assert certificate.level == 2
    assert "stale" in why_invalid(relu, certificate)
    assert fingerprint(relu, 1) is not None


def test_the_manifest_is_written_with_certificates(
    tmp_path: Path, afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_manifest(tmp_path)
    assert (tmp_path / "sources.json").read_bytes() == (
        PACKAGE / "rules" / "books" / "sources.json"
    ).read_bytes()


def test_without_sources_certificates_are_taken_as_they_are(
    afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = standings()["matmul/assoc"]
    monkeypatch.setattr(sources, "read", lambda _name: None)
    sources.module.cache_clear()
    module.foundations.cache_clear()
    dependencies._is_module.cache_clear()
    assert fingerprint(one.rule) is None
    assert why_invalid(one.rule, one.certificate) == ""
    dependencies._is_module.cache_clear()


# Copies of the package ---------------------------------------------------------------------------

PRINT = (
    "import json; from eqsat_opt.proving.certificates import foundations as f\n"
    "x = f.foundations()\n"
    "print(json.dumps([f.__file__, f.is_manifest_current(), x.verifiers, x.operators]))"
)


def foundations_of(path: Path) -> tuple[bool, Foundations]:
    """Those of a copy, in a process of its own: whether its manifest fits, and what they are."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, cwd="/",
        env={**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    file, current, verifying, operators = json.loads(done.stdout)
    assert Path(file).is_relative_to(path)
    marks = {name: (one, two) for name, (one, two) in operators.items()}
    return current, replace(as_it_is(), verifiers=tuple(verifying), operators=marks)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "copy" / "eqsat_opt", ignore=ignored)
    return tmp_path / "copy"


def test_layout_comments_and_docstrings_change_nothing(copy: Path) -> None:
    """Every module that counts is written anew, without comments and with other docstrings."""
    for name in as_it_is().modules:
        path = copy.joinpath(*name.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if is_text(node):
                node.value.value = "Other words."  # type: ignore[attr-defined]
        path.write_text("# A comment.\n\n\n" + ast.unparse(tree) + "\n")
    assert foundations_of(copy) == (False, as_it_is())


def test_versions_of_python_spell_a_tree_alike() -> None:
    """Python 3.12 puts empty constants into formatted strings, and fields into functions."""
    tree = ast.parse("def f(a): return f'{a:<{a}}'")
    text = piece_of(tree, {}).text
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
        if isinstance(node, ast.FunctionDef):
            node.type_params = []  # type: ignore[attr-defined, unused-ignore]
    assert piece_of(tree, {}).text == text
    one, other = ("x = {'a': '', 'b': 'c'} or ''", "x = {'a': 'c', 'b': ''}")
    assert piece_of(ast.parse(one), {}).text != piece_of(ast.parse(other), {}).text


def test_local_names_are_no_uses() -> None:
    def uses(text: str) -> set[str]:
        return {name for name, _ in piece_of(ast.parse(text), {}).names}

    assert uses("def f(a, *b, c=d, **e): g = a; return g + h") == {"d", "h"}
    assert uses("def f():\n global a\n a = b") == {"a", "b"}
    assert uses("x = [a for a in b if a]; y = {c: d for d, c in e}") == {"x", "b", "y", "e"}
    assert uses("x = [a for a in a]") == {"x", "a"}
    assert uses("def f():\n for i in j: pass\n return lambda k: i(k, m)") == {"j", "m"}
    assert uses("def f():\n try: pass\n except E as e: return e") == {"E"}
    assert uses("def f(a: b) -> c:\n d: e = 1\n return d") == set()
    assert uses("class A(B):\n c: D\n def e(self): return self.c, F") == {"B", "F", "c"}


def test_line_endings_change_nothing(copy: Path) -> None:
    for path in copy.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert foundations_of(copy) == (True, as_it_is())


def test_a_package_in_an_archive(copy: Path, tmp_path: Path) -> None:
    archive = tmp_path / "eqsat_opt.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in copy.rglob("*"):
            file.write(path, path.relative_to(copy))
    assert foundations_of(archive) == (True, as_it_is())


def test_an_edit_of_a_copy(copy: Path) -> None:
    path = copy / "eqsat_opt" / "ir" / "ops" / "index" / "movement.py"
    path.write_text(path.read_text().replace("position - pads[i]", "position + pads[i]"))
    current, found = foundations_of(copy)
    assert not current
    assert found.verifiers == as_it_is().verifiers
    changed = {n for n, marks in found.operators.items() if marks != as_it_is().operators[n]}
    assert changed == {"Pad"}


def test_a_wheel_holds_the_manifest() -> None:
    import tomllib

    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["eqsat_opt"]
    assert any((PACKAGE / "rules" / "books" / "sources.json") in PACKAGE.glob(p) for p in patterns)
    assert importlib.util.find_spec("eqsat_opt.rules.books") is not None
    assert Numerics.BITEXACT in Numerics
