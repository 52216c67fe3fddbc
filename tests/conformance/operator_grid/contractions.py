"""Configurations of matrix products and convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.conformance.operator_grid.configuration import Configuration, Imported, Operand
from tests.conformance.operator_grid.generation import Values, covering, dtypes, on_grid, opsets

__all__ = ["SIZES", "window_pads"]

_EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk", [(2, 3), (3, 4)]), ("ij,jk->ki", [(2, 3), (3, 4)]),
    ("btd, edh -> beth", [(2, 3, 4), (5, 4, 6)]), ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("beth,ehd,bte->btd", [(2, 5, 3, 6), (5, 6, 4), (2, 3, 5)]), ("i,i->", [(3,), (3,)]),
    ("...ij,jk", [(2, 3, 4, 5), (5, 6)]), ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("abc,cba->b", [(2, 3, 4), (4, 3, 2)]), ("bi,bi->b", [(2, 3), (2, 3)]),
    ("ijk,ilm,njm,nlk,abc->", [(2, 3, 4), (2, 5, 6), (7, 3, 6), (7, 5, 4), (1, 2, 3)]),
]  # fmt: skip
"""Sums of products, and the shapes of their operands."""

SIZES = (7, 6, 5)
"""Extents of the data, axis by axis."""

_PADS = {
    "none": (0, 0, 0, 0, 0, 0),
    "one": (1, 1, 1, 1, 1, 1),
    "before": (2, 1, 1, 0, 0, 0),
    "after": (0, 0, 0, 1, 2, 1),
    "uneven": (0, 1, 0, 1, 0, 2),
}
PADS = ("implicit", *_PADS, "VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET")


def window_pads(name: str, axes: int) -> dict[str, Any]:
    """The attributes that spell a padding: begins then ends, ``auto_pad``, or none at all."""
    if name == "implicit":
        return {}
    if name in _PADS:
        return {"pads": (*_PADS[name][:axes], *_PADS[name][3 : 3 + axes])}
    if name == "NOTSET":
        return {"auto_pad": name, "pads": (1,) * 2 * axes}
    return {"auto_pad": name}


def _explicit(name: str, value: int, axes: int) -> dict[str, Any]:
    """An attribute of one number per axis; 0 leaves it to its default, -1 varies it."""
    if value == 0:
        return {}
    return {name: (2, 1, 3)[:axes] if value < 0 else (value,) * axes}


def _kernel(row: dict[str, Any]) -> tuple[int, ...]:
    """Not the same on all axes."""
    return tuple(row["kernel"] + (axis == 1) for axis in range(row["axes"]))


def _fits(row: dict[str, Any]) -> bool:
    """The kernel fits; what SAME means under dilation is undefined: runtimes refuse it."""
    extents = [max(row["dilations"], 1) * (k - 1) + 1 for k in _kernel(row)]
    return all(e <= s for e, s in zip(extents, SIZES, strict=False)) and not (
        row["pads"].startswith("SAME") and row["dilations"] > 1
    )


@on_grid("Conv")
def convolutions(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        3, _fits,
        axes=(1, 2, 3), kernel=(1, 2, 3), strides=(0, 1, 2, 3, -1), pads=PADS, dilations=(0, 2, 3),
        group=(0, 1, 2, 4), bias=(False, True),
    )  # fmt: skip
    for opset, (number, row) in itertools.product(opsets(op), enumerate(rows)):
        axes, group, kernel = row["axes"], row["group"], _kernel(row)
        dtype = ("float32", "float64")[(number + opset) % 2]
        attrs = window_pads(row["pads"], axes)
        attrs |= _explicit("strides", row["strides"], axes)
        attrs |= _explicit("dilations", row["dilations"], axes)
        attrs |= {"group": group} if group else {}
        attrs |= {"kernel_shape": kernel} if number % 3 else {}
        shapes: list[tuple[int, ...]] = [(2, 4, *SIZES[:axes]), (8, 4 // max(group, 1), *kernel)]
        shapes += [(8,)] if row["bias"] else []
        operands = [values(*shape, dtype=dtype) for shape in shapes]
        yield Imported(op, op, operands, attrs, opset)


@on_grid("Conv")
def thin_convolutions(op: str, values: Values) -> Iterator[Configuration]:
    """Extents of 1: one image, channel, row, output, or one position."""
    rows = covering(
        batch=(1, 2), channels=(1, 3), outputs=(1, 3), data=((1, 1), (1, 5), (5, 1), (3, 3)),
        pad=(0, 1), kernel=((1, 1), (3, 3)), depthwise=(False, True),
        where=lambda r: r["pad"] or r["kernel"] == (1, 1) or r["data"] == (3, 3),
    )  # fmt: skip
    for row in rows:
        channels = row["channels"]
        group = channels if row["depthwise"] else 1
        outputs = channels * row["outputs"] if row["depthwise"] else row["outputs"]
        x = values(row["batch"], channels, *row["data"])
        w = values(outputs, channels // group, *row["kernel"])
        attrs = {"pads": (row["pad"],) * 4, "group": group}
        yield Imported(op, op, [x, w], attrs, 13)


@on_grid("ConvTranspose")
def transposed_convolutions(op: str, values: Values) -> Iterator[Configuration]:
    """An output is only padded by less than the stride."""
    rows = covering(
        3, lambda r: not r["output_padding"] or r["strides"] in (2, 3),
        axes=(1, 2), kernel=(1, 2, 3), strides=(0, 1, 2, 3, -1),
        pads=("implicit", "none", "one", "before", "after", "uneven", "VALID"), dilations=(0, 1, 2),
        group=(0, 1, 2, 4), bias=(False, True), output_padding=(0, 1),
    )  # fmt: skip
    for opset, (number, row) in itertools.product(opsets(op), enumerate(rows)):
        axes, group = row["axes"], row["group"]
        kernel = (row["kernel"], 3)[:axes]
        dtype = ("float32", "float64")[(number + opset) % 2]
        attrs = window_pads(row["pads"], axes)
        attrs |= _explicit("strides", row["strides"], axes)
        attrs |= _explicit("dilations", row["dilations"], axes)
        attrs |= _explicit("output_padding", row["output_padding"], axes)
        attrs |= {"group": group} if group else {}
        attrs |= {"kernel_shape": kernel} if number % 3 else {}
        shapes: list[tuple[int, ...]] = [(2, 4, *(5, 4)[:axes]), (4, 3, *kernel)]
        shapes += [(3 * max(group, 1),)] if row["bias"] else []
        operands = [values(*shape, dtype=dtype) for shape in shapes]
        yield Imported(op, op, operands, attrs, opset)


@on_grid("MatMul")
def products(op: str, values: Values) -> Iterator[Configuration]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (6, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((3, 4), (7, 4, 2)), ((1, 1), (1, 1)), ((1,), (1,)),
        ((1, 4), (4, 1)), ((3, 1), (1, 3)), ((2, 1, 3, 4), (1, 5, 4, 1)),
    ]  # fmt: skip
    for opset in opsets(op):
        for dtype in dtypes(op, opset, ("float32", "float64", "float16", "int32", "int64")):
            for left, right in shapes:
                operands = [values(*left, dtype=dtype), values(*right, dtype=dtype)]
                yield Imported(op, op, operands, {}, opset)


@on_grid("MatMul")
def general_products(op: str, values: Values) -> Iterator[Configuration]:
    """Gemm: transposed operands, factors, and a third operand that broadcasts."""
    rows = covering(
        3, lambda r: r["opset"] >= 11 or r["bias"] is not None,
        left=(None, 0, 1), right=(None, 0, 1), alpha=(None, 1.0, 0.5, -2.0),
        beta=(None, 1.0, 0.25, 0.0),
        bias=(None, (), (1,), (5,), (3, 1), (1, 5), (3, 5)), opset=opsets("Gemm"),
        dtype=("float32", "float64"),
    )  # fmt: skip
    for row in rows:
        spelled = {
            "transA": row["left"], "transB": row["right"], "alpha": row["alpha"],
            "beta": row["beta"],
        }  # fmt: skip
        attrs = {name: value for name, value in spelled.items() if value is not None}
        a = values(*((4, 3) if row["left"] else (3, 4)), dtype=row["dtype"])
        b = values(*((5, 4) if row["right"] else (4, 5)), dtype=row["dtype"])
        operands: list[Operand] = [a, b]
        if row["bias"] is not None:
            operands.append(values(*row["bias"], dtype=row["dtype"]))
        yield Imported(op, "Gemm", operands, attrs, row["opset"])
    for left, right in ((1, 1), (0, 1)):
        whole = [values(4, 4, dtype="int64") for _ in range(3)]
        yield Imported(op, "Gemm", whole, {"transA": left, "transB": right}, 13)


@on_grid("MatMul")
def sums_of_products(op: str, values: Values) -> Iterator[Configuration]:
    for equation, shapes in _EQUATIONS:
        for dtype in ("float32", "float64"):
            operands = [values(*shape, dtype=dtype) for shape in shapes]
            yield Imported(op, "Einsum", operands, {"equation": equation}, 13)


@on_grid("Mul", "Transpose", "ReduceSum")
def other_sums(op: str, values: Values) -> Iterator[Configuration]:
    """Of pairs that share nothing, and of one operand."""
    every = {"Mul": "i,j->ij", "Transpose": "ijk->kij", "ReduceSum": "ij->j"}
    shapes = {"Mul": ((2,), (3,)), "Transpose": ((2, 3, 4),), "ReduceSum": ((2, 3),)}[op]
    operands = [values(*shape) for shape in shapes]
    yield Imported(op, "Einsum", operands, {"equation": every[op]}, 12)
