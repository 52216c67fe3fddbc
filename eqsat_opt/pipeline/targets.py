"""Target devices: this machine, profiles, and machines whose prices were recorded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eqsat_opt.common.codecs import Document, document_text, read_document
from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import CACHE_VARIABLE
from eqsat_opt.cost.export import EXPORT_FORMAT, read_export
from eqsat_opt.cost.recorded import (
    RecordedDevice,
    load_recorded,
    recorded_device,
    recorded_from_json,
    recorded_to_json,
)
from eqsat_opt.errors import EqsatError, OptionError, StageError, reason
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.runtime.devices.profile import (
    FORMAT,
    HOST_PROFILE,
    RECORDED,
    DeviceProfile,
    device_file,
    device_folder,
    imported_names,
    load_profile,
    profile_from_json,
    profile_names,
    profile_to_json,
)
from eqsat_opt.runtime.processor import device_fingerprint, usable_cores

__all__ = ["Imported", "Target", "describe_target", "import_target", "targets"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_UNITS = {
    "memory_bytes": "B",
    "bandwidth_gb_s": "GB/s",
    "copy_gb_s": "GB/s",
    "peak_tflops": "TFLOP/s",
    "launch_us": "µs",
    "event_us": "µs",
    "session_us": "µs",
    "copy_us": "µs",
    "static_w": "W",
    "pj_per_flop": "pJ/FLOP",
    "pj_per_byte": "pJ/B",
}
"""Units of figures by a part of their names; all other figures are counts and shares."""


@dataclass(frozen=True)
class Target:
    """A value of ``--target``.

    Attributes:
        name: name of the device.
        kind: ``here``, ``analytic`` (a profile and its model), ``recorded`` (a profile, and prices
            that were measured on the device) or ``damaged``.
        title: name of the product.
        text: description of the prices, or why the device cannot be used.
        is_usable: whether the device can be used.
    """

    name: str
    kind: str
    title: str
    text: str
    is_usable: bool = True


def targets() -> tuple[Target, ...]:
    """Return this machine, the profiles of the package, and the devices that the user imported."""
    return (_here(), *map(_target, (*profile_names(), *imported_names())))


def _here() -> Target:
    return Target(HOST, "here", device_fingerprint().name, "kernels are measured, results raced")


def _target(name: str) -> Target:
    try:
        recorded = load_recorded(name)
        profile = load_profile(name) if recorded is None else recorded.profile
    except EqsatError as error:
        return Target(name, "damaged", "", str(error), is_usable=False)
    total, assumed = len(list(profile.figures())), len(profile.assumptions)
    if recorded is not None:
        versions = ", ".join(f"{count} of {name}" for name, count in recorded.versions.items())
        return Target(name, "recorded", profile.title, f"prices: {versions}")
    text = f"{total} figures, {assumed} of them assumed"
    return Target(name, "analytic", profile.title, text)


def describe_target(name: str) -> dict[str, Any]:
    """Describe a device as JSON values: its figures with units and sources, and its prices.

    Raises:
        OptionError: there is no such device, or its file is damaged.
    """
    if name == HOST:
        found, energy = device_fingerprint(), found_meter()
        meter = energy.meter
        return {
            "name": HOST,
            "kind": "here",
            "title": found.name,
            "id": found.id,
            "cores": usable_cores(),
            "energy": None if meter is None else f"{meter.name} of {meter.scope}",
            "tried": list(energy.tried),
        }
    recorded = load_recorded(name)
    profile = load_profile(name) if recorded is None else recorded.profile
    facts: dict[str, Any] = {
        "name": profile.name,
        "kind": "analytic" if recorded is None else "recorded",
        "title": profile.title,
        "file": str(device_file(name)),
        "device": profile.kind,
        "figures": list(_figures(profile)),
        "assumed": list(profile.assumptions),
    }
    return facts if recorded is None else {**facts, "prices": _prices(recorded)}


def _figures(profile: DeviceProfile) -> Iterator[dict[str, Any]]:
    for name, figure in profile.figures():
        units = (unit for part in name.split(".") if (unit := _UNITS.get(part)))
        yield {
            "name": name,
            "value": figure.value,
            "unit": next(units, ""),
            "source": figure.source,
        }


def _prices(device: RecordedDevice) -> dict[str, Any]:
    return {
        "machine": device.machine,
        "threads": device.threads,
        "kernels": dict(device.versions),
        "newest": device.newest,
    }


@dataclass(frozen=True)
class Imported:
    """The result of importing a device.

    Attributes:
        target: the device.
        path: its file.
        replaced: whether it replaced a device of that name.
    """

    target: Target
    path: str
    replaced: bool


def import_target(
    file: str | os.PathLike[str],
    name: str | None = None,
    *,
    base: str | None = None,
    machine: str | None = None,
    threads: int | None = None,
) -> Imported:
    """Import a profile, or prices of another machine, as a device of the user.

    Args:
        file: a profile, a recorded device, or an export by ``eqsat-opt profile export``.
        name: name of the device; by default the one in the file, or the name of the file.
        base: name or path of a profile, whose figures bound kernels without a price.
        machine: id of the machine, where an export has prices of several.
        threads: number of threads, where an export has prices of several.

    Raises:
        OptionError: the file is none of these or damaged, the name cannot be used, or the folder
            of the user's devices cannot be written; nothing is left behind.
        StoreError: the export is damaged.
    """
    where = os.fspath(file)
    try:
        document = read_document(file, "a device")
    except StageError as error:
        raise OptionError(str(error)) from error
    try:
        kind = document.get("format")
        if kind != EXPORT_FORMAT and (base or machine or threads):
            raise OptionError(
                f"--profile, --machine and --threads are for exports; {where} is none"
            )
        if kind == FORMAT:
            profile = profile_from_json(document)
            called = profile.name if name is None else name
            kept = profile_to_json(replace(profile, name=called))
        elif kind == RECORDED:
            device = recorded_from_json(document)
            kept = _renamed(device, device.profile.name if name is None else name)
        elif kind == EXPORT_FORMAT:
            called = Path(where).stem if name is None else name
            behind = load_profile(base or HOST_PROFILE)
            found = recorded_device(
                read_export(file), behind, called, machine=machine, threads=threads
            )
            kept = recorded_to_json(found)
        else:
            raise OptionError(
                f"{where} is neither a device profile nor prices of a machine; make such prices "
                "there with eqsat-opt profile export FILE"
            )
    except StageError as error:
        raise OptionError(f"{where}: {error}") from error
    return _kept(kept)


def _renamed(device: RecordedDevice, name: str) -> Document:
    return recorded_to_json(replace(device, profile=replace(device.profile, name=name)))


def _kept(document: Document) -> Imported:
    """Write the document of a device to the folder of the user's devices.

    Raises:
        OptionError: the name cannot be used, or the folder cannot be written.
    """
    name = document.get("name") or document["profile"]["name"]
    if not _NAME.fullmatch(name) or name.endswith(".json"):
        raise OptionError(
            f"a device cannot be called {name!r}; give letters, digits, dots and dashes with --name"
        )
    if name in (HOST, *profile_names()):
        raise OptionError(f"{name!r} is another device already; give another name with --name")
    folder = device_folder()
    if folder is None:
        raise OptionError(
            f"there is no home folder to keep devices in; name one by {CACHE_VARIABLE}"
        )
    path = folder / f"{name}.json"
    is_known = name in imported_names()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot keep devices in {folder}: {reason(error)}") from error
    write_whole(path, document_text(document), OptionError)
    return Imported(_target(name), str(path), is_known)
