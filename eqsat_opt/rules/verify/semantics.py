"""What a certificate rests on, as a hash: the rule, its operators' definitions, the verifier.

An operator's definition is the source of its typing, evaluation and index functions and of all that
they use of their package, without comments and docstrings, so that only a change of meaning makes
certificates stale.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from eqsat_opt.ir.ops import OPS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Condition, Expr, Term, Var

__all__ = ["VERIFIER_VERSION", "fingerprint", "rule_text"]

VERIFIER_VERSION = 6
"""Raise it whenever the verifier would judge a rule otherwise."""
_PACKAGE = "eqsat_opt.ir.ops"
_WORD = re.compile(r"[A-Za-z_]\w*")
_SHARED = "eqsat_opt.ir.ops.domains"
"""The numbers on which all operators are evaluated."""


def rule_text(rule: Rule) -> str:
    """Everything that the meaning of a rule depends on, in one canonical text."""
    parts = [
        rule.name,
        "both ways" if rule.bidirectional else "one way",
        rule.numerics.name,
        *([f"{rule.backward.name} backward"] if rule.backward is not None else []),
        *(f"{name}: {kind}" for name, kind in rule.kinds),
        *(f"left {_term(term)}" for term in rule.lhs),
        *(f"right {_term(term)}" for term in rule.rhs),
        *(f"when {_condition(condition)}" for condition in rule.when),
    ]
    return "\n".join(parts)


def _term(term: Term) -> str:
    if isinstance(term, Var):
        return f"{'weight' if term.const else 'tensor'} {term.name}"
    assert isinstance(term, Apply)
    operands = ", ".join(_term(arg) for arg in term.args)
    attrs = ", ".join(f"{key}={_attr(value)}" for key, value in term.attrs.items())
    return f"{term.op}({operands}; {attrs})"


def _attr(value: Any) -> str:
    """An attribute, or part of a condition; texts are equal for what is equal only.

    A literal shows its type, as 1, 1.0 and True differ, and quotes, as a variable has none.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(_attr, value))},)"
    if not isinstance(value, Expr):
        return f"{type(value).__name__} {value!r}"
    if value.kind == "literal":
        return f"literal {_attr(value.args[0])}"
    if value.kind == "attr":
        return f"attribute {value.args[0]}"
    return f"{value.kind}({', '.join(map(_attr, value.args))})"


def _condition(condition: Condition) -> str:
    """The reason that people are shown changes nothing."""
    return f"{condition.kind}{_attr(condition.args)}"


def _operators(rule: Rule) -> list[str]:
    terms = (term for root in (*rule.lhs, *rule.rhs) for term in root.walk())
    return sorted({term.op for term in terms if isinstance(term, Apply) and term.op != MAP})


