"""What the methods of a comparison may spend."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.errors import OptionError
from eqsat_opt.search import MetaFlow, SearchBudget

__all__ = ["EXTRACTION_S", "METHODS", "SATURATION_S", "CompareSettings"]

METHODS = ("eqsat", "metaflow")
"""What may be compared."""

SATURATION_S, EXTRACTION_S = 30.0, 20.0
"""Seconds for the stages of the e-graph where no limit is given."""


@dataclass(frozen=True)
class CompareSettings:
    """What the methods may spend.

    Attributes:
        methods: names in :data:`METHODS`.
        alpha: of the backtracking search.
        hash: ``canonical`` or ``taso``.
        graphs: graphs that a search may visit; 0 for no limit.
        time_s: limit for each search, and for saturation and extraction each; 0 is none for
            searches, and :data:`SATURATION_S` and :data:`EXTRACTION_S` for these two.
        nodes: e-nodes.
        seed: of extraction.
        measure: price operators by measuring them, instead of by the roofline.
        repeat: how often each method runs; its fastest run counts, because the first one also loads
            libraries and compiles rules. Slow methods run once.
    """

    methods: tuple[str, ...] = ("eqsat", "metaflow")
    alpha: float = 1.05
    hash: str = "canonical"
    graphs: int = 1_000
    time_s: float = 0.0
    nodes: int = 20_000
    seed: int = 0
    measure: bool = False
    repeat: int = 1

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise OptionError(f"unknown method {unknown[0]!r}; choose from {', '.join(METHODS)}")
        if not self.methods:
            raise OptionError(f"no method is given; choose from {', '.join(METHODS)}")
        if len(set(self.methods)) < len(self.methods):
            raise OptionError("a method is given twice; keep one")
        if self.repeat < 1:
            raise OptionError(f"repeat is {self.repeat}; give at least 1")
        # Both say what is wrong with their values.
        assert self.search.alpha == self.alpha
        assert self.budget.graphs == self.graphs

    @property
    def search(self) -> MetaFlow:
        """The backtracking search with these parameters."""
        return MetaFlow(self.alpha, self.hash)  # type: ignore[arg-type]

    @property
    def budget(self) -> SearchBudget:
        """Of that search."""
        return SearchBudget(self.graphs, self.time_s)
