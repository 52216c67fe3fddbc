"""Energy counter and sensors of a GPU."""

from __future__ import annotations

from eqsat_opt.runtime.devices.nvml import Nvml

__all__ = ["NvmlMeter"]

_SLOWED = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksEventReasonHwThermalSlowdown": "heat, by hardware",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
}
"""Reasons for which a busy GPU runs at lower clocks than it may."""

_WIDTHS = 32, 64
"""Widths of counters in bits, at which they wrap around."""


class NvmlMeter:
    """The energy counter of a GPU, which includes the energy of its memory.

    It counts whole mJ and moves about ten times a second, so power is only meaningful between two
    ticks (`benchmarks.gpu.energy_windows`). It may wrap around once between two readings.

    Args:
        bus_id: PCI bus id of the GPU; by default the first GPU that NVML knows.

    Raises:
        RuntimeFailed: pynvml, the driver, the GPU, or its counter is missing.
    """

    name = "NVML"
    resolution_uj = 1e3

    def __init__(self, bus_id: str = "") -> None:
        self._nvml = Nvml(bus_id)
        self.place = f"nvml:{bus_id}"
        self.scope = str(self._nvml.ask("Name"))
        self._last_mj, self._total_mj = self._counted_mj(), 0

    def read(self) -> float:
        """Return the energy since the meter was made, µJ."""
        now_mj, range_mj = self._counted_mj(), 0
        if now_mj < self._last_mj:
            range_mj = next(1 << bits for bits in _WIDTHS if self._last_mj < 1 << bits)
        self._total_mj += now_mj - self._last_mj + range_mj
        self._last_mj = now_mj
        return self._total_mj * 1e3

    def power_w(self) -> float:
        """Return the power by the sensor, W.

        It is the power at this moment, or of the last second if the GPU reports no such value.
        """
        field = self._nvml.constant("NVML_FI_DEV_POWER_INSTANT")
        (found,) = self._nvml.ask("FieldValues", [field])
        return float(self._nvml.ask("PowerUsage") if found.nvmlReturn else found.value.uiVal) / 1e3

    def temperature_c(self) -> float:
        """Return the temperature of the chip, °C."""
        sensor = self._nvml.constant("NVML_TEMPERATURE_GPU")
        return float(self._nvml.ask("Temperature", sensor))

    def throttling(self) -> tuple[str, ...]:
        """Return the reasons for which clocks are lower than they may be; empty if they are not."""
        bits = int(self._nvml.ask("CurrentClocksEventReasons"))
        return tuple(text for name, text in _SLOWED.items() if bits & self._nvml.constant(name))

    def _counted_mj(self) -> int:
        return int(self._nvml.ask("TotalEnergyConsumption"))
