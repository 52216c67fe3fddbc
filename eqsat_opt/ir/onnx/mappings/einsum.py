"""Einsum, read as products of matrices: the letters of axes decide which are summed, or kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from string import ascii_letters

from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import Call, expect, reads
from eqsat_opt.ir.values.dims import Dim, dim_product

__all__: list[str] = []

_DTYPES = ("float16", "float32", "float64", "int32", "int64")


@dataclass(frozen=True)
class _Factor:
    """A value whose axes have letters."""

    name: str
    letters: str


@reads("Einsum")
def _read_einsum(call: Call, context: ImportContext) -> None:
    """Read an Einsum from the left, two operands at a time.

    A letter occurs at most once in each operand.
    """
    ranks = [context.type(name).rank for name in call.inputs]
    terms, result = _parsed(call.attrs["equation"], ranks)
    types = [context.type(name) for name in call.inputs]
    expect(not context.exact and all(type_.dtype in _DTYPES for type_ in types))
    expect(all(len(set(term)) == len(term) for term in terms))
    expect(set(result) <= set().union(*terms) and not any(0 in type_.shape for type_ in types))
    product = _Product(context)
    value, *others = (_Factor(*pair) for pair in zip(call.inputs, terms, strict=True))
    for number, other in enumerate(others):
        later = set(result).union(*(one.letters for one in others[number + 1 :]))
        value = product.of(value, other, later)
    value = product.ordered(product.summed(value, set(result)), result)
    context.named(value.name, call.outputs[0])


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of all operands and of the result; an ellipsis has letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    expect(len(terms) == len(ranks))
    free = [letter for letter in ascii_letters if letter not in equation]
    widths = [
        rank - len(term.replace("...", "")) if "..." in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    expect(min(widths) >= 0 and max(widths) <= len(free))
    wide = "".join(free[: max(widths)])

    def spelled(term: str, width: int) -> str:
        return term.replace("...", wide[len(wide) - width :])

    if not arrow:
        counts = Counter(letter for term in terms for letter in term.replace("...", ""))
        right = "..." + "".join(sorted(letter for letter, count in counts.items() if count == 1))
    spelled_terms = [spelled(term, width) for term, width in zip(terms, widths, strict=True)]
    expect(all(len(term) == rank for term, rank in zip(spelled_terms, ranks, strict=True)))
    return spelled_terms, spelled(right, len(wide))


@dataclass(frozen=True)
class _Product:
    """A writer of the nodes that multiply factors."""

    context: ImportContext

    def shape(self, value: _Factor, letters: str) -> tuple[Dim, ...]:
        """Return the extents of some axes of a value."""
        extents = dict(zip(value.letters, self.context.type(value.name).shape, strict=True))
        return tuple(extents[letter] for letter in letters)

    def joined(self, left: _Factor, right: _Factor, letters: str) -> tuple[Dim, ...]:
        """Return the extents of axes along which two values are multiplied and not summed."""
        pairs = zip(self.shape(left, letters), self.shape(right, letters), strict=True)
        return tuple(self.context.joined(*pair) for pair in pairs)

    def summed(self, value: _Factor, kept: Set[str]) -> _Factor:
        """Sum over the axes whose letters are not in ``kept``."""
        axes = tuple(i for i, letter in enumerate(value.letters) if letter not in kept)
        if not axes:
            return value
        name = self.context.emit("ReduceSum", [value.name], axes=axes, keepdims=0)
        return _Factor(name, "".join(letter for letter in value.letters if letter in kept))

    def ordered(self, value: _Factor, letters: str) -> _Factor:
        """Transpose into another order of the axes."""
        if value.letters == letters:
            return value
        perm = tuple(value.letters.index(letter) for letter in letters)
        return _Factor(self.context.emit("Transpose", [value.name], perm=perm), letters)

    def reshaped(self, value: _Factor, shape: tuple[Dim, ...]) -> str:
        type_ = self.context.type(value.name)
        if type_.shape == shape:
            return value.name
        expect(self.context.is_expressible(type_, shape, "Reshape"))
        return self.context.emit("Reshape", [value.name], shape=shape)

    def of(self, left: _Factor, right: _Factor, later: Set[str]) -> _Factor:
        """Multiply two factors, summed over the axes that both have and no later factor has."""
        left = self.summed(left, later | set(right.letters))
        right = self.summed(right, later | set(left.letters))
        both = [letter for letter in left.letters if letter in right.letters]
        batch = "".join(letter for letter in both if letter in later)
        inner = "".join(letter for letter in both if letter not in later)
        rows = "".join(letter for letter in left.letters if letter not in both)
        columns = "".join(letter for letter in right.letters if letter not in both)
        if not inner:
            return self._spread(left, right, batch, (rows, columns))
        left = self.ordered(left, batch + rows + inner)
        right = self.ordered(right, batch + inner + columns)
        expect(self.shape(left, inner) == self.shape(right, inner))
        high, wide = self.shape(left, rows), self.shape(right, columns)
        depth = dim_product(self.shape(left, inner))
        height = high if not batch else (dim_product(high),)
        operands = [
            self.reshaped(left, (*self.shape(left, batch), *(height or (1,)), depth)),
            self.reshaped(right, (*self.shape(right, batch), depth, dim_product(wide))),
        ]
        whole = (*self.joined(left, right, batch), *high, *wide)
        name = self.context.emit("MatMul", operands)
        return _Factor(self.reshaped(_Factor(name, ""), whole), batch + rows + columns)

    def _spread(self, left: _Factor, right: _Factor, batch: str, own: tuple[str, str]) -> _Factor:
        """Multiply all pairs of elements that agree in the axes that both factors have."""
        rows, columns = own
        left = self.ordered(left, batch + rows)
        right = self.ordered(right, batch + columns)
        ones: tuple[Dim, ...] = (1,)
        wide = self.reshaped(left, (*self.shape(left, batch + rows), *ones * len(columns)))
        tall = (*self.shape(right, batch), *ones * len(rows), *self.shape(right, columns))
        operands = [wide, self.reshaped(right, tall)]
        return _Factor(self.context.emit("Mul", operands), batch + rows + columns)
