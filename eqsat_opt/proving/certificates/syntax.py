"""The package's own sources as syntax trees: the text of each, and the names it uses.

The text leaves out comments, docstrings, annotations, imports and layout, and is the same in every
version of Python, so that it changes only with the meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Definition", "Spelling", "Syntax"]

Definition: TypeAlias = ast.FunctionDef | ast.ClassDef | ast.Lambda
_UNSAID = {"annotation", "ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"}
"""Fields of syntax trees that change no value, or that only some versions of Python have."""


class Spelling(NamedTuple):
    """The text of a tree, and what it refers to."""

    text: str
    names: tuple[str, ...]
    """Names in it, in order."""
    strings: frozenset[str]
    """String literals in it."""
    imports: tuple[tuple[str, str, str], ...]
    """Each name that it imports, the module and the name there, in the order of names."""


@dataclass(frozen=True)
class Syntax:
    """The syntax trees of sources, each parsed when it is first asked for.

    Attributes:
        sources: module to its source.
        trees: module to its tree, as far as parsed.
        spellings: tree to its spelling, as far as written.
    """

    sources: Mapping[str, bytes]
    trees: dict[str, ast.Module] = field(default_factory=dict)
    spellings: dict[ast.AST, Spelling] = field(default_factory=dict)
    _definitions: dict[str, dict[tuple[str, int], list[Definition]]] = field(default_factory=dict)

    def tree(self, module: str) -> ast.Module:
        """Return the tree of a module, without statements for type checkers."""
        if module not in self.trees:
            tree = self.trees[module] = ast.parse(self.sources[module])
            tree.body = [one for node in tree.body for one in _at_run_time(node)]
        return self.trees[module]

    def spelling(self, tree: ast.AST) -> Spelling:
        """Return the text of a tree, and what it refers to."""
        if tree not in self.spellings:
            self.spellings[tree] = _spelled(tree)
        return self.spellings[tree]

    def functions(self, code: CodeType, module: str) -> list[Definition]:
        """Return the definition of a function.

        Lambdas on one line are distinguished by their columns. Where the code has none, all are
        returned.
        """
        found = self._defined(module).get((code.co_name, code.co_firstlineno), [])
        places = [place for place in code.co_positions() if None not in place]
        if len(found) < 2 or not places:
            return found
        # All code of a nested lambda is inside the outer one as well, which begins before it.
        return [max(found, key=lambda one: (_inside(one, places), one.lineno, one.col_offset))]

    def classes(self, name: str, module: str) -> list[Definition]:
        """Return the definitions of classes with a name."""
        return self._defined(module).get((name, 0), [])

    def _defined(self, module: str) -> dict[tuple[str, int], list[Definition]]:
        """Return all definitions of a module, by the name and the first line of their code.

        Classes have line 0.
        """
        if module not in self._definitions and module in self.sources:
            found = self._definitions.setdefault(module, {})
            for node in ast.walk(self.tree(module)):
                if isinstance(node, ast.FunctionDef):
                    line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                    found.setdefault((node.name, line), []).append(node)
                elif isinstance(node, ast.Lambda):
                    found.setdefault(("<lambda>", node.lineno), []).append(node)
                elif isinstance(node, ast.ClassDef):
                    found.setdefault((node.name, 0), []).append(node)
        return self._definitions.get(module, {})


def _at_run_time(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return node.orelse
    return [node]


def _inside(node: Definition, places: list[tuple[Any, ...]]) -> int:
    """Return the number of instructions that come from the body of a lambda."""
    body: Any = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    return sum(first <= (a, c) and (b, d) <= last for a, b, c, d in places)


def _spelled(tree: ast.AST) -> Spelling:
    words: list[str] = []
    names: dict[str, None] = {}
    strings: set[str] = set()
    imports: set[tuple[str, str, str]] = set()

    def write(node: object) -> None:
        if isinstance(node, ast.ImportFrom):
            imports.update(
                (one.asname or one.name, node.module or "", one.name) for one in node.names
            )
        elif isinstance(node, ast.Import):
            imports.update((one.asname or one.name, one.name, "") for one in node.names)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                strings.add(node.value)
            # Only some versions of Python can print certain characters, so these are escaped.
            words.append(f"{type(node.value).__name__} {node.value!a}")
        elif not isinstance(node, ast.AST):
            words.append(ascii(node))
        elif not _is_unsaid(node):
            if isinstance(node, ast.Name):
                names[node.id] = None
            words.append(f"({type(node).__name__}")
            for name, parts in _parts(node):
                words.append(name)
                for part in parts:
                    write(part)
            words.append(")")

    write(tree)
    return Spelling(" ".join(words), tuple(names), frozenset(strings), tuple(sorted(imports)))


def _parts(node: ast.AST) -> Iterator[tuple[str, list[object]]]:
    """Yield the fields of a tree that may change a value, and what is in each."""
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [] if value is None else [value]
        if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty parts
            parts = [part for part in parts if getattr(part, "value", None) != ""]
        if parts and name not in _UNSAID:
            yield name, parts


def _is_unsaid(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, or a list of public names."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "__all__"
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
