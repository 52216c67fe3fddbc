"""The outcome of a search: a graph and the kernels that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search.pricing.pricing import Quoted
from eqsat_opt.runtime.backends.protocol import Implementation
from eqsat_opt.runtime.plan.streams import Schedule

__all__ = ["ChosenKernel", "PricedGraph"]


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel of a graph.

    Attributes:
        kernel: the computation; ``None`` for an unknown operator.
        backend: the backend that runs it.
        implementation: the implementation on that backend.
        reads: names of the values that it reads, constants among them, by operand.
        writes: names of the values that it computes.
        metrics: metrics of one run.
        stream: the stream on which it is queued.
        waits: kernels of other streams that it waits for, by their last values.
    """

    kernel: Kernel | None
    backend: str
    implementation: Implementation
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    metrics: Mapping[str, float]
    stream: int = 0
    waits: tuple[str, ...] = ()

    @property
    def quoted(self) -> Quoted:
        """The backend, the implementation and the metrics."""
        return Quoted(self.backend, self.implementation, self.metrics)


@dataclass(frozen=True)
class PricedGraph:
    """A graph and the kernels that run it.

    Attributes:
        graph: the graph of operators.
        kernels: the kernels in submission order, by the name of the last value that each computes.
        streams: number of streams.
        metrics: metric to total. On several streams the time is that until the last kernel ends.
            The critical path is included where the objective reads it.
        value: the objective value.
    """

    graph: Graph
    kernels: Mapping[str, ChosenKernel]
    streams: int
    metrics: Mapping[str, float]
    value: float

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each kernel, the numbers of the kernels that compute its operands."""
        writer = {name: i for i, one in enumerate(self.kernels.values()) for name in one.writes}
        found = []
        for one in self.kernels.values():
            numbers: dict[int, None] = {}
            stack = list(one.reads)
            while stack:
                name = stack.pop()
                if name in writer:
                    numbers[writer[name]] = None
                elif name in self.graph.producers:  # a node that takes no time is in no kernel
                    stack += self.graph.producers[name].reads
            found.append(tuple(sorted(numbers)))
        return tuple(found)

    @property
    def schedule(self) -> Schedule:
        """The streams and events of the kernels, which are numbered in submission order."""
        kernels = tuple(self.kernels.values())
        number = {name: i for i, name in enumerate(self.kernels)}
        waited = {name: number[name] for one in kernels for name in one.waits}
        last = {one.stream: i for i, one in enumerate(kernels)}
        joined = [i for stream, i in sorted(last.items()) if stream]
        event = {i: n for n, i in enumerate(dict.fromkeys((*waited.values(), *joined)))}
        return Schedule(
            tuple(range(len(kernels))),
            tuple(one.stream for one in kernels),
            tuple(tuple(event[waited[name]] for name in one.waits) for one in kernels),
            tuple((event[i],) if i in event else () for i in range(len(kernels))),
            joins=tuple(event[i] for i in joined),
        )
