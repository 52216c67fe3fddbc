"""Devices known by their profile and by prices measured on them elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from eqsat_opt.common.codecs import Document, Entry, read_document
from eqsat_opt.cost.export import row_from_json, row_to_json
from eqsat_opt.cost.metrics import ENERGY, LAUNCH_US, TIME
from eqsat_opt.cost.offline import OfflinePricer
from eqsat_opt.cost.profile import ProfileRow
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.roofline import BANDWIDTH_PROBE, PEAK_PROBE, Roofline, calibrated
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.runtime.backends.protocol import DEFAULT, Backend, Offer
from eqsat_opt.runtime.backends.registry import load_backend, portable_names
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import (
    RECORDED,
    DeviceProfile,
    device_file,
    profile_from_json,
    profile_to_json,
)
from eqsat_opt.runtime.measure import PROTOCOL_VERSION

__all__ = [
    "RecordedDevice",
    "RecordedPricer",
    "load_recorded",
    "recorded_device",
    "recorded_from_json",
    "recorded_to_json",
]

_PRECISION = "fp32"

_LEAST_US = 0.05
"""Least credible time of a probe, µs; a shorter one was not measured well."""


@dataclass(frozen=True)
class RecordedDevice:
    """A profile, and measured prices of one machine with one number of threads.

    Attributes:
        profile: the profile of the device; its figures bound the kernels that were not measured.
        rows: the measurements, one per kernel, with one version of each backend.
    """

    profile: DeviceProfile
    rows: tuple[ProfileRow, ...]

    @property
    def machine(self) -> str:
        """The id of the processor."""
        return self.rows[0].key.device

    @property
    def threads(self) -> int:
        """Number of threads of each session."""
        return self.rows[0].key.threads

    @property
    def versions(self) -> Mapping[str, int]:
        """Number of rows by backend and version."""
        return Counter(row.key.backend for row in self.rows)

    @property
    def newest(self) -> str:
        """Time of the last measurement, ISO 8601 in UTC."""
        return max(row.measured_at for row in self.rows)

    @cached_property
    def times_us(self) -> Mapping[tuple[str, str, str, str], float]:
        """Measured times, µs, by backend without version, signature, algorithm and forms."""
        return MappingProxyType(
            {
                (_title(k.backend), k.kernel, k.implementation, k.forms): row.measurement.time_us
                for row in self.rows
                if (k := row.key) and row.measurement is not None
            }
        )


def _title(version: str) -> str:
    return version.partition(" ")[0]


class RecordedPricer(OfflinePricer):
    """Prices of kernels on a recorded device: an `AnyPricer`.

    The quote of a measured kernel is ``recorded``. That of any other kernel is a ``bound``: the
    greater of its arithmetic over the profile's peak and its traffic over the bandwidth, plus a
    launch.

    Args:
        device: the device.
        energy: the model that derives energy from a time, in place of the profile's.

    Attributes:
        device, profile: the device and its profile.
        backends: those that kernels were measured with and that are installed here; onnxruntime
            comes first and runs everything.
        metrics: time, and energy where there is a model of it.
        energy_text: a phrase for the source of energies; empty where there is none.
        interface: form of the model's inputs and outputs: in the memory of the host, in the order
            of ONNX.
    """

    def __init__(self, device: RecordedDevice, energy: EnergyModel | None = None) -> None:
        self.device = device
        super().__init__(
            device.profile,
            tuple(_backends(device)),
            interface=PLAIN,
            metrics=(TIME, ENERGY),
            precision=_PRECISION,
            energy=energy,
        )
        self._titles = {one.name: _title(one.version()) for one in self.backends}
        self._roofline = Roofline(
            self.profile.peak_tflops[_PRECISION].value * 1e6,
            self.profile.bandwidth_gb_s.value * 1e3,
        )

    def price(self, offer: Offer) -> Quote:
        """Return the recorded price of an offer, or a lower bound."""
        how = offer.implementation
        title = self._titles[offer.backend]
        time_us = self.device.times_us.get(
            (title, offer.kernel.signature, how.algorithm, how.forms)
        )
        is_bound = time_us is None
        if time_us is None:
            time_us = self._roofline.bound_us(offer.kernel, how.arithmetic)
        metrics = {TIME: time_us + LAUNCH_US}
        if self._energy is not None:
            flops = literal(offer.kernel.flops) * how.arithmetic
            size_bytes = literal(offer.kernel.bytes)
            metrics[ENERGY] = self._energy.energy_uj(
                metrics[TIME], flops, size_bytes, _PRECISION, algorithm=how.algorithm
            )
        return Quote(metrics, "bound" if is_bound else "recorded")


def _backends(device: RecordedDevice) -> Iterator[Backend]:
    recorded = {_title(version) for version in device.versions}
    for number, name in enumerate(portable_names()):
        backend = load_backend(name)
        if not number or _title(backend.version()) in recorded:
            yield backend


# ** from an export **


def recorded_device(
    rows: Sequence[ProfileRow],
    base: DeviceProfile,
    name: str,
    *,
    machine: str | None = None,
    threads: int | None = None,
) -> RecordedDevice:
    """Build a recorded device from the rows of an export.

    If there are rows of several versions of a backend, only the version with the last measurement
    is used. Measurements of the probes of peak and bandwidth among the rows replace the figures of
    the base.

    Args:
        rows: the rows of an export.
        base: a profile of the same kind of device.
        name: the name of the device.
        machine: the id of the machine, if the rows are of several.
        threads: the number of threads, if the rows are of several numbers.

    Raises:
        OptionError: the choice of rows is ambiguous, there are none, or a time is not positive.
    """
    current = [
        row for row in rows if row.key.protocol == PROTOCOL_VERSION and not row.key.precision
    ]
    kept = _only(current, "machine", lambda row: row.key.device, machine)
    kept = _only(kept, "threads", lambda row: row.key.threads, threads)
    newest: dict[str, ProfileRow] = {}
    for row in kept:
        one = newest.setdefault(_title(row.key.backend), row)
        if row.measured_at > one.measured_at:
            newest[_title(row.key.backend)] = row
    versions = {row.key.backend for row in newest.values()}
    kept = [row for row in kept if row.key.backend in versions]
    for row in kept:
        if row.measurement is not None and not row.measurement.time_us > 0:
            raise OptionError(
                f"a kernel took {row.measurement.time_us:g} µs by this export, which cannot be: "
                f"{row.key.kernel[:60]}"
            )
    if not any(row.measurement for row in kept):
        raise OptionError("the export has no price of a kernel that could be used here")
    return RecordedDevice(_profile(base, kept, name), tuple(kept))


def _only(
    rows: Sequence[ProfileRow], what: str, of: Callable[[ProfileRow], Any], wanted: Any
) -> list[ProfileRow]:
    """Return the rows of one machine, or of one number of threads."""
    counts = Counter(map(of, rows))
    found = ", ".join(f"{value} ({count} kernels)" for value, count in sorted(counts.items()))
    if wanted is None and len(counts) > 1:
        raise OptionError(f"the export is of several {_PLURAL[what]}: {found}; say --{what}")
    if wanted is not None and wanted not in counts:
        raise OptionError(
            f"the export has nothing of --{what} {wanted}; it has {found or 'no prices'}"
        )
    return [row for row in rows if wanted is None or of(row) == wanted]


_PLURAL = {"machine": "machines", "threads": "numbers of threads"}


def _profile(base: DeviceProfile, rows: Sequence[ProfileRow], name: str) -> DeviceProfile:
    """Return the base with the name and the figures that follow from the rows."""
    key, newest = rows[0].key, max(row.measured_at for row in rows)
    threads = f"{key.threads} thread{'' if key.threads == 1 else 's'}"
    profile = replace(
        base, name=name, title=f"{key.device}, {threads}, recorded until {newest[:10]}"
    )
    probes = [_time_of(rows, probe) for probe in (PEAK_PROBE, BANDWIDTH_PROBE)]
    if not all(probes):
        return profile
    roofline = calibrated(*(time_us for time_us in probes if time_us))
    source = f"derived: 1.5 times that of a kernel measured by {key.backend}, {newest[:10]}"
    bandwidth = Figure(roofline.bytes_per_us / 1e3, source)
    whole = Figure(1, "derived: prices are of whole kernels")
    return replace(
        profile,
        peak_tflops={**base.peak_tflops, _PRECISION: Figure(roofline.flops_per_us / 1e6, source)},
        bandwidth_gb_s=bandwidth,
        copy_gb_s=bandwidth if base.kind == "cpu" else base.copy_gb_s,
        units=whole,
        streams=whole,
    )


def _time_of(rows: Sequence[ProfileRow], kernel: Kernel) -> float | None:
    """Return the time of a kernel in its default implementation, µs; ``None`` without a row."""
    for row in rows:
        is_it = row.key.kernel == kernel.signature and row.key.implementation == DEFAULT.algorithm
        if is_it and row.measurement is not None:
            return max(row.measurement.time_us, _LEAST_US)
    return None


# ** files **


def recorded_to_json(device: RecordedDevice) -> Document:
    """Return the document of a recorded device; `recorded_from_json` restores an equal value."""
    return {
        "format": RECORDED,
        "profile": profile_to_json(device.profile),
        "rows": [row_to_json(row) for row in device.rows],
    }


def recorded_from_json(document: Document) -> RecordedDevice:
    """Read back a recorded device from the document that `recorded_to_json` returned.

    Raises:
        StageError: the document is not a recorded device.
    """
    entry = Entry(document, "the recorded device")
    entry.require_format(RECORDED)
    entry.require_all("format", "profile", "rows")
    profile = profile_from_json(entry.mapping("profile").value)
    try:
        rows = tuple(row_from_json(row.value) for row in entry.entries("rows", "row"))
    except (StageError, KeyError, TypeError, ValueError) as error:
        raise StageError(f"{entry.place('rows')} holds what is no price: {error}") from error
    if len({(row.key.device, row.key.threads) for row in rows}) != 1:
        raise StageError(f"{entry.place('rows')} are not of one machine and number of threads")
    return RecordedDevice(profile, rows)


def load_recorded(name: str) -> RecordedDevice | None:
    """Load a device by its name or path; ``None`` if it is not a recorded one.

    Raises:
        OptionError: there is no such device, or its file is damaged.
    """
    try:
        document = read_document(device_file(name), "a device")
        return recorded_from_json(document) if document.get("format") == RECORDED else None
    except StageError as error:
        raise OptionError(str(error)) from error
