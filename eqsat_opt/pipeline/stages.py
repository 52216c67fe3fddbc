"""Stages of the main job as the caller sees them, and what becomes of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.racing.finding import Job
from eqsat_opt.select.proposal import Proposal

if TYPE_CHECKING:
    pass

__all__ = [
    "Outcome",
    "Progress",
    "Stages",
]


Progress = Callable[[str, str], None]
"""Called with a stage and a detail."""


class Stages:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self._told = progress

    def progress(self, name: str, detail: str) -> None:
        """Tell the caller what a stage does."""
        self.current = name
        self._told(name, detail)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.progress(name, "")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class Outcome:
    """What became of a model.

    Attributes:
        loaded: the model as it was given.
        model: the new one; ``None`` where the original stays.
        report: all numbers.
        proposal: what the search found; ``None`` where there was no time for one.
        is_written: whether the output holds the result already.
        job: the search; ``None`` where there was no time for one.
        graph: of the new model, or the normalised original.
        bulk_s: seconds that going through all weights takes.
        sound: all graphs that may stand for the original, the cheapest first.
    """

    loaded: onnx_ir.Model
    model: onnx_ir.Model | None
    report: Report
    proposal: Proposal | None
    is_written: bool = False
    job: Job | None = None
    graph: Graph | None = None
    bulk_s: float = 0.0
    sound: tuple[Graph, ...] = ()
