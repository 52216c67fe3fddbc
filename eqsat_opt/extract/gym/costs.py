"""The costs in an egraph-serialize file, plain or with several metrics and implementations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.problem import FloatArray, IntArray

__all__ = ["METRIC", "read_costs"]

METRIC = "cost"
"""Name of the only metric of the plain format."""

_NUMBERS = {int, float}
_Row = dict[str, Any]


def read_costs(
    nodes: Mapping[str, Any],
) -> tuple[tuple[str, ...], IntArray, FloatArray, list[str]]:
    """Return the costs of all e-nodes.

    Args:
        nodes: e-node id to e-node, as in the file (`gym` describes the keys).

    Returns:
        The metrics, row pointers `[n_nodes + 1]`, costs `[n_implementations, n_metrics]` and the
        names of the implementations.

    Raises:
        ExtractionError: a cost is missing, of a wrong type, negative or not finite.
    """
    values = nodes.values()
    if not any("costs" in node or "implementations" in node for node in values):
        costs = [node.get("cost", 1.0) for node in values]
        column = _column(nodes, costs)
        pointers = np.arange(len(costs) + 1, dtype=np.int64)
        return (METRIC,), pointers, column.reshape(-1, 1), ["0"] * len(costs)
    rows: list[_Row] = []
    owners: list[str] = []
    names: list[str] = []
    pointers = np.zeros(len(nodes) + 1, dtype=np.int64)
    for position, (name, node) in enumerate(nodes.items()):
        for implementation, row in _implementations(name, node):
            names.append(implementation)
            owners.append(name)
            rows.append(row)
        pointers[position + 1] = len(rows)
    metrics = tuple(dict.fromkeys(chain.from_iterable(rows))) or (METRIC,)
    table = np.empty((len(rows), len(metrics)))
    for number, metric in enumerate(metrics):
        default = 1.0 if metric == METRIC else None
        table[:, number] = _column(owners, [row.get(metric, default) for row in rows], metric)
    return metrics, pointers, table, names


def _column(owners: Iterable[str], costs: list[Any], metric: str = METRIC) -> FloatArray:
    """Return the costs of one metric as floats, `[n_implementations]`."""
    if not set(map(type, costs)) - _NUMBERS:
        try:
            column = np.array(costs, dtype=np.float64)
        except OverflowError:
            pass  # an integer beyond all floats
        else:
            if bool((np.isfinite(column) & (column >= 0)).all()):
                return column
    for owner, cost in zip(owners, costs, strict=True):
        _check_cost(owner, metric, cost)
    raise AssertionError("one of the costs is wrong")


def _check_cost(owner: str, metric: str, cost: Any) -> None:
    what = "cost" if metric == METRIC else f"{metric} cost"
    if cost is None:
        raise ExtractionError(f"e-node {owner} has no {what}; give it one, 0 if it is free")
    if type(cost) not in _NUMBERS:
        raise ExtractionError(f"e-node {owner} has the {what} {cost!r}, which is not a number")
    try:
        value = float(cost)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0:
        raise ExtractionError(
            f"e-node {owner} costs {value} {metric}; costs must be finite and not negative"
        )


def _implementations(name: str, node: Mapping[str, Any]) -> list[tuple[str, _Row]]:
    """Return the name and costs of each implementation of an e-node."""
    common = _costs(name, node)
    if "implementations" not in node:
        return [("0", common)]
    given = node["implementations"]
    if not isinstance(given, list) or not given:
        raise ExtractionError(f"e-node {name} has implementations that are not a list of objects")
    found: dict[str, _Row] = {}
    for number, item in enumerate(given):
        if not isinstance(item, dict):
            raise ExtractionError(f"implementation {number} of e-node {name} is not an object")
        title = item.get("name", str(number))
        if not isinstance(title, str):
            raise ExtractionError(f"e-node {name} has the implementation {title!r}, no string")
        if title in found:
            raise ExtractionError(f"e-node {name} has two implementations named {title}")
        found[title] = {**common, **_costs(name, item)}
    return list(found.items())


def _costs(name: str, item: Mapping[str, Any]) -> _Row:
    costs = item.get("costs", {})
    if not isinstance(costs, dict):
        raise ExtractionError(f"e-node {name} has costs that are not an object of metrics")
    if METRIC in item:
        if METRIC in costs:
            raise ExtractionError(f"e-node {name} gives the metric {METRIC} twice; keep one")
        return {METRIC: item[METRIC], **costs}
    return dict(costs)
