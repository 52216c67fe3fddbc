"""Generated kernels of float32, loops over output elements, as plain data.

A kernel is made from a model, or read from an untrusted file. It therefore names only functions of
one table, and a check ensures that every register is computed before it is read and that every
access stays within its buffer; the source that is generated from it holds no text of the file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from eqsat_opt.common.codecs import value_from_json
from eqsat_opt.errors import ModelError, StageError

__all__ = [
    "FUNCTIONS",
    "LOAD",
    "NUMBER",
    "Access",
    "ElementFunction",
    "FloatKernel",
    "Nest",
    "RegisterStep",
]

LOAD, NUMBER = "Load", "Number"
"""Names of steps that are no function of other registers."""

_MOST_STEPS = 5_000
_MOST_LOOPS = 8
_MOST_ELEMENTS = 2**31


@dataclass(frozen=True)
class ElementFunction:
    """A function of one element.

    Attributes:
        arity: number of operands.
        numbers: names of its attributes, in order.
        is_exact: whether IEEE 754 allows only one result.
        work: its approximate cost, in additions.
    """

    arity: int
    numbers: tuple[str, ...] = ()
    is_exact: bool = False
    work: int = 1


FUNCTIONS: Mapping[str, ElementFunction] = {
    **{name: ElementFunction(2, is_exact=True) for name in ("Add", "Sub", "Mul")},
    **{name: ElementFunction(2) for name in ("Max", "Min")},  # of +0 and -0, runtimes return either
    "Div": ElementFunction(2, is_exact=True, work=4),
    **{name: ElementFunction(1, is_exact=True) for name in ("Neg", "Relu", "Abs", "Floor", "Ceil")},
    "Sqrt": ElementFunction(1, is_exact=True, work=4),
    "Round": ElementFunction(1),
    "Sign": ElementFunction(1),
    **{name: ElementFunction(1, work=12) for name in ("Exp", "Erf", "Sigmoid", "Tanh")},
    **{name: ElementFunction(1, work=60) for name in ("Log", "Sin", "Cos", "Softplus", "Mish")},
    "Softsign": ElementFunction(1, work=5),
    "HardSwish": ElementFunction(1, work=5),
    "GeluNone": ElementFunction(1, work=16),
    "GeluTanh": ElementFunction(1, work=18),
    "Swish": ElementFunction(1, ("alpha",), work=14),
    "HardSigmoid": ElementFunction(1, ("alpha", "beta"), work=3),
    "Elu": ElementFunction(1, ("alpha",), work=60),
    "Celu": ElementFunction(1, ("alpha",), work=60),
    "Selu": ElementFunction(1, ("alpha", "gamma"), work=60),
    "LeakyRelu": ElementFunction(1, ("alpha",), work=2),
    "ThresholdedRelu": ElementFunction(1, ("alpha",)),
    "Clip": ElementFunction(1, ("max", "min"), work=2),
    "PRelu": ElementFunction(2, work=2),
    "Pow": ElementFunction(2, work=100),
}
"""Functions by their names in the registry; `Gelu` has one for each of its formulas.

