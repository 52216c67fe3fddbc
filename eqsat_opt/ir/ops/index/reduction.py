"""Index semantics of reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.ops.index.integers import Poly, any_of, broadcast, equal, poly, product
from eqsat_opt.ir.ops.index.scalars import (
    MINUS_ONE,
    Call,
    IndexFn,
    IndexTensor,
    Inverse,
    Plus,
    Premises,
    ReduceKind,
    Scalar,
    Times,
    Whole,
    aligned,
    literal,
    reduce_over,
)

__all__: list[str] = []

Operands = Sequence[IndexTensor]
Attrs = Mapping[str, Any]


def _over(kind: ReduceKind, x: IndexTensor, axes: Sequence[int], index: Sequence[Poly]) -> Scalar:
    """Reduce ``x`` over ``axes``; ``index`` has all axes, but those of ``axes`` are ignored."""

    def element(k: Sequence[Poly]) -> Scalar:
        place = dict(zip(axes, k, strict=True))
        return x.at([place.get(axis, index[axis]) for axis in range(x.rank)])

    return reduce_over(kind, [x.shape[axis] for axis in axes], element)


def _mean(x: IndexTensor, axes: Sequence[int], index: Sequence[Poly]) -> Scalar:
    count = Whole(product(x.shape[axis] for axis in axes))
    return Times((_over("sum", x, axes, index), Inverse(count)))


def _minus(a: Scalar, b: Scalar) -> Scalar:
    return Plus((a, Times((MINUS_ONE, b))))


def reduction(kind: ReduceKind, *, mean: bool = False) -> IndexFn:
    """Return the index function of a reduction; ``keepdims`` keeps axes with extent 1."""

    def index_fn(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
        (x,) = operands
        axes = _axes(x, attrs)
        kept = [axis for axis in range(x.rank) if axis not in axes]
        keepdims = literal(attrs["keepdims"])

        def at(index: Sequence[Poly]) -> Scalar:
            if keepdims:
                full = list(index)
            else:
                place = dict(zip(kept, index, strict=True))
                full = [place.get(axis, poly(0)) for axis in range(x.rank)]
            return _mean(x, axes, full) if mean else _over(kind, x, axes, full)

        shape = tuple(
            poly(1) if axis in axes else extent
            for axis, extent in enumerate(x.shape)
            if keepdims or axis not in axes
        )
        return IndexTensor(shape, at)

    return index_fn


def _exponential(x: IndexTensor) -> IndexTensor:
    return IndexTensor(x.shape, lambda index: Call("Exp", (), (x.at(index),)))


def _softmax_axis(x: IndexTensor, attrs: Attrs) -> int:
    axis = literal(attrs["axis"])
    require(0 <= axis < x.rank, "no such axis")
    return axis


def softmax(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return exp(x) divided by its sum along ``axis``."""
    (x,) = operands
    axis, raised = _softmax_axis(x, attrs), _exponential(x)
    return IndexTensor(
        x.shape,
        lambda index: Times((raised.at(index), Inverse(_over("sum", raised, [axis], index)))),
    )


