"""The shape of the package, measured: root modules, folders, circles, long modules, class names.

    python -m benchmarks.structure

Prints the figures and every breach of the bounds, and exits with 1 if there is one; `.ci/run` runs
it. Which room may import which is in `.importlinter`, for `lint-imports`.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import rustworkx
from rich.console import Console

__all__ = ["breaches", "main"]

PACKAGE = Path(__file__).parents[1] / "eqsat_opt"

MOST_ROOT_MODULES = 6
MOST_MODULES_IN_A_FOLDER = 20
MOST_LINES = 500
REASON = "It is long because"
"""What the docstring of a module of more lines says, with the reason."""

SHARED_NAMES = frozenset(
    ("Atom", "Budget", "Call", "Constant", "Instance", "Numbers", "Open", "Place", "Sizes", "Step",
     "Term", "Undefined")
)  # fmt: skip
"""Public classes of one name in several modules; most of them are in what certificates rest on."""


def modules_of(package: Path) -> dict[str, Path]:
    """Return the modules below a package, by their dotted names; a package is its `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, those for types only left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield inner if inner in modules else str(node.module)
        else:
            yield from imports_of(node, modules)


def circles(modules: Mapping[str, Path]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle."""
    graph = rustworkx.PyDiGraph()
    index = {name: graph.add_node(name) for name in modules}
    for name, path in modules.items():
        for other in imports_of(ast.parse(path.read_text(encoding="utf-8")), modules):
            if other != name:
                graph.add_edge(index[name], index[other], None)
    groups = rustworkx.strongly_connected_components(graph)
    return [sorted(graph[node] for node in group) for group in groups if len(group) > 1]


def homonyms(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the modules of each public class name that several modules define."""
    found: dict[str, list[str]] = {}
    for name, path in modules.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name)
    return {name: homes for name, homes in found.items() if len(homes) > 1}


def breaches(package: Path = PACKAGE) -> Iterator[str]:
    """Yield a line for each breach of the bounds."""
    modules = modules_of(package)
    root = [name for name, path in modules.items() if path.parent == package]
    if len(root) > MOST_ROOT_MODULES:
        yield f"{len(root)} modules at the root, more than {MOST_ROOT_MODULES}: {', '.join(root)}"
    counts = Counter(path.parent for path in modules.values() if path.name != "__init__.py")
    for folder, count in counts.items():
        if count > MOST_MODULES_IN_A_FOLDER:
            where = folder.relative_to(package.parent)
            yield f"{where}: {count} modules, more than {MOST_MODULES_IN_A_FOLDER}"
    for name, path in modules.items():
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MOST_LINES and REASON not in (ast.get_docstring(ast.parse(text)) or ""):
            yield f"{name}: {lines} lines; split it, or say in its docstring: {REASON} …"
    for name, homes in homonyms(modules).items():
        if name not in SHARED_NAMES:
            yield f"{name} is a class of {', '.join(homes)}; give each a name of its own"
    for group in circles(modules):
        yield f"a circle of imports: {', '.join(group)}"


def main() -> int:
    """Print figures and breaches, and return the exit code."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    modules = modules_of(PACKAGE)
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in modules.values())
    folders = {path.parent for path in modules.values()}
    console.print(f"{len(modules)} modules in {len(folders)} folders, {lines} lines")
    found = list(breaches())
    for line in found:
        console.print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
