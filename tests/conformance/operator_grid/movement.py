"""Configurations of operators that move data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.conformance.operator_grid.configuration import (
    Configuration,
    Fixed,
    Imported,
    Operand,
    ints,
)
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

_ANY = ("float32", "float64", "int64", "int32", "bool", "uint8")


@on_grid("Concat")
def concatenations(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        axis=(0, 1, 2, -1, -2, -3), sizes=((1, 1), (2, 3), (1, 5, 2), (4, 1, 1, 2)),
        rest=((2, 3, 4), (1, 1, 1)), dtype=_ANY, opset=opsets(op),
        where=lambda r: r["opset"] >= 11 or r["axis"] >= 0,
    )  # fmt: skip
    for row in rows:
        shapes = [list(row["rest"]) for _ in row["sizes"]]
        for shape, size in zip(shapes, row["sizes"], strict=True):
            shape[row["axis"]] = size
        operands = [values(*shape, dtype=row["dtype"]) for shape in shapes]
        yield Imported(op, op, operands, {"axis": row["axis"]}, row["opset"])
    yield Imported(op, op, [values(2), values(1)], {"axis": 0}, 13)


@on_grid("Slice")
def slices(op: str, values: Values) -> Iterator[Configuration]:
    """Bounds that are negative, beyond the end, on several axes, with the axes left out."""
    last = 2**31 - 1
    cuts: list[tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]] = [
        ((0,), (0,), (2,)), ((1,), (1,), (3,)), ((2,), (-2,), (last,)), ((1,), (-3,), (-1,)),
        (None, (1,), (3,)), (None, (0, 1), (2, 3)), ((0, 2), (1, 0), (9, 3)), ((1,), (3,), (4,)),
        ((2, 0), (1, 1), (4, 2)), (None, (1, 1, 1), (2, 2, 2)), ((0,), (-9,), (-1,)),
    ]  # fmt: skip
    cuts += [((-1,), (1,), (3,)), ((-2, -1), (0, 2), (-1, last))]
    for opset, (axes, starts, ends) in itertools.product(opsets(op), cuts):
        for dtype in ("float32", "int64", "float64"):
            x = values(3, 4, 5, dtype=dtype)
            if opset < 10:
                if axes is not None and (min(axes) < 0 or list(axes) != sorted(axes)):
                    continue
                attrs: dict[str, Any] = {"starts": starts, "ends": ends}
                attrs |= {} if axes is None else {"axes": axes}
                yield Imported(op, op, [x], attrs, opset)
                continue
            bounds: list[Operand] = [x, ints(starts), ints(ends)]
            where = None if axes is None else ints(axes)
            yield Imported(op, op, bounds if where is None else [*bounds, where], {}, opset)
            yield Imported(op, op, [*bounds, where, ints((1,) * len(starts))], {}, opset)


@on_grid("StridedSlice")
def strided_slices(op: str, values: Values) -> Iterator[Configuration]:
    """Steps of both signs, and bounds beyond both ends."""
    far = 2**63 - 1
    cuts = [
        (0, far, 2), (1, far, 2), (-1, -far - 1, -1), (-2, -far, -2), (4, 0, -3), (-99, 99, 3),
        (99, -99, -2), (0, 5, 4),
    ]  # fmt: skip
    for opset, cut, axis in itertools.product(opsets("Slice"), cuts, (0, -1)):
        if opset < 10:
            continue
        for dtype in ("float32", "int64", "bool"):
            begin, end, step = (ints((bound,)) for bound in cut)
            operands: list[Operand] = [
                values(5, 2, 5, dtype=dtype),
                begin,
                end,
                ints((axis,)),
                step,
            ]
            yield Imported(op, "Slice", operands, {}, opset)


@on_grid("Slice")
def splits(op: str, values: Values) -> Iterator[Configuration]:
    """Split into equal parts, into given ones, into a number of parts that does not divide."""
    for opset, axis in itertools.product(opsets("Split"), (None, 0, 1, -1)):
        if opset < 11 and axis is not None and axis < 0:
            continue
        shape = [3, 3]
        shape[axis or 0] = 6
        x = values(*shape)
        attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
        counts = {"num_outputs": 3} if opset >= 18 else {}
        yield Imported(op, "Split", [x], {**attrs, **counts}, opset, outputs=3)
        for sizes in ((2, 4), (1, 1, 4), (5, 1)):
            if has_attribute("Split", opset, "split"):
                given = {**attrs, "split": sizes}
                yield Imported(op, "Split", [x], given, opset, outputs=len(sizes))
            else:
                yield Imported(op, "Split", [x, ints(sizes)], attrs, opset, outputs=len(sizes))
        if opset >= 18:
            shape[axis or 0] = 7
            odd = values(*shape)
            yield Imported(op, "Split", [odd], {**attrs, "num_outputs": 3}, opset, outputs=3)


@on_grid("Transpose")
def transposes(op: str, values: Values) -> Iterator[Configuration]:
    perms: list[tuple[int, ...] | None] = [
        None, *itertools.permutations(range(3)), (0, 2, 3, 1), (3, 1, 0, 2), (1, 0), (0,),
    ]  # fmt: skip
    for opset, perm in itertools.product(opsets(op)[:3], perms):
        for dtype in ("float32", "int64", "bool"):
            shape = (2, 1, 4, 5)[: 3 if perm is None else len(perm)]
            attrs = {} if perm is None else {"perm": perm}
            yield Imported(op, op, [values(*shape, dtype=dtype)], attrs, opset)
    for rank in (1, 2, 4):
        yield Imported(op, op, [values(*(2, 3, 4, 5)[:rank])], {}, LAST_OPSET)


@on_grid("Reshape")
def reshapes(op: str, values: Values) -> Iterator[Configuration]:
    targets: list[tuple[int, ...]] = [
        (24,), (4, 6), (2, 1, 12), (1, 24), (-1,), (0, -1), (0, 0, 4), (2, -1, 2), (-1, 0, 1),
        (0, 0, -1, 1), (3, 2, 4), (1, 1, -1),
    ]  # fmt: skip
    rows = covering(
        target=targets, opset=opsets(op), allowzero=(None, 0, 1), dtype=("float32", "int64"),
        where=lambda r: r["allowzero"] is None
        or (r["opset"] >= 14 and not (r["allowzero"] and 0 in r["target"])),
    )  # fmt: skip
    for row in rows:
        attrs = {} if row["allowzero"] is None else {"allowzero": row["allowzero"]}
        x = values(2, 3, 4, dtype=row["dtype"])
        yield Imported(op, op, [x, ints(row["target"])], attrs, row["opset"])
    yield Imported(op, op, [values(1), ints(())], {}, 13)
    yield Imported(op, op, [values(), ints((1, 1))], {}, 13)


@on_grid("Reshape")
def other_reshapes(op: str, values: Values) -> Iterator[Configuration]:
    """Flatten, Squeeze and Unsqueeze; their axes were attributes once."""
    for opset, axis in itertools.product(opsets("Flatten"), (None, 0, 1, 2, 3, -1, -2, -3)):
        if opset >= 11 or axis is None or axis >= 0:
            attrs = {} if axis is None else {"axis": axis}
            yield Imported(op, "Flatten", [values(2, 3, 4)], attrs, opset)
    cases: list[tuple[str, tuple[int, ...], tuple[int, ...] | None]] = [
        ("Squeeze", (1, 3, 1), None), ("Squeeze", (1, 3, 1), (0,)), ("Squeeze", (1, 3, 1), (0, 2)),
        ("Squeeze", (1, 3, 1), (-1,)), ("Squeeze", (1, 1), None), ("Squeeze", (1, 2, 1), (-1, 0)),
        ("Unsqueeze", (2, 3), (0,)), ("Unsqueeze", (2, 3), (1, 3)), ("Unsqueeze", (2, 3), (2,)),
        ("Unsqueeze", (2, 3), (-1,)), ("Unsqueeze", (), (0, 1)), ("Unsqueeze", (2,), (2, 0)),
        ("Unsqueeze", (2, 3), (-1, 0, -3)),
    ]  # fmt: skip
    for node, shape, axes in cases:
        for opset in opsets(node):
            if opset < 11 and axes is not None and min(axes) < 0:
                continue
            for dtype in ("float32", "int64"):
                x = values(*shape, dtype=dtype)
                if axes is None:
                    yield Imported(op, node, [x], {}, opset)
                elif has_attribute(node, opset, "axes"):
                    yield Imported(op, node, [x], {"axes": axes}, opset)
                else:
                    yield Imported(op, node, [x, ints(axes)], {}, opset)


@on_grid("Expand")
def expansions(op: str, values: Values) -> Iterator[Configuration]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 1), (3, 4)), ((1,), (2, 3)), ((2, 1, 4), (5, 2, 3, 4)), ((), (2, 2)), ((3, 1), (1, 4)),
        ((2, 3, 4), (3, 1)), ((2, 1, 4), (3, 1)), ((1, 1), (1,)), ((3,), (3,)), ((3, 1), (2, 1, 6)),
    ]  # fmt: skip
    for opset, (before, after) in itertools.product(opsets(op), shapes):
        for dtype in dtypes(op, opset, _ANY):
            yield Imported(op, op, [values(*before, dtype=dtype), ints(after)], {}, opset)


@on_grid("Pad")
def paddings(op: str, values: Values) -> Iterator[Configuration]:
    """All axes, or (since 18) the last one, or both the other way round."""
    rows = covering(
        3, pads=((0, 1, 2, 0), (1, 1, 1, 1), (0, 0, 0, 3), (2, 1, 0, 0)), value=(None, -3.5, 2.0),
        axes=(None, (-1,), (1, 0)), mode=(None, "constant"), opset=opsets(op),
        dtype=("float32", "float64", "int64"),
        where=lambda r: (r["axes"] is None or r["opset"] >= 18)
        and r["dtype"] in dtypes(op, r["opset"], (r["dtype"],)),
    )  # fmt: skip
    for row in rows:
        dtype, opset, value = row["dtype"], row["opset"], row["value"]
        x, attrs = values(3, 4, dtype=dtype), {"mode": row["mode"]} if row["mode"] else {}
        if opset < 11:
            attrs |= {"pads": row["pads"], **({} if value is None else {"value": value})}
            yield Imported(op, op, [x], attrs, opset)
            continue
        operands: list[Operand] = [
            x,
            ints(row["pads"][1::2] if row["axes"] == (-1,) else row["pads"]),
        ]
        operands.append(None if value is None else Fixed(np.asarray(value, dtype)))
        operands.append(None if row["axes"] is None else ints(row["axes"]))
        while operands[-1] is None:
            operands.pop()
        yield Imported(op, op, operands, attrs, opset)
    yield Imported(op, op, [values(1, 2, 3, 4), ints((0, 0, 1, 2, 0, 0, 3, 0))], {}, 13)


@on_grid("Pad", "Slice")
def croppings(op: str, values: Values) -> Iterator[Configuration]:
    """Pads below 0, of which onnxruntime makes a slice, alone and beside others."""
    every = [(-1, 0, 0, -2), (0, -1, -1, 0), (-2, -3, 0, 0)]
    every = [(-1, 1, 2, -1), (2, -1, 0, -2), (0, 1, -1, 0)] if op == "Pad" else every
    for opset, pads in itertools.product(opsets("Pad"), every):
        x = values(3, 4)
        operands: list[Operand] = [x] if opset < 11 else [x, ints(pads)]
        yield Imported(op, "Pad", operands, {"pads": pads} if opset < 11 else {}, opset)


@on_grid("Continued")
def continuations(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        mode=("reflect", "edge", "wrap"), pads=((0, 1, 2, 0), (1, 1, 1, 1), (2, 3, 2, 2)),
        axes=(None, (-1,), (1, 0)), opset=opsets("Pad"), dtype=("float32", "float64", "int64"),
        where=lambda r: (r["axes"] is None or (r["opset"] >= 18 and max(r["pads"]) < 3))
        and (r["mode"] != "wrap" or r["opset"] >= 19)
        and r["dtype"] in dtypes("Pad", r["opset"], (r["dtype"],)),
    )  # fmt: skip
    for row in rows:
        x, pads, opset = values(3, 4, dtype=row["dtype"]), row["pads"], row["opset"]
        attrs = {"mode": row["mode"]}
        if opset < 11:
            yield Imported(op, "Pad", [x], {**attrs, "pads": pads}, opset)
            continue
        operands: list[Operand] = [x, ints(pads[1::2] if row["axes"] == (-1,) else pads)]
        operands += [] if row["axes"] is None else [None, ints(row["axes"])]
        yield Imported(op, "Pad", operands, attrs, opset)
    yield Imported(op, "Pad", [values(1, 2, 9), ints((0, 0, 8, 0, 0, 8))], {"mode": "reflect"}, 13)
    yield Imported(op, "Pad", [values(1, 2, 4), ints((0, 0, 9, 0, 0, 8))], {"mode": "edge"}, 13)


@on_grid("Gather")
def gathers(op: str, values: Values) -> Iterator[Configuration]:
    indices = [np.array(1), np.array([0, 2]), np.array([[0, 2], [1, 1]]), np.array([2]),
               np.array([-1, 0])]  # fmt: skip
    rows = covering(
        axis=(None, 0, 1, 2, -1, -3), index=range(len(indices)), opset=opsets(op),
        dtype=("float32", "int64", "bool"), whole=("int64", "int32"),
        where=lambda r: r["opset"] >= 11 or r["index"] < 4,
    )  # fmt: skip
    for row in rows:
        attrs = {} if row["axis"] is None else {"axis": row["axis"]}
        index = indices[row["index"]].astype(row["whole"])
        yield Imported(op, op, [values(3, 4, 3, dtype=row["dtype"]), index], attrs, row["opset"])
    yield Imported(op, op, [values(5), np.array(3)], {"axis": 0}, 13)
