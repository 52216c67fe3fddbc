"""egraph-serialize JSON, the format of the public extraction-gym: read and write.

A file is an object with `nodes` {e-node id: {`op`, `children`: [e-node ids], `eclass`, `cost`}} and
`root_eclasses` [class ids]; a child refers to the class of the named e-node. An e-node without a
cost costs 1. Other keys in the file are ignored.

Two further keys of an e-node, which plain files do not have, give several metrics and several
implementations:

    {"op": "Conv", "children": ["x.0"], "eclass": "y", "costs": {"time": 1.0, "energy": 2.0}}
    {"op": "Conv", "children": ["x.0"], "eclass": "y",
     "implementations": [{"name": "direct", "costs": {"time": 1.0, "energy": 2.0}},
                         {"name": "winograd", "costs": {"time": 0.5, "energy": 3.0}}]}

Plain `cost` is the metric named `cost`. Costs of the e-node apply to each of its implementations
that does not override them. Every implementation needs each metric that occurs in the file; only
`cost` has a default, the format's 1. `peaks` beside `nodes` names the metrics whose value for a
solution is the largest one, not the sum.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eqsat_opt.common.codecs import parse_json
from eqsat_opt.common.files import write_whole
from eqsat_opt.common.garbage import without_collection
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.gym.costs import METRIC, read_costs
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import IntArray, Problem

__all__ = [
    "METRIC",
    "GymFile",
    "NoEGraph",
    "from_document",
    "load_object",
    "read_json",
    "to_document",
    "write_json",
]


class NoEGraph(ExtractionError):
    """Error for a file that is JSON, but contains no e-graph."""


@dataclass(frozen=True, eq=False)
class GymFile:
    """A problem with the names that its file uses.

    Attributes:
        problem: the e-graph; its metrics are those of the file.
        class_names: name of each class.
        node_names: name of each e-node.
        ops: operator of each e-node.
        implementation_names: name of each row of `problem.impl_cost`; the number within the e-node
            where the file gives none.
    """

    problem: Problem
    class_names: tuple[str, ...]
    node_names: tuple[str, ...]
    ops: tuple[str, ...]
    implementation_names: tuple[str, ...]


def read_json(path: str | os.PathLike[str]) -> GymFile:
    """Read one file, plain or with the further keys.

    Raises:
        NoEGraph: it has no `nodes` or no `root_eclasses`.
        ExtractionError: it cannot be read, is not JSON, gives a key twice, names e-nodes or classes
            that do not exist, or has a cost that is missing, negative or not finite.
    """
    with without_collection():
        data = load_object(path)
        try:
            return from_document(data)
        except NoEGraph as error:
            raise NoEGraph(f"{path} {error}") from error
        except ExtractionError as error:
            raise ExtractionError(f"{path}: {error}") from error


def from_document(data: Mapping[str, Any]) -> GymFile:
    """Read the e-graph in a JSON object; the errors are those of :func:`read_json`."""
    nodes, roots = data.get("nodes"), data.get("root_eclasses")
    if not isinstance(nodes, dict) or not isinstance(roots, list):
        raise NoEGraph("is not an egraph-serialize file: no nodes or root_eclasses")
    peaks = data.get("peaks", [])
    if not isinstance(peaks, list) or not all(isinstance(name, str) for name in peaks):
        raise ExtractionError(f"peaks is {peaks!r:.60}; it is a list of metrics")
    return _parsed(nodes, roots, peaks)


def load_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        NoEGraph: it contains another kind of value.
        ExtractionError: it cannot be read, is not JSON, or gives a key twice in one object.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ExtractionError(f"cannot read {path}: {error.strerror}") from error
    if not text.strip():
        raise ExtractionError(f"{path} is empty; write the e-graph again")
    try:
        data = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ExtractionError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise NoEGraph(f"{path} is not an egraph-serialize file: no nodes or root_eclasses")
    return data


def _parsed(nodes: dict[str, Any], roots: list[Any], peaks: list[str]) -> GymFile:
    """Parse all e-nodes at once in each step; search for the faulty one only after an error."""
    values = list(nodes.values())
    if set(map(type, values)) - {dict}:
        name = next(name for name, node in nodes.items() if not isinstance(node, dict))
        raise ExtractionError(f"e-node {name} is not an object; give it op, children and eclass")
    of_class = [node.get("eclass") for node in values]
    if set(map(type, of_class)) - {str}:
        name = next(n for n, c in zip(nodes, of_class, strict=True) if not isinstance(c, str))
        raise ExtractionError(f"e-node {name} has no eclass; give it the name of its class")
    ops = [node.get("op", "") for node in values]
    if set(map(type, ops)) - {str}:
        name, op = next((n, o) for n, o in zip(nodes, ops, strict=True) if not isinstance(o, str))
        raise ExtractionError(f"e-node {name} has the op {op!r}, which is not a string")
    classes = {name: number for number, name in enumerate(dict.fromkeys(of_class))}
    node_class = np.fromiter(map(classes.__getitem__, of_class), np.int64, len(of_class))
    child_ptr, child_ix = _children(nodes, node_class)
    metrics, impl_ptr, impl_cost, names = read_costs(nodes)
    for root in roots:
        if not isinstance(root, str):
            raise ExtractionError(f"the root class {root!r} is not a string")
        if root not in classes:
            raise ExtractionError(
                f"root class {root} does not exist; regenerate the file with its e-nodes"
            )
    problem = Problem(
        n_classes=len(classes),
        node_class=node_class,
        child_ptr=child_ptr,
        child_ix=child_ix,
        impl_ptr=impl_ptr,
        impl_cost=impl_cost,
        metrics=metrics,
        roots=tuple(classes[root] for root in roots),
        peaks=tuple(peaks),
    )
    return GymFile(
        problem=problem,
        class_names=tuple(classes),
        node_names=tuple(nodes),
        ops=tuple(ops),
        implementation_names=tuple(names),
    )


def _children(nodes: Mapping[str, Any], node_class: IntArray) -> tuple[IntArray, IntArray]:
    """Return row pointers and child classes."""
    lists = [node.get("children", ()) for node in nodes.values()]
    if set(map(type, lists)) - {list, tuple}:
        name = next(n for n, c in zip(nodes, lists, strict=True) if not isinstance(c, list | tuple))
        raise ExtractionError(f"e-node {name} has children that are not a list of e-node ids")
    pointers = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=pointers[1:])
    number = {name: i for i, name in enumerate(nodes)}
    try:
        named = map(number.__getitem__, chain.from_iterable(lists))
        child_nodes = np.fromiter(named, np.int64, int(pointers[-1]))
    except (KeyError, TypeError):
        for name, children in zip(nodes, lists, strict=True):
            for child in children:
                if not isinstance(child, str) or child not in number:
                    raise ExtractionError(
                        f"e-node {name} has the child {child}, which does not exist"
                    ) from None
        raise
    return pointers, node_class[child_nodes]


def write_json(
    path: str | os.PathLike[str],
    problem: Problem | GymFile,
    objective: Objective | None = None,
    *,
    ops: Sequence[str] | None = None,
) -> None:
    """Write an e-graph; `read_json` restores it.

    Args:
        path: file to write; it appears completely or not at all.
        problem: the problem; a `GymFile` keeps its names, a `Problem` gets numbers for names.
        objective: if given, the file is a plain one: each e-node gets the cost of its cheapest
            implementation. Otherwise all metrics and implementations are written.
        ops: operator of each e-node, for readers.

    Raises:
        ExtractionError: a child class has no e-node (the format refers to classes by an e-node), or
            the file cannot be written.
    """
    file = problem if isinstance(problem, GymFile) else _numbered(problem)
    text = json.dumps(to_document(file, objective, ops), indent=1)
    write_whole(path, text, ExtractionError)


def _numbered(problem: Problem) -> GymFile:
    classes = problem.node_class.tolist()
    counts = np.diff(problem.impl_ptr).tolist()
    return GymFile(
        problem=problem,
        class_names=tuple(map(str, range(problem.n_classes))),
        node_names=tuple(f"{cls}.{node}" for node, cls in enumerate(classes)),
        ops=tuple(map(str, range(problem.n_nodes))),
        implementation_names=tuple(str(i) for count in counts for i in range(count)),
    )


def to_document(
    file: GymFile, objective: Objective | None = None, ops: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the JSON object of an e-graph; for arguments and errors see :func:`write_json`."""
    problem, ops = file.problem, ops or file.ops
    of_class = problem.node_class.tolist()
    first: dict[int, str] = {}
    for cls, name in zip(of_class, file.node_names, strict=True):
        first.setdefault(cls, name)
    nodes: dict[str, dict[str, Any]] = {}
    for number, (name, cls) in enumerate(zip(file.node_names, of_class, strict=True)):
        children = problem.children(number)
        empty = next((c for c in children if c not in first), None)
        if empty is not None:
            raise ExtractionError(
                f"class {file.class_names[empty]} has no e-node, so {name} cannot refer to it"
            )
        nodes[name] = {
            "op": ops[number],
            "children": [first[c] for c in children],
            "eclass": file.class_names[cls],
        }
    if objective is not None:
        for node, cost in zip(nodes.values(), problem.scalar(objective)[0].tolist(), strict=True):
            node["cost"] = cost
    else:
        for number, node in enumerate(nodes.values()):
            node.update(_cost_keys(file, number))
    document = {"nodes": nodes, "root_eclasses": [file.class_names[r] for r in problem.roots]}
    if problem.peaks and objective is None:
        document["peaks"] = list(problem.peaks)
    return document


def _cost_keys(file: GymFile, node: int) -> dict[str, Any]:
    """Return the keys for the costs of one e-node, the plainest that are complete."""
    problem = file.problem
    begin, end = int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])
    rows = problem.impl_cost[begin:end].tolist()
    names = file.implementation_names[begin:end]
    if names != ("0",):
        return {
            "implementations": [
                {"name": name, "costs": dict(zip(problem.metrics, row, strict=True))}
                for name, row in zip(names, rows, strict=True)
            ]
        }
    if problem.metrics == (METRIC,):
        return {"cost": rows[0][0]}
    return {"costs": dict(zip(problem.metrics, rows[0], strict=True))}
