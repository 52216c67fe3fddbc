"""The table of operators that work block by block, for the schema in :mod:`~.blockwise`."""

from __future__ import annotations

from eqsat_opt.rules.blockwise import Blockwise
from eqsat_opt.rules.term import Condition, Expr, Term, Var, is_float, ops

__all__ = [
    "AVERAGE_POOL",
    "COLUMNS",
    "FILTERS",
    "LAST_COLUMNS",
    "MAPPED",
    "MAX_POOL",
    "ROWS",
    "SAMPLES",
    "SOFTMAX",
    "TRANSPOSED",
    "WEIGHT_COLUMNS",
    "WEIGHT_FILTERS",
    "WEIGHT_ROWS",
    "reduced",
]

_WINDOWS = {"s": "Ints", "p": "Ints", "d": "Ints"}
_UNITED = "the blocks would be united by the operator"


def _conv(x: Term, w: Term, s: Expr, p: Expr, d: Expr, g: Expr | int) -> Term:
    return ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)


# Matrix products ----------------------------------------------------------------------------------

ROWS = Blockwise(
    apply=lambda x, z: x @ z,
    others={"z": "Tensor"},
    inner=lambda z, axis: axis,
    outer=lambda z, axis: axis,
    alike=lambda x, z, axis: (z.rank == 2, (axis + 1 < x.rank).because(_UNITED)),
    free_axis=True,
)
"""Any axis of the left operand but the last, where the right one is a matrix."""

COLUMNS = Blockwise(
    apply=lambda y, x: x @ y,
    others={"x": "Tensor"},
    operand=("y", "z"),
    inner=lambda x: 1,
    outer=lambda x: 1,
    alike=lambda y, x: (x.rank == 2, y.rank == 2),
)
"""Columns of the right operand of a product of matrices."""

LAST_COLUMNS = Blockwise(
    apply=COLUMNS.apply,
    others=COLUMNS.others,
    operand=COLUMNS.operand,
    inner=lambda x, axis: 1,
    outer=lambda x, axis: axis,
    alike=lambda y, x, axis: (y.rank == 2, axis + 1 == x.rank, x.rank >= 2),
    free_axis=True,
)
"""Columns of a right matrix; the axis of the result is a variable, so that a pattern binds it."""

WEIGHT_ROWS = Blockwise(
    apply=lambda x, w: x @ w,
    others={"w": "Weight"},
    inner=lambda w: 0,
    outer=lambda w: 0,
    alike=lambda x, w: (x.rank == 2, w.rank == 2),
)
"""Rows of a matrix that meets a weight: the steps of a recurrent net."""

WEIGHT_COLUMNS = Blockwise(
    apply=lambda w, x: x @ w,
    others={"x": "Tensor"},
    operand=("w", "v"),
    kind="Weight",
    inner=lambda x: 1,
    outer=lambda x: x.rank - 1,
    alike=lambda w, x: (
        x.rank >= 2,
        (w.rank == 2).because("only plain weight matrices are merged"),
    ),
)
"""Columns of a weight matrix that is the right operand of a product."""

# Convolutions -------------------------------------------------------------------------------------

FILTERS = Blockwise(
    apply=lambda w, x, s, p, d: _conv(x, w, s, p, d=d, g=1),
    others={"x": "Tensor", **_WINDOWS},
    operand=("w", "v"),
    inner=lambda **_: 0,
    outer=lambda **_: 1,
)
"""Filters of a convolution without groups, which would pair them with other inputs."""

WEIGHT_FILTERS = Blockwise(
    apply=FILTERS.apply,
    others=FILTERS.others,
    operand=("w", "v"),
    kind="Weight",
    inner=FILTERS.inner,
    outer=FILTERS.outer,
    shapes=lambda w, v: (w.rank == 4, w.dim(2) == v.dim(2), w.dim(3) == v.dim(3)),
)
"""Filters of a weight, which merge only if their windows are equal."""

SAMPLES = Blockwise(
    apply=lambda x, w, s, p, d, g: _conv(x, w, s, p, d=d, g=g),
    others={"w": "Tensor", **_WINDOWS, "g": "Int"},
    inner=lambda **_: 0,
    outer=lambda **_: 0,
)
"""Samples of a batch, which are independent of each other."""

# Others -------------------------------------------------------------------------------------------


MAPPED = Blockwise(
    apply=lambda x, f: f(x),
    others={"f": "Func"},
    inner=lambda f, axis: axis,
    outer=lambda f, axis: axis,
    free_axis=True,
)
"""Any elementwise function, any axis."""


def _pool(op: str, flags: dict[str, str]) -> Blockwise:
    keys = {"kernel": "k", "strides": "s", "pads": "p", "dilations": "d", **flags}
    return Blockwise(
        apply=lambda x, **o: getattr(ops, op)(x, **{key: o[name] for key, name in keys.items()}),
        others={name: "Int" if key in flags else "Ints" for key, name in keys.items()},
        inner=lambda axis, **_: axis,
        outer=lambda axis, **_: axis,
        alike=lambda x, axis, **_: ((axis < 2).because("windows lie on the other axes"),),
        free_axis=True,
    )


MAX_POOL = _pool("MaxPool", {"ceil": "c"})
AVERAGE_POOL = _pool("AveragePool", {"ceil": "c", "count_include_pad": "i"})

SOFTMAX = Blockwise(
    apply=lambda x, i: ops.Softmax(x, axis=i),
    others={"i": "Int"},
    inner=lambda i, axis: axis,
    outer=lambda i, axis: axis,
    alike=lambda x, i, axis: ((axis != i).because(_UNITED),),
    free_axis=True,
)

TRANSPOSED = Blockwise(
    apply=lambda x, p: ops.Transpose(x, perm=p),
    others={"p": "Ints"},
    inner=lambda p, axis: p[axis],
    outer=lambda p, axis: axis,
    free_axis=True,
)
"""An axis of the result; the operand's axis is computed, so the law is read in one direction."""


def reduced(op: str) -> Blockwise:
    """Return a reduction over one axis, which stays with extent 1; blocks lie along another.

    A mean of integers is rounded, so its laws are for floats only.
    """

    def alike(x: Var, i: Expr, axis: Expr) -> tuple[Condition, ...]:
        apart = (axis != i).because(_UNITED)
        return (apart, is_float(x)) if op == "ReduceMean" else (apart,)

    return Blockwise(
        apply=lambda x, i: getattr(ops, op)(x, axes=(i,), keepdims=1),
        others={"i": "Int"},
        inner=lambda i, axis: axis,
        outer=lambda i, axis: axis,
        alike=alike,
        free_axis=True,
    )
