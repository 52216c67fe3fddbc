"""egraph-serialize JSON, the format of the public extraction-gym: read and write."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import Problem, ProblemBuilder

__all__ = ["METRIC", "GymFile", "read_json", "write_json"]

METRIC = "cost"
"""Name of the one metric that the format knows."""


@dataclass(frozen=True, eq=False)
class GymFile:
    """A problem with the names that its file uses.

    Attributes:
        problem: one implementation for each e-node, one metric, `METRIC`.
        class_names: name of each class.
        node_names: name of each e-node.
    """

    problem: Problem
    class_names: tuple[str, ...]
    node_names: tuple[str, ...]


def read_json(path: str | os.PathLike[str]) -> GymFile:
    """Read one file; an e-node without a cost costs 1.

    Raises:
        ExtractionError: the file cannot be read, is not in the format, or names e-nodes or classes
            that do not exist.
    """
    nodes, roots = _load(Path(path))
    builder = ProblemBuilder((METRIC,))
    classes: dict[str, int] = {}
    for name, node in nodes.items():
        if not isinstance(node, Mapping) or not isinstance(node.get("eclass"), str):
            raise ExtractionError(f"{path}: e-node {name} has no eclass; give it one")
        if node["eclass"] not in classes:
            classes[node["eclass"]] = builder.add_class()
    for name, node in nodes.items():
        children = []
        for child in node.get("children", ()):
            if child not in nodes:
                raise ExtractionError(
                    f"{path}: e-node {name} has the child {child}, which does not exist"
                )
            children.append(classes[nodes[child]["eclass"]])
        cost = node.get("cost", 1.0)
        if isinstance(cost, bool) or not isinstance(cost, int | float):
            raise ExtractionError(f"{path}: e-node {name} has the cost {cost!r}, not a number")
        builder.add_node(classes[node["eclass"]], children, [(cost,)])
    for root in roots:
        if root not in classes:
            raise ExtractionError(
                f"{path}: root class {root} does not exist; regenerate the file with its e-nodes"
            )
    try:
        problem = builder.build([classes[root] for root in roots])
    except ExtractionError as error:
        raise ExtractionError(f"{path}: {error}") from error
    return GymFile(problem, tuple(classes), tuple(nodes))


def _load(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExtractionError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ExtractionError(f"{path} is not JSON: {error}") from error
    nodes = data.get("nodes") if isinstance(data, dict) else None
    roots = data.get("root_eclasses") if isinstance(data, dict) else None
    if not isinstance(nodes, dict) or not isinstance(roots, list):
        raise ExtractionError(f"{path} is not an egraph-serialize file: no nodes or root_eclasses")
    return nodes, roots


def write_json(
    path: str | os.PathLike[str],
    problem: Problem,
    objective: Objective,
    *,
    ops: Sequence[str] | None = None,
) -> None:
    """Write a problem; the format keeps one cost, so each e-node gets its cheapest implementation.

    Args:
        path: file to write; it appears whole or not at all.
        problem: what to write.
        objective: prices the implementations.
        ops: operator of each e-node, for readers.

    Raises:
        ExtractionError: a child class has no e-node (the format refers to classes by an e-node), or
            the file cannot be written.
    """
    cost, _ = problem.scalar(objective)
    first: dict[int, int] = {}
    for node, cls in enumerate(problem.node_class.tolist()):
        first.setdefault(cls, node)
    names = [f"{cls}.{node}" for node, cls in enumerate(problem.node_class.tolist())]
    nodes: dict[str, dict[str, object]] = {}
    for node, name in enumerate(names):
        children = problem.children(node)
        empty = next((c for c in children if c not in first), None)
        if empty is not None:
            raise ExtractionError(f"class {empty} has no e-node, so {name} cannot refer to it")
        nodes[name] = {
            "op": ops[node] if ops is not None else str(node),
            "children": [names[first[c]] for c in children],
            "eclass": str(int(problem.node_class[node])),
            "cost": float(cost[node]),
        }
    text = json.dumps({"nodes": nodes, "root_eclasses": [str(r) for r in problem.roots]}, indent=1)
    _write_whole(Path(path), text)


def _write_whole(path: Path, text: str) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ExtractionError(f"cannot write {path}: {error.strerror}") from error
