"""The parts of terms: variables with their shapes, and operators with their evaluation.

A setting fixes small shapes at which operators compose: matrices, images with kernels, and rows of
features. An equation at these shapes is a candidate for a rule, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.ir.ops import Array, IllTyped, get_op
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.generation.arithmetic import (
    PRIME,
    conv_pairs,
    inverse,
    matmul_pairs,
    pairs,
    random_function,
    reduced,
)

__all__ = ["OPERATORS", "Operation", "Setting", "SettingVariable", "Shape", "settings_for"]

Shape = tuple[int, ...]
Evaluation = Callable[..., Array]
"""Takes one batch, or two of which all pairs are evaluated; the first axis numbers the terms."""

_MATRIX = 3
_SAMPLES, _CHANNELS, _IMAGE, _KERNEL = 3, 2, 3, 3


@dataclass(frozen=True)
class SettingVariable:
    """A variable of terms, with the shape at which it is evaluated."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Operation:
    """An operator with its attributes.

    Attributes:
        key: the name that the command line gives it, such as ``concat``.
        op: the operator of the registry.
        attrs: its attributes at the shapes of the setting.
        arity: 1 or 2.
        evaluate: the batched evaluation in the prime field.
        part: 0 and 1 for the slices before and after the seam of a concatenation; else ``None``.
    """

    key: str
    op: str
    attrs: Mapping[str, Any]
    arity: int
    evaluate: Evaluation
    part: int | None = None

    @property
    def commutes(self) -> bool:
        """Whether operands may be exchanged."""
        return self.arity == 2 and get_op(self.op).commutative

    def result(self, *shapes: Shape) -> Shape | None:
        """Return the shape of the result, ``None`` for operands that do not fit.

        Elementwise operators take operands of equal shape here, so that no law rests on
        broadcasting.
        """
        if self.arity == 2 and get_op(self.op).kind == "pointwise" and len(set(shapes)) > 1:
            return None
        if self.part is not None and not self._cuts(shapes[0]):
            return None
        try:
            types = [TensorType("float32", shape) for shape in shapes]
            made = get_op(self.op).type_fn(types, self.attrs)
        except IllTyped:
            return None
        return tuple(int(one) for one in made.shape)  # type: ignore[arg-type]

    def _cuts(self, shape: Shape) -> bool:
        """Return whether a slice is one of two equal parts, or all of what is as large as one."""
        axis, lo, hi = (self.attrs[name] for name in ("axis", "lo", "hi"))
        return axis < len(shape) and shape[axis] in (2 * (hi - lo), hi)


@dataclass(frozen=True)
class Setting:
    """Variables and operators of one enumeration.

    Attributes:
        name: kind of the terms, such as ``matrices``.
        leaves: the variables.
        operations: the operators, in the order in which terms are made.
        most_elements: greatest number of elements of a term.
    """

    name: str
    leaves: tuple[SettingVariable, ...]
    operations: tuple[Operation, ...]
    most_elements: int

    def admits(self, shape: Shape | None) -> bool:
        """Return whether terms of a shape are enumerated."""
        return shape is not None and 0 < prod(shape) <= self.most_elements


# Evaluations -------------------------------------------------------------------------------------


def _elementwise(combine: Callable[[Array, Array], Array]) -> Evaluation:
    def evaluate(a: Array, b: Array) -> Array:
        made = combine(a[:, None], b[None])
        return reduced(made).reshape(-1, *a.shape[1:])

    return evaluate


def _concat(axis: int) -> Evaluation:
    def evaluate(a: Array, b: Array) -> Array:
        made = np.concatenate(pairs(a, b), axis=axis + 2)
        return made.reshape(-1, *made.shape[2:])

    return evaluate


def _slice(axis: int, lo: int, hi: int) -> Evaluation:
    where = (slice(None),) * (axis + 1) + (slice(lo, hi),)
    return lambda a: np.ascontiguousarray(a[where])


def _softmax(axis: int) -> Evaluation:
    def evaluate(a: Array) -> Array:
        powers = random_function(a, salt=2)
        return reduced(powers * inverse(reduced(powers.sum(axis=axis + 1, keepdims=True))))

    return evaluate


def _reduced_sum(axis: int, mean: bool) -> Evaluation:
    def evaluate(a: Array) -> Array:
        total = reduced(a.sum(axis=axis + 1, keepdims=True))
        count = pow(a.shape[axis + 1], PRIME - 2, PRIME) if mean else 1
        return reduced(total * count)

    return evaluate


# Operators ---------------------------------------------------------------------------------------


