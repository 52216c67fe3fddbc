"""Stages of the main job, timed and reported to the caller, and the outcome for a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import onnx_ir

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.pipeline.decisions.document import Edit, RunDecisions
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.racing.finding import Job
from eqsat_opt.racing.verdict import Verdict
from eqsat_opt.select.proposal import Proposal

__all__ = [
    "Outcome",
    "Progress",
    "Stages",
]


Progress = Callable[[str, str], None]
"""A function that is called with a stage and a detail."""


class Stages:
    """A timer of stages, which reports the running stage to the caller."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self._told = progress

    def progress(self, name: str, detail: str) -> None:
        """Report the running stage and a detail to the caller."""
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
    """The outcome of optimising a model.

    Attributes:
        loaded: the model as given.
        model: the new model; ``None`` where the original stays.
        report: all numbers.
        proposal: the result of the search; ``None`` where there was no search.
        is_written: whether the output file holds the result already.
        job: the inputs of the search; ``None`` where there was no search.
        graph: graph of the new model, or the normalised original; ``None`` where there was no
            search.
        bulk_s: seconds of one pass over all weights.
        sound: all graphs that may replace the original, the cheapest first.
        is_refuted: whether candidates were compared, or could not be, and none is sound; false
            where there was no time to compare one.
        verdict: the verdict on the result; ``None`` where there was no search.
        edit: how the new model is made of the original, where the user asks for decisions.
        body_edits: how better bodies of ``job.clean`` are made, in the same case.
        decisions: the decisions by which the new model was made; ``None`` where it was searched.
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
    is_refuted: bool = False
    verdict: Verdict | None = None
    edit: Edit | None = None
    body_edits: Mapping[tuple[int, str], Edit | None] = field(default_factory=dict)
    decisions: RunDecisions | None = None
