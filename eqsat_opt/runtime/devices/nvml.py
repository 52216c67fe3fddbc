"""Queries of a GPU through NVML. Clocks and limits are never changed."""

from __future__ import annotations

import importlib
from typing import Any

from eqsat_opt.errors import RuntimeFailed

__all__ = ["Nvml"]


class Nvml:
    """A GPU as NVML shows it.

    Args:
        bus_id: PCI bus id of the GPU; by default the first GPU that NVML knows.

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
        """Return the result of the function ``nvmlDeviceGet`` + name.

        Raises:
            RuntimeFailed: the query fails for this GPU.
        """
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{name}")(self._gpu, *arguments)
        except self._nvml.NVMLError as error:
            raise RuntimeFailed(f"NVML does not tell {name}: {error}") from error

    def constant(self, name: str) -> int:
        """Return the number of a sensor, a field or a reason by its name."""
        return int(getattr(self._nvml, name))
