"""Index semantics of contractions and windows: matrix products, convolutions, pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.ops.index.integers import (
    Formula,
    Poly,
    all_of,
    at_least,
    choose,
    divide,
    equal,
    less,
    poly,
    product,
    quotient,
    within,
)
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    IndexTensor,
    Inverse,
    Plus,
    Premises,
    Scalar,
    Times,
    Whole,
    aligned,
    broadcast_extents,
    literal,
    reduce_over,
)

__all__: list[str] = []

Operands = Sequence[IndexTensor]
Attrs = Mapping[str, Any]


def matmul(operands: Operands, _attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the matrix product over the last two axes; the axes before them broadcast."""
    a, b = operands
    require(a.rank >= 1 and b.rank >= 1, "MatMul of a scalar")
    inner = a.shape[-1]
    premises.same(inner, b.shape[-2 if b.rank > 1 else -1])
    batches = [a.shape[:-2], b.shape[:-2]]
    batch = broadcast_extents(batches, premises) if any(batches) else ()
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.rank > 1 else ()

    def element(operand: IndexTensor, index: Sequence[Poly], last: Sequence[Poly]) -> Scalar:
        outer = IndexTensor(
            operand.shape[: operand.rank - len(last)], lambda i: operand.at([*i, *last])
        )
        return aligned(outer, batch, index)

    def at(index: Sequence[Poly]) -> Scalar:
        outer, rest = index[: len(batch)], list(index[len(batch) :])
        i = rest[: len(rows)]
        j = rest[len(rows) :]
        return reduce_over(
            "sum",
            [inner],
            lambda k: Times((element(a, outer, [*i, k[0]]), element(b, outer, [k[0], *j]))),
        )

    return IndexTensor((*batch, *rows, *columns), at)


# Windows -----------------------------------------------------------------------------------------


class _Window:
    """Sliding windows over the axes after the first two."""

    def __init__(
        self, x: IndexTensor, kernel: Sequence[Poly], attrs: Attrs, premises: Premises
    ) -> None:
        """Check the attributes and find the number of positions."""
        n = x.rank - 2
        require(n >= 1 and len(kernel) == n, "windows need spatial axes")
        require(len(attrs["strides"]) == n == len(attrs["dilations"]), "one entry per axis")
        require(len(attrs["pads"]) == 2 * n, "two pads per axis")
        self.sizes, self.kernel = x.shape[2:], kernel
        self.strides, self.dilations = attrs["strides"], attrs["dilations"]
        self.before, self.after = attrs["pads"][:n], attrs["pads"][n:]
        ceil = literal(attrs.get("ceil", poly(0)))
        for extent in (*self.strides, *self.dilations, *kernel):
            premises.require(at_least(extent, 1))
        self.positions = tuple(self._positions(i, ceil, premises) for i in range(n))

    def _positions(self, i: int, ceil: int, premises: Premises) -> Poly:
        size, stride = self.sizes[i] + self.before[i], self.strides[i]
        span = size + self.after[i] - (self.dilations[i] * (self.kernel[i] - 1) + 1)
        count = quotient(span + stride - 1 if ceil else span, stride) + 1
        if ceil and stride.constant != 1:
            # ONNX drops a last window that would start in the padding after the data.
            count = choose(
                all_of(at_least(stride, 2), at_least((count - 1) * stride, size)), count - 1, count
            )
        premises.require(at_least(count, 1))
        if not ceil:
            premises.require(at_least(span, 0))
        return count

    def source(self, position: Sequence[Poly], k: Sequence[Poly]) -> list[Poly]:
        """Return the index in the data of element ``k`` of the window at ``position``."""
        return [
            position[i] * self.strides[i] + k[i] * self.dilations[i] - self.before[i]
            for i in range(len(k))
        ]

    def inside(self, source: Sequence[Poly]) -> Formula:
        """Return the condition that an index is in the data and not in the padding."""
        return all_of(*(within(s, size) for s, size in zip(source, self.sizes, strict=True)))


def _group_size(outputs: Poly, group: Poly, premises: Premises) -> Poly:
    """Return the outputs per group, and add the premise that the groups divide them."""
    exact = divide(outputs, group)
    if exact is not None:
        return exact
    share = quotient(outputs, group)
    premises.require(equal(share * group, outputs), at_least(share, 1))
    return share


def _bias(operands: Operands, channels: Poly, premises: Premises) -> IndexTensor | None:
    if len(operands) < 3:
        return None
    require(operands[2].rank == 1, "the bias is a vector")
    premises.same(operands[2].shape[0], channels)
    return operands[2]


