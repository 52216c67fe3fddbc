"""Enumeration of terms by representatives, and the pairs of terms that are equal.

A term of size k is an operator on terms of smaller sizes, which are representatives of their
classes: what two of them would give is given by one. Terms are evaluated in batches at one random
point, and are equal if the fingerprints of their values are (Bansal and Aiken, ASPLOS 2006; TASO,
SOSP 2019, section 3).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array
from eqsat_opt.lab.generation.arithmetic import PRIME
from eqsat_opt.lab.generation.settings import Operation, Setting, Shape

__all__ = ["Enumerated", "Tree", "enumerate_terms"]

Tree = tuple[Any, ...]
"""An operation's number and the trees of its operands; a variable is its number alone."""

_BATCH_ELEMENTS = 1 << 20
"""Elements of one batch of results, 8 MiB."""


@dataclass
class Enumerated:
    """The terms of a setting, and which are equal.

    Attributes:
        setting: variables and operators.
        terms: operation and operands of each term, by its number; a variable has -1 and itself.
        equal: pairs of a term and the earlier one that represents its class.
        counts: number of terms of each size.
        time_s: seconds of enumeration.
    """

    setting: Setting
    terms: list[tuple[int, int, int]] = field(default_factory=list)
    equal: list[tuple[int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    time_s: float = 0.0

    def tree(self, number: int) -> Tree | int:
        """Return a term as a tree."""
        op, a, b = self.terms[number]
        if op < 0:
            return a
        return (op, self.tree(a)) if b < 0 else (op, self.tree(a), self.tree(b))


@dataclass
class _Level:
    """Representatives of one size, by shape: their numbers and values."""

    numbers: dict[Shape, list[npt.NDArray[np.int64]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    values: dict[Shape, list[Array]] = field(default_factory=lambda: defaultdict(list))

    def stacked(self) -> dict[Shape, tuple[npt.NDArray[np.int64], Array]]:
        return {
            shape: (np.concatenate(self.numbers[shape]), np.concatenate(self.values[shape]))
            for shape in self.numbers
        }


class _Fingerprints:
    """Fingerprints of values: a random linear form over 64-bit integers for each shape."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._forms: dict[Shape, tuple[npt.NDArray[np.uint64], np.uint64]] = {}

    def of(self, values: Array) -> list[int]:
        shape = values.shape[1:]
        if shape not in self._forms:
            drawn = self._rng.integers(0, 2**64, prod(shape) + 1, dtype=np.uint64)
            self._forms[shape] = drawn[1:] | np.uint64(1), drawn[0]
        form, salt = self._forms[shape]
        flat = values.reshape(len(values), -1).astype(np.uint64)
        mixed = (flat * form).sum(axis=1, dtype=np.uint64) + salt
        return (mixed ^ (mixed >> np.uint64(29))).tolist()  # type: ignore[no-any-return]


class _Enumeration:
    def __init__(self, setting: Setting, seed: int) -> None:
        self.found = Enumerated(setting)
        self.rng = np.random.default_rng(seed)
        self.fingerprints = _Fingerprints(self.rng)
        self.known: dict[int, int] = {}
        self.levels: list[dict[Shape, tuple[npt.NDArray[np.int64], Array]]] = []

    def leaves(self) -> None:
        level = _Level()
        for number, leaf in enumerate(self.found.setting.leaves):
            value = self.rng.integers(1, PRIME, (1, *leaf.shape)).astype(np.float64)
            self.take(level, -1, np.array([number]), np.array([-1]), value, last=False)
        self.found.counts.append(len(self.found.terms))
        self.levels.append(level.stacked())

    def take(
        self,
        level: _Level,
        op: int,
        a: npt.NDArray[np.int64],
        b: npt.NDArray[np.int64],
        values: Array,
        *,
        last: bool,
    ) -> None:
        """Add a batch of terms, and keep the values of those that begin a class."""
        found, known = self.found, self.known
        first = len(found.terms)
        found.terms.extend(zip([op] * len(a), a.tolist(), b.tolist(), strict=True))
        fresh = []
        for number, mark in enumerate(self.fingerprints.of(values), start=first):
            other = known.setdefault(mark, number)
            if other == number:
                fresh.append(number - first)
            else:
                found.equal.append((number, other))
        if fresh and not last:
            shape = values.shape[1:]
            level.numbers[shape].append(np.array(fresh) + first)
            level.values[shape].append(values[fresh])

    def grow(self, size: int, *, last: bool) -> None:
        """Make all terms of a size."""
        before = len(self.found.terms)
        level = _Level()
        for number, operation in enumerate(self.found.setting.operations):
            if operation.arity == 1:
                self.unary(level, number, operation, last=last)
                continue
            for left in range(size):
                self.binary(level, number, operation, i=left, j=size - 1 - left, last=last)
        self.found.counts.append(len(self.found.terms) - before)
        self.levels.append(level.stacked())

    def unary(self, level: _Level, number: int, operation: Operation, *, last: bool) -> None:
        for shape, (numbers, values) in self.levels[-1].items():
            made = operation.result(shape)
            if not self.found.setting.admits(made):
                continue
            none = np.full(len(numbers), -1)
            for at in _batches(len(numbers), prod(shape)):
                result = operation.evaluate(values[at])
                self.take(level, number, numbers[at], none[at], result, last=last)

    def binary(
        self, level: _Level, number: int, operation: Operation, i: int, j: int, *, last: bool
    ) -> None:
        # The law that operands may be exchanged is found at size 1; further on one order is enough.
        halved = operation.commutes and i + j > 0
        if halved and i > j:
            return
        for left, (numbers, values) in self.levels[i].items():
            for right, (others, other_values) in self.levels[j].items():
                made = operation.result(left, right)
                if made is None or not self.found.setting.admits(made):
                    continue
                for at in _batches(len(numbers), prod(made) * len(others)):
                    result = operation.evaluate(values[at], other_values)
                    a = np.repeat(numbers[at], len(others))
                    b = np.tile(others, len(numbers[at]))
                    if halved and i == j:
                        kept = a <= b
                        a, b, result = a[kept], b[kept], result[kept]
                    self.take(level, number, a, b, result, last=last)


def _batches(count: int, elements: int) -> Iterator[slice]:
    step = max(1, _BATCH_ELEMENTS // max(1, elements))
    return (slice(at, at + step) for at in range(0, count, step))


def enumerate_terms(setting: Setting, size: int, seed: int) -> Enumerated:
    """Enumerate the terms of a setting with up to ``size`` operators.

    Args:
        setting: variables and operators.
        size: greatest number of operators of a term.
        seed: seed of the point at which terms are evaluated.
    """
    start = time.perf_counter()
    enumeration = _Enumeration(setting, seed)
    enumeration.leaves()
    for one in range(1, size + 1):
        enumeration.grow(one, last=one == size)
    enumeration.found.time_s = time.perf_counter() - start
    return enumeration.found
