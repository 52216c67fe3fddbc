"""Facts of a device, each with where it is from, and the times that follow from them.

A profile is data: one JSON file. What it says of a kernel is an estimate of a model that knows
arithmetic, traffic, waves of output tiles and overheads, so it is called analytic wherever it is
printed; nothing made from it is raced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.resources import files
from math import ceil, prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eqsat_opt.documents import Document, Entry, document_text, read_document
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.ir.dims import literal
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.plan.plan import Launch
from eqsat_opt.runtime.plan.simulation import Load

__all__ = [
    "FORMAT",
    "DeviceProfile",
    "EnergyModel",
    "Figure",
    "load_profile",
    "profile_from_json",
    "profile_names",
    "profile_text",
]

FORMAT = "eqsat-opt device 1"

_ASSUMED = "assumed"
"""How the source of a figure begins that is neither measured nor stated by the manufacturer."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and where it is from.

    Attributes:
        value: in the unit that its name says.
        source: ``data sheet: …``, ``measured: …`` with date and versions, ``derived: …`` or
            ``assumed: …``.
    """

    value: float
    source: str


@dataclass(frozen=True)
class EnergyModel:
    """Energy of a kernel: static power over its time, and a price for each operation and byte.

    Attributes:
        static_w: power of the idle device, W.
        pj_per_flop: by precision, pJ.
        pj_per_byte: of memory traffic, pJ.
    """

    static_w: Figure
    pj_per_flop: Mapping[str, Figure]
    pj_per_byte: Figure

    def energy_uj(self, time_us: float, flops: float, size_bytes: float, precision: str) -> float:
        """Energy, µJ.

        Raises:
            OptionError: nothing is known of that precision.
        """
        if precision not in self.pj_per_flop:
            raise OptionError(f"the energy model knows no precision {precision!r}")
        moving = self.pj_per_flop[precision].value * flops + self.pj_per_byte.value * size_bytes
        return self.static_w.value * time_us + moving * 1e-6


@dataclass(frozen=True)
class DeviceProfile:
    """A device.

    Attributes:
        name: as ``--target`` has it.
        title: of the product.
        kind: ``cuda`` or ``cpu``.
        memory_bytes: of the device.
        bandwidth_gb_s: of that memory, GB/s.
        peak_tflops: greatest rate of multiply-add arithmetic by precision, TFLOP/s, two operations
            each: ``fp32``; ``tf32``, ``fp16``, ``bf16`` on tensor cores.
        units: streaming multiprocessors, or cores; output tiles run in waves over them.
        tile: rows and columns of an output tile of a contraction that one unit computes at once.
        streams: beyond which more bring nothing.
        launch_us: from one kernel to the next on a stream, at least.
        event_us: what waiting for an event of another stream adds.
        session_us: cost of calling another runtime's session.
        copy_us, copy_gb_s: start and rate of a copy between host and device.
        multipliers: arithmetic that an algorithm really does, relative to the kernel as it is
            defined: ``direct``, ``gemm``, ``winograd``, ``fft``.
        energy: ``None`` where nobody measured it.
    """

    name: str
    title: str
    kind: str
    memory_bytes: Figure
    bandwidth_gb_s: Figure
    peak_tflops: Mapping[str, Figure]
    units: Figure
    tile: tuple[Figure, Figure]
    streams: Figure
    launch_us: Figure
    event_us: Figure
    session_us: Figure
    copy_us: Figure
    copy_gb_s: Figure
    multipliers: Mapping[str, Figure]
    energy: EnergyModel | None = None

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        for name in ("peak_tflops", "multipliers"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """All figures with their names."""
        for one in fields(self):
            value = getattr(self, one.name)
            yield from _figures(one.name, value)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The names of figures that nobody has measured or stated."""
        return tuple(name for name, one in self.figures() if one.source.startswith(_ASSUMED))

    def occupancy(self, kernel: Kernel) -> float:
        """The share of the units that output tiles keep busy, over all waves of them.

        Twelve tiles on eight units take two waves, so a quarter of the time is idle. That is why
        merging siblings pays. Kernels without a contraction are bound by traffic: 1.
        """
        shares = [
            self._share(kernel, number)
            for number, step in enumerate(kernel.steps, start=len(kernel.operands))
            if get_op(step.op).kind == "contraction"
        ]
        return min(shares, default=1.0)

    def _share(self, kernel: Kernel, number: int) -> float:
        op = get_op(kernel.steps[number - len(kernel.operands)].op)
        shape = kernel.types[number].static_shape()
        if not prod(shape):
            return 1.0
        # Columns are channels of images, and the last axis elsewhere; the rest are rows.
        columns = shape[1 if "spatial" in op.traits else -1] if shape else 1
        rows = prod(shape) // columns
        height, width = (int(figure.value) for figure in self.tile)
        tiles, units = ceil(rows / height) * ceil(columns / width), int(self.units.value)
        return tiles / (ceil(tiles / units) * units)

    def require_precision(self, precision: str) -> None:
        """Refuse a precision that the device does not have.

        Raises:
            OptionError: nothing is known of it.
        """
        if precision not in self.peak_tflops:
            known = ", ".join(sorted(self.peak_tflops))
            raise OptionError(f"{self.name} has no precision {precision!r}; it has {known}")

    def work(
        self, kernel: Kernel, algorithm: str = "direct", workspace_bytes: int = 0
    ) -> tuple[float, float]:
        """Operations that a kernel of literal sizes does, and bytes that it moves.

        What only renames a buffer has none of either. A workspace is written and read once.
        """
        if _renames(kernel):
            return 0.0, 0.0
        share = self.multipliers.get(algorithm)
        flops = literal(kernel.flops) * (share.value if share else 1.0)
        return flops, float(literal(kernel.bytes) + 2 * workspace_bytes)

    def kernel_us(
        self,
        kernel: Kernel,
        algorithm: str = "direct",
        precision: str = "fp32",
        *,
        workspace_bytes: int = 0,
    ) -> float:
        """The analytic time of a kernel of literal sizes, µs, with its launch.

        Raises:
            OptionError: nothing is known of the precision.
        """
        load = self.load(kernel, algorithm, precision, workspace_bytes=workspace_bytes)
        return load.time_us

    def load(
        self,
        kernel: Kernel,
        algorithm: str = "direct",
        precision: str = "fp32",
        *,
        workspace_bytes: int = 0,
    ) -> Load:
        """What a kernel of literal sizes asks of the device.

        Its width is the share of the arithmetic or of the bandwidth that it keeps busy, whichever
        is more: less than 1 where the last wave of output tiles leaves units idle.

        Raises:
            OptionError: nothing is known of the precision.
        """
        self.require_precision(precision)
        flops, size_bytes = self.work(kernel, algorithm, workspace_bytes)
        if _renames(kernel):
            return Load()
        occupancy = self.occupancy(kernel)
        rate = self.peak_tflops[precision].value * 1e6 * occupancy  # per µs
        traffic_us = size_bytes / (self.bandwidth_gb_s.value * 1e3)
        arithmetic_us = flops / rate
        busy_us = max(arithmetic_us, traffic_us)
        used_us = max(arithmetic_us * occupancy, traffic_us)
        return Load(self.launch_us.value, busy_us, used_us / busy_us if busy_us else 0.0)

    def launch_times_us(self, launches: tuple[Launch, ...], precision: str = "fp32") -> list[float]:
        """The analytic time of each launch of a plan, µs."""
        return [
            self.kernel_us(
                launch.body,
                launch.algorithm,
                precision,
                workspace_bytes=launch.workspace.size_bytes,
            )
            for launch in launches
        ]


