"""What a kernel of any operator computes: nests of loops around typed registers, as plain data.

`kernel` describes loops of float32 whose addresses are sums of strides; this describes the rest:
reductions, windows, borders, other element types. Indices and conditions are those of the registry
(:mod:`eqsat_opt.ir.ops.index.integers`), over loops and over registers of whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from eqsat_opt.ir.ops.index.integers import Atom, Formula, Poly

__all__ = [
    "Block",
    "Branch",
    "Fold",
    "FoldKind",
    "Let",
    "Load",
    "Loop",
    "LoopNest",
    "Memory",
    "Program",
    "Schedule",
    "Store",
    "Tile",
    "Value",
    "Whole",
]

FoldKind = Literal["sum", "max", "min", "product"]
Schedule = Literal["element", "row", "column", "tile"]


@dataclass(frozen=True)
class Value:
    """A register: its number and element type."""

    number: int
    dtype: str

    @property
    def atom(self) -> Atom:
        """As part of an index."""
        return Atom(f"v{self.number}")


@dataclass(frozen=True)
class Let:
    """A function of registers; a number is one without operands.

    Attributes:
        result: where it goes.
        function: a key of `kernel.FUNCTIONS`, `kernel.NUMBER`, ``Cast``, ``Where``, a comparison or
            a logical function.
        operands: registers.
        numbers: attributes of the function, or the number.
    """

    result: Value
    function: str
    operands: tuple[Value, ...] = ()
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class Whole:
    """An index as a number."""

    result: Value
    value: Poly


@dataclass(frozen=True)
class Load:
    """An element of a buffer that is read."""

    result: Value
    buffer: int
    place: Poly


@dataclass(frozen=True)
class Branch:
    """One of two values; only the block of the one that is taken runs."""

    result: Value
    condition: Formula
    then: Block
    then_value: Value
    otherwise: Block
    otherwise_value: Value


@dataclass(frozen=True)
class Loop:
    """An index variable that takes all values from 0 to below ``extent``."""

    variable: Atom
    extent: int


@dataclass(frozen=True)
class Fold:
    """The sum, product or extremum of a value over loops, where a condition holds.

    Attributes:
        result: where it goes; a sum of half types is one of float32 until then.
        kind: of the reduction.
        loops: the innermost last.
        where: condition on what is taken; where it does not hold, the block does not run.
        block: what one iteration computes.
        value: what it adds.
    """

    result: Value
    kind: FoldKind
    loops: tuple[Loop, ...]
    where: Formula
    block: Block
    value: Value

    @property
    def size(self) -> int:
        """Iterations."""
        return math.prod(loop.extent for loop in self.loops)


@dataclass(frozen=True)
class Store:
    """A register that goes to a buffer that is written."""

    buffer: int
    place: Poly
    value: Value


Statement = Let | Whole | Load | Branch | Fold | Store
Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Tile:
    """Two loops of which one is contiguous where a tensor is read, the other where it is written.

    Attributes:
        read, write: the loops.
        loads: registers that are read in the order of the first.
    """

    read: Atom
    write: Atom
    loads: tuple[int, ...]


@dataclass(frozen=True)
class LoopNest:
    """Loops that can run in any order, around blocks.

    Attributes:
        schedule: ``element``: each iteration by itself; ``row``: iterations of `rows` by
            themselves, of which each first reduces what `head` folds, by all threads of a block;
            ``column``: the same by some threads of a block, whose neighbours have the next
            iterations of the last of `rows`;
            ``tile``: elements of two loops by squares that wait in shared memory.
        rows: loops around `head`; all loops where there is one block only.
        head: what depends on rows alone.
        loops: those within a row.
        block: what depends on all of them; stores stand in it.
        tile: of the schedule ``tile``.
        lanes: iterations of the last loop that one thread takes, of the schedule ``element``. Its
            accesses are to packs of as many elements, or to one that all of them read.
    """

    schedule: Schedule
    rows: tuple[Loop, ...]
    head: Block
    loops: tuple[Loop, ...]
    block: Block
    tile: Tile | None = None
    lanes: int = 1

    @property
    def row_count(self) -> int:
        """Iterations of the outer loops."""
        return math.prod(loop.extent for loop in self.rows)

    @property
    def row_size(self) -> int:
        """Iterations of the inner loops."""
        return math.prod(loop.extent for loop in self.loops)

    @property
    def work(self) -> int:
        """Statements that run, over all iterations."""
        inner = _work(self.block) * self.row_size
        return (inner + _work(self.head)) * self.row_count


@dataclass(frozen=True)
class Memory:
    """A tensor as a kernel knows it: elements from a pointer on.

    Attributes:
        name: of the value.
        dtype: of its elements.
        low: the least place that is reached, at most 0.
        high: the greatest.
    """

    name: str
    dtype: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Program:
    """A kernel of any operators.

    Attributes:
        reads: what it reads, by buffer.
        writes: what it writes, by buffer.
        nests: in any order; together they write every element once.
    """

    reads: tuple[Memory, ...]
    writes: tuple[Memory, ...]
    nests: tuple[LoopNest, ...] = field(default=())

    @property
    def work(self) -> int:
        """Statements that run, roughly."""
        return sum(nest.work for nest in self.nests)


def _work(block: Block) -> int:
    total = 0
    for one in block:
        total += 1
        if isinstance(one, Fold):
            total += one.size * (1 + _work(one.block))
        elif isinstance(one, Branch):
            total += max(_work(one.then), _work(one.otherwise))
    return total
