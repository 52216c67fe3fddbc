"""The two devices that units run on: a GPU, and a processor that stands for it in a rehearsal."""

from __future__ import annotations

import importlib
import json
import platform
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import WeakKeyDictionary

from benchmarks.gpu.unit import Bench, Sampler
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.cudnn.build import built, plans
from eqsat_opt.runtime.backends.cudnn.oracle import CudnnChoice, recorded
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.backends.numpy.launcher import NumpyLauncher
from eqsat_opt.runtime.backends.registry import load_launcher, load_runner
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.devices.protocol import Launched, Memory
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Plan
from eqsat_opt.runtime.plan.streams import makespan_us, schedule_of

__all__ = ["GpuBench", "HostBench", "bench_of"]

PACKAGES = (
    "numpy", "onnx", "onnx-ir", "ml-dtypes", "cupy", "cupy-cuda12x", "cupy-cuda13x",
    "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvmath-python", "nvidia-cublas",
    "nvidia-cuda-nvrtc", "nvidia-ml-py", "torch", "triton", "jax", "jaxlib", "onnxruntime-gpu",
    "tensorrt",
)  # fmt: skip
_POISON = 0xFF
_ARCHITECTURES = "sm_90", "sm_80", "sm_89", "sm_75", "sm_100"
_MOST_TEXT, _MOST_SMI = 300, 8000
_NOISE = 0.02
"""Of invented times, so that nothing that is told of them looks certain."""


def packages() -> dict[str, str]:
    """Versions of what may be of use, without those that are not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# ** a rehearsal **


class _HostRunner:
    """Evaluates the launches of a GPU as their operators are defined.

    What is checked before they are built is what the GPU's runner checks.
    """

    def __init__(self, name: str) -> None:
        self._real, self._numpy = load_launcher(name), NumpyLauncher()
        self.name = name

    def version(self) -> str:
        return self._real.version()

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        self._real.prepare(launches, buffers)

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        return self._real.workspace_bytes(launch, buffers)

    def build(self, launch: Launch, bound: Bound) -> Launched:
        return self._numpy.build(replace(launch, algorithm="default"), bound)


class _PoisonedHost(HostDevice):
    """Memory that holds no number before something is written there."""

    def alloc(self, size_bytes: int) -> Memory:
        memory = super().alloc(size_bytes)
        memory[:] = _POISON
        return memory


class HostBench:
    """A `Bench` on the processor: results are true, times are invented."""

    name = "host"

    def facts(self) -> Mapping[str, Any]:
        """That it is none, and what is installed."""
        return {"device": self.device(), "packages": packages()}

    def device(self) -> str:
        """That it is none."""
        return "a rehearsal: times are invented"

    def is_sound(self) -> bool:
        """Nothing here outlives a unit."""
        return True

    def load(
        self, plan: Plan, constants: Mapping[str, Array], *, is_captured: bool = True
    ) -> Executable:
        """See `Bench`."""
        runners = {name: _HostRunner(name) for name in plan.versions}
        return Executable(plan, constants, _PoisonedHost(), runners)

    def sampler(self, executable: Executable, runs: int = 1) -> Sampler:
        """Times of the profile, with a noise that is the same each time."""
        plan, profile = executable.plan, load_profile(executable.plan.target)
        times = profile.launch_times_us(plan.launches)
        time_us = makespan_us(schedule_of(plan), times, profile.event_us.value)
        draw = random.Random(zlib.crc32(repr(plan.launches).encode()))
        return lambda: time_us * (1 + _NOISE * draw.random())

    def choices(self, spec: AnySpec, most: int) -> Sequence[CudnnChoice]:
        """What was recorded, of any architecture that has it."""
        for name in _ARCHITECTURES:
            found = recorded(name, spec.precision).get(spec.key)
            if found is not None:
                return found[:most]
        return ()


# ** a GPU **


class _PoisonedCuda(CudaDevice):
    """Memory that holds no number where nothing was written since it was captured."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._arenas: list[Memory] = []

    def alloc(self, size_bytes: int) -> Memory:
        self._arenas.append(super().alloc(size_bytes))
        return self._arenas[-1]

    def capture(self, queue: Callable[[], None]) -> Any:
        captured = super().capture(queue)
        self.poison()
        return captured

    def poison(self) -> None:
        for arena in self._arenas:
            arena.fill(_POISON)
        self.cupy.cuda.runtime.deviceSynchronize()


