"""The sensors of an NVIDIA GPU by NVML, which are only read: clocks and limits stay as they are."""

from __future__ import annotations

import importlib
from typing import Any

from eqsat_opt.errors import RuntimeFailed

__all__ = ["NvmlMeter"]

_SLOWED = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksEventReasonHwThermalSlowdown": "heat, by hardware",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
}
"""Why a GPU that is busy runs at lower clocks than it may."""

_WIDTHS = 32, 64
"""Bits after which counters begin anew."""


class NvmlMeter:
    """The counter of a GPU's energy, and what tells whether a reading may be believed.

    It counts whole mJ and moves about ten times a second, so a power is one between two ticks
    (`energy_windows`). It may begin anew once between two readings, which takes weeks.

    Args:
        bus_id: where the GPU is plugged in; by default the first that NVML knows.

    Raises:
        RuntimeFailed: pynvml, the driver, the GPU, or its counter is missing.
    """

    name = "NVML"
    resolution_uj = 1e3

    def __init__(self, bus_id: str = "") -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._gpu: Any = (
                nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
                if bus_id
                else nvml.nvmlDeviceGetHandleByIndex(0)
            )
        except nvml.NVMLError as error:
            raise RuntimeFailed(f"NVML: {error}") from error
        self.scope = str(self._ask("nvmlDeviceGetName"))
        self.place = f"nvml:{bus_id}"
        self._last_mj, self._total_mj = self._counted_mj(), 0

    def read(self) -> float:
        """Energy of the GPU with its memory since the meter was made, µJ."""
        now_mj = self._counted_mj()
        range_mj = 0
        if now_mj < self._last_mj:
            range_mj = next(1 << bits for bits in _WIDTHS if self._last_mj < 1 << bits)
        self._total_mj += now_mj - self._last_mj + range_mj
        self._last_mj = now_mj
        return self._total_mj * 1e3

    def power_w(self) -> float:
        """Power at this moment, by the sensor; of the last second where it tells no moment, W."""
        nvml = self._nvml
        (field,) = self._ask("nvmlDeviceGetFieldValues", [nvml.NVML_FI_DEV_POWER_INSTANT])
        power_mw = self._ask("nvmlDeviceGetPowerUsage") if field.nvmlReturn else field.value.uiVal
        return float(power_mw) / 1e3

    def temperature_c(self) -> float:
        """Temperature of the chip, °C."""
        return float(self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU))

    def throttling(self) -> tuple[str, ...]:
        """Why clocks are lower than they may be; empty where they are not."""
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        return tuple(text for name, text in _SLOWED.items() if reasons & getattr(self._nvml, name))

    def _counted_mj(self) -> int:
        return int(self._ask("nvmlDeviceGetTotalEnergyConsumption"))

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._gpu, *arguments)
        except self._nvml.NVMLError as error:
            raise RuntimeFailed(f"NVML: {function} says {error}") from error
