"""Symbolic dimensions: integer polynomials over named sizes, kept in one normal form.

A dimension is a plain ``int`` or a :class:`SymDim`. Equal polynomials are equal objects, so shapes
compare with ``==``. A function that is not a polynomial (a floor division with a remainder, a
maximum, a minimum, the size to which others broadcast) becomes an atom of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Literal, get_args

__all__ = [
    "FUNCTIONS", "LITERALS", "MODULUS", "Atom", "Dim", "SymDim", "applied", "atom_of",
    "dim_broadcast", "dim_max", "dim_min", "dim_names", "dim_product", "encode_dim", "evaluate_dim",
    "floor_div", "is_size", "literal", "plain_symbol", "rewritten", "substituted", "sym",
]  # fmt: skip

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
        """Compare in a total order that is for sorting only; it does not compare sizes."""
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
    """Return the dimension with the name ``name``."""
    return SymDim((((name,), 1),))


def literal(dim: Dim) -> int:
    """Return a dimension that is a literal, as an integer.

    Raises:
        ValueError: the dimension is symbolic.
    """
    if isinstance(dim, SymDim):
        raise ValueError(f"the size {dim} is symbolic")
    return int(dim)


def is_size(dim: Dim) -> bool:
    """Return whether the signs of the terms prove that ``dim`` is never negative."""
    if isinstance(dim, int):
        return dim >= 0
    return all(c > 0 and all(map(_is_natural, names)) for names, c in dim.terms)


def _is_natural(name: str) -> bool:
    """Return whether a factor is never negative.

    Sizes are not negative, and divisors of sizes are positive.
    """
    atom = _ATOMS.get(name)
    if atom is None:
        return True
    match atom.function:
        case "floor":
            return is_size(atom.left)
        case "max":
            return is_size(atom.left) or is_size(atom.right)
        case "min" | "broadcast":
            return is_size(atom.left) and is_size(atom.right)


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
    """Return the term of the highest degree; among several, the last in the order of names."""
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
    """Divide two polynomials exactly; return ``None`` if no exact quotient is found.

    The method is long division by leading terms.
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


Function = Literal["broadcast", "floor", "max", "min"]
FUNCTIONS: frozenset[str] = frozenset(get_args(Function))
"""Names of the functions of two sizes that atoms represent."""


@dataclass(frozen=True)
class Atom:
    """A function of two sizes that is no polynomial.

    ``floor`` rounds down their quotient; ``broadcast`` is the size of an axis of which one operand
    has the one size and another the other, which are equal unless either is 1.
    """

    function: Function
    left: Dim
    right: Dim


_ATOMS: dict[str, Atom] = {}
"""Atoms by name, so that they can be evaluated."""


def atom_of(name: str) -> Atom | None:
    """Return the function that an atom represents, ``None`` for the name of a size."""
    return _ATOMS.get(name)


def applied(function: Function, left: Dim, right: Dim) -> Dim:
    """Return the value of a function of two sizes."""
    return _CONSTRUCTORS[function](left, right)


