"""What is used of libraries that have no driver here, by owner: all of it can be looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["CUPY", "PYNVML", "Needed"]

Needed: TypeAlias = Mapping[str, tuple[str, ...]]
"""From the path of an owner, ``cuda.Stream``, to the names that it has; ``""`` is the library."""

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
