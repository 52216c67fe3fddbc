"""The meaning of a syntax tree as text, and the names that it uses of its module.

The text leaves out comments, docstrings, annotations and layout, and is the same in every version
of Python, so that it changes only with the meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["UNSAID", "Piece", "Tables", "imported", "is_text", "items", "piece_of"]

UNSAID = frozenset({"annotation", "ctx", "kind", "returns", "type_comment", "type_ignores"})
"""Fields of syntax trees that change no value, or that only some versions of Python have."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_NAMED = ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar
Tables: TypeAlias = dict[int, list[tuple[str, ast.expr]]]
"""Identity of a display to those of its entries that are kept separately, with their keys."""


@dataclass(frozen=True)
class Piece:
    """A statement, or an entry of a table.

    Attributes:
        text: its meaning as text.
        names: pairs of a name that it uses but does not bind, and the attribute that it reads of
            it; the attribute is empty where the value as a whole is used.
        strings: string literals in it.
        imports: name that it imports itself, to the module and the name there.
    """

    text: str
    names: frozenset[tuple[str, str]]
    strings: frozenset[str]
    imports: dict[str, tuple[str, str]]


def piece_of(node: ast.AST, tables: Tables) -> Piece:
    """Return the meaning of a tree, without the entries of ``tables``."""
    writer = _Writer(tables)
    writer.write(node)
    return Piece(
        " ".join(writer.text), frozenset(writer.names), frozenset(writer.strings), writer.imports
    )


def imported(node: ast.ImportFrom | ast.Import) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name that an import binds, with its module and its name there."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, (node.module or "", alias.name)
        elif alias.asname:
            above, _, last = alias.name.rpartition(".")
            yield alias.asname, (above, last)


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, or a comment of that form."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def items(table: ast.Dict | ast.Set) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Return the keys and values of a dictionary, or each element of a set twice.

    The key of an unpacked dictionary is ``None``.
    """
    keys = table.keys if isinstance(table, ast.Dict) else table.elts
    values = table.values if isinstance(table, ast.Dict) else table.elts
    return zip(keys, values, strict=True)


@dataclass
class _Writer:
    """A collector of the text of a tree, and of the names it uses."""

    tables: Tables
    text: list[str] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)

    def write(self, node: ast.AST, bound: frozenset[str] = frozenset()) -> None:
        """Add a tree, in which the names in ``bound`` are local."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self.strings.add(node.value)
            # Only some versions of Python can print certain characters, so these are escaped.
            self.text.append(f"{type(node.value).__name__} {node.value!a}")
            return
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            self._use(node.value.id, node.attr, bound)
            self.text.append(f"{node.value.id}.{node.attr}")
            return
        if isinstance(node, ast.Name):
            self._use(node.id, "", bound)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found = dict(imported(node))
            self.imports.update(found)
            self.names.update((name, "") for name in found)
        self.text.append(f"({type(node).__name__}")
        if isinstance(node, ast.Dict | ast.Set) and id(node) in self.tables:
            self._table(node, bound)
        else:
            inner = bound | _locals(node)
            for name in node._fields:
                outside = isinstance(node, _Function) and name != "body"
                value = getattr(node, name, None)
                if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty parts
                    value = [part for part in node.values if not _is_nothing(part)]
                self._field(name, value, bound if outside else inner)
        self.text.append(")")

    def _use(self, name: str, attribute: str, bound: frozenset[str]) -> None:
        if name not in bound:
            self.names.add((name, attribute))

    def _field(self, name: str, value: object, bound: frozenset[str]) -> None:
        if name in UNSAID or value is None or value == []:
            return
        self.text.append(name)
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, ast.AST):
                self.text.append(ascii(item))
            elif not is_text(item):
                self.write(item, bound)

    def _table(self, node: ast.Dict | ast.Set, bound: frozenset[str]) -> None:
        """Add a display without the entries that are kept separately."""
        own = {id(entry) for _, entry in self.tables[id(node)]}
        for key, value in items(node):
            if id(value) not in own:
                if key is not None:
                    self.write(key, bound)
                self.write(value, bound)


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _locals(node: ast.AST) -> frozenset[str]:
    """Return the names that are local to a function or a comprehension."""
    if isinstance(node, _Comprehension):
        # The first iterable is evaluated outside: a target that it reads does not count as local.
        targets = set(_bound(generator.target for generator in node.generators))
        first = {
            part.id for part in ast.walk(node.generators[0].iter) if isinstance(part, ast.Name)
        }
        return frozenset(targets - first)
    if not isinstance(node, _Function):
        return frozenset()
    given = node.args
    args = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = {arg.arg for arg in args if arg is not None}
    body = node.body if isinstance(node.body, list) else [node.body]
    found.update(_bound(body))
    outer = {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
    return frozenset(found - outer)


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that are assigned, except in nested functions, classes and comprehensions."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, _NAMED) and node.name is not None:
            yield node.name
        if not isinstance(node, _Function | _Comprehension | ast.ClassDef):
            yield from _bound(ast.iter_child_nodes(node))
