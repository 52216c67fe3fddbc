"""Profiles of devices: figures with their sources, and analytic times of kernels.

A profile is data: one JSON file. The times that it gives for kernels are estimates of a model of
arithmetic, traffic, waves of output tiles and overheads. They are called analytic wherever they are
printed, and nothing made from them is raced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from math import ceil, prod
from pathlib import Path
from types import MappingProxyType

from eqsat_opt.common.codecs import (
    Document,
    Entry,
    document_text,
    read_document,
    value_from_json,
    value_to_json,
)
from eqsat_opt.common.paths import cache_folder
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import require_static
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure, check_figures, figures_in
from eqsat_opt.runtime.plan.plan import Launch
from eqsat_opt.runtime.plan.simulation import LaunchLoad

__all__ = [
    "FORMAT",
    "HOST_PROFILE",
    "RECORDED",
    "DeviceProfile",
    "device_file",
    "device_folder",
    "imported_names",
    "load_profile",
    "profile_from_json",
    "profile_in",
    "profile_names",
    "profile_text",
    "profile_to_json",
]

HOST_PROFILE = "xeon"
"""Name of the profile that represents the processor here, where no other one is named."""

FORMAT = "eqsat-opt device 1"

RECORDED = "eqsat-opt recorded device 1"
"""Format of a document that holds a profile and prices that were measured on the device."""


@dataclass(frozen=True)
class DeviceProfile:
    """The figures of a device.

    Attributes:
        name: name that ``--target`` takes.
        title: name of the product.
        kind: ``cuda`` or ``cpu``.
        memory_bytes: size of the device memory.
        bandwidth_gb_s: bandwidth of that memory, GB/s.
        peak_tflops: peak rate of multiply-add arithmetic by precision, TFLOP/s, two operations
            each: ``fp32``; ``tf32``, ``fp16``, ``bf16`` on tensor cores.
        units: streaming multiprocessors, or cores; output tiles run in waves over them.
        tile: rows and columns of an output tile of a contraction that one unit computes at once.
        streams: largest useful number of streams.
        launch_us: shortest time from one kernel to the next on a stream.
        event_us: delay that waiting for an event of another stream adds.
        session_us: cost of calling another runtime's session.
        copy_us, copy_gb_s: latency and rate of a copy between host and device.
        multipliers: arithmetic that an algorithm really does, relative to the kernel as it is
            defined: ``direct``, ``gemm``, ``winograd``, ``fft``.
        energy: the energy model; ``None`` if its figures were not measured.
        description: the description for CUDA libraries; ``None`` if they do not run on the device.
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
    description: DeviceDescription | None = None

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        for name in ("peak_tflops", "multipliers"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Return all figures with their names."""
        return figures_in(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of the figures that are neither measured nor stated by the manufacturer."""
        return tuple(name for name, one in self.figures() if one.is_assumed)

    def occupancy(self, kernel: Kernel) -> float:
        """Return the share of the units that output tiles keep busy, on average over all waves.

        Twelve tiles on eight units take two waves, so a quarter of the units' time is idle; this is
        why merging siblings pays. Kernels without a contraction are bound by traffic and have 1.
        """
        shares = [
            self._share(kernel, number)
            for number, step in enumerate(kernel.steps, start=len(kernel.operands))
            if get_op(step.op).kind == "contraction"
        ]
        return min(shares, default=1.0)

    def _share(self, kernel: Kernel, number: int) -> float:
        op = get_op(kernel.steps[number - len(kernel.operands)].op)
        shape = require_static(kernel.types[number]).shape
        if not prod(shape):
            return 1.0
        # Columns are the channels of images, and the last axis otherwise; all else are rows.
        columns = shape[1 if "spatial" in op.traits else -1] if shape else 1
        rows = prod(shape) // columns
        height, width = (int(figure.value) for figure in self.tile)
        tiles, units = ceil(rows / height) * ceil(columns / width), int(self.units.value)
        return tiles / (ceil(tiles / units) * units)

    def require_precision(self, precision: str) -> None:
        """Refuse a precision that the device does not have.

        Raises:
            OptionError: the profile has no rate for the precision.
        """
        if precision not in self.peak_tflops:
            known = ", ".join(sorted(self.peak_tflops))
            raise OptionError(f"{self.name} has no precision {precision!r}; it has {known}")

    def work(
        self, kernel: Kernel, algorithm: str = "direct", workspace_bytes: int = 0
    ) -> tuple[float, float]:
        """Return the operations of a kernel of literal sizes, and the bytes that it moves.

        A kernel that only renames a buffer has none of either. A workspace is written and read
        once.
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
        """Return the analytic time of a kernel of literal sizes with its launch, µs.

        Raises:
            OptionError: the profile has no rate for the precision.
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
    ) -> LaunchLoad:
        """Return the load that a kernel of literal sizes puts on the device.

        Its width is the share of the arithmetic or of the bandwidth that it keeps busy, whichever
        is more: less than 1 if the last wave of output tiles leaves units idle.

        Raises:
            OptionError: the profile has no rate for the precision.
        """
        self.require_precision(precision)
        flops, size_bytes = self.work(kernel, algorithm, workspace_bytes)
        if _renames(kernel):
            return LaunchLoad()
        occupancy = self.occupancy(kernel)
        rate = self.peak_tflops[precision].value * 1e6 * occupancy  # per µs
        traffic_us = size_bytes / (self.bandwidth_gb_s.value * 1e3)
        arithmetic_us = flops / rate
        busy_us = max(arithmetic_us, traffic_us)
        used_us = max(arithmetic_us * occupancy, traffic_us)
        return LaunchLoad(self.launch_us.value, busy_us, used_us / busy_us if busy_us else 0.0)

    def launch_times_us(self, launches: tuple[Launch, ...]) -> list[float]:
        """Return the analytic time of each launch of a plan, µs.

        Raises:
            OptionError: the profile has no rate for the precision of a launch.
        """
        return [
            self.kernel_us(
                launch.body,
                launch.algorithm,
                launch.precision.peak,
                workspace_bytes=launch.workspace.size_bytes,
            )
            for launch in launches
        ]