Their source is in ``functions.h``.
"""


@dataclass(frozen=True)
class Access:
    """Elements of a buffer: ``offset`` and one stride per loop, in elements."""

    buffer: int
    offset: int
    strides: tuple[int, ...]

    def last(self, extents: Sequence[int]) -> int:
        """Return the index of the last element accessed; that of the first is the offset."""
        return self.offset + sum(
            stride * (extent - 1) for stride, extent in zip(self.strides, extents, strict=True)
        )


@dataclass(frozen=True)
class RegisterStep:
    """One register.

    Attributes:
        function: a key of `FUNCTIONS`, `LOAD` or `NUMBER`.
        operands: numbers of earlier registers.
        numbers: the attributes of a function, or the value of a number.
        access: access to an input, for a load.
    """

    function: str
    operands: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    access: Access | None = None


@dataclass(frozen=True)
class Nest:
    """Loops around a straight line of steps.

    Attributes:
        extents: extents of the loops, the innermost last.
        steps: the steps; each computes one register.
        stores: pairs of an access to an output and the register that is stored there.
    """

    extents: tuple[int, ...]
    steps: tuple[RegisterStep, ...]
    stores: tuple[tuple[Access, int], ...]

    @property
    def work(self) -> int:
        """Approximate cost of all iterations, in additions."""
        work = (getattr(FUNCTIONS.get(step.function), "work", 1) for step in self.steps)
        return sum(work) * math.prod(self.extents)


@dataclass(frozen=True)
class FloatKernel:
    """A function of tensors of float32.

    Attributes:
        inputs: shapes of the inputs; the node that runs the kernel holds the element of each input
            from which offsets count.
        outputs: shapes of the outputs.
        nests: nests that run one after another; together they write every element of every output.
    """

    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    nests: tuple[Nest, ...]

    @cached_property
    def name(self) -> str:
        """Name that equal kernels have in common, and no others."""
        return f"Region_{hashlib.sha256(self.to_json().encode()).hexdigest()[:20]}"

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of elements of each input past which it reads nothing."""
        reach = [0] * len(self.inputs)
        for nest in self.nests:
            for access in (step.access for step in nest.steps if step.access is not None):
                last = access.last(nest.extents) + 1
                reach[access.buffer] = max(reach[access.buffer], last)
        return tuple(reach)

    @property
    def is_exact(self) -> bool:
        """Whether IEEE 754 allows only one result."""
        functions = {step.function for nest in self.nests for step in nest.steps}
        return all(FUNCTIONS[name].is_exact for name in functions - {LOAD, NUMBER})

    @property
    def work(self) -> int:
        """Approximate cost of one run, in additions."""
        return sum(nest.work for nest in self.nests)

    def to_json(self) -> str:
        """Return the kernel as JSON in one line, the same for equal kernels."""
        return json.dumps(
            [
                self.inputs,
                self.outputs,
                [[nest.extents, [*map(_row, nest.steps)], _stores(nest)] for nest in self.nests],
            ],
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> FloatKernel:
        """Read a kernel that `to_json` wrote.

        Raises:
            ModelError: the text is no kernel, or the kernel would access memory outside its
                buffers.
        """
        try:
            given = value_from_json(json.loads(text), _Text, "the kernel")
            kernel = cls(given.inputs, given.outputs, tuple(_nest(*nest) for nest in given.nests))
            kernel.check()
        except (StageError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as e:
            raise ModelError(
                "the description of a generated kernel is damaged; make the file again with --tuned"
            ) from e
        return kernel

    def check(self, elements: Sequence[int] | None = None) -> None:
        """Check that all registers, functions and accesses are valid.

        Args:
            elements: number of elements of each output that are written; all of them by default.

        Raises:
            ValueError: the kernel is not valid.
        """
        sizes = [[math.prod(shape) for shape in shapes] for shapes in (self.inputs, self.outputs)]
        _demand(all(sizes) and all(0 < size < _MOST_ELEMENTS for side in sizes for size in side))
        _demand(sum(len(nest.steps) for nest in self.nests) <= _MOST_STEPS)
        for nest in self.nests:
            _demand(len(nest.extents) <= _MOST_LOOPS and all(e > 0 for e in nest.extents))
            _demand(bool(nest.stores))
            for i, step in enumerate(nest.steps):
                _demand(all(0 <= operand < i for operand in step.operands))
                _demand((step.access is not None) == (step.function == LOAD))
                if step.access is not None:
                    _check_access(step.access, nest.extents, sizes[0])
                if step.function in (LOAD, NUMBER):
                    _demand(not step.operands and len(step.numbers) == (step.function == NUMBER))
                else:
                    known = FUNCTIONS[step.function]
                    _demand(len(step.operands) == known.arity)
                    _demand(len(step.numbers) == len(known.numbers))
            for access, register in nest.stores:
                _demand(0 <= register < len(nest.steps))
                _check_access(access, nest.extents, sizes[1])
        written = [0] * len(sizes[1])
        for nest in self.nests:
            for access, _ in nest.stores:
                written[access.buffer] += math.prod(nest.extents)
        _demand(written == list(sizes[1] if elements is None else elements))


def _demand(holds: bool) -> None:
    if not holds:
        raise ValueError


def _check_access(access: Access, extents: Sequence[int], sizes: Sequence[int]) -> None:
    _demand(0 <= access.buffer < len(sizes) and access.offset >= 0)
    _demand(all(0 <= stride < _MOST_ELEMENTS for stride in access.strides))
    _demand(access.last(extents) < sizes[access.buffer])


def _row(step: RegisterStep) -> list[Any]:
    access = step.access
    place = [] if access is None else [access.buffer, access.offset, list(access.strides)]
    return [step.function, list(step.operands), [number.hex() for number in step.numbers], place]


def _stores(nest: Nest) -> list[Any]:
    return [[a.buffer, a.offset, list(a.strides), register] for a, register in nest.stores]


_Ints = tuple[int, ...]
_Shapes = tuple[_Ints, ...]
_Step = tuple[str, _Ints, tuple[str, ...], tuple[int | _Ints, ...]]
_Nest = tuple[_Ints, tuple[_Step, ...], tuple[tuple[int, int, _Ints, int], ...]]


class _Text(NamedTuple):
    """A kernel as JSON; numbers of a step are texts, and its access is empty or has three parts."""

    inputs: _Shapes
    outputs: _Shapes
    nests: tuple[_Nest, ...]


def _nest(extents: _Ints, steps: Sequence[_Step], stores: Sequence[Any]) -> Nest:
    return Nest(
        extents,
        tuple(
            RegisterStep(function, operands, tuple(map(float.fromhex, numbers)), _access(place))
            for function, operands, numbers, place in steps
        ),
        tuple((Access(*place), register) for *place, register in stores),
    )


def _access(place: Sequence[Any]) -> Access | None:
    return Access(*place) if place else None
