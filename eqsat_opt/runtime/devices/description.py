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

__all__ = ["PROPERTIES", "DeviceDescription"]

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
        """Freeze the mapping, in the order of `PROPERTIES`.

        Raises:
            ValueError: a property is missing, is not known, or is no such number.
        """
        for name in sorted(self.properties.keys() ^ {*PROPERTIES}):
            fault = "is not known" if name in self.properties else "is missing"
            raise ValueError(f"the property {name!r} {fault}")
        values = {name: self.properties[name] for name in PROPERTIES}
        for name, value in values.items():
            numbers = value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple) != (name in _TRIPLES) or len(numbers) not in (1, 3):
                raise ValueError(f"{name} is {'three numbers' if name in _TRIPLES else 'a number'}")
            if not all(0 <= number < _END for number in numbers):
                raise ValueError(f"{name} is {value!r:.40}, which no device has")
        object.__setattr__(self, "properties", MappingProxyType(values))

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
        return json.dumps({**self.properties, "deviceName": self.name}, sort_keys=True)
