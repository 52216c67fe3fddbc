"""Configurations of images of another size."""

from __future__ import annotations

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
from tests.conformance.operator_grid.generation import Values, covering, on_grid, opsets

__all__: list[str] = []

_SHAPES = ((1, 2, 4, 5), (2, 1, 7, 3), (1, 1, 2, 2))
_SCALES = ((2.0, 2.0), (0.5, 0.6), (1.5, 3.0), (0.7, 1.0), (2.6, 0.4))
_SIZES = ((8, 10), (3, 2), (7, 9), (5, 5), (1, 12))


@on_grid("Resize")
def resizes(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        3, mode=("nearest", "linear"),
        place=("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_half_pixel_for_nn"),
        rounding=(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        shape=_SHAPES, scale=(*_SCALES, None), size=_SIZES, axes=(None, (2, 3), (-1, -2)),
        dtype=("float32", "uint8", "int32"), opset=[n for n in opsets(op) if n >= 11],
        where=lambda r: (r["axes"] is None or r["opset"] >= 18)
        and (r["mode"] == "nearest" or (r["dtype"] == "float32" and r["rounding"] is None))
        and not (r["mode"] == "linear" and r["place"] == "tf_half_pixel_for_nn")
        and not (
            r["rounding"] == "round_prefer_ceil"
            and r["place"] in ("asymmetric", "tf_half_pixel_for_nn")
        )
        and (r["scale"] is None or r["size"] == _SIZES[0]),
    )  # fmt: skip
    for row in rows:
        x = values(*row["shape"], dtype=row["dtype"])
        attrs: dict[str, Any] = {"mode": row["mode"]}
        attrs["coordinate_transformation_mode"] = row["place"]
        attrs |= {"nearest_mode": row["rounding"]} if row["rounding"] else {}
        attrs |= {"axes": row["axes"]} if row["axes"] else {}
        none: Operand = None if row["opset"] >= 13 else Fixed(np.zeros(0, np.float32))
        pair = row["size"] if row["scale"] is None else row["scale"]
        if row["axes"] is None:
            pair = (*(x.shape[:2] if row["scale"] is None else (1.0, 1.0)), *pair)
        elif row["axes"][0] < 0:
            pair = pair[::-1]
        operands: list[Operand] = [x, none, Fixed(np.asarray(pair, np.float32))]
        if row["scale"] is None:
            operands = [x, none, none, ints(pair)]
        yield Imported(op, op, operands, attrs, row["opset"])
    for shape, scale in (((2, 3), (2.0, 1.5)), ((1, 2, 2, 3, 4), (1.0, 1.0, 2.0, 1.5, 0.5))):
        for mode in ("nearest", "linear"):
            scales = Fixed(np.asarray(scale, np.float32))
            yield Imported(op, op, [values(*shape), None, scales], {"mode": mode}, 19)


@on_grid("Resize")
def older_resizes(op: str, values: Values) -> Iterator[Configuration]:
    """Upsample, by an attribute and by an operand, and the Resize that followed."""
    for shape in _SHAPES:
        for scale in ((2.0, 2.0), (1.0, 3.0), (1.5, 2.5)):
            for mode in ("nearest", "linear"):
                scales = (1.0, 1.0, *scale)
                given = Fixed(np.asarray(scales, np.float32))
                attrs: dict[str, Any] = {"mode": mode}
                yield Imported(op, "Upsample", [values(*shape)], {**attrs, "scales": scales}, 7)
                yield Imported(op, "Upsample", [values(*shape), given], attrs, 9)
                yield Imported(op, op, [values(*shape), given], attrs, 10)
        for mode in ("nearest", "linear"):
            less = Fixed(np.asarray((1.0, 1.0, 0.6, 0.5), np.float32))
            yield Imported(op, op, [values(*shape), less], {"mode": mode}, 10)
