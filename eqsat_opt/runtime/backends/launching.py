"""Launchers, which run the launches of a plan: their protocol and their registry.

They are separate from the protocol of kernels, prices and patterns, so that running a plan imports
nothing of the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import PlanError, RuntimeFailed
from eqsat_opt.runtime.devices.protocol import Launched
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Launch

if TYPE_CHECKING:
    from eqsat_opt.runtime.devices.cuda import CudaDevice

__all__ = [
    "Bound",
    "Launcher",
    "alignment_bytes",
    "launcher_names",
    "load_launcher",
    "load_runner",
    "takes_views",
]


@dataclass(frozen=True, eq=False)
class Bound:
    """The memory of one launch; the same for every run.

    Attributes:
        reads: a view for each operand, with the strides of the plan; constants hold their values.
        writes: a view for each output.
        workspace: the bytes of the workspace.
    """

    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    workspace: npt.NDArray[np.uint8]


class Launcher(Protocol):
    """A backend that runs launches on a device whose memory NumPy sees."""

    @property
    def name(self) -> str:
        """Name of the backend in plans."""

    def version(self) -> str:
        """Return the version of the library; another version may compute other results."""

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Do the work that is cheaper for all launches of a plan at once, before any is built.

        Raises:
            RuntimeFailed: the backend cannot run one of the launches.
        """

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the bytes that a launch needs in addition to its operands and results."""

    def build(self, launch: Launch, bound: Bound) -> Launched:
        """Build a callable that runs the launch on this memory any number of times.

        Raises:
            RuntimeFailed: the backend cannot run the launch, or not by its algorithm.
        """


_OWN = {
    "numpy": ("eqsat_opt.runtime.backends.numpy.launcher", "NumpyLauncher"),
    "ort": ("eqsat_opt.runtime.backends.ort.launcher", "OrtLauncher"),
    "native": ("eqsat_opt.runtime.backends.native.launcher", "NativeLauncher"),
    "generated": ("eqsat_opt.runtime.backends.generated.launcher", "GeneratedLauncher"),
    "openvino": ("eqsat_opt.runtime.backends.openvino.launcher", "OpenVinoLauncher"),
}


_FURTHER = {
    "ort+native": ("eqsat_opt.runtime.backends.native.partitions", "SegmentLauncher"),
    "analytic": ("eqsat_opt.runtime.backends.analytic.launcher", "AnalyticLauncher"),
    "cudnn": ("eqsat_opt.runtime.backends.cudnn.launcher", "CudnnLauncher"),
    "cublaslt": ("eqsat_opt.runtime.backends.cublaslt.launcher", "CublasLtLauncher"),
    "cuda": ("eqsat_opt.runtime.backends.generated.gpu.cuda_launcher", "CudaLauncher"),
}
"""Launchers that plans may name but users cannot ask for: combinations, or for absent devices."""


_ON_GPU = {
    "cudnn": ("eqsat_opt.runtime.backends.cudnn.running", "CudnnRunner"),
    "cublaslt": ("eqsat_opt.runtime.backends.cublaslt.running", "CublasLtRunner"),
    "cuda": ("eqsat_opt.runtime.backends.generated.gpu.cuda_running", "CudaRunner"),
}
"""Launchers that run on a GPU; each instance serves one plan."""


def load_runner(name: str, device: CudaDevice) -> Launcher:
    """Make the launcher of a backend that runs on a GPU.

    Raises:
        RuntimeFailed: the backend does not run on a GPU, or lacks a package or a version of one.
    """
    if name not in _ON_GPU:
        raise RuntimeFailed(f"the backend {name!r} runs nothing on a GPU")
    module, attribute = _ON_GPU[name]
    runner: Launcher = getattr(import_module(module), attribute)(device)
    return runner


_STRIDED = frozenset({"numpy", "generated", "analytic", "cuda"})
"""Backends whose kernels read and write views with gaps in place. For the others, launches that
copy pack the values, so that the time of the copies is part of the price of a plan."""


def takes_views(name: str) -> bool:
    """Return whether launches of a backend take views if no chosen implementation decides it."""
    return name in _STRIDED


_ALIGNMENT_BYTES = {"cudnn": 16, "cublaslt": 16}
"""Alignment of addresses for the widest loads and stores of a library; cuDNN always assumes it."""


def alignment_bytes(name: str) -> int:
    """Return the alignment, in bytes, that a backend's launches need of tensor addresses."""
    return _ALIGNMENT_BYTES.get(name, 1)


def launcher_names() -> tuple[str, ...]:
    """Return the names of all backends that may run plans here."""
    return tuple(_OWN)


@cache
def load_launcher(name: str) -> Launcher:
    """Return the launcher of a backend.

    Raises:
        PlanError: there is no such backend, or a package that it needs is missing.
    """
    every = {**_OWN, **_FURTHER}
    if name not in every:
        raise PlanError(f"no backend {name!r} runs plans; there are {', '.join(_OWN)}")
    module, attribute = every[name]
    try:
        launcher: Launcher = getattr(import_module(module), attribute)()
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise PlanError(
            f"the backend {name!r} needs {package!r}, which is not installed; "
            f"run pip install {package}"
        ) from error
    return launcher
