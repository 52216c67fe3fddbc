"""What NVML tells of a GPU. It is only asked: clocks and limits stay as they are."""

from __future__ import annotations

import importlib
from typing import Any

from eqsat_opt.errors import RuntimeFailed

__all__ = ["Nvml"]


class Nvml:
    """One GPU.

    Args:
        bus_id: where it is plugged in; by default the first that NVML knows.

    Raises:
        RuntimeFailed: pynvml, the driver or the GPU is missing.
    """

    def __init__(self, bus_id: str = "") -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        nvml = self._nvml
        by_bus, by_index = nvml.nvmlDeviceGetHandleByPciBusId, nvml.nvmlDeviceGetHandleByIndex
        try:
            nvml.nvmlInit()
            self._gpu: Any = by_bus(bus_id) if bus_id else by_index(0)
        except nvml.NVMLError as error:
            raise RuntimeFailed(f"NVML: {error}") from error

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of ``nvmlDeviceGet`` + name.

        Raises:
            RuntimeFailed: this GPU has none.
        """
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{name}")(self._gpu, *arguments)
        except self._nvml.NVMLError as error:
            raise RuntimeFailed(f"NVML does not tell {name}: {error}") from error

    def constant(self, name: str) -> int:
        """The number of a sensor, a field or a reason."""
        return int(getattr(self._nvml, name))
