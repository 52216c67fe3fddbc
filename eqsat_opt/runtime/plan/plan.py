"""Plans: launches of kernels on streams, the buffers between them, and the events that order them.

A plan holds everything that running needs except the bytes of constants. Launches are listed in the
order in which they are submitted; those of one stream run in that order, and events order launches
of different streams. Before the first launch every input is in its buffer. Every output is in its
buffer once the last launch of stream 0 has ended and all joined events are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import numpy_dtype

__all__ = [
    "ALIGNMENT_BYTES",
    "NO_WORKSPACE",
    "Buffer",
    "ComputedConstant",
    "Launch",
    "Literal",
    "Plan",
    "Port",
    "Recipe",
    "Stored",
    "Workspace",
    "dense_strides",
    "layout_strides",
]

ALIGNMENT_BYTES = 256
"""Alignment of every buffer in the arena: that of vector loads and of CUDA allocations."""


def dense_strides(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor without gaps whose last axis varies fastest."""
    return tuple(prod(dims[axis + 1 :]) for axis in range(len(dims)))


_IMAGE_RANK = 4


def layout_strides(dims: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor without gaps in a layout.

    Args:
        dims: its logical extents.
        layout: ``nhwc`` for images whose channels vary fastest; every other layout has the order
            of axes that ONNX has.
    """
    if layout != "nhwc" or len(dims) != _IMAGE_RANK:
        return dense_strides(dims)
    batch, channels, height, width = dims
    n, h, w, c = dense_strides((batch, height, width, channels))
    return n, c, h, w


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory.

    Attributes:
        name: its name, unique in the plan.
        dtype: its element type.
        dims: its logical extents, which do not depend on the order of elements in memory.
        strides: by axis, in elements, none negative; they define the layout.
        form: its memory space, and the name of its layout.
        offset: bytes from the beginning of the arena, or of ``base``. A constant has its own memory
            and begins there at 0.
        base: the buffer that this is a view into; ``""`` if it is no view.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    form: Form = PLAIN
    offset: int = 0
    base: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def is_dense(self) -> bool:
        """Whether it is in C order without gaps; strides of axes of extent 1 do not matter."""
        return 0 in self.dims or all(
            dim == 1 or stride == dense
            for dim, stride, dense in zip(
                self.dims, self.strides, dense_strides(self.dims), strict=True
            )
        )

    @property
    def span_bytes(self) -> int:
        """Bytes from its first element to the end of its last one."""
        if 0 in self.dims:
            return 0
        steps = sum((d - 1) * s for d, s in zip(self.dims, self.strides, strict=True))
        return (steps + 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch memory in the arena for one launch, used only while the launch runs."""

    offset: int = 0
    size_bytes: int = 0


NO_WORKSPACE = Workspace()


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, run once.

    Attributes:
        name: its name, unique in the plan.
        backend: name of the backend that runs it.
        body: the kernel that it computes; an operand that is known when the plan is loaded is
            ``const``. A body without steps copies its operand.
        algorithm: name of the backend's algorithm.
        reads: a buffer for each operand of the body.
        writes: a buffer for each output.
        workspace: its scratch memory.
        stream: the stream on which it is queued.
        waits: events that must be recorded before it begins.
        records: events that are recorded when it, and all launches before it on its stream, have
            ended.
        precision: the precision of its multiplications.
    """

    name: str
    backend: str
    body: Kernel
    algorithm: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    workspace: Workspace = NO_WORKSPACE
    stream: int = 0
    waits: tuple[int, ...] = ()
    records: tuple[int, ...] = ()
    precision: Precision = Precision.STRICT


@dataclass(frozen=True, slots=True)
class Stored:
    """A constant that the model stores.

    Attributes:
        name: name of the initializer, or of the output of a Constant node.
        digest: digest of type and elements (`constants.digest_of`).
    """

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of few elements, which the model need not store.

    Attributes:
        values: its elements in C order; a single value if all elements are equal. Floating point
            numbers are rounded to the element type.
    """

    values: tuple[bool | int | float, ...]


@dataclass(frozen=True, slots=True)
class ComputedConstant:
    """A constant that is computed once, when the plan is loaded.

    Attributes:
        body: a kernel of one output.
        operands: other constants, one for each operand of the body.
    """

    body: Kernel
    operands: tuple[str, ...]


Recipe: TypeAlias = Stored | Literal | ComputedConstant
"""How a constant is made; a plan never holds its bytes."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model, and the buffer that holds it."""

    name: str
    buffer: str


@dataclass(frozen=True)
class Plan:
    """A plan: launches, buffers and constants, ready to run.

    Attributes:
        target: the device that it is made for: ``cpu``, or the name of a device profile.
        precision: the precision policy that it was made under.
        sizes: extents of the symbolic dimensions.
        inputs, outputs: ports in the order of the model.
        buffers: arena buffers, constants, and views into either.
        constants: recipe by buffer; the operands of a ``ComputedConstant`` precede it.
        launches: launches in the order in which they are submitted.
        joins: events for which the end of the plan waits, besides the end of stream 0.
        arena_bytes: size of the one block of memory for all buffers but constants.
        lower_bound_bytes: lower bound of the arena's size for any placement of the buffers.
        versions: version by backend; other versions may compute different results.
    """

    target: str
    precision: Precision
    sizes: Mapping[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[Buffer, ...]
    constants: Mapping[str, Recipe]
    launches: tuple[Launch, ...]
    joins: tuple[int, ...] = ()
    arena_bytes: int = 0
    lower_bound_bytes: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        for name in ("sizes", "constants", "versions"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @cached_property
    def buffer_of(self) -> Mapping[str, Buffer]:
        """Buffers by name."""
        return {buffer.name: buffer for buffer in self.buffers}

    def root_of(self, name: str) -> Buffer:
        """Return the buffer that owns the memory of this one."""
        buffer = self.buffer_of[name]
        return self.buffer_of[buffer.base] if buffer.base else buffer

    def start_of(self, name: str) -> int:
        """Return the offset of a buffer in bytes from the beginning of the arena or constant."""
        buffer = self.buffer_of[name]
        return buffer.offset + (self.buffer_of[buffer.base].offset if buffer.base else 0)

    def is_constant(self, name: str) -> bool:
        """Return whether a buffer is a constant, or a view into one."""
        return self.root_of(name).name in self.constants

    @property
    def streams(self) -> int:
        """Number of streams; they are numbered from 0."""
        return 1 + max((launch.stream for launch in self.launches), default=0)
