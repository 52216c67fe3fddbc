"""Symbolic dimensions: integer polynomials over named sizes, kept in one normal form.

A dimension is a plain ``int`` or a :class:`SymDim`. Equal polynomials are equal objects, so shapes
compare with ``==``. What is not a polynomial (a floor division that leaves a rest) becomes an atom
of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import total_ordering

__all__ = [
    "LITERALS",
    "MODULUS",
    "Dim",
    "SymDim",
    "dim_names",
    "dim_product",
    "encode_dim",
    "evaluate_dim",
    "floor_div",
    "is_size",
    "literal",
    "quotient_of",
    "substituted",
    "sym",
]

Monomial = tuple[str, ...]
"""Sorted names of the factors, with repetition; ``()`` is the constant term."""


@total_ordering
@dataclass(frozen=True, slots=True)
class SymDim:
    """A polynomial with integer coefficients; construct with :func:`sym` and arithmetic."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        return _combine(_terms(self), _terms(other), 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(_terms(self), _terms(other), -1)

    def __rsub__(self, other: Dim) -> Dim:
        return _combine(_terms(other), _terms(self), -1)

    def __mul__(self, other: Dim) -> Dim:
        product: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other).items():
                monomial = tuple(sorted(left + right))
                product[monomial] = product.get(monomial, 0) + a * b
        return _normal(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other)

    def __neg__(self) -> Dim:
        return self * -1

    def __lt__(self, other: SymDim) -> bool:
        """A total order for sorting only; it says nothing about sizes."""
        return self.terms < other.terms

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = "*".join(monomial)
            if not monomial:
                parts.append(str(coefficient))
            elif coefficient == 1:
                parts.append(factors)
            else:
                parts.append(f"{coefficient}*{factors}")
        return " + ".join(parts)


Dim = int | SymDim


def sym(name: str) -> SymDim:
    """The dimension that is called ``name``."""
    return SymDim((((name,), 1),))


def literal(dim: Dim) -> int:
    """The integer that ``dim`` is.

    Raises:
        ValueError: it is symbolic.
    """
    if isinstance(dim, SymDim):
        raise ValueError(f"the size {dim} is symbolic")
    return int(dim)


def is_size(dim: Dim) -> bool:
    """Whether ``dim`` is negative for no sizes of its symbols, as far as its signs tell."""
    if isinstance(dim, int):
        return dim >= 0
    return all(coefficient > 0 for _, coefficient in dim.terms)


def _terms(value: Dim) -> dict[Monomial, int]:
    if isinstance(value, SymDim):
        return dict(value.terms)
    return {(): int(value)} if value else {}


def _normal(terms: Mapping[Monomial, int]) -> Dim:
    kept = tuple(sorted((m, c) for m, c in terms.items() if c))
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return SymDim(kept)


def _combine(left: dict[Monomial, int], right: dict[Monomial, int], sign: int) -> Dim:
    for monomial, coefficient in right.items():
        left[monomial] = left.get(monomial, 0) + sign * coefficient
    return _normal(left)


_DIVISION_STEPS = 64


def _leading(dim: SymDim) -> tuple[Monomial, int]:
    """The term of the highest degree, the last of them in the order of names."""
    return max(dim.terms, key=lambda term: (len(term[0]), term[0]))


