"""Spellings of LayerNormalization and RMSNormalization."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.spellings.writer import (
    LAYER_EPSILON,
    RMS_EPSILON,
    SHAPE,
    WIDTH,
    Spelling,
    Writer,
    spelled,
)

__all__ = ["layer_norm", "mean_over", "over_root", "rms_norm", "squared"]


def mean_over(w: Writer, x: str, how: int, axis: int = -1) -> str:
    """The mean over an axis, kept."""
    count = float(SHAPE[axis])
    match how:
        case 0:
            return w("ReduceMean", x, axes=[axis], keepdims=1)
        case 1:
            return w("Div", w("ReduceSum", x, w.ints(axis), keepdims=1), count)
        case 2:
            return w("Mul", w("ReduceSum", x, w.ints(axis), keepdims=1), 1.0 / count)
        case _:
            return w("Unsqueeze", w("ReduceMean", x, axes=[axis], keepdims=0), w.ints(axis))


def over_root(w: Writer, variance: str, how: int, x: str) -> str:
    """X / sqrt(variance), in eight spellings."""
    match how:
        case 0:
            return w("Div", x, w("Sqrt", variance))
        case 1:
            return w("Mul", x, w("Reciprocal", w("Sqrt", variance)))
        case 2:
            return w("Mul", w("Pow", variance, -0.5), x)
        case 3:
            return w("Div", x, w("Pow", variance, 0.5))
        case 4:
            return w("Mul", x, w("Sqrt", w("Reciprocal", variance)))
        case 5:
            return w("Mul", x, w("Div", 1.0, w("Sqrt", variance)))
        case 6:
            return w("Mul", w("Pow", w("Sqrt", variance), -1.0), x)
        case _:
            return w("Mul", w("Sqrt", w("Div", 1.0, variance)), x)


def squared(w: Writer, x: str, how: int) -> str:
    return w("Mul", x, x) if how == 0 else w("Pow", x, 2.0)


def _variance(w: Writer, mean: str, centred: str, how: int, means: int) -> str:
    match how:
        case 0:
            return mean_over(w, squared(w, centred, 0), means)
        case 1:
            return mean_over(w, squared(w, centred, 1), means)
        case 2:
            return w("Sub", mean_over(w, squared(w, "x", 1), means), squared(w, mean, 0))
        case 3:
            return mean_over(w, squared(w, w("Sub", mean, "x"), 1), means)
        case _:
            return w("Neg", w("Sub", w("Mul", mean, mean), mean_over(w, w("Mul", "x", "x"), means)))


def _layer(w: Writer, means: int, root: int, variance: int, affine: int) -> str:
    mean = mean_over(w, "x", means)
    centred = w("Sub", "x", mean)
    spread = w("Add", _variance(w, mean, centred, variance, means), LAYER_EPSILON)
    scale, shift = w.vector(), w.vector()
    match affine:
        case 0:
            return w("Add", w("Mul", over_root(w, spread, root, centred), scale), shift)
        case 1:
            return w("Add", shift, over_root(w, spread, root, w("Mul", scale, centred)))
        case 2:
            return w("Add", w("Mul", centred, over_root(w, spread, root, scale)), shift)
        case 3:
            factor = over_root(w, spread, root, scale)
            return w("Add", w("Mul", "x", factor), w("Sub", shift, w("Mul", mean, factor)))
        case 4:
            return w("Mul", scale, over_root(w, spread, root, centred))
        case 5:
            return over_root(w, spread, root, centred)
        case _:
            ones = w.constant(np.ones(WIDTH, np.float32))
            zeros = w.constant(np.zeros(WIDTH, np.float32))
            return w("Add", w("Mul", over_root(w, spread, root, centred), ones), zeros)


def layer_norm() -> Iterator[Spelling]:
    for means, root, variance, affine in itertools.product(range(4), range(8), range(5), range(7)):
        if (means + root + 2 * variance + 3 * affine) % 5:
            continue

        def write(w: Writer, form: Sequence[int] = (means, root, variance, affine)) -> str:
            return _layer(w, *form)

        name = f"mean {means}, root {root}, variance {variance}, affine {affine}"
        yield spelled(
            "layer-norm", name, write, "LayerNormalization", epsilon=LAYER_EPSILON, axis=2
        )


def rms_norm() -> Iterator[Spelling]:
    for means, root, square, affine in itertools.product(range(4), range(8), range(2), range(4)):

        def write(w: Writer, form: Sequence[int] = (means, root, square, affine)) -> str:
            means, root, square, affine = form
            spread = w("Add", RMS_EPSILON, mean_over(w, squared(w, "x", square), means))
            if affine == 3:
                return over_root(w, spread, root, "x")
            scale = w.vector()
            if affine == 0:
                return w("Mul", scale, over_root(w, spread, root, "x"))
            if affine == 1:
                return over_root(w, spread, root, w("Mul", "x", scale))
            return w("Mul", "x", over_root(w, spread, root, scale))

        name = f"mean {means}, root {root}, square {square}, affine {affine}"
        yield spelled("rms-norm", name, write, "RMSNormalization", epsilon=RMS_EPSILON, axis=2)
