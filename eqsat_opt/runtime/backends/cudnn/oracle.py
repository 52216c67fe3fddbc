"""cuDNN's engines for convolutions and products on a device, from recorded or live answers.

The recorded answers (`support/`) are those of one version of cuDNN, for each architecture of GPUs,
each policy of precision, and the convolutions and products of the models of the zoo. For
convolutions they leave out kernels that are compiled at run time; for products, all kernels are
compiled then. For any other convolution or product the wheels are asked, if they are installed (the
extra ``plan``). Otherwise it has the one implementation `HEURISTIC`, if all recorded graphs of its
kind have a kernel.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from math import ceil, inf
from typing import Any

from eqsat_opt.common.child_processes import Child
from eqsat_opt.common.codecs import value_to_json
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec, spec_from_json
from eqsat_opt.runtime.devices.description import DeviceDescription

__all__ = [
    "FORMAT", "HEURISTIC", "RECORDED_VERSION", "Asker", "CudnnChoice", "Oracle", "has_engines",
    "missing_wheels", "recorded", "table_bytes", "table_name", "table_of",
]  # fmt: skip

FORMAT = "eqsat-opt cudnn support 1"

RECORDED_VERSION = 91900
"""Version number of the cuDNN whose answers are recorded."""


def has_engines(version: int | None) -> bool:
    """Return whether a version has the recorded engines; patch releases of the same version do."""
    return version is not None and version // 100 == RECORDED_VERSION // 100


HEURISTIC = "heuristic"
"""Plan that cuDNN ranks first at run time, within the workspace of the launch."""

_MOST = 4
_STARTS_S, _ANSWERS_S = 120.0, 60.0


@dataclass(frozen=True)
class CudnnChoice:
    """A way in which cuDNN computes a graph.

    Attributes:
        name: the engine and knobs as that version of cuDNN writes them, or `HEURISTIC`.
        workspace_bytes: the workspace that it needs.
        is_compiled: whether its kernel is compiled when the plan is built.
    """

    name: str
    workspace_bytes: int
    is_compiled: bool = False

    @property
    def engine(self) -> str:
        """Name of the engine, such as ``eng51``."""
        return self.name.partition("_")[0]


Table = Mapping[str, tuple[CudnnChoice, ...]]
"""Choices by the key of a spec, best ranked first."""


@cache
def recorded(architecture: str, precision: Precision = Precision.STRICT) -> Table:
    """Return the table recorded for an architecture; empty if none was recorded."""
    path = (
        files("eqsat_opt.runtime.backends.cudnn") / "support" / table_name(architecture, precision)
    )
    try:
        return table_of(path.read_bytes())
    except FileNotFoundError:
        return {}


def table_name(architecture: str, precision: Precision) -> str:
    """Return the file name of a table."""
    return f"{architecture}.{precision}.json.gz"


def table_of(data: bytes) -> Table:
    """Parse the bytes that `table_bytes` returned."""
    document = json.loads(gzip.decompress(data))
    names: list[str] = document["plans"]
    return {
        spec_from_json(spec).key: tuple(
            CudnnChoice(names[number], size, bool(compiled)) for number, size, *compiled in found
        )
        for spec, found in document["specs"]
    }


def table_bytes(table: Table) -> bytes:
    """Return the content of a table's file; equal tables have equal files."""
    names = sorted({one.name for found in table.values() for one in found})
    number = {name: i for i, name in enumerate(names)}
    specs = [
        [
            json.loads(key),
            [
                [number[one.name], one.workspace_bytes, *([1] if one.is_compiled else [])]
                for one in table[key]
            ],
        ]
        for key in sorted(table)
    ]
    document = {"format": FORMAT, "version": RECORDED_VERSION, "plans": names, "specs": specs}
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def missing_wheels() -> str:
    """Return why cuDNN cannot be asked here; empty if it can."""
    for name in ("cudnn", "nvidia.cudnn"):
        found = None
        with suppress(ImportError):
            found = find_spec(name)
        if found is None:
            return "cuDNN is not installed; run pip install 'eqsat-opt[plan]'"
    return ""


class Asker:
    """Client of the installed cuDNN, which runs in a separate process because it may crash.

    Args:
        description: the description of the device.
    """

    def __init__(self, description: DeviceDescription) -> None:
        self._text = description.text
        self._child: Child | None = None
        self.version: int | None = None

    def ask(self, spec: AnySpec, most: int = _MOST) -> tuple[CudnnChoice, ...] | None:
        """Return cuDNN's choices for a spec; ``None`` if it gave no answer."""
        if self._child is None or not self._child.is_alive:
            self._child = Child("eqsat_opt.runtime.backends.cudnn.asking", "to ask cuDNN")
            if not self._child.is_ready(_STARTS_S):
                return None
        request = {"description": self._text, "spec": value_to_json(spec), "most": most}
        reply = self._child.ask(request, (), _ANSWERS_S)
        if reply is None:
            return None
        answer: dict[str, Any] = reply[0]
        self.version = answer["version"]
        return tuple(CudnnChoice(name, size, compiled) for name, size, compiled in answer["plans"])

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None


class Oracle:
    """Source of cuDNN's choices on a device.

    Args:
        description: the description of the device.
    """

    def __init__(self, description: DeviceDescription) -> None:
        self._architecture = description.architecture
        self._asker = None if missing_wheels() else Asker(description)
        self._live: dict[str, tuple[CudnnChoice, ...] | None] = {}

    def choices(self, spec: AnySpec) -> Sequence[CudnnChoice]:
        """Return the ways to compute a spec, best ranked first; none if there is no way."""
        key = spec.key
        found = recorded(self._architecture, spec.precision).get(key)
        if found is None:
            found = self._asked(spec, key)
        if found is None:
            share = _families(self._architecture, spec.precision).get(spec.family)
            if share is None:
                return ()
            return (CudnnChoice(HEURISTIC, ceil(share * spec.tensor_bytes)),)
        return found

    def _asked(self, spec: AnySpec, key: str) -> tuple[CudnnChoice, ...] | None:
        """Return the live answer, if it comes from the recorded version."""
        if self._asker is None:
            return None
        if key not in self._live:
            try:
                found = self._asker.ask(spec)
            except RuntimeFailed:
                found = None
            self._live[key] = found if has_engines(self._asker.version) else None
        return self._live[key]


@cache
def _families(architecture: str, precision: Precision) -> Mapping[tuple[object, ...], float]:
    """Return a sufficient workspace for each kind of graph that always has a kernel.

    It is a share of the bytes of the tensors. For each recorded graph of the kind, the choice with
    the smallest workspace counts; the largest of these shares is sufficient.
    """
    found: dict[tuple[object, ...], list[float]] = {}
    for key, choices in recorded(architecture, precision).items():
        spec = spec_from_json(json.loads(key))
        least = min((one.workspace_bytes for one in choices), default=inf)
        found.setdefault(spec.family, []).append(least / spec.tensor_bytes)
    return {family: max(shares) for family, shares in found.items() if max(shares) < inf}
