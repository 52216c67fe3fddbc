"""Which convolutions cuDNN has for a device, by which engines: recorded answers, or live ones.

Recorded are the answers of one version of cuDNN for the architectures of GPUs, the policies of
precision, and the convolutions and products of the models of the zoo (`support/`): of convolutions
without kernels that are compiled when they run, as all of products are. Of another one the wheels
are asked, where they are installed (the extra ``plan``); else it has the one implementation
`HEURISTIC`, if all of its kind that were recorded have a kernel.
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

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec, spec_from_json
from eqsat_opt.runtime.child import Child
from eqsat_opt.runtime.devices.description import DeviceDescription

__all__ = [
    "FORMAT", "HEURISTIC", "RECORDED_VERSION", "Asker", "Choice", "Oracle", "has_engines",
    "missing_wheels", "recorded", "table_bytes", "table_name", "table_of",
]  # fmt: skip

FORMAT = "eqsat-opt cudnn support 1"

RECORDED_VERSION = 91900
"""Of cuDNN, as it numbers itself: whose answers are recorded."""


def has_engines(version: int | None) -> bool:
    """Whether a version has the engines that were recorded: patches of it do."""
    return version is not None and version // 100 == RECORDED_VERSION // 100


HEURISTIC = "heuristic"
"""Whatever cuDNN ranks first when it runs, within the workspace of the launch."""

_MOST = 4
_STARTS_S, _ANSWERS_S = 120.0, 60.0


@dataclass(frozen=True)
class Choice:
    """A way in which cuDNN computes a graph.

    Attributes:
        name: engine and knobs as its version writes them, or `HEURISTIC`.
        workspace_bytes: that it needs.
        is_compiled: whether its kernel is compiled when it is built.
    """

    name: str
    workspace_bytes: int
    is_compiled: bool = False

    @property
    def engine(self) -> str:
        """Its number: ``eng51``."""
        return self.name.partition("_")[0]


Table = Mapping[str, tuple[Choice, ...]]
"""The choices of a spec by its key, best ranked first."""


@cache
def recorded(architecture: str, precision: Precision = Precision.STRICT) -> Table:
    """What was recorded for an architecture; nothing for one that was not asked for."""
    path = (
        files("eqsat_opt.runtime.backends.cudnn") / "support" / table_name(architecture, precision)
    )
    try:
        return table_of(path.read_bytes())
    except FileNotFoundError:
        return {}


def table_name(architecture: str, precision: Precision) -> str:
    """Of the file."""
    return f"{architecture}.{precision}.json.gz"


def table_of(data: bytes) -> Table:
    """What `table_bytes` made."""
    document = json.loads(gzip.decompress(data))
    names: list[str] = document["plans"]
    return {
        spec_from_json(spec).key: tuple(
            Choice(names[number], size, bool(compiled)) for number, size, *compiled in found
        )
        for spec, found in document["specs"]
    }


def table_bytes(table: Table) -> bytes:
    """The file of a table; equal tables have equal ones."""
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
    """Why cuDNN cannot be asked here; empty if it can."""
    for name in ("cudnn", "nvidia.cudnn"):
        found = None
        with suppress(ImportError):
            found = find_spec(name)
        if found is None:
            return "cuDNN is not installed; run pip install 'eqsat-opt[plan]'"
    return ""


class Asker:
    """Asks the cuDNN that is installed, in a process that may die of it.

    Args:
        description: of the device.
    """

    def __init__(self, description: DeviceDescription) -> None:
        self._text = description.text
        self._child: Child | None = None
        self.version: int | None = None

    def ask(self, spec: AnySpec, most: int = _MOST) -> tuple[Choice, ...] | None:
        """What cuDNN has for a spec; ``None`` if it gave no answer."""
        if self._child is None or not self._child.is_alive:
            self._child = Child("eqsat_opt.runtime.backends.cudnn.asking", "to ask cuDNN")
            if not self._child.is_ready(_STARTS_S):
                return None
        request = {"description": self._text, "spec": spec.to_json(), "most": most}
        reply = self._child.ask(request, (), _ANSWERS_S)
        if reply is None:
            return None
        answer: dict[str, Any] = reply[0]
        self.version = answer["version"]
        return tuple(Choice(name, size, compiled) for name, size, compiled in answer["plans"])

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None


class Oracle:
    """What cuDNN has for a device.

    Args:
        description: of the device.
    """

    def __init__(self, description: DeviceDescription) -> None:
        self._architecture = description.architecture
        self._asker = None if missing_wheels() else Asker(description)
        self._live: dict[str, tuple[Choice, ...] | None] = {}

    def choices(self, spec: AnySpec) -> Sequence[Choice]:
        """The ways to compute a spec, best ranked first; none if there is no way."""
        key = spec.key
        found = recorded(self._architecture, spec.precision).get(key)
        if found is None:
            found = self._asked(spec, key)
        if found is None:
            share = _families(self._architecture, spec.precision).get(spec.family)
            if share is None:
                return ()
            return (Choice(HEURISTIC, ceil(share * spec.tensor_bytes)),)
        return found

    def _asked(self, spec: AnySpec, key: str) -> tuple[Choice, ...] | None:
        """The live answer, if it is of the version that was recorded."""
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
    """For each kind of graph that always has a kernel, the workspace that lets one run.

    As a share of the bytes of the tensors: the largest that the least needy of the recorded choices
    takes for any of its kind.
    """
    found: dict[tuple[object, ...], list[float]] = {}
    for key, choices in recorded(architecture, precision).items():
        spec = spec_from_json(json.loads(key))
        least = min((one.workspace_bytes for one in choices), default=inf)
        found.setdefault(spec.family, []).append(least / spec.tensor_bytes)
    return {family: max(shares) for family, shares in found.items() if max(shares) < inf}
