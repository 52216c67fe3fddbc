"""How backends run the launches of a plan: what each needs, and the one registry of them.

It stands apart from the protocol of kernels, prices and patterns, so that running a plan imports
nothing of these.
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
        reads: a view for each operand, strided as the plan says; constants hold their values.
        writes: a view for each output.
        workspace: bytes.
    """

    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    workspace: npt.NDArray[np.uint8]


class Launcher(Protocol):
    """A backend that runs launches on a device whose memory NumPy sees."""

    @property
    def name(self) -> str:
        """What plans call it."""

    def version(self) -> str:
        """Of what computes: another one may compute something else."""

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Do what is cheaper for all launches of a plan than for each; before any is built.

        Raises:
            RuntimeFailed: it cannot run one of them.
        """

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """What a launch needs beside its operands and results."""

    def build(self, launch: Launch, bound: Bound) -> Launched:
        """What runs the launch on this memory, again and again.

        Raises:
            RuntimeFailed: it cannot run that, or not by that algorithm.
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
"""What plans may name but nobody asks for: it is made of others, or for a device elsewhere."""


_ON_GPU = {
    "cudnn": ("eqsat_opt.runtime.backends.cudnn.running", "CudnnRunner"),
    "cublaslt": ("eqsat_opt.runtime.backends.cublaslt.running", "CublasLtRunner"),
    "cuda": ("eqsat_opt.runtime.backends.generated.gpu.cuda_running", "CudaRunner"),
}
"""What runs launches on a GPU; each for one plan."""


def load_runner(name: str, device: CudaDevice) -> Launcher:
    """The launcher of a backend that runs on a GPU.

    Raises:
        RuntimeFailed: it does not, or lacks a package or a version of one.
    """
    if name not in _ON_GPU:
        raise RuntimeFailed(f"the backend {name!r} runs nothing on a GPU")
    module, attribute = _ON_GPU[name]
    runner: Launcher = getattr(import_module(module), attribute)(device)
    return runner


_STRIDED = frozenset({"numpy", "generated", "analytic", "cuda"})
"""Whose kernels read and write views with gaps where they lie. For the others values are packed: by
launches that copy, so that the time of these is seen where plans are priced."""


def takes_views(name: str) -> bool:
    """Whether launches of a backend take views, where no implementation was chosen that says so."""
    return name in _STRIDED


_ALIGNMENT_BYTES = {"cudnn": 16, "cublaslt": 16}
"""Of the addresses that the widest loads and stores of a library take; cuDNN assumes it of all."""


def alignment_bytes(name: str) -> int:
    """What the addresses of tensors are multiples of where a backend's launches take them."""
    return _ALIGNMENT_BYTES.get(name, 1)


def launcher_names() -> tuple[str, ...]:
    """All that may run plans here."""
    return tuple(_OWN)


@cache
def load_launcher(name: str) -> Launcher:
    """The launcher of a backend.

    Raises:
        PlanError: there is none, or a package that it needs is missing.
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
