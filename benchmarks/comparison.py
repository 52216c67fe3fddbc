"""What a comparison of optimisers found, and its tables."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "BASELINE",
    "OURS",
    "Candidate",
    "Comparison",
    "as_json",
    "as_markdown",
    "footnotes",
    "summary",
    "table_rows",
]

BASELINE = "onnxruntime"
OURS = "eqsat-opt"


@dataclass
class Candidate:
    """What one optimiser made of a model.

    Attributes:
        seconds: How long it took.
        nodes: Operators in its result.
        max_rel_error: Largest output difference relative to the output's largest value.
        time_us: Best time of one run.
        median_us: Median over fresh sessions of the best time in each.
        speedup: Over onnxruntime running the original, median over fresh sessions.
        failure: Why there is no result, or why it did not take part in the race.
    """

    seconds: float = 0.0
    nodes: int = 0
    max_rel_error: float | None = None
    time_us: float | None = None
    median_us: float | None = None
    speedup: float | None = None
    failure: str = ""


@dataclass
class Comparison:
    """All candidates for one model, the original among them.

    Attributes:
        noise: Relative difference between two sessions of the original.
        threshold: Difference in speed that means something: 3 %, or the noise.
    """

    candidates: dict[str, Candidate] = field(default_factory=dict)
    noise: float = 0.0
    threshold: float = 0.0

    @property
    def best_other(self) -> tuple[str, float]:
        """The fastest but ours, and its speedup."""
        others = [
            (name, candidate.speedup)
            for name, candidate in self.candidates.items()
            if name != OURS and candidate.speedup is not None
        ]
        return max(others, key=lambda item: item[1])

    @property
    def against_best(self) -> float | None:
        """How many times faster ours is than the fastest other."""
        ours = self.candidates[OURS].speedup
        return None if ours is None else ours / self.best_other[1]

    @property
    def verdict(self) -> str:
        """Whether ours is "faster", "equal" within the threshold, "slower", or "failed"."""
        gain = self.against_best
        if gain is None:
            return "failed"
        if gain > 1 + self.threshold:
            return "faster"
        return "equal" if gain >= 1 / (1 + self.threshold) else "slower"


def summary(comparison: Comparison) -> str:
    """One line: each candidate's speedup, or why it has none."""
    parts = []
    for name, candidate in comparison.candidates.items():
        if candidate.speedup is not None:
            parts.append(f"{name} {candidate.speedup:.2f}×")
        else:
            parts.append(f"{name} {candidate.failure}")
    return "; ".join(parts)


def table_rows(comparisons: Mapping[str, Comparison]) -> tuple[list[str], list[list[str]]]:
    """Header and one row per model, then the geometric means."""
    optimisers = _optimisers(comparisons)
    header = ["export", "ms", *optimisers, "best other", f"{OURS} / best", "noise"]
    rows: list[list[str]] = []
    for name, comparison in comparisons.items():
        best, _ = comparison.best_other
        gain = comparison.against_best
        rows.append(
            [
                name,
                f"{(comparison.candidates[BASELINE].time_us or math.nan) / 1e3:.2f}",
                *(_cell(comparison.candidates[optimiser]) for optimiser in optimisers),
                best,
                "–" if gain is None else f"{gain:.2f}× {comparison.verdict}",
                f"{comparison.noise:.1%}",
            ]
        )
    means = [_geometric_mean(comparisons, optimiser) for optimiser in optimisers]
    gains = [comparison.against_best for comparison in comparisons.values()]
    rows.append(["geometric mean", "", *means, "", _mean_text(gains), ""])
    return header, rows


def _optimisers(comparisons: Mapping[str, Comparison]) -> list[str]:
    first = next(iter(comparisons.values()))
    return [name for name in first.candidates if name != BASELINE]


def _cell(candidate: Candidate) -> str:
    if candidate.speedup is not None:
        return f"{candidate.speedup:.2f}×"
    return "wrong" if candidate.failure.startswith("wrong") else "failed"


def _geometric_mean(comparisons: Mapping[str, Comparison], optimiser: str) -> str:
    return _mean_text([c.candidates[optimiser].speedup for c in comparisons.values()])


def _mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.geometric_mean(known):.2f}×" if known else "–"


def footnotes(comparisons: Mapping[str, Comparison], threads: int) -> list[str]:
    """What the table is of, how often ours is at least as fast, and every failure."""
    verdicts = [comparison.verdict for comparison in comparisons.values()]
    good = sum(verdict in ("faster", "equal") for verdict in verdicts)
    lines = [
        f"Speedups over onnxruntime {importlib.metadata.version('onnxruntime')} running the "
        f"export as it is, {threads} thread(s); "
        f"{OURS} is at least as fast as the best other, within the noise, on {good} of "
        f"{len(verdicts)}.",
    ]
    for name, comparison in comparisons.items():
        for optimiser, candidate in comparison.candidates.items():
            if candidate.failure:
                lines.append(f"{name}, {optimiser}: {candidate.failure}")
    return lines


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return table + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def as_json(comparisons: Mapping[str, Comparison], threads: int) -> dict[str, Any]:
    models = {
        name: {
            **asdict(comparison),
            "best_other": comparison.best_other[0],
            "against_best": comparison.against_best,
            "verdict": comparison.verdict,
        }
        for name, comparison in comparisons.items()
    }
    return {"environment": _environment(threads), "models": models}


def _environment(threads: int) -> dict[str, Any]:
    packages = ("onnxruntime", "onnxsim", "onnxoptimizer", "onnxscript", "eqsat-opt", "torch")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "threads": threads,
        "cores": os.cpu_count() or 1,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions,
    }
