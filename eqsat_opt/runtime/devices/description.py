"""Descriptions of GPUs for CUDA libraries that plan without the device.

cuDNN plans for a device that is described by these properties as JSON (deviceless planning, cuDNN
9.11). From 9.28 on it demands `smCountOrigin`, `oversizedSharedMemoryPerBlock` and
`memoryBusWidth`, which 9.19 accepts as well, so all descriptions have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.errors import StageError

__all__ = ["PROPERTIES", "DeviceDescription", "description_from_json", "description_to_json"]

_TRIPLES = ("maxGridSize", "maxBlockSize")

PROPERTIES = (
    *_TRIPLES, "regsPerBlock", "multiProcessorCount", "smCountOrigin", "smClockRateKHz",
    "memClockRateKHz", "memoryBusWidth", "l2CacheSize", "warpSize", "maxSharedMemoryPerBlock",
    "maxSharedMemoryPerBlockOptin", "oversizedSharedMemoryPerBlock", "reservedSharedMemoryPerBlock",
    "maxRegistersPerSM", "pciDeviceId", "maxCtasPerSM", "maxThreadsPerBlock", "maxThreadsPerSM",
    "isTccDriver", "supportCoopLaunch", "deviceVer", "driverVer", "cudaDeviceId", "totalGlobalMem",
)  # fmt: skip
"""Names of all properties but the name; values are whole numbers, or three for `_TRIPLES`."""

_END = 1 << 48


@dataclass(frozen=True)
class DeviceDescription:
    """The properties of a GPU.

    Attributes:
        source: source of the properties.
        name: name of the device, ``deviceName``.
        properties: values by cuDNN's names, those of `PROPERTIES`; sizes in bytes, clocks in kHz,
            ``deviceVer`` a hundred times the compute capability.
    """

    source: str
    name: str
    properties: Mapping[str, int | tuple[int, ...]]

    def __post_init__(self) -> None:
        """Freeze the mapping."""
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))

    def __hash__(self) -> int:
        """Hash the text that libraries read."""
        return hash(self.text)

    @property
    def architecture(self) -> str:
        """Architecture by its name in compilers, such as ``sm_90``."""
        version = self.properties["deviceVer"]
        assert isinstance(version, int)
        return f"sm_{version // 10}"

    @property
    def text(self) -> str:
        """JSON text that cuDNN reads."""
        values = {key: _plain(value) for key, value in self.properties.items()}
        return json.dumps({**values, "deviceName": self.name}, sort_keys=True)


def _plain(value: int | tuple[int, ...]) -> int | list[int]:
    return list(value) if isinstance(value, tuple) else value


def description_to_json(one: DeviceDescription) -> Document:
    """Return the document of a description; `description_from_json` is the inverse."""
    properties = {key: _plain(one.properties[key]) for key in PROPERTIES}
    return {"source": one.source, "name": one.name, "properties": properties}


def description_from_json(entry: Entry) -> DeviceDescription:
    """Return the description that `description_to_json` wrote.

    Raises:
        StageError: a property is missing, is not known, or is no whole number.
    """
    entry.require_all("source", "name", "properties")
    values = entry.mapping("properties")
    values.require_all(*PROPERTIES)
    found: dict[str, int | tuple[int, ...]] = {}
    for key in PROPERTIES:
        if key in _TRIPLES:
            found[key] = values.wholes(key, _END)
            if len(found[key]) != 3:  # type: ignore[arg-type]
                raise StageError(f"{values.place(key)} has not 3 extents")
        else:
            found[key] = values.whole(key, _END)
    return DeviceDescription(entry.text("source"), entry.text("name"), found)
