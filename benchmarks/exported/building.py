"""The corpus of exports, made job by job in processes of their own, and resumed where it ended."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.isolated import attempt
from eqsat_opt.common.files import write_whole

__all__ = ["RECORD", "build", "missing_libraries", "read_record"]

RECORD = "corpus.json"
_LIBRARIES = ("torch", "transformers", "timm", "onnxscript", "skl2onnx")
_CATALOGUE = "benchmarks.exported.catalogue"


def missing_libraries() -> tuple[str, ...]:
    """The libraries that exports need and that are not installed."""
    return tuple(name for name in _LIBRARIES if importlib.util.find_spec(name) is None)


def read_record(folder: Path) -> dict[str, Any]:
    """What became of each job so far; empty for a new folder."""
    path = folder / RECORD
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def build(
    folder: Path, only: Sequence[str], limit_s: float, again: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the jobs that are not done; yield the key and the outcome of each.

    Args:
        folder: where files and the record go.
        only: names of models begin with one of these; empty for all.
        limit_s: longest time of one job, seconds.
        again: also try again what failed.
    """
    from benchmarks.exported.catalogue import jobs

    record = read_record(folder)
    for job in jobs():
        if only and not job.name.startswith(tuple(only)):
            continue
        if not _is_open(record.get(job.key), folder, again):
            continue
        outcome = attempt(_task(), job, str(folder), limit_s=limit_s, preload=(_CATALOGUE,))
        entry = {"failure": outcome.failure} if outcome.failure else dict(outcome.value)
        record[job.key] = entry
        write_whole(folder / RECORD, json.dumps(record, indent=1) + "\n")
        yield job.key, entry


def _is_open(entry: dict[str, Any] | None, folder: Path, again: bool) -> bool:
    if entry is None:
        return True
    if "failure" in entry:
        return again
    return not all((folder / name).exists() for name in entry["files"])


def _task() -> Callable[..., Any]:
    from benchmarks.exported.catalogue import run

    return run