def fingerprint(rule: Rule) -> str | None:
    """Hash of the rule, the operators it uses and the verifier's version.

    Returns:
        ``None`` where the operators' sources cannot be read, as in some frozen applications; what
        depends on them then cannot be compared.
    """
    digests = [_operator_digest(name) for name in _operators(rule)]
    shared = _module_digest(_SHARED)
    if shared is None or any(digest is None for digest in digests):
        return None
    text = "\n".join([rule_text(rule), f"verifier {VERIFIER_VERSION}", shared, *map(str, digests)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Module:
    """The top-level statements of a module by the names they define."""

    def __init__(self, name: str, source: str) -> None:
        tree = ast.parse(source)
        self._lines = source.splitlines()
        self._read: dict[int, tuple[str, frozenset[str]]] = {}
        self.by_name: dict[str, list[int]] = {}
        self.statements: list[ast.stmt] = []
        self.imports: dict[str, tuple[str, str]] = {}
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    self.imports[alias.asname or alias.name] = (statement.module, alias.name)
                continue
            if isinstance(statement, ast.Import) or _is_docstring(statement):
                continue
            index = len(self.statements)
            for defined in _defined(statement):
                self.by_name.setdefault(defined, []).append(index)
            self.statements.append(statement)
        self.name = name

    def at(self, line: int) -> int | None:
        """The statement that holds a line."""
        for index, statement in enumerate(self.statements):
            if statement.lineno <= line <= (statement.end_lineno or line):
                return index
        return None

    def read(self, index: int) -> tuple[str, frozenset[str]]:
        """Text of a statement and the names it uses."""
        if index not in self._read:
            self._read[index] = _digested(self.statements[index], self._lines)
        return self._read[index]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _defined(statement: ast.stmt) -> list[str]:
    """Names of functions and values; classes name types, which change no value."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    if isinstance(statement, ast.Assign):
        return [t.id for t in statement.targets if isinstance(t, ast.Name)]
    return []


def _digested(statement: ast.stmt, lines: list[str]) -> tuple[str, frozenset[str]]:
    """Text without comments and docstrings, and all words in it, of which some are names."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    dropped = set(_docstrings(statement))
    text = [lines[i - 1].rstrip() for i in range(first, last + 1) if i not in dropped]
    kept = "\n".join(line for line in text if line and not line.lstrip().startswith("#"))
    return kept, frozenset(_WORD.findall(kept))


def _docstrings(statement: ast.stmt) -> Iterator[int]:
    """Lines of the docstrings of a function or class and of those directly inside it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        head = statement.body[0]
        if _is_docstring(head):
            yield from range(head.lineno, (head.end_lineno or head.lineno) + 1)
        for inner in statement.body:
            yield from _docstrings(inner)


def _source(name: str) -> str | None:
    module = sys.modules.get(name)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(name)
    read = getattr(getattr(spec, "loader", None), "get_source", None)
    try:
        source = read(name) if read is not None else None
    except (ImportError, OSError):
        return None
    return source if isinstance(source, str) else None


@cache
def _module(name: str) -> _Module | None:
    source = _source(name)
    try:
        return _Module(name, source) if source is not None else None
    except SyntaxError:
        return None


@cache
def _module_digest(name: str) -> str | None:
    module = _module(name)
    if module is None:
        return None
    text = "\n".join(module.read(index)[0] for index in range(len(module.statements)))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _operator_digest(name: str) -> str | None:
    """Hash of the operator's functions and all they use from their own package."""
    op = OPS[name]
    signature = f"{op.arity} {sorted(op.attrs.items())} {op.commutative} {sorted(op.traits)}"
    texts: set[str] = set()
    for function in (op.type_fn, op.eval_fn, op.index_fn):
        found = set() if function is None else _closure(function)
        if found is None:
            return None
        texts |= found
    text = "\n".join([name, signature, *sorted(texts)])
    return hashlib.sha256(text.encode()).hexdigest()


def _closure(function: Callable[..., Any]) -> set[str] | None:
    """Texts of the statements that a function is made of."""
    if not isinstance(function, FunctionType):
        return None
    code: CodeType = function.__code__
    module = _module(function.__module__)
    if module is None:
        return None
    named = module.by_name.get(code.co_qualname.split(".")[0], [])
    line = module.at(code.co_firstlineno)
    start = named or ([line] if line is not None else [])
    captured = sorted(
        str(cell.cell_contents)
        for cell in function.__closure__ or ()
        if isinstance(cell.cell_contents, str | int | float)
    )
    texts = {f"{function.__module__} captures {captured}"}
    todo = [(function.__module__, index) for index in start]
    seen: set[tuple[str, int]] = set()
    while todo:
        where = todo.pop()
        if where in seen:
            continue
        seen.add(where)
        inside = _module(where[0])
        if inside is None:
            return None
        text, names = inside.read(where[1])
        texts.add(text)
        todo += _uses(inside, names)
    return texts


def _uses(module: _Module, names: frozenset[str]) -> list[tuple[str, int]]:
    found = []
    for name in names:
        found += [(module.name, index) for index in module.by_name.get(name, ())]
        source, original = module.imports.get(name, ("", ""))
        if source.startswith(_PACKAGE):
            other = _module(source)
            if other is not None:
                found += [(source, index) for index in other.by_name.get(original, ())]
    return found