def _divide_term(term: tuple[Monomial, int], by: tuple[Monomial, int]) -> Dim | None:
    (names, value), (monomial, coefficient) = term, by
    rest = list(names)
    for factor in monomial:
        if factor not in rest:
            return None
        rest.remove(factor)
    return None if value % coefficient else _normal({tuple(rest): value // coefficient})


def _quotient(numerator: SymDim, denominator: Dim) -> Dim | None:
    """The polynomial of which ``denominator`` times it is ``numerator``; ``None`` if there is none.

    Long division by leading terms.
    """
    by = _leading(denominator) if isinstance(denominator, SymDim) else ((), int(denominator))
    rest: Dim = numerator
    total: Dim = 0
    for _ in range(_DIVISION_STEPS):
        term = _leading(rest) if isinstance(rest, SymDim) else ((), rest)
        part = _divide_term(term, by)
        if part is None:
            return None
        total = total + part
        rest = rest - part * denominator
        if rest == 0:
            return total
    return None


_QUOTIENTS: dict[str, tuple[Dim, Dim]] = {}
"""What the atoms made by :func:`floor_div` mean, so that they can be evaluated."""


def floor_div(numerator: Dim, denominator: Dim) -> Dim:
    """``numerator // denominator``; exact where a monomial divides, else a new atom.

    Raises:
        ZeroDivisionError: the denominator is the integer 0.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if denominator == 1:
        return numerator
    if numerator == denominator:
        return 1
    if isinstance(numerator, SymDim):
        exact = _quotient(numerator, denominator)
        if exact is not None:
            return exact
    name = f"floor(({numerator})/({denominator}))"
    _QUOTIENTS[name] = (numerator, denominator)
    return sym(name)


def quotient_of(name: str) -> tuple[Dim, Dim] | None:
    """Numerator and denominator of an atom that :func:`floor_div` made, ``None`` for a name."""
    return _QUOTIENTS.get(name)


def dim_product(dims: Iterable[Dim]) -> Dim:
    """The product of all dimensions (1 for none)."""
    product: Dim = 1
    for dim in dims:
        product = product * dim
    return product


def dim_names(dim: Dim) -> Iterator[str]:
    """The names whose sizes :func:`evaluate_dim` needs for ``dim``."""
    for monomial, _ in dim.terms if isinstance(dim, SymDim) else ():
        for name in monomial:
            if name in _QUOTIENTS:
                for part in _QUOTIENTS[name]:
                    yield from dim_names(part)
            else:
                yield name


def evaluate_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of ``dim`` under ``sizes``.

    Raises:
        KeyError: a name in ``dim`` has no size.
    """
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        for name in monomial:
            if name not in sizes and name in _QUOTIENTS:
                above, below = _QUOTIENTS[name]
                coefficient *= evaluate_dim(above, sizes) // evaluate_dim(below, sizes)
            else:
                coefficient *= sizes[name]
        total += coefficient
    return total


def substituted(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """``dim`` with the sizes of some names in their place, within quotients too."""
    if isinstance(dim, int) or not sizes:
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        product: Dim = coefficient
        for name in monomial:
            if name in sizes:
                product = product * sizes[name]
            elif name in _QUOTIENTS:
                above, below = _QUOTIENTS[name]
                product = product * floor_div(substituted(above, sizes), substituted(below, sizes))
            else:
                product = product * sym(name)
        total = total + product
    return total


MODULUS = (1 << 61) - 1
"""A prime; codes of symbolic sizes are residues."""
LITERALS = 1 << 32
"""Codes of smaller magnitude are the literals that they look like."""


def _atom_code(name: str, salt: int) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8, salt=salt.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little") % MODULUS


def encode_dim(dim: Dim, salt: int = 0) -> int:
    """An integer that stands for ``dim`` in the e-graph.

    Literals stand for themselves. A symbolic size is evaluated at pseudo-random values of its atoms
    in the field of :data:`MODULUS` elements, so sums and products of codes are codes of sums and
    products, and two polynomials of degree d have one code with probability d / ``MODULUS`` at most
    (Schwartz 1980, Zippel 1979). Whether a symbolic size looks like a literal depends on ``salt``.
    """
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        for name in monomial:
            coefficient *= _atom_code(name, salt)
        total += coefficient
    return total % MODULUS


def reshape_target(source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The constant operand of a Reshape to ``shape``: 0 copies a dimension, one -1 is inferred.

    Runtimes infer it by dividing by the other sizes, so these must never be 0.
    """
    target: list[int] = []
    for axis, dim in enumerate(shape):
        copied = axis < len(source) and dim == source[axis]
        if isinstance(dim, int):
            target.append(dim if copied or dim != 0 else -1)
        else:
            target.append(0 if copied else -1)
    rests = target.count(-1)
    if rests == 0 or (rests == 1 and 0 not in target):
        return tuple(target)
    # One symbol may be inferred although it could be copied, if nothing else is left.
    unknown = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) or dim == 0]
    if len(unknown) != 1:
        return None
    return tuple(-1 if axis in unknown else size for axis, size in enumerate(target))


def expand_target(source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The constant operand of an Expand to ``shape``: 1 keeps a symbolic dimension."""
    target: list[int] = []
    for axis, dim in enumerate(shape):
        own = axis - len(shape) + len(source)
        if isinstance(dim, int):
            target.append(dim)
        elif own >= 0 and source[own] == dim:
            target.append(1)
        else:
            return None
    return tuple(target)


def unsqueezed_axes(short: tuple[Dim, ...], long: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The axes of size 1 that turn ``short`` into ``long``, if nothing else differs."""
    axes: list[int] = []
    position = 0
    for axis, dim in enumerate(long):
        if position < len(short) and dim == short[position]:
            position += 1
        elif dim == 1:
            axes.append(axis)
        else:
            return None
    return tuple(axes) if position == len(short) and axes else None
