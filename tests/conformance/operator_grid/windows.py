"""Configurations of pools and local response normalisation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.conformance.operator_grid.configuration import Configuration, Imported
from tests.conformance.operator_grid.contractions import SIZES, window_pads
from tests.conformance.operator_grid.generation import (
    LAST_OPSET,
    Values,
    covering,
    dtypes,
    has_attribute,
    on_grid,
    opsets,
)

__all__: list[str] = []

_PADS = ("implicit", "none", "one", "before", "after", "uneven", "VALID", "SAME_UPPER",
         "SAME_LOWER")  # fmt: skip


def _makes_sense(row: dict[str, Any]) -> bool:
    """Pads are narrower than the kernel, which fits, and is not narrower than its stride."""
    widest = {"one": 1, "before": 2, "after": 2, "uneven": 2}.get(row["pads"], 0)
    extent = max(row["dilations"], 1) * (row["kernel"] - 1) + 1
    same = row["pads"].startswith("SAME")
    return (
        widest < row["kernel"]
        and extent <= SIZES[row["axes"] - 1]
        and not (same and (row["dilations"] > 1 or row["strides"] > extent))
    )


@cache
def _rows(average: bool, dilated: bool, ceil: bool) -> list[dict[str, Any]]:
    return covering(
        3, _makes_sense,
        axes=(1, 2, 3), kernel=(1, 2, 3), strides=(0, 1, 2, 3), pads=_PADS,
        dilations=(0, 1, 2) if dilated else (0,), ceil=(None, 0, 1) if ceil else (None,),
        include=(None, 0, 1) if average else (None,),
    )  # fmt: skip


@on_grid("MaxPool", "AveragePool")
def pools(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        types = dtypes(op, opset, ("float32", "float64", "int8", "uint8"))
        dilated, ceil = (has_attribute(op, opset, name) for name in ("dilations", "ceil_mode"))
        for number, row in enumerate(_rows(op == "AveragePool", dilated, ceil)):
            axes = row["axes"]
            attrs: dict[str, Any] = {"kernel_shape": (row["kernel"],) * axes}
            attrs |= window_pads(row["pads"], axes)
            attrs |= {"strides": (row["strides"],) * axes} if row["strides"] else {}
            attrs |= {"dilations": (row["dilations"],) * axes} if row["dilations"] else {}
            attrs |= {"ceil_mode": row["ceil"]} if row["ceil"] is not None else {}
            attrs |= {"count_include_pad": row["include"]} if row["include"] is not None else {}
            x = values(1, 2, *SIZES[:axes], dtype=types[(number + opset) % len(types)])
            yield Imported(op, op, [x], attrs, opset)


@on_grid("MaxPool", "AveragePool")
def oblong_pools(op: str, values: Values) -> Iterator[Configuration]:
    """Axes that differ in everything, and extents of 1."""
    shapes: list[tuple[tuple[int, int], ...]] = [
        ((7, 9), (3, 2), (2, 1), (1, 0), (0, 1)), ((6, 5), (2, 4), (1, 3), (0, 2), (1, 1)),
        ((1, 5), (1, 3), (1, 2), (0, 1), (0, 1)), ((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
        ((1, 1), (3, 3), (2, 2), (1, 1), (1, 1)), ((8, 8), (3, 3), (4, 4), (1, 1), (1, 1)),
    ]  # fmt: skip
    includes = (0, 1) if op == "AveragePool" else (None,)
    for (data, kernel, strides, before, after), ceil, include in itertools.product(
        shapes, (0, 1), includes
    ):
        attrs = {
            "kernel_shape": kernel, "strides": strides, "pads": (*before, *after),
            "ceil_mode": ceil,
        }  # fmt: skip
        attrs |= {"count_include_pad": include} if include is not None else {}
        for dtype in ("float32", "float64"):
            yield Imported(op, op, [values(1, 3, *data, dtype=dtype)], attrs, 19)


@on_grid("LRN")
def response_normalisations(op: str, values: Values) -> Iterator[Configuration]:
    """Images, which are all that the other implementations know."""
    rows = covering(
        3, size=(1, 2, 3, 4, 5, 7), alpha=(None, 0.3), beta=(None, 0.5), bias=(None, 2.0),
        shape=((2, 6, 3, 4), (1, 1, 2, 2), (4, 4, 1, 2)), opset=opsets(op),
        dtype=("float32", "float64"),
    )  # fmt: skip
    for row in rows:
        attrs = {n: row[n] for n in ("size", "alpha", "beta", "bias") if row[n] is not None}
        x = values(*row["shape"], dtype=row["dtype"])
        yield Imported(op, op, [x * 3], attrs, row["opset"])


@on_grid("GlobalAveragePool", "GlobalMaxPool")
def global_pools(op: str, values: Values) -> Iterator[Configuration]:
    for opset, shape in itertools.product(
        (7, LAST_OPSET), ((2, 3, 5), (1, 1, 1, 1), (2, 3, 4, 5), (1, 2, 3, 2, 2))
    ):
        for dtype in ("float32", "float64"):
            yield Imported(op, op, [values(*shape, dtype=dtype)], {}, opset)
