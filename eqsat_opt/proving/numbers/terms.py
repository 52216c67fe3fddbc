"""The check that both sides of a rule compute each element by the same operations in order.

An element is the code of a term: of a variable's element at first, then of an operation and the
codes of its operands. The codes of a sum depend on the order of its terms. So where both sides have
the same codes they are the same computation, and have the same value whatever the numbers are: no
numbers have to be drawn. Nothing follows where the codes differ.

Codes are random numbers of 64 bits, so those of two different terms hardly ever agree.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np

from eqsat_opt.ir.ops import OPS, Array, AttrMap, with_trait
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.proving.numbers.evaluation import Program
from eqsat_opt.rules.bindings import Bindings

__all__ = ["OPAQUE", "TermDomain", "computes_alike"]

OPAQUE = frozenset({"Cast", "Gather", "ReduceMin", "ReduceProd"}) | with_trait("sorting")
"""Operators that read numbers themselves, without the domain."""
_PLAIN = 1 << 40
"""Bound on the whole numbers that are their own codes, because operators pad with them."""
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _REST = np.uint64(32), np.uint64(29)


@lru_cache(maxsize=1024)
def _key(text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mixed(key: np.uint64, codes: Array) -> Array:
    """Apply a random function, chosen by the key, to codes or to numbers that operators made."""
    mixed = codes.astype(np.int64, copy=False).view(np.uint64) ^ key
    for factor, shift in zip(_FACTORS, (_HALF, _REST), strict=True):
        mixed = mixed * factor
        mixed = mixed ^ (mixed >> shift)
    return np.asarray(mixed).view(np.int64)


def _coded(text: str, *operands: Array) -> Array:
    """Return the code of an operation on some operands in order."""
    key, code = _key(text), np.asarray(0)
    for operand in operands:
        code = _mixed(key, code ^ operand.astype(np.int64, copy=False))
    return code


class TermDomain:
    """The number domain whose numbers are codes of terms."""

    def __init__(self, name: str = FLOAT.name) -> None:
        """Take the name of the domain in which operators compute."""
        self.name = name

    def variable(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return the codes of the elements of an operand."""
        places = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        return _mixed(_key(f"element of {name}"), places)

    def add(self, a: Array, b: Array) -> Array:
        """Add elementwise; the operands may be exchanged."""
        key = _key("Add")
        return _mixed(key, _mixed(key, a) + _mixed(key, b))

    def sub(self, a: Array, b: Array) -> Array:
        """Subtract elementwise."""
        return _coded("Sub", a, b)

    def mul(self, a: Array, b: Array) -> Array:
        """Multiply elementwise; the operands may be exchanged."""
        key = _key("Mul")
        return np.asarray(_mixed(key, a) * _mixed(key, b))

    def div(self, a: Array, b: Array) -> Array:
        """Divide elementwise."""
        return _coded("Div", a, b)

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product: sums of :meth:`mul` over the last axis and the one before."""
        count = a.shape[-1]
        if count == 1:
            product = self.mul(a, b if b.ndim > 1 else b[:, None])
            dropped = ((-2,) if a.ndim == 1 else ()) + ((-1,) if b.ndim == 1 else ())
            return np.squeeze(product, dropped)
        key, weights = _key("Mul"), _weights("sum", count)
        right = _mixed(key, b) * (weights if b.ndim == 1 else weights[:, None])
        return _mixed(_key(f"sum of {count}"), np.asarray(np.matmul(_mixed(key, a), right)))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept; a sum of one term is that term."""
        return self._folded("sum", a, axes)

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the maximum over ``axes``, which are kept; that of one element is the element."""
        return self._folded("maximum", a, axes)

    def _folded(self, function: str, a: Array, axes: tuple[int, ...]) -> Array:
        """Apply a function to the elements along some axes, in the order of those axes."""
        folded = sorted(axis % a.ndim for axis in axes)
        count = math.prod(a.shape[axis] for axis in folded)
        if count == 1:
            return a
        kept = [axis for axis in range(a.ndim) if axis not in folded]
        shape = tuple(1 if axis in folded else size for axis, size in enumerate(a.shape))
        rows = a.transpose(*kept, *folded).reshape(*(a.shape[axis] for axis in kept), count)
        weighted = np.matmul(rows.astype(np.int64, copy=False), _weights(function, count))
        return _mixed(_key(f"{function} of {count}"), np.asarray(weighted)).reshape(shape)

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Choose between two operands by a condition."""
        return _coded("Where", condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a function with its attributes.

        The two operands of a commutative function may be exchanged in floating point. In a field
        such a function is a random one, whose operands have an order.
        """
        if self.name == FLOAT.name and len(operands) == 2 and OPS[function].commutative:
            a, b = operands
            operands = np.minimum(a, b), np.maximum(a, b)
        return _coded(f"{function}{sorted(attrs.items())}" if attrs else function, *operands)

    def constant(self, value: float, like: Array) -> Array:
        """Return the code of a number, which may be -0, infinite or NaN."""
        del like
        if abs(value) < _PLAIN and value == int(value) and str(value) != "-0.0":
            return np.asarray(int(value), dtype=np.int64)
        return np.asarray(_key(f"the number {value!r}")).view(np.int64)


@lru_cache(maxsize=64)
def _weights(function: str, count: int) -> Array:
    """Return a factor for each of the elements that a function folds, by position."""
    return _mixed(_key(f"place in {function}"), np.arange(count))


def computes_alike(sides: Program, bindings: Bindings, name: str) -> bool:
    """Return whether both sides of every root are the same terms at an instance.

    Args:
        sides: program of the instance, which caches the answer.
        bindings: types of the instance. Where numbers of several types meet, one operation may be
            several, so the answer is ``False``.
        name: name of the domain in question; operators compute in another way in floating point.
    """
    kind = name if name == FLOAT.name else "exact"
    if kind not in sides.alike:
        sides.alike[kind] = _computes_alike(sides, bindings, kind)
    return sides.alike[kind]


def _computes_alike(sides: Program, bindings: Bindings, name: str) -> bool:
    if any(step.op in OPAQUE for step in sides.steps):
        return False
    types = {type_.dtype for type_ in bindings.types.values()} - {"bool"}
    types |= {step.attrs["dtype"] for step in sides.steps if "dtype" in step.attrs}
    if len(types) > 1 and not types <= FLOATS:
        return False
    domain = TermDomain(name)
    with np.errstate(over="ignore"):
        values = {n: domain.variable(n, t.shape) for n, t in bindings.static_types.items()}
        return all(_same(left, right) for left, right in sides.run(values, domain))


def _same(left: Array, right: Array) -> bool:
    return left.shape == right.shape and bool((left == right).all())
