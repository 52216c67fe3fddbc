"""Names that the package uses of GPU libraries, listed so that a test can look all of them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["CUPY", "PYNVML", "Needed"]

Needed: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names by the path of their owner, such as ``cuda.Stream``; ``""`` is the library itself."""

CUPY: Needed = {
    "": ("RawModule", "asarray", "asnumpy", "ascontiguousarray", "copyto", "ndarray", "zeros"),
    "RawModule": ("get_function",),
    "cuda": ("Event", "Graph", "Stream", "get_elapsed_time"),
    "cuda.Event": ("record", "synchronize"),
    "cuda.Stream": (
        "__enter__", "__exit__", "begin_capture", "end_capture", "record", "synchronize",
        "wait_event",
    ),
    "cuda.Stream.null": ("ptr",),
    "cuda.Graph": ("launch",),
    "cuda.runtime": (
        "CUDARuntimeError", "deviceSynchronize", "getDeviceCount", "getDeviceProperties",
        "memGetInfo", "streamCaptureModeThreadLocal",
    ),
    "cuda.memory": ("MemoryPointer", "OutOfMemoryError"),
    "cuda.memory.MemoryPointer": ("__add__", "ptr"),
    "ndarray": ("data", "dtype", "reshape", "shape", "size", "strides", "swapaxes", "transpose"),
}  # fmt: skip

PYNVML: Needed = {
    "": (
        "NVMLError", "NVML_FI_DEV_POWER_INSTANT", "NVML_TEMPERATURE_GPU",
        "nvmlClocksEventReasonHwPowerBrakeSlowdown", "nvmlClocksEventReasonHwSlowdown",
        "nvmlClocksEventReasonHwThermalSlowdown", "nvmlClocksEventReasonSwPowerCap",
        "nvmlClocksEventReasonSwThermalSlowdown", "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetName", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTotalEnergyConsumption", "nvmlInit",
    ),
    "c_nvmlFieldValue_t": ("nvmlReturn", "value"),
    "c_nvmlValue_t": ("uiVal",),
}  # fmt: skip