def _renames(kernel: Kernel) -> bool:
    """Whether a kernel does nothing but to give a buffer another shape."""
    return bool(kernel.steps) and all(step.op == "Reshape" for step in kernel.steps)


def _figures(name: str, value: Any) -> Iterator[tuple[str, Figure]]:
    if isinstance(value, Figure):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _figures(f"{name}.{key}", item)
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _figures(f"{name}.{number}", item)
    elif isinstance(value, EnergyModel):
        for one in fields(value):
            yield from _figures(f"{name}.{one.name}", getattr(value, one.name))


# ** files **


def profile_names() -> tuple[str, ...]:
    """The profiles that ship."""
    folder = files("eqsat_opt.runtime.devices") / "profiles"
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".json")))


def load_profile(name: str | os.PathLike[str]) -> DeviceProfile:
    """A profile that ships, by name, or one of a user's own, by path.

    Raises:
        OptionError: there is none, or the file is no profile.
    """
    path = Path(name)
    if os.fspath(name) in profile_names():
        path = Path(str(files("eqsat_opt.runtime.devices") / "profiles" / f"{name}.json"))
    elif path.suffix != ".json":
        near = get_close_matches(os.fspath(name).lower(), profile_names(), 1)
        raise OptionError(
            f"unknown device {os.fspath(name)!r}; there are {', '.join(profile_names())}, or give "
            f"a profile as a .json file{f'; did you mean {near[0]}?' if near else ''}"
        )
    try:
        return profile_from_json(read_document(path))
    except StageError as error:
        raise OptionError(str(error)) from error


