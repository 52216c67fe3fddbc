"""What results of a device become here: a device with prices, a table of support, tables to read.

Times that were invented in a rehearsal are called assumed wherever they are written.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.energy_fit import energy_of, model_to_json
from benchmarks.gpu.prepared import Prepared, read_prepared
from benchmarks.gpu.results import Found, read_results, results_path
from benchmarks.gpu.tables import tables
from benchmarks.gpu.unit import STEPS
from eqsat_opt.common.codecs import write_document
from eqsat_opt.common.files import write_whole
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.profile import ProfileKey, ProfileRow
from eqsat_opt.cost.recorded import RecordedDevice, recorded_to_json
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.runtime.backends.cublaslt import recorded as cublaslt
from eqsat_opt.runtime.backends.cublaslt.recorded import Support, support_bytes
from eqsat_opt.runtime.backends.cudnn.oracle import CudnnChoice, recorded, table_bytes
from eqsat_opt.runtime.backends.cudnn.spec import spec_from_json
from eqsat_opt.runtime.devices.description import PROPERTIES, DeviceDescription
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile
from eqsat_opt.runtime.measure import PROTOCOL_VERSION, Measurement

__all__ = ["found_in", "merge"]

DEVICE, SUPPORT, TABLES = "device.json", "support.json.gz", "tables.md"
PRODUCTS = "products.json.gz"
ENERGY = "energy_model.json"


def found_in(folder: Path, prepared: Prepared) -> Found:
    """The results in a folder.

    Raises:
        StageError: a file is damaged, or they do not belong together.
        OptionError: there are none.
    """
    documents = {
        step: read_results(path) for step in STEPS if (path := results_path(folder, step)).exists()
    }
    if not documents:
        raise OptionError(f"{folder} has no results; run python -m benchmarks.gpu all --out there")
    benches = {str(one["bench"]) for one in documents.values()}
    if len(benches) > 1:
        raise StageError(f"{folder} has results of a rehearsal and of a device; part them")
    devices = {str(device) for one in documents.values() if (device := one.get("device"))}
    if len(devices) > 1:
        raise StageError(f"{folder} has results of {' and of '.join(sorted(devices))}; part them")
    for step, one in documents.items():
        if one["prepared"] != prepared.digest:
            raise StageError(
                f"the results of {step} are not of what is prepared in {folder}; run it again"
            )
    return Found(
        {step: one["units"] for step, one in documents.items()},
        is_real=benches == {"gpu"},
        written_at=max(str(one["written_at"]) for one in documents.values()),
    )


def merge(folder: Path) -> str:
    """Write what follows from the results in a folder; what that is, in words.

    Raises:
        EqsatError: there are none, they are damaged, or a file cannot be written.
    """
    prepared = read_prepared(folder)
    found = found_in(folder, prepared)
    try:
        return _merge(folder, prepared, found)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StageError(
            f"the results in {folder} are damaged ({type(error).__name__}: {error}); run the steps "
            "again in another folder"
        ) from error


def _merge(folder: Path, prepared: Prepared, found: Found) -> str:
    told = []
    base = load_profile(prepared.target)
    profile, machine = profile_of(base, found), _machine(found, base)
    if found.is_real and base.description is not None and machine != base.description.name:
        told.append(f"plans were for {base.description.name}; this is what {machine} told")
    rows = tuple(rows_of(found, machine))
    if rows:
        write_document(folder / DEVICE, recorded_to_json(RecordedDevice(profile, rows)))
        told.append(f"{len(rows)} prices in {folder / DEVICE}: give it as --target")
    table = support_of(found, base)
    if table is not None:
        write_whole(folder / SUPPORT, table_bytes(table), StageError)
        told.append(f"{len(table)} convolutions in {folder / SUPPORT}")
    products = products_of(found, base)
    if products is not None:
        write_whole(folder / PRODUCTS, support_bytes(products), StageError)
        told.append(f"the Gelu of cuBLASLt in {folder / PRODUCTS}")
    fitted = energy_of(dict(found.done("energy")), found.source("kernels by NVML"))
    if fitted is not None:
        write_document(folder / ENERGY, model_to_json(fitted.model))
        told.append(
            f"energy of {len(fitted.errors)} kernels in {folder / ENERGY}, median error "
            f"{fitted.median_error:.0%}: give it as --energy-model"
        )
    write_whole(folder / TABLES, tables(found, base, profile), StageError)
    told.append(f"tables in {folder / TABLES}")
    return "\n".join(told)


# ** the profile **


_PROBED = {
    "copy": ("gb_s", "bandwidth_gb_s"),
    "launch": ("launch_us", "launch_us"),
    "event": ("event_us", "event_us"),
}
"""Unit of `probe`, its figure, and the field of a profile that it tells."""


def profile_of(base: DeviceProfile, found: Found) -> DeviceProfile:
    """The profile with the figures that were measured."""
    results = dict(found.done("probe"))
    changed: dict[str, Any] = {
        field: Figure(float(results[unit][key]), found.source(unit))
        for unit, (key, field) in _PROBED.items()
        if unit in results
    }
    if "product" in results:
        figure = Figure(float(results["product"]["tflops"]), found.source("product"))
        changed["peak_tflops"] = {**base.peak_tflops, "fp32": figure}
    described = results.get("facts", {}).get("description")
    if isinstance(described, dict) and set(PROPERTIES) <= described.keys():
        changed["description"] = DeviceDescription(
            found.source("cudnn.create_device_properties"),
            str(described["deviceName"]),
            {
                key: tuple(value) if isinstance(value, list) else int(value)
                for key, value in described.items()
                if key in PROPERTIES
            },
        )
    title = base.title if found.is_real else f"{base.title}, times of a rehearsal"
    return replace(base, title=title, **changed)


def _machine(found: Found, base: DeviceProfile) -> str:
    facts = dict(found.done("probe")).get("facts", {})
    return str(facts.get("device", base.title)) if found.is_real else "a rehearsal"


# ** prices **


def rows_of(found: Found, machine: str) -> Iterator[ProfileRow]:
    """Prices by kernel and algorithm; of one kernel in several places of memory, the median."""
    times: dict[ProfileKey, list[Measurement]] = defaultdict(list)
    for _, result in found.done("measure"):
        for algorithm, way in result["ways"].items():
            if "measurement" not in way:
                continue
            key = ProfileKey(
                result["version"],
                result["signature"],
                algorithm,
                machine,
                threads=1,
                protocol=PROTOCOL_VERSION,
                forms=result["forms"],
                precision=result["precision"],
            )
            times[key].append(Measurement.from_json(way["measurement"]))
    for key, several in times.items():
        middle_us = statistics.median_low(one.time_us for one in several)
        one = next(one for one in several if one.time_us == middle_us)
        yield ProfileRow(key, one, found.written_at)


# ** support **


def support_of(found: Found, base: DeviceProfile) -> Mapping[str, tuple[CudnnChoice, ...]] | None:
    """The recorded table with the answers of a device in it; nothing where there are none."""
    answers = [one for _, result in found.done("probe") for one in result.get("answers", ())]
    if not answers or not found.is_real or base.description is None:
        return None
    table = dict(recorded(base.description.architecture))
    for spec, choices in answers:
        asked = spec_from_json(spec)
        if asked.precision is not Precision.STRICT:  # tables of other precisions are other files
            continue
        table[asked.key] = tuple(CudnnChoice(name, size) for name, size in choices)
    return table


def products_of(found: Found, base: DeviceProfile) -> Support | None:
    """What is recorded of cuBLASLt with the Gelu that was found; nothing where it is neither."""
    results = dict(found.done("probe"))
    gelu = results.get("gelu", {}).get("gelu", "")
    if not gelu or not found.is_real or base.description is None:
        return None
    known = cublaslt.recorded(base.description.architecture)
    version = results.get("facts", {}).get("cublaslt")
    return replace(known, gelu=gelu, version=version if isinstance(version, int) else 0)