def log_softmax(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return x minus the logarithm of the sum of exponentials along ``axis``."""
    (x,) = operands
    axis, raised = _softmax_axis(x, attrs), _exponential(x)

    def at(index: Sequence[Poly]) -> Scalar:
        total = Call("Log", (), (_over("sum", raised, [axis], index),))
        return _minus(x.at(index), total)

    return IndexTensor(x.shape, at)


# Normalisations ----------------------------------------------------------------------------------


def _centred(x: IndexTensor, axes: Sequence[int]) -> IndexTensor:
    return IndexTensor(x.shape, lambda index: _minus(x.at(index), _mean(x, axes, index)))


def _normal(x: IndexTensor, axes: Sequence[int], epsilon: Scalar) -> IndexTensor:
    """Return ``x`` divided by the root of its mean square plus epsilon."""

    def square(index: Sequence[Poly]) -> Scalar:
        element = x.at(index)
        return Times((element, element))

    def at(index: Sequence[Poly]) -> Scalar:
        variance = _mean(IndexTensor(x.shape, square), axes, index)
        deviation = Call("Sqrt", (), (Plus((variance, epsilon)),))
        return Times((x.at(index), Inverse(deviation)))

    return IndexTensor(x.shape, at)


def _affine(
    x: IndexTensor, normal: IndexTensor, parameters: Operands, premises: Premises
) -> IndexTensor:
    """Apply a scale and a shift that broadcast to the shape of ``x``."""
    for parameter in parameters:
        require(parameter.rank <= x.rank, "a parameter has more axes than the data")
        extents = x.shape[x.rank - parameter.rank :]
        for extent, wanted in zip(parameter.shape, extents, strict=True):
            premises.require(any_of(equal(extent, 1), equal(extent, wanted)))
            premises.require(equal(broadcast(extent, wanted), wanted))

    def at(index: Sequence[Poly]) -> Scalar:
        element: Scalar = Times((normal.at(index), aligned(parameters[0], x.shape, index)))
        for shift in parameters[1:]:
            element = Plus((element, aligned(shift, x.shape, index)))
        return element

    return IndexTensor(x.shape, at)


def _axes(x: IndexTensor, attrs: Attrs) -> list[int]:
    axes = [literal(axis) for axis in attrs["axes"]]
    require(bool(axes) and all(0 <= axis < x.rank for axis in axes), "no such axes")
    require(len(set(axes)) == len(axes), "an axis is reduced once")
    return axes


def center(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return the operand minus its mean over ``axes``."""
    (x,) = operands
    return _centred(x, _axes(x, attrs))


def root_mean_square(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return the operand divided by the root of its mean square over ``axes`` plus epsilon."""
    (x,) = operands
    return _normal(x, _axes(x, attrs), attrs["epsilon"])


def _trailing(x: IndexTensor, attrs: Attrs) -> list[int]:
    axis = literal(attrs["axis"])
    require(0 <= axis < x.rank, "no such axis")
    return list(range(axis, x.rank))


def layer(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the layer normalisation over the axes from ``axis`` on."""
    x = operands[0]
    axes = _trailing(x, attrs)
    return _affine(x, _normal(_centred(x, axes), axes, attrs["epsilon"]), operands[1:], premises)


def rms(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the layer normalisation without centring, over the axes from ``axis`` on."""
    x = operands[0]
    axes = _trailing(x, attrs)
    return _affine(x, _normal(x, axes, attrs["epsilon"]), operands[1:], premises)


def _channels(operands: Operands, premises: Premises) -> IndexTensor:
    x = operands[0]
    require(x.rank >= 2, "no channel axis")
    for parameter in operands[1:]:
        require(parameter.rank == 1, "parameters are vectors")
        premises.same(parameter.shape[0], x.shape[1])
    return x


def batch(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the batch normalisation with given statistics."""
    x = _channels(operands, premises)

    def at(index: Sequence[Poly]) -> Scalar:
        scale, shift, mean, variance = (p.at([index[1]]) for p in operands[1:])
        factor = Times((scale, Inverse(Call("Sqrt", (), (Plus((variance, attrs["epsilon"])),)))))
        return Plus((Times((x.at(index), factor)), _minus(shift, Times((mean, factor)))))

    return IndexTensor(x.shape, at)


def instance(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the normalisation of every channel of every sample."""
    x = _channels(operands, premises)
    axes = list(range(2, x.rank))
    require(bool(axes), "no spatial axis")
    normal = _normal(_centred(x, axes), axes, attrs["epsilon"])

    def at(index: Sequence[Poly]) -> Scalar:
        scale, shift = (p.at([index[1]]) for p in operands[1:])
        return Plus((Times((normal.at(index), scale)), shift))

    return IndexTensor(x.shape, at)