def profile_text(profile: DeviceProfile) -> str:
    """The canonical text of a profile."""
    return document_text({"format": FORMAT, **_to_json(profile)})


def _to_json(value: Any) -> Any:
    if isinstance(value, Figure):
        return {"value": value.value, "source": value.source}
    if isinstance(value, DeviceProfile | EnergyModel):
        return {one.name: _to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def profile_from_json(document: Document) -> DeviceProfile:
    """What `profile_text` wrote.

    Raises:
        StageError: it is no profile, lacks a figure, or gives one that makes no sense.
    """
    entry = Entry(document, "the device profile")
    entry.require_format(FORMAT)
    names = [one.name for one in fields(DeviceProfile)]
    entry.require_all("format", *names)
    tile = tuple(_count(item) for item in entry.entries("tile", "extent of tile"))
    if len(tile) != 2:
        raise StageError(f"{entry.place('tile')} has {len(tile)} extents; it needs 2")
    if entry.text("kind") not in _KINDS:
        raise StageError(
            f"{entry.place('kind')} is {entry.text('kind')!r}; it is {' or '.join(_KINDS)}"
        )
    plain = (
        "memory_bytes", "bandwidth_gb_s", "launch_us", "event_us", "session_us", "copy_us",
        "copy_gb_s",
    )  # fmt: skip
    energy = entry.get("energy")
    return DeviceProfile(
        entry.text("name"),
        entry.text("title"),
        entry.text("kind"),
        tile=(tile[0], tile[1]),
        peak_tflops=_table(entry.mapping("peak_tflops")),
        multipliers=_table(entry.mapping("multipliers")),
        energy=None if energy is None else _energy(entry.mapping("energy")),
        units=_count(entry.mapping("units")),
        streams=_count(entry.mapping("streams")),
        **{name: _figure(entry.mapping(name)) for name in plain},
    )


_KINDS = ("cuda", "cpu")

_MOST = 1e18
"""Beyond any figure of a device in the units here, and sums of what follows from it stay finite."""

_MAY_BE_ZERO = frozenset({"launch_us", "event_us", "session_us", "copy_us"})


def _figure(entry: Entry) -> Figure:
    entry.require_all("value", "source")
    value, source = entry.number("value"), entry.text("source")
    least = 0.0 if entry.where.split()[0] in _MAY_BE_ZERO else 1e-9
    if not least <= value <= _MOST:
        raise StageError(f"{entry.where} is {value}, which no device has")
    if not source:
        raise StageError(f"{entry.where} does not say where it is from")
    return Figure(value, source)


def _count(entry: Entry) -> Figure:
    """A whole number of things, one at least."""
    found = _figure(entry)
    if found.value < 1 or found.value % 1:
        raise StageError(f"{entry.where} is {found.value:g}; it is a whole number of 1 or more")
    return found


def _table(entry: Entry) -> dict[str, Figure]:
    return {name: _figure(entry.mapping(name)) for name in entry.value}


def _energy(entry: Entry) -> EnergyModel:
    entry.require_all("static_w", "pj_per_flop", "pj_per_byte")
    return EnergyModel(
        _figure(entry.mapping("static_w")),
        _table(entry.mapping("pj_per_flop")),
        _figure(entry.mapping("pj_per_byte")),
    )
