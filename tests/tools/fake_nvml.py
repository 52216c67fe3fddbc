"""pynvml on a simulated clock: a GPU whose counter moves ten times a second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.machines import Machine

__all__ = ["FakeNvml", "NVMLError"]

REASONS = {
    "SwPowerCap": 4, "HwSlowdown": 8, "SwThermalSlowdown": 32, "HwThermalSlowdown": 64,
    "HwPowerBrakeSlowdown": 128,
}  # fmt: skip
IDLE = 1
_TICK_NS = 100_000_000


class NVMLError(Exception):
    pass


class FakeNvml:
    """The module, as far as it is used.

    Args:
        machine: the clock.

    Attributes:
        power_w: what the GPU draws now; whoever changes it calls `draw`.
        sensed: what the sensor tells, as a share of it.
        reasons: bits of why clocks are low.
        begin_mj: where the counter stands at the beginning.
        range_mj: after which it begins anew.
        failing: names of functions that fail.
    """

    NVMLError = NVMLError
    NVML_FI_DEV_POWER_INSTANT, NVML_TEMPERATURE_GPU = 186, 0

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.power_w, self.sensed, self.temperature_c = 100.0, 1.0, 40.0
        self.reasons, self.has_instant = IDLE, True
        self.begin_mj, self.range_mj = 5, 1 << 64
        self.failing: set[str] = set()
        self._energy_uj, self._told_uj, self._since_ns = 0.0, 0.0, machine.now_ns
        for name, bits in REASONS.items():
            setattr(self, f"nvmlClocksEventReason{name}", bits)

    def draw(self, power_w: float) -> None:
        """From now on it draws so much."""
        self._advance(self.machine.now_ns)
        self.power_w = power_w

    def _advance(self, now_ns: int) -> None:
        tick_ns = now_ns // _TICK_NS * _TICK_NS
        if tick_ns > self._since_ns:
            self._told_uj = self._energy_uj + self.power_w * (tick_ns - self._since_ns) / 1e3
        self._energy_uj += self.power_w * (now_ns - self._since_ns) / 1e3
        self._since_ns = now_ns

    def nvmlInit(self) -> None:  # noqa: N802
        self._check("nvmlInit")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        self._check("nvmlDeviceGetHandleByIndex")
        return f"gpu {index}"

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        self._check("nvmlDeviceGetHandleByPciBusId")
        return f"gpu at {bus_id}"

    def nvmlDeviceGetName(self, gpu: str) -> str:  # noqa: N802
        assert gpu.startswith("gpu ")
        return "Fake"

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: str) -> int:  # noqa: N802
        self._check("nvmlDeviceGetTotalEnergyConsumption")
        self._advance(self.machine.now_ns)
        return (self.begin_mj + int(self._told_uj / 1e3)) % self.range_mj

    def nvmlDeviceGetFieldValues(self, gpu: str, fields: list[int]) -> list[Any]:  # noqa: N802
        assert fields == [self.NVML_FI_DEV_POWER_INSTANT]
        value = SimpleNamespace(uiVal=self.nvmlDeviceGetPowerUsage(gpu))
        return [SimpleNamespace(nvmlReturn=0 if self.has_instant else 3, value=value)]

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:  # noqa: N802
        return round(self.power_w * self.sensed * 1e3)

    def nvmlDeviceGetTemperature(self, gpu: str, sensor: int) -> int:  # noqa: N802
        assert sensor == self.NVML_TEMPERATURE_GPU
        return round(self.temperature_c)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: str) -> int:  # noqa: N802
        return self.reasons

    def _check(self, function: str) -> None:
        if function in self.failing:
            raise NVMLError(f"{function} is not supported")