def conv(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the convolution with strides, pads, dilations and groups."""
    x, w = operands[:2]
    require(x.rank == w.rank and x.rank >= 3, "data and weight have equal ranks")
    group = poly(attrs["group"])
    premises.require(at_least(group, 1))
    premises.same(x.shape[1], w.shape[1] * group)
    window = _Window(x, w.shape[2:], attrs, premises)
    share = _group_size(w.shape[0], group, premises)
    bias = _bias(operands, w.shape[0], premises)

    def at(index: Sequence[Poly]) -> Scalar:
        n, o, *position = index
        first = poly(0) if group.constant == 1 else quotient(o, share) * w.shape[1]
        total = reduce_over(
            "sum",
            w.shape[1:],
            lambda k: Times(
                (x.at([n, k[0] + first, *window.source(position, k[1:])]), w.at([o, *k]))
            ),
            lambda k: window.inside(window.source(position, k[1:])),
        )
        return total if bias is None else Plus((total, bias.at([o])))

    return IndexTensor((x.shape[0], w.shape[0], *window.positions), at)


def deconv(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the transposed convolution.

    The product x[a] w[k] is added at the index a * stride + k * dilation - pad.
    """
    x, w = operands[:2]
    require(x.rank == w.rank and x.rank >= 3, "data and weight have equal ranks")
    n_axes = x.rank - 2
    group, strides, dilations = poly(attrs["group"]), attrs["strides"], attrs["dilations"]
    pads, extra = attrs["pads"], attrs["output_padding"]
    require(len(strides) == n_axes == len(dilations) == len(extra), "one entry per axis")
    require(len(pads) == 2 * n_axes, "two pads per axis")
    premises.require(*(at_least(e, 1) for e in (group, *strides, *dilations)))
    premises.same(x.shape[1], w.shape[0])
    sizes = tuple(
        (x.shape[2 + i] - 1) * strides[i] + extra[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
        - pads[i] - pads[n_axes + i]
        for i in range(n_axes)
    )  # fmt: skip
    premises.require(*(at_least(size, 1) for size in sizes))
    share = _group_size(x.shape[1], group, premises)
    bias = _bias(operands, w.shape[1] * group, premises)

    def at(index: Sequence[Poly]) -> Scalar:
        n, o, *position = index
        which = poly(0) if group.constant == 1 else quotient(o, w.shape[1])

        def lands(k: Sequence[Poly]) -> Formula:
            data, kernel = k[1 : 1 + n_axes], k[1 + n_axes :]
            return all_of(
                *(
                    equal(data[i] * strides[i] + kernel[i] * dilations[i], position[i] + pads[i])
                    for i in range(n_axes)
                )
            )

        def term(k: Sequence[Poly]) -> Scalar:
            channel = k[0] + which * share
            return Times(
                (
                    x.at([n, channel, *k[1 : 1 + n_axes]]),
                    w.at([channel, o - which * w.shape[1], *k[1 + n_axes :]]),
                )
            )

        total = reduce_over("sum", (share, *x.shape[2:], *w.shape[2:]), term, lands)
        return total if bias is None else Plus((total, bias.at([o])))

    return IndexTensor((x.shape[0], w.shape[1] * group, *sizes), at)


def max_pool(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the greatest element of every window; the padding does not count."""
    (x,) = operands
    window = _Window(x, tuple(map(poly, attrs["kernel"])), attrs, premises)

    def at(index: Sequence[Poly]) -> Scalar:
        n, c, *position = index
        return reduce_over(
            "max",
            window.kernel,
            lambda k: x.at([n, c, *window.source(position, k)]),
            lambda k: window.inside(window.source(position, k)),
        )

    return IndexTensor((*x.shape[:2], *window.positions), at)


def average_pool(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the mean of every window; the padding counts if ``count_include_pad`` is set."""
    (x,) = operands
    window = _Window(x, tuple(map(poly, attrs["kernel"])), attrs, premises)
    padded = literal(attrs["count_include_pad"])
    ceil = literal(attrs["ceil"])

    def counted(source: Sequence[Poly]) -> Formula:
        if not padded:
            return window.inside(source)
        ends = (s + b for s, b in zip(window.sizes, window.after, strict=True))
        return all_of(*(less(s, end) for s, end in zip(source, ends, strict=True)))

    def at(index: Sequence[Poly]) -> Scalar:
        n, c, *position = index
        total = reduce_over(
            "sum",
            window.kernel,
            lambda k: x.at([n, c, *window.source(position, k)]),
            lambda k: window.inside(window.source(position, k)),
        )
        if padded and not ceil:
            return Times((total, Inverse(Whole(product(window.kernel)))))
        count = reduce_over(
            "sum",
            window.kernel,
            lambda _: Whole(poly(1)),
            lambda k: counted(window.source(position, k)),
        )
        return Times((total, Inverse(count)))

    return IndexTensor((*x.shape[:2], *window.positions), at)


def lrn(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return x / (bias + alpha/size * sum of squares over ``size`` channels)^beta."""
    (x,) = operands
    require(x.rank >= 2, "LRN needs a channel axis")
    size = poly(attrs["size"])
    before = quotient(size - 1, poly(2))

    def at(index: Sequence[Poly]) -> Scalar:
        def channel(k: Sequence[Poly]) -> Poly:
            return index[1] + k[0] - before

        def square(k: Sequence[Poly]) -> Scalar:
            element = x.at([index[0], channel(k), *index[2:]])
            return Times((element, element))

        total = reduce_over("sum", [size], square, lambda k: within(channel(k), x.shape[1]))
        scale = Times((attrs["alpha"], Inverse(Whole(size))))
        base = Plus((attrs["bias"], Times((scale, total))))
        return Times((x.at(index), Inverse(Call("Pow", (), (base, attrs["beta"])))))

    return IndexTensor(x.shape, at)