def floor_div(numerator: Dim, denominator: Dim) -> Dim:
    """Return ``numerator // denominator``: exact if the polynomial divides, else with a new atom.

    An integer divides the coefficients one by one, and only their remainders are left under the
    atom. A quotient of a quotient becomes one quotient.

    Raises:
        ZeroDivisionError: the denominator is the integer 0.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if denominator == 1:
        return numerator
    if numerator == denominator:
        return 1
    whole: Dim = 0
    if isinstance(numerator, SymDim):
        exact = _quotient(numerator, denominator)
        if exact is not None:
            return exact
        if isinstance(denominator, int) and denominator > 0:
            whole = _normal({names: c // denominator for names, c in numerator.terms})
            numerator = _normal({names: c % denominator for names, c in numerator.terms})
            if isinstance(numerator, int):
                return whole
            inner, added = _shifted_quotient(numerator)
            if inner is not None:
                above = inner.left + added * inner.right
                return whole + floor_div(above, inner.right * denominator)
    return whole + _atom("floor", numerator, denominator)


def _shifted_quotient(dim: SymDim) -> tuple[Atom | None, int]:
    """Split ``dim`` into a quotient by a positive integer and an added integer, if it is that."""
    terms = dict(dim.terms)
    added = terms.pop((), 0)
    ((names, coefficient), *others) = terms.items()
    atom = _ATOMS.get(names[0]) if len(names) == 1 and coefficient == 1 and not others else None
    if atom is None or atom.function != "floor" or not isinstance(atom.right, int):
        return None, 0
    return (atom, added) if atom.right > 0 else (None, 0)


def dim_min(left: Dim, right: Dim) -> Dim:
    """Return the smaller of two sizes: an atom unless their difference has a known sign."""
    if is_size(right - left):
        return left
    return right if is_size(left - right) else _atom("min", *_ordered(left, right))


def dim_max(left: Dim, right: Dim) -> Dim:
    """Return the larger of two sizes: an atom unless their difference has a known sign."""
    if is_size(right - left):
        return right
    return left if is_size(left - right) else _atom("max", *_ordered(left, right))


def dim_broadcast(left: Dim, right: Dim) -> Dim:
    """Return the size to which two sizes broadcast, which are equal or one of which is 1.

    That is the one that is never 1, if there is such a one, else an atom of all sizes that
    broadcast together. Sizes that do not broadcast have no such size; any number is returned.
    """
    sizes = {size for side in (left, right) for size in _broadcast_sizes(side) if size != 1}
    *others, whole = sorted(sizes, key=str) or [1]
    certain = [size for size in (*others, whole) if _is_never_one(size)]
    if certain:
        return min(certain, key=lambda size: isinstance(size, SymDim))
    for size in reversed(others):
        whole = _atom("broadcast", size, whole)
    return whole


def _broadcast_sizes(dim: Dim) -> Iterator[Dim]:
    """Yield the sizes that broadcast to a size: those of its atom, or itself."""
    atom = _ATOMS.get(plain_symbol(dim) or "")
    if atom is None or atom.function != "broadcast":
        yield dim
    else:
        yield from (size for side in (atom.left, atom.right) for size in _broadcast_sizes(side))


def _is_never_one(dim: Dim) -> bool:
    """Return whether a size is not 1 whatever its symbols are: it is larger, or a multiple."""
    if isinstance(dim, SymDim):
        return math.gcd(*(c for _, c in dim.terms)) > 1 or is_size(dim - 2)
    return dim != 1


def _ordered(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    return (left, right) if str(left) <= str(right) else (right, left)


def _atom(function: Function, left: Dim, right: Dim) -> SymDim:
    name = f"floor(({left})/({right}))" if function == "floor" else f"{function}({left}, {right})"
    _ATOMS[name] = Atom(function, left, right)
    return sym(name)


_CONSTRUCTORS: dict[Function, Callable[[Dim, Dim], Dim]] = {
    "broadcast": dim_broadcast,
    "floor": floor_div,
    "max": dim_max,
    "min": dim_min,
}


def dim_product(dims: Iterable[Dim]) -> Dim:
    """Return the product of all dimensions (1 for none)."""
    product: Dim = 1
    for dim in dims:
        product = product * dim
    return product


def dim_names(dim: Dim) -> Iterator[str]:
    """Yield the names whose sizes :func:`evaluate_dim` needs for ``dim``."""
    for monomial, _ in dim.terms if isinstance(dim, SymDim) else ():
        for name in monomial:
            atom = _ATOMS.get(name)
            if atom is None:
                yield name
            else:
                yield from dim_names(atom.left)
                yield from dim_names(atom.right)


def evaluate_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the value of ``dim`` at the given sizes; a quotient by 0 is 0, as no run has such.

    Raises:
        KeyError: a name in ``dim`` has no size.
    """
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        for name in monomial:
            if name not in sizes and name in _ATOMS:
                atom = _ATOMS[name]
                left, right = (evaluate_dim(one, sizes) for one in (atom.left, atom.right))
                has_value = right != 0 or atom.function != "floor"
                coefficient *= literal(applied(atom.function, left, right)) if has_value else 0
            else:
                coefficient *= sizes[name]
        total += coefficient
    return total


def substituted(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """Substitute sizes for some names of ``dim``, also within atoms."""
    return rewritten(dim, lambda name: sizes.get(name), applied) if sizes else dim


def rewritten(
    dim: Dim,
    size_of: Callable[[str], Dim | None],
    apply: Callable[[Function, Dim, Dim], Dim],
) -> Dim:
    """Substitute sizes for some names of ``dim``, and rebuild its atoms.

    Args:
        dim: the size to rewrite.
        size_of: returns the size to substitute for a name or an atom, ``None`` to keep it.
        apply: returns the value of a function of two sizes, which are already rewritten.
    """
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        product: Dim = coefficient
        for name in monomial:
            size, atom = size_of(name), _ATOMS.get(name)
            if size is None and atom is not None:
                left, right = (rewritten(one, size_of, apply) for one in (atom.left, atom.right))
                size = apply(atom.function, left, right)
            product = product * (sym(name) if size is None else size)
        total = total + product
    return total


MODULUS = (1 << 61) - 1
"""A prime; codes of symbolic sizes are residues modulo it."""
LITERALS = 1 << 32
"""Bound of literals: a code of smaller magnitude is the literal itself."""


def _atom_code(name: str, salt: int) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8, salt=salt.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little") % MODULUS


def encode_dim(dim: Dim, salt: int = 0) -> int:
    """Return an integer that represents ``dim`` in the e-graph.

    Literals represent themselves. A symbolic size is evaluated at pseudo-random values of its atoms
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
    """Return the constant operand of a Reshape to ``shape``, ``None`` if there is none.

    A 0 copies a dimension, and one -1 is inferred. Runtimes infer it by dividing by the other
    sizes, so these must never be 0.
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
    # One symbol may be inferred although it could be copied, if no other size is unknown.
    unknown = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) or dim == 0]
    if len(unknown) != 1:
        return None
    return tuple(-1 if axis in unknown else size for axis, size in enumerate(target))


def expand_target(source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """Return the constant operand of an Expand to ``shape``, ``None`` if there is none.

    A 1 keeps a symbolic dimension.
    """
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
    """Return the axes of size 1 that turn ``short`` into ``long``, if nothing else differs."""
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


def plain_symbol(dim: Dim) -> str | None:
    """Return the name of a dimension that is a single symbol, else ``None``."""
    if isinstance(dim, SymDim) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None
