"""Kernels of any operators, nests of loops around typed registers, as plain data.

`kernel` describes loops of float32 whose addresses are sums of strides; this module describes all
other kernels: reductions, windows, borders, other element types. Indices and conditions are those
of the registry (:mod:`eqsat_opt.ir.ops.index.integers`), over loops and over integer registers.
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
    "IndexValue",
    "KernelProgram",
    "KernelValue",
    "Let",
    "Load",
    "Loop",
    "LoopNest",
    "Memory",
    "Schedule",
    "Store",
    "Tile",
]

FoldKind = Literal["sum", "max", "min", "product"]
Schedule = Literal["element", "row", "column", "tile"]


@dataclass(frozen=True)
class KernelValue:
    """A register: its number and element type."""

    number: int
    dtype: str

    @property
    def atom(self) -> Atom:
        """The register as a variable of indices."""
        return Atom(f"v{self.number}")


@dataclass(frozen=True)
class Let:
    """A function of registers; a number is a function without operands.

    Attributes:
        result: the register of the result.
        function: a key of `kernel.FUNCTIONS`, `kernel.NUMBER`, ``Cast``, ``Where``, a comparison or
            a logical function.
        operands: registers of the operands.
        numbers: attributes of the function, or the number.
    """

    result: KernelValue
    function: str
    operands: tuple[KernelValue, ...] = ()
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class IndexValue:
    """The value of an index in a register."""

    result: KernelValue
    value: Poly


@dataclass(frozen=True)
class Load:
    """A load of an element of a buffer."""

    result: KernelValue
    buffer: int
    place: Poly


@dataclass(frozen=True)
class Branch:
    """One of two values by a condition; only the block of the chosen value runs."""

    result: KernelValue
    condition: Formula
    then: Block
    then_value: KernelValue
    otherwise: Block
    otherwise_value: KernelValue


@dataclass(frozen=True)
class Loop:
    """An index variable that takes all values from 0 to below ``extent``."""

    variable: Atom
    extent: int


@dataclass(frozen=True)
class Fold:
    """The sum, product or extremum of a value over loops, where a condition holds.

    Attributes:
        result: the register of the result; sums of half types are accumulated in float32.
        kind: kind of the reduction.
        loops: loops of the reduction, the innermost last.
        where: condition on iterations; where it does not hold, the block does not run.
        block: statements of one iteration.
        value: the register that an iteration contributes.
    """

    result: KernelValue
    kind: FoldKind
    loops: tuple[Loop, ...]
    where: Formula
    block: Block
    value: KernelValue

    @property
    def size(self) -> int:
        """Number of iterations."""
        return math.prod(loop.extent for loop in self.loops)


@dataclass(frozen=True)
class Store:
    """A store of a register to an element of a buffer."""

    buffer: int
    place: Poly
    value: KernelValue


Statement = Let | IndexValue | Load | Branch | Fold | Store
Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Tile:
    """Two loops, of which one is contiguous in reads and the other in writes.

    Attributes:
        read, write: the variables of the loops.
        loads: numbers of the registers that are loaded in the order of ``read``.
    """

    read: Atom
    write: Atom
    loads: tuple[int, ...]


@dataclass(frozen=True)
class LoopNest:
    """Loops that can run in any order, around blocks.

    Attributes:
        schedule: mapping of iterations to threads. ``element``: each iteration is independent.
            ``row``: a block of threads takes an iteration of `rows`, and all its threads first
            compute the reductions of `head`. ``column``: the same, but an iteration of `rows` is
            shared by some threads of a block, and neighbouring threads have consecutive iterations
            of the last of `rows`. ``tile``: squares of two loops pass through shared memory.
        rows: loops around `head`; none for the schedules ``element`` and ``tile``.
        head: statements that depend on rows alone.
        loops: loops within a row.
        block: statements that depend on all loops, stores among them.
        tile: the loops of the schedule ``tile``.
        lanes: number of iterations of the last loop that one thread takes, for the schedule
            ``element``. Its accesses are to packs of as many elements, or to a single element that
            all its iterations read.
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
        """Number of iterations of the outer loops."""
        return math.prod(loop.extent for loop in self.rows)

    @property
    def row_size(self) -> int:
        """Number of iterations of the inner loops."""
        return math.prod(loop.extent for loop in self.loops)

    @property
    def work(self) -> int:
        """Number of statements that run in all iterations."""
        inner = _work(self.block) * self.row_size
        return (inner + _work(self.head)) * self.row_count


@dataclass(frozen=True)
class Memory:
    """A tensor as a kernel sees it: elements around a pointer.

    Attributes:
        name: name of the value.
        dtype: type of its elements.
        low: the least offset that is reached, at most 0.
        high: the greatest offset that is reached.
    """

    name: str
    dtype: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class KernelProgram:
    """A kernel of any operators.

    Attributes:
        reads: the tensors that it reads, by buffer.
        writes: the tensors that it writes, by buffer.
        nests: nests that can run in any order; together they write every element once.
    """

    reads: tuple[Memory, ...]
    writes: tuple[Memory, ...]
    nests: tuple[LoopNest, ...] = field(default=())

    @property
    def work(self) -> int:
        """Approximate number of statements that run."""
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