def _of_matrices(key: str) -> Iterator[Operation]:
    n = _MATRIX
    match key:
        case "matmul":
            yield Operation(key, "MatMul", attrs={}, arity=2, evaluate=matmul_pairs)
        case "transpose":
            yield Operation(
                key, "Transpose", attrs={"perm": (1, 0)}, arity=1,
                evaluate=lambda a: np.ascontiguousarray(a.transpose(0, 2, 1)),
            )  # fmt: skip
        case "concat" | "slice" | "softmax" | "reducesum" | "reducemean":
            for axis in (0, 1):
                yield from _along(key, axis, n)
        case _:
            yield from _of_any_shape(key)


def _of_images(key: str) -> Iterator[Operation]:
    match key:
        case "conv":
            pads = (1,) * 4
            attrs = {"strides": (1, 1), "pads": pads, "dilations": (1, 1), "group": 1}
            yield Operation(
                key, "Conv", attrs=attrs, arity=2, evaluate=lambda x, w: conv_pairs(x, w, pads)
            )
        case "concat":
            for axis in (0, 1):
                yield from _along(key, axis, 0)
        case "slice":
            yield from _along(key, 1, _CHANNELS)
        case _:
            yield from _of_any_shape(key)


def _along(key: str, axis: int, seam: int) -> Iterator[Operation]:
    """Return the operators that treat one axis separately; slices end or begin at ``seam``."""
    match key:
        case "concat":
            yield Operation(key, "Concat", attrs={"axis": axis}, arity=2, evaluate=_concat(axis))
        case "slice":
            for part, (lo, hi) in enumerate(((0, seam), (seam, 2 * seam))):
                attrs = {"axis": axis, "lo": lo, "hi": hi}
                yield Operation(
                    key, "Slice", attrs=attrs, arity=1, evaluate=_slice(axis, lo, hi), part=part
                )
        case "softmax":
            yield Operation(key, "Softmax", attrs={"axis": axis}, arity=1, evaluate=_softmax(axis))
        case "reducesum" | "reducemean":
            op = "ReduceSum" if key == "reducesum" else "ReduceMean"
            yield Operation(
                key, op, attrs={"axes": (axis,), "keepdims": 1}, arity=1,
                evaluate=_reduced_sum(axis, mean=key == "reducemean"),
            )  # fmt: skip


def _of_any_shape(key: str) -> Iterator[Operation]:
    match key:
        case "add":
            yield Operation(key, "Add", attrs={}, arity=2, evaluate=_elementwise(np.add))
        case "sub":
            yield Operation(
                key, "Sub", attrs={}, arity=2, evaluate=_elementwise(lambda a, b: a - b + PRIME)
            )
        case "mul":
            yield Operation(key, "Mul", attrs={}, arity=2, evaluate=_elementwise(np.multiply))
        case "relu":
            yield Operation(
                key, "Relu", attrs={}, arity=1, evaluate=lambda a: random_function(a, salt=1)
            )


OPERATORS = (
    "add", "sub", "mul", "matmul", "transpose", "concat", "slice", "relu", "conv", "softmax",
    "reducesum", "reducemean",
)  # fmt: skip
"""The names that ``rules generate --ops`` takes."""


def settings_for(names: Sequence[str]) -> tuple[Setting, ...]:
    """Return the settings in which operators are enumerated: matrices, and images for convolutions.

    Raises:
        OptionError: there is no such operator, or none was given.
    """
    for name in names:
        if name not in OPERATORS:
            raise OptionError(f"--ops has {name!r}; {or_nearest(name, OPERATORS)}")
    if not names:
        raise OptionError(f"--ops is empty; choose from {', '.join(OPERATORS)}")
    chosen = [name for name in OPERATORS if name in names]
    found = []
    if any(name != "conv" for name in chosen):
        square = (_MATRIX, _MATRIX)
        found.append(
            Setting(
                name="matrices",
                leaves=tuple(SettingVariable(name, square) for name in "xyzu"),
                operations=tuple(
                    op for name in chosen if name != "conv" for op in _of_matrices(name)
                ),
                most_elements=4 * _MATRIX**2,
            )
        )
    if "conv" in chosen:
        data = (_SAMPLES, _CHANNELS, _IMAGE, _IMAGE)
        kernel = (_CHANNELS, _CHANNELS, _KERNEL, _KERNEL)
        kinds = ("conv", "add", "sub", "concat", "slice", "relu")
        found.append(
            Setting(
                name="images and kernels",
                leaves=(
                    *(SettingVariable(n, data) for n in "xy"),
                    *(SettingVariable(n, kernel) for n in "wv"),
                ),
                operations=tuple(op for name in kinds if name in chosen for op in _of_images(name)),
                most_elements=2 * prod(data),
            )
        )
    return tuple(found)