def _renames(kernel: Kernel) -> bool:
    """Return whether a kernel only gives a buffer another shape."""
    return bool(kernel.steps) and all(step.op == "Reshape" for step in kernel.steps)


# ** files **


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that are part of the package."""
    folder = files("eqsat_opt.runtime.devices") / "profiles"
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".json")))


def device_folder() -> Path | None:
    """Return the folder of the devices that the user imported; ``None`` if the user has no home."""
    folder = cache_folder()
    return Path(folder) / "devices" if folder else None


def imported_names() -> tuple[str, ...]:
    """Return the names of the devices that the user imported."""
    folder = device_folder()
    try:
        found = [] if folder is None else [one for one in folder.iterdir() if one.is_file()]
    except OSError:
        return ()
    return tuple(sorted(one.stem for one in found if one.suffix == ".json" and one.stem))


def device_file(name: str | os.PathLike[str]) -> Path:
    """Return the file of a device, given by its name or by a path.

    Devices of the package and those that the user imported have names.

    Raises:
        OptionError: there is no such device.
    """
    text, path = os.fspath(name), Path(name)
    if text in profile_names():
        return Path(str(files("eqsat_opt.runtime.devices") / "profiles" / f"{text}.json"))
    folder = device_folder()
    known = (*profile_names(), *imported_names())
    if folder is not None and text in known:
        return folder / f"{text}.json"
    if path.suffix != ".json":
        near = get_close_matches(text.lower(), known, 1)
        raise OptionError(
            f"unknown device {text!r}; there are {', '.join(known)}, or give a profile as a .json "
            f"file{f'; did you mean {near[0]}?' if near else ''}"
        )
    return path


def load_profile(name: str | os.PathLike[str]) -> DeviceProfile:
    """Load the profile of a device, given by its name or by a path.

    Devices of the package and those that the user imported have names. The file of a recorded
    device holds its profile beside its prices.

    Raises:
        OptionError: there is no such device, or the file is no profile.
    """
    try:
        return profile_in(read_document(device_file(name), "a device profile"))
    except StageError as error:
        raise OptionError(str(error)) from error


def profile_in(document: Document) -> DeviceProfile:
    """Return the profile that a document of a device holds.

    Raises:
        StageError: the document holds no valid profile.
    """
    if document.get("format") == RECORDED:
        return profile_from_json(Entry(document, "the recorded device").mapping("profile").value)
    return profile_from_json(document)


def profile_text(profile: DeviceProfile) -> str:
    """Return the canonical text of a profile."""
    return document_text(profile_to_json(profile))


def profile_to_json(profile: DeviceProfile) -> Document:
    """Return the document of a profile; `profile_from_json` is the inverse."""
    return {"format": FORMAT, **value_to_json(profile)}


def profile_from_json(document: Document) -> DeviceProfile:
    """Return the profile that `profile_to_json` wrote.

    Raises:
        StageError: the document is no profile, lacks a figure, or has an implausible one.
    """
    where = "the device profile"
    Entry(document, where).require_format(FORMAT)
    fields = {name: value for name, value in document.items() if name != "format"}
    profile = value_from_json(fields, DeviceProfile, where)
    if profile.kind not in _KINDS:
        raise StageError(f"kind of {where} is {profile.kind!r}; it is {' or '.join(_KINDS)}")
    check_figures(profile, where, may_be_zero=_MAY_BE_ZERO)
    for one in (profile.units, profile.streams, *profile.tile):
        if one.value < 1 or one.value % 1:
            raise StageError(
                f"a count of {where} is {one.value:g}; it is a whole number of 1 or more"
            )
    return profile


_KINDS = ("cuda", "cpu")

_MAY_BE_ZERO = ("launch_us", "event_us", "session_us", "copy_us")
