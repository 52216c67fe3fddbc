"""Every model of the corpus of exports by name, its files and how they come to be."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.exported.audio import AUDIO
from benchmarks.exported.blocks import BLOCKS
from benchmarks.exported.classical import CLASSICAL
from benchmarks.exported.decoders import DECODERS
from benchmarks.exported.derived import treat
from benchmarks.exported.exporting import EXPORTERS, export, opset_of
from benchmarks.exported.module import Builder
from benchmarks.exported.pictures import PICTURES
from benchmarks.exported.sequences import SEQUENCES
from benchmarks.exported.text import TEXT

__all__ = ["Job", "jobs", "run"]

_FALLBACK = {"legacy": 17, "dynamo": 18}
# Families, and the treatments whose turn it is, model by model; None is a model without one.
_FAMILIES: tuple[tuple[dict[str, Builder], tuple[str | None, ...]], ...] = (
    (DECODERS, ("q4", "int8", "fused", "fp16", "ort", "fp16_ends")),
    ({**BLOCKS, **SEQUENCES}, ("fp16", "int8", "qdq", None, "ort")),
    (TEXT, ("fused", "int8", "qdq", "fp16", None, "q4", "ort")),
    (AUDIO, ("int8", "fp16", None, "qdq", "fused")),
    (PICTURES, ("qdq", None, "fp16", None, "ort", None, "fp16_ends")),
)


@dataclass(frozen=True)
class Job:
    """One export of one model, and perhaps one more file that is made of it.

    Attributes:
        name: of the model.
        exporter: of PyTorch; "sklearn" for a model of scikit-learn.
        opset: to export at; another where the exporter cannot.
        treatment: what is made of the export; "" for nothing.
    """

    name: str
    exporter: str
    opset: int
    treatment: str = ""

    @property
    def key(self) -> str:
        """What names the job between runs."""
        return f"{self.name}.{self.exporter}"


def jobs() -> Iterator[Job]:
    """All jobs; the exporters take turns, and so do opsets and treatments."""
    for family, treatments in _FAMILIES:
        for index, name in enumerate(family):
            treatment = treatments[index % len(treatments)] or ""
            treated = EXPORTERS[index // len(treatments) % 2]
            for exporter in EXPORTERS:
                mine = treatment if exporter == treated else ""
                yield Job(name, exporter, opset_of(exporter, index), mine)
    for name in CLASSICAL:
        yield Job(name, "sklearn", 0)


def run(job: Job, folder: str) -> dict[str, Any]:
    """Write the files of a job; return their names and remarks on them.

    Raises:
        Exception: the export itself failed.
    """
    if job.exporter == "sklearn":
        path = Path(folder, f"{job.name}.onnx")
        _whole(path, lambda target: CLASSICAL[job.name](target))
        return {"files": [path.name], "remarks": []}
    model = dict(pair for family, _ in _FAMILIES for pair in family.items())[job.name]()
    remarks: list[str] = []
    path, remark = _exported(model, job, folder)
    remarks += [remark] * bool(remark)
    files = [path.name]
    if job.treatment:
        feeds = {name: value.numpy() for name, value in model.inputs.items()}
        treated = path.with_suffix(f".{job.treatment}.onnx")
        try:
            _whole(treated, lambda target: treat(job.treatment, path, target, feeds))
        except Exception as error:
            remarks.append(f"{job.treatment} failed: {type(error).__name__}: {error}"[:300])
        else:
            files.append(treated.name)
    return {"files": files, "remarks": remarks}


def _exported(model: Any, job: Job, folder: str) -> tuple[Path, str]:
    """Export at the job's opset, else at one that every operator has."""
    fallback = _FALLBACK[job.exporter]
    for opset in dict.fromkeys((job.opset, fallback)):
        path = Path(folder, f"{job.name}.{job.exporter}.op{opset}.onnx")
        remarks: list[str] = []
        try:
            _whole(
                path,
                lambda target, at=opset, into=remarks: into.append(
                    export(model, job.exporter, at, str(target))
                ),
            )
        except Exception:
            if opset == fallback:
                raise
        else:
            return path, remarks[0]
    raise AssertionError("the fallback returns or raises")


def _whole(path: Path, write: Any) -> None:
    """Write a file whole or not at all, without what tools leave beside it."""
    scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=path.parent))
    try:
        target = scratch / path.name
        write(target)
        os.replace(target, path)
    finally:
        shutil.rmtree(scratch)
