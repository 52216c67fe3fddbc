"""A model in another framework, ready to run on inputs that are there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.gpu.peers.graphs import PeerGraph
from benchmarks.gpu.unit import Sampler
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.plan.places import Array

__all__ = ["Make", "Ready", "imported_error"]


@dataclass(frozen=True)
class Ready:
    """What runs.

    Attributes:
        queue: begins a run, and may return before it is done.
        wait: returns when all that was queued is done.
        outputs: those of the last run, in the model's order.
        version: of the framework.
    """

    queue: Callable[[], object]
    wait: Callable[[], object]
    outputs: Callable[[], list[Array]]
    version: str

    def sampler(self, runs: int) -> Sampler:
        """What times so many runs, queued without a pause, by the clock of the host."""

        def sample() -> float:
            begin_ns = time.perf_counter_ns()
            for _ in range(runs):
                self.queue()
            self.wait()
            return (time.perf_counter_ns() - begin_ns) / 1e3 / runs

        return sample


class Make(Protocol):
    """Compiles a model, on a GPU or, in a rehearsal, on the processor."""

    def __call__(
        self, graph: PeerGraph, model: bytes, feeds: Mapping[str, Array], *, is_on_gpu: bool
    ) -> Ready:
        """A model that is ready to run, and has run once.

        Raises:
            RuntimeFailed: the framework, or what it needs of it, is not here.
        """


def imported_error(error: ImportError) -> RuntimeFailed:
    """What is told of a framework that is not installed."""
    return RuntimeFailed(f"absent: {error}")
