"""Launches of generated kernels on tensors of any strides.

Pointwise bodies of float32 become kernels of plain loops (`kernel`), like regions of models; all
other bodies become programs (`program`).

The kernels of a plan are compiled together, once, and cached in the user's folder. They are called
by address, on memory of the plan.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph, attributes
from eqsat_opt.ir.graph.kernel import Kernel as Body
from eqsat_opt.ir.graph.kernel import Step
from eqsat_opt.runtime.backends.generated.building import built
from eqsat_opt.runtime.backends.generated.compiling import compiled_for_plans
from eqsat_opt.runtime.backends.generated.host import HostKernel
from eqsat_opt.runtime.backends.generated.kernel import FloatKernel
from eqsat_opt.runtime.backends.generated.lowering import Unfit, fits, lowered
from eqsat_opt.runtime.backends.launching import Bound, Launcher, require_default
from eqsat_opt.runtime.devices.calls import CALL_ALL, NativeCall
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["GeneratedLauncher", "digest", "graph_of"]


class GeneratedLauncher(Launcher):
    """A launcher that compiles bodies whose operators have an index function."""

    def __init__(self) -> None:
        self._made: dict[FloatKernel | HostKernel, ctypes.CDLL] = {}

    def version(self) -> str:
        """Return the version of the generator; another version may round differently."""
        return f"generated {digest()}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Compile the kernels of all launches together.

        Raises:
            RuntimeFailed: no kernel can be generated for a launch, or nothing can be compiled.
        """
        kernels = {_generated(one, _strides(one, buffers))[0] for one in launches}
        new = kernels - self._made.keys()
        if new:
            library = ctypes.CDLL(compiled_for_plans(new))
            self._made.update((kernel, library) for kernel in new)

    def build(self, launch: Launch, bound: Bound) -> NativeCall:
        """Return a call of the compiled kernel on this memory.

        Raises:
            RuntimeFailed: no kernel can be generated or compiled, or the algorithm is unknown.
        """
        require_default(launch)
        arrays = (*bound.reads, *bound.writes)
        strides = tuple(map(_element_strides, arrays))
        kernel, reads, begins = _generated(launch, strides)
        if kernel not in self._made:
            self._made[kernel] = ctypes.CDLL(compiled_for_plans([kernel]))
        library = self._made[kernel]
        addresses = [
            bound.reads[number].ctypes.data + begin * bound.reads[number].itemsize
            for number, begin in zip(reads, begins, strict=True)
        ]
        addresses += [array.ctypes.data for array in bound.writes]
        data = (ctypes.c_void_p * len(addresses))(*addresses)
        return NativeCall(
            launch.name,
            _address(library, kernel.name),
            ctypes.addressof(data),
            _address(library, CALL_ALL),
            keep=(data, library, bound),
        )


def _strides(launch: Launch, buffers: Mapping[str, Buffer]) -> tuple[tuple[int, ...], ...]:
    return tuple(buffers[name].strides for name in (*launch.reads, *launch.writes))


def _element_strides(array: Array) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def _generated(
    launch: Launch, strides: tuple[tuple[int, ...], ...]
) -> tuple[FloatKernel | HostKernel, tuple[int, ...], tuple[int, ...]]:
    """Return the kernel of a launch, the operands that it reads, and its first element in each.

    Raises:
        RuntimeFailed: no kernel can be generated.
    """
    try:
        return _lowered(launch.body, strides)
    except Unfit as error:
        raise RuntimeFailed(
            f"no kernel can be generated for launch {launch.name!r}: {error}"
        ) from error


@cache
def _lowered(
    body: Body, strides: tuple[tuple[int, ...], ...]
) -> tuple[FloatKernel | HostKernel, tuple[int, ...], tuple[int, ...]]:
    graph = graph_of(body)
    names = [f"x{i}" for i in range(len(body.operands))]
    of = dict(zip((*names, *graph.outputs), strides, strict=True))
    if fits(graph, graph.nodes, graph.outputs):
        with suppress(Unfit):  # for example, plain loops cannot have addresses that fall
            kernel, reads, begins = lowered(graph, graph.nodes, graph.outputs, of)
            return kernel, tuple(names.index(name) for name in reads), begins
    program = built(graph, graph.nodes, graph.outputs, of, target="cpu")
    numbers = tuple(names.index(memory.name) for memory in program.reads)
    return HostKernel(program), numbers, (0,) * len(numbers)


def graph_of(body: Body) -> Graph:
    """Return the body as a graph whose outputs are distinct values and whose inputs are operands.

    Raises:
        Unfit: the body has one value as several outputs, or an operand as an output.
    """
    if not body.steps:  # a copy is a transposition that permutes nothing
        axes = tuple(range(body.operands[0].type.rank))
        body = replace(body, steps=(Step("Transpose", attributes(perm=axes), (0,)),), outputs=(1,))
    graph = body.to_graph()
    if len(set(graph.outputs)) < len(graph.outputs) or set(graph.outputs) & set(graph.inputs):
        raise Unfit("it gives one value several times")
    names = tuple(f"x{i}" for i in range(len(body.operands)))
    return replace(graph, inputs=names, constants={})


@cache
def digest() -> str:
    """Return the digest of the source text of the generator."""
    folder = Path(__file__).parent
    files = sorted((*folder.glob("*.py"), *folder.glob("src/*.h")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _address(library: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found is not None
    return found
