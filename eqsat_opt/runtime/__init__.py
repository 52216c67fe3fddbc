"""Run and measure models: executors, input generation, the timing protocol, and the final race.

Every name is loaded on first use, so importing this package does not import onnxruntime. The
functions `measure` and `race` are named as their modules, and imported from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.runtime; the top-level link is for readers")

if TYPE_CHECKING:
    from eqsat_opt.runtime.inputs import InputSpec, input_specs, random_inputs
    from eqsat_opt.runtime.kernels import measure_kernel, session_overhead_us
    from eqsat_opt.runtime.measure import PROTOCOL_VERSION, Measurement
    from eqsat_opt.runtime.onnx_backend import OrtBackend, RunnerBackend, RunnerRep
    from eqsat_opt.runtime.ort import OrtOptions, OrtSession
    from eqsat_opt.runtime.race import race_prepared
    from eqsat_opt.runtime.race_result import RaceEntry, RaceResult
    from eqsat_opt.runtime.reference import ReferenceBackend, ReferenceSession
    from eqsat_opt.runtime.source import ModelSource, Runner
    from eqsat_opt.runtime.workers import KernelWorker, measure_kernels

__all__ = [
    "PROTOCOL_VERSION",
    "InputSpec",
    "KernelWorker",
    "Measurement",
    "ModelSource",
    "OrtBackend",
    "OrtOptions",
    "OrtSession",
    "RaceEntry",
    "RaceResult",
    "ReferenceBackend",
    "ReferenceSession",
    "Runner",
    "RunnerBackend",
    "RunnerRep",
    "input_specs",
    "measure_kernel",
    "measure_kernels",
    "race_prepared",
    "random_inputs",
    "session_overhead_us",
]

_HOME = {
    "PROTOCOL_VERSION": "measure",
    "InputSpec": "inputs",
    "KernelWorker": "workers",
    "Measurement": "measure",
    "ModelSource": "source",
    "OrtBackend": "onnx_backend",
    "OrtOptions": "ort",
    "OrtSession": "ort",
    "RaceEntry": "race_result",
    "RaceResult": "race_result",
    "ReferenceBackend": "reference",
    "ReferenceSession": "reference",
    "Runner": "source",
    "RunnerBackend": "onnx_backend",
    "RunnerRep": "onnx_backend",
    "input_specs": "inputs",
    "measure_kernel": "kernels",
    "measure_kernels": "workers",
    "race_prepared": "race",
    "random_inputs": "inputs",
    "session_overhead_us": "kernels",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