class _EagerCuda(_PoisonedCuda):
    """Queues all launches again in place of a captured graph."""

    def capture(self, queue: Callable[[], None]) -> Any:
        self.cupy.cuda.runtime.deviceSynchronize()  # constants came by the default stream
        queue()
        self.synchronize()
        self.poison()
        return queue

    def replay(self, captured: Any) -> None:
        captured()


class GpuBench:
    """A `Bench` on the first GPU of this machine."""

    name = "gpu"

    def __init__(self) -> None:
        self._handle: Any = None
        self._device_of = WeakKeyDictionary[Executable, CudaDevice]()

    def facts(self) -> Mapping[str, Any]:
        """What the libraries say of themselves and of the device; why not, where they do not."""
        cupy, cudnn = _imported("cupy"), _imported("cudnn")
        asked: Mapping[str, Callable[[], Any]] = {
            "device": self.device,
            "driver": lambda: cupy.cuda.runtime.driverGetVersion(),
            "runtime": lambda: cupy.cuda.runtime.runtimeGetVersion(),
            "free_bytes": lambda: cupy.cuda.runtime.memGetInfo()[0],
            "cudnn": lambda: cudnn.backend_version(),
            "cublaslt": lambda: _imported("nvmath.bindings.cublasLt").get_version(),
            "description": lambda: json.loads(_text(cudnn.create_device_properties(0).serialize())),
            "smi": _smi,
        }
        return {name: _tried(call) for name, call in asked.items()} | {"packages": packages()}

    def device(self) -> str:
        """The name that the driver has for it."""
        return _device_name()

    def is_sound(self) -> bool:
        """Whether waiting for all work ends well; frameworks have the same context as CuPy."""
        cupy = sys.modules.get("cupy")
        if cupy is None:
            return True
        try:
            cupy.cuda.runtime.deviceSynchronize()
        except Exception:
            return False
        return True

    def load(
        self, plan: Plan, constants: Mapping[str, Array], *, is_captured: bool = True
    ) -> Executable:
        """See `Bench`."""
        kind = _PoisonedCuda if is_captured else _EagerCuda
        device = kind(load_profile(plan.target))
        runners: dict[str, Launcher] = {name: load_runner(name, device) for name in plan.versions}
        executable = Executable(plan, constants, device, runners)
        self._device_of[executable] = device
        return executable

    def sampler(self, executable: Executable, runs: int = 1) -> Sampler:
        """Events around so many runs, queued without a pause."""
        device = self._device_of[executable]

        def queue() -> None:
            for _ in range(runs):
                executable.replay()

        return lambda: device.elapsed_us(queue) / runs

    def choices(self, spec: AnySpec, most: int) -> Sequence[CudnnChoice]:
        """What cuDNN has for this device."""
        cudnn = _imported("cudnn")
        if self._handle is None:
            self._handle = cudnn.create_handle()
        try:
            graph = built(cudnn, spec, handle=self._handle)
        except Exception as error:  # it has none
            raise RuntimeFailed(f"cuDNN refuses the graph: {error}") from error
        return [CudnnChoice(name, size, compiled) for name, size, compiled in plans(graph, most)]


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error


@cache
def _device_name() -> str:
    return str(_imported("cupy").cuda.runtime.getDeviceProperties(0)["name"].decode())


def _text(data: Any) -> str:
    """Of what some versions of cuDNN give as bytes or numbers."""
    return data if isinstance(data, str) else bytes(data).decode()


def _tried(call: Callable[[], Any]) -> Any:
    """What a call returns, or why it does not."""
    try:
        return call()
    except Exception as error:
        return f"not known: {type(error).__name__}: {error}"[:_MOST_TEXT]


def _smi() -> str:
    """Clocks, limits and throttling as the driver tells them."""
    found = subprocess.run(
        ["nvidia-smi", "-q", "-d", "CLOCK,POWER,PERFORMANCE,TEMPERATURE"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return (found.stdout or found.stderr)[:_MOST_SMI]


_BENCHES: Mapping[str, Callable[[], Bench]] = {"host": HostBench, "gpu": GpuBench}


def bench_of(name: str) -> Bench:
    """The bench of a name: ``host`` or ``gpu``."""
    return _BENCHES[name]()
