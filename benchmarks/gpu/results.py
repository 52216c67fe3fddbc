"""The results of a step: one file, written whole every ten seconds, from which a run goes on."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.unit import STEPS
from eqsat_opt.common.codecs import read_document
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import StageError

__all__ = ["FORMAT", "MOST_BYTES", "Found", "Results", "read_results", "results_path"]

FORMAT = "eqsat-opt gpu results 1"

MOST_BYTES = 15 << 20
"""Of the file of a step: a little under what is brought back from a machine."""

_EVERY_S = 10.0


def results_path(folder: Path, step: str) -> Path:
    """The file of a step."""
    assert step in STEPS
    return folder / f"{step}.json"


class Results:
    """What became of the units of a step. For several threads at once.

    What an earlier run of the same kind found in the same folder is kept.

    Args:
        folder: of the file.
        step: that it is of.
        head: what the file says of itself; results under another head are not mixed with these.

    Attributes:
        trouble: why the file could not be written the last time; empty if it was.
        device: that results are of; empty while there are none.

    Raises:
        StageError: the file that is there is no such file, or of another head.
    """

    def __init__(self, folder: Path, step: str, head: Mapping[str, Any]) -> None:
        self.path = results_path(folder, step)
        self.trouble = ""
        self._head = {"format": FORMAT, "step": step, **head}
        self._lock = threading.Lock()
        self.device = ""
        self._entries = self._earlier()
        self._size_bytes = len(json.dumps(self._entries))
        self._facts: dict[str, Any] = {}
        self._is_saved = True

    def _earlier(self) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        document = read_results(self.path)
        for name, value in self._head.items():
            if document.get(name) != value:
                raise StageError(
                    f"{self.path} has {name} {document.get(name)!r}, not {value!r}; "
                    "give another --out, or remove it"
                )
        self.device = str(document.get("device", ""))
        return dict(document["units"])

    def tell(self, **facts: Any) -> None:
        """Facts of the whole step."""
        with self._lock:
            self._facts.update(facts)
            self._is_saved = False

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """What became of a unit: ``state``, ``took_s``, ``result`` or ``why``, and the ``device``.

        Raises:
            StageError: the file has results of another device.
        """
        with self._lock:
            kept = dict(entry)
            device = str(kept.pop("device", "")) or self.device
            if self.device and device != self.device:
                raise StageError(
                    f"{self.path} has results of {self.device}; here is {device}: give another "
                    "--out"
                )
            self.device = device
            size = len(json.dumps(kept))
            if self._size_bytes + size > MOST_BYTES:
                kept = {"state": "failed", "why": "the file of results is full"}
                size = len(json.dumps(kept))
            self._entries[name] = kept
            self._size_bytes += size + len(name)
            self._is_saved = False

    def state_of(self, name: str) -> str:
        """``done``, ``failed``, ``crashed``, ``stopped``, or nothing for what was not tried."""
        with self._lock:
            return str(self._entries.get(name, {}).get("state", ""))

    def counts(self) -> Counter[str]:
        """How many units are in which state."""
        with self._lock:
            return Counter(str(entry["state"]) for entry in self._entries.values())

    def reasons(self) -> Counter[str]:
        """Why units failed, and how many of them."""
        with self._lock:
            return Counter(str(e["why"]) for e in self._entries.values() if e.get("why"))

    def can_be_written(self) -> bool:
        """Write the file as it is; `trouble` says why that failed."""
        with self._lock:
            self._is_saved = False
        self.save()
        return not self.trouble

    def save(self) -> None:
        """Write the file, if there is anything new; `trouble` says if that failed."""
        with self._lock:
            if self._is_saved:
                return
            now = datetime.now(UTC).isoformat(timespec="seconds")
            told = {"written_at": now, "device": self.device, **self._facts}
            document = {**self._head, **told, "units": self._entries}
            text = json.dumps(document, indent=0, allow_nan=False)
            try:
                write_whole(self.path, text + "\n", StageError)
            except StageError as error:
                self.trouble = str(error)
            else:
                self.trouble, self._is_saved = "", True

    @contextmanager
    def saved_regularly(self, every_s: float = _EVERY_S) -> Iterator[None]:
        """Write the file every so often, and at the end, whatever happens inside."""
        ended = threading.Event()

        def go_on() -> None:
            while not ended.wait(every_s):
                self.save()

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.save()


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of a file of results.

    Raises:
        StageError: it cannot be read, or is no such file.
    """
    document = read_document(path, "a file of results")
    units = document.get("units") if document.get("format") == FORMAT else None
    if not isinstance(units, dict) or not all(
        isinstance(entry, dict) and isinstance(entry.get("state"), str) for entry in units.values()
    ):
        raise StageError(f"{path} is no file of results; remove it, or give another --out")
    return document


@dataclass(frozen=True)
class Found:
    """The results of all steps that were run.

    Attributes:
        steps: step to unit to what became of it.
        is_real: whether they are of a device; else times are invented.
        written_at: when the last of them was written, ISO 8601 in UTC.
    """

    steps: Mapping[str, Mapping[str, Mapping[str, Any]]]
    is_real: bool
    written_at: str

    def done(self, step: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Names and results of the units of a step that are done."""
        for name, entry in self.steps.get(step, {}).items():
            if entry["state"] == "done":
                yield name, entry["result"]

    def source(self, what: str) -> str:
        """Where a figure is from."""
        if not self.is_real:
            return f"assumed: invented in a rehearsal, {self.written_at[:10]}"
        return f"measured: {what}, benchmarks.gpu, {self.written_at[:10]}"
