"""The package's own sources as statements: the text of each, and the names it uses.

A table of operators is split: each entry belongs to its operator, so that a new operator changes
nothing for the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.certificates.syntax import Piece, Tables, imported, is_text, items, piece_of

__all__ = ["PACKAGE", "Module", "Statement", "forget", "module", "read"]

PACKAGE = "eqsat_opt"


@dataclass(frozen=True)
class Statement:
    """A statement of a module.

    Attributes:
        lines: first and last line.
        defines: names that it binds.
        common: the whole statement except for the entries of operators.
        entries: operator to its entries in tables.
    """

    lines: tuple[int, int]
    defines: tuple[str, ...]
    common: Piece
    entries: dict[str, list[Piece]]


@dataclass(frozen=True)
class Module:
    """A module of the package.

    Attributes:
        name: full name, with the package.
        statements: statements in order, without imports and docstrings.
        by_name: name to the positions of the statements that define it.
        imports: name to the module and the name that it is imported from.
    """

    name: str
    statements: tuple[Statement, ...]
    by_name: dict[str, list[int]]
    imports: dict[str, tuple[str, str]]

    def at(self, line: int) -> int | None:
        """Return the position of the statement that contains a line; ``None`` if there is none."""
        for index, statement in enumerate(self.statements):
            if statement.lines[0] <= line <= statement.lines[1]:
                return index
        return None


@cache
def read(name: str) -> bytes | None:
    """Return the source of a module of the package; ``None`` if there is none.

    Lines end with bare line feeds on every platform.
    """
    inside = name.split(".")[1:]
    for parts in ([*inside[:-1], f"{inside[-1]}.py"] if inside else [], [*inside, "__init__.py"]):
        try:
            place = files(PACKAGE).joinpath(*parts)
            if parts and place.is_file():
                return place.read_bytes().replace(b"\r\n", b"\n")
        except OSError:
            return None
    return None


@cache
def module(name: str) -> Module | None:
    """Parse a module of the package; return ``None`` where its source cannot be read."""
    source = read(name)
    try:
        tree = None if source is None else ast.parse(source)
    except (SyntaxError, ValueError):
        tree = None
    return None if tree is None else _module(name, tree)


def forget() -> None:
    """Forget all cached sources, so that they are read anew."""
    read.cache_clear()
    module.cache_clear()


def _module(name: str, tree: ast.Module) -> Module:
    statements: list[Statement] = []
    by_name: dict[str, list[int]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            imports.update(imported(node))
        elif not (is_text(node) or _is_for_types(node)):
            one = _statement(node)
            for defined in one.defines:
                by_name.setdefault(defined, []).append(len(statements))
            statements.append(one)
    return Module(name, tuple(statements), by_name, imports)


def _is_for_types(node: ast.AST) -> bool:
    """Return whether a statement serves only type checkers: their imports, or ``__all__``."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.stmt) and _defined(node) == ("__all__",)


def _statement(node: ast.stmt) -> Statement:
    entries: dict[str, list[Piece]] = {}
    tables: Tables = {}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        for table in _tables(node.value):
            tables[id(table)] = list(_entries(table))
            for operator, entry in tables[id(table)]:
                entries.setdefault(operator, []).append(piece_of(entry, {}))
    last = node.end_lineno or node.lineno
    return Statement((_first_line(node), last), _defined(node), piece_of(node, tables), entries)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _defined(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.AnnAssign):
        return (node.target.id,) if isinstance(node.target, ast.Name) else ()
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = (part for target in targets for part in ast.walk(target))
    return tuple(part.id for part in names if isinstance(part, ast.Name))


# Tables of operators -----------------------------------------------------------------------------


def _tables(node: ast.AST | None) -> Iterator[ast.Dict | ast.Set]:
    """Yield the outermost displays in the value of an assignment, except those in functions."""
    if isinstance(node, ast.Dict | ast.Set):
        yield node
    elif node is not None and not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _tables(child)


def _entries(table: ast.Dict | ast.Set) -> Iterator[tuple[str, ast.expr]]:
    for key, value in items(table):
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in OPS:
            yield key.value, value
