"""Long calls say what each argument is: at most four are given by position."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import eqsat_opt

PACKAGE = Path(eqsat_opt.__file__).parent
MOST = 4


def is_variadic(definition: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it takes any number of arguments by position."""
    if isinstance(definition, ast.FunctionDef):
        return definition.args.vararg is not None
    made = (one for one in definition.body if isinstance(one, ast.FunctionDef))
    return any(one.name == "__init__" and one.args.vararg is not None for one in made)


def own_callables(trees: dict[str, ast.Module]) -> set[str]:
    """Names of our functions and classes that have a fixed number of parameters."""
    found: dict[str, list[bool]] = defaultdict(list)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name].append(is_variadic(node))
    return {name for name, variadic in found.items() if not any(variadic)}


def long_calls(tree: ast.Module, own: set[str]) -> Iterator[ast.Call]:
    """Calls of our own callables with more than :data:`MOST` arguments by position."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) <= MOST:
            continue
        match node.func:
            case ast.Name(id=name) if not hasattr(builtins, name):
                is_own = name in own
            case ast.Attribute(attr=name):
                is_own = name in own
            case _:
                is_own = False
        if is_own and not any(isinstance(one, ast.Starred) for one in node.args):
            yield node


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(f.relative_to(PACKAGE).as_posix()): ast.parse(f.read_bytes()) for f in files}


def test_long_calls_name_their_arguments(trees: dict[str, ast.Module]) -> None:
    own = own_callables(trees)
    found = [
        f"{path}:{call.lineno} {ast.unparse(call.func)}"
        for path, tree in trees.items()
        for call in long_calls(tree, own)
    ]
    assert not found, "give all but the first arguments by name:\n" + "\n".join(found)


def test_a_long_call_is_found() -> None:
    text = """
def own(a, b, c, d, e): ...
def many(*all): ...
own(1, 2, 3, 4, 5)
own(1, 2, 3, 4, e=5)
own(*(1, 2, 3, 4, 5))
many(1, 2, 3, 4, 5)
max(1, 2, 3, 4, 5)
numpy.array(1, 2, 3, 4, 5)
"""
    tree = ast.parse(text)
    assert [call.lineno for call in long_calls(tree, own_callables({"": tree}))] == [4]
