"""Docstrings and comments that do not read alone, found by their words.

    python -m benchmarks.words [FOLDER ...]

Prints every breach as `file:line: text`, and exits with 1 if there is one; `.ci/run` runs it on the
package. Functions begin with a verb, properties and classes with a noun; no sentence begins with a
word that needs the name before it; a few turns of phrase are refused with the standard word.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from rich.console import Console

__all__ = ["breaches", "main"]

PACKAGE = Path(__file__).parents[1] / "eqsat_opt"

_FRAGMENTS = ("As", "By", "Of", "What", "Who", "Whoever", "Whose")
"""First words of a sentence that has no subject of its own."""

_NO_VERB = """
    A All An And Another Any Are At Both Each Either Every Everything For From Half How If
    In Into Is It Its Last Less Lower Many More Most Much Names New No None Nothing Number
    On One Only Or Other Others Our Same Several Some Such That The Their There These They
    This Those To Twice Two Under Upper Us We When Where Whether Which While With Without
"""
"""First words of a docstring that begins with no verb."""

_NO_VERBS = frozenset(_NO_VERB.split())

_PHRASES = {
    r"\bwhoever\b": "name the caller, the user or the component",
    r"\bwhat is told\b": "name the information",
    r"\btells? (nothing|of)\b": "say: has no meaning, names",
    r"\bso many (times|seconds|bytes|substitutions)\b": "say: this many, a multiple of",
    r"\btold (by|apart|from)\b": "say: derived from, distinguished by",
    r"\b(is|are) dear(er)?\b|\bdear(er|est)? (to|than|kernel|one)": "say: expensive, costs more",
    r"\bwhere (it|they|he) (lies?|stands?)\b": "name the place",
    r"\bthe other parts\b": "name them",
    r"\bstands? (in|for|behind|beside|there|at)\b": "say: is in, represents, follows",
    r"\b(tells?|says?) (how|what|which|whether|who|where)\b": "say: describes, returns, decides",
}
"""Turns of phrase, and what to write instead."""

_ENTRY = re.compile(r"^ +\w[\w, ]*: (what|whose|who|of|as|by what) .*", re.MULTILINE)
"""An entry of a section, such as ``Args:``, that describes no thing by a noun."""

_SENTENCE = re.compile(r"(?<=[.;:!?])\s+(?=[A-Z])")
_LITERAL = re.compile(r"``.*?``|`.*?`", re.DOTALL)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return " ".join(ast.unparse(one) for one in node.decorator_list)


def _begins_with_verb(node: ast.AST) -> bool:
    """Return whether the docstring of a node should begin with a verb.

    Properties describe a value, and declared rules an equation.
    """
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    exempt = r"property|\brule\b|\b_law\b|\brewrite\b|\bequation\b|setter|overload"
    return not re.search(exempt, _decorators(node))


def _documented(tree: ast.Module) -> Iterator[tuple[ast.AST, int, str]]:
    for node in ast.walk(tree):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node, getattr(node.body[0], "lineno", 1), text


def _attribute_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts below assignments."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        if not isinstance(body, list):
            continue
        for before, after in pairwise(body):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if is_text and isinstance(before, ast.Assign | ast.AnnAssign):
                value = after.value.value
                if isinstance(value, str):
                    yield after.lineno, value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def _in_text(text: str) -> Iterator[str]:
    plain = _LITERAL.sub("x", text)
    for sentence in _SENTENCE.split(plain):
        first = sentence.split(maxsplit=1)[0].strip(",.") if sentence.split() else ""
        if first in _FRAGMENTS and not sentence.rstrip().endswith("?"):
            yield f"a sentence begins with {first}: {' '.join(sentence.split())[:70]}"
    for phrase, advice in _PHRASES.items():
        if found := re.search(phrase, plain):
            yield f"{found[0]!r}: {advice}"


def breaches(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each breach in a module."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node, line, text in _documented(tree):
        first = text.split(maxsplit=1)[0].rstrip(",.:")
        if _begins_with_verb(node) and first in _NO_VERBS:
            yield line, f"no verb first: {text.splitlines()[0][:70]}"
        yield from ((line, one) for one in _in_text(text))
        for entry in _ENTRY.finditer(text):
            yield line, f"an entry begins with no noun: {entry[0].strip()[:70]}"
    for line, text in (*_attribute_texts(tree), *_comments(source)):
        yield from ((line, one) for one in _in_text(text))


def main(arguments: list[str] | None = None) -> int:
    """Print all breaches; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[PACKAGE])
    console, count = Console(soft_wrap=True), 0
    folders = parser.parse_args(arguments).folders
    if missing := [str(folder) for folder in folders if not folder.exists()]:
        parser.error(f"there is no {', '.join(missing)}; give files or folders")
    for folder in folders:
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            for line, text in sorted(breaches(path)):
                console.print(f"{path}:{line}: {text}", markup=False, highlight=False)
                count += 1
    console.print(f"{count} breaches")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())
