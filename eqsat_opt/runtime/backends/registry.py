"""The backends by name: our own, by the records of their folders, and those of installed packages.

A package offers a backend through an entry point of the group ``eqsat_opt.backends``, and a runtime
of whole models through one of ``eqsat_opt.runtimes``. Each names a class (or another callable
without arguments) that makes a `Backend` or a `Runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from eqsat_opt.errors import EqsatError, PlanError, RuntimeFailed
from eqsat_opt.runtime.backends.entry_points import NamedObjects
from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

if TYPE_CHECKING:
    from eqsat_opt.runtime.backends.launching import Launcher
    from eqsat_opt.runtime.backends.protocol import Backend
    from eqsat_opt.runtime.devices.cuda import CudaDevice
    from eqsat_opt.runtime.source import Runtime

__all__ = [
    "fallback",
    "launcher_names",
    "load_backend",
    "load_launcher",
    "load_runner",
    "load_runtime",
    "portable_names",
    "racing_runtimes",
    "record_of",
    "records",
]

_FOLDERS = (
    "ort", "native", "native.segments", "generated", "generated.gpu", "numpy", "openvino",
    "cudnn", "cublaslt", "analytic",
)  # fmt: skip
"""Packages beside this module with a `BACKEND`, in the order in which users are told of them."""


@cache
def records() -> Mapping[str, BackendRecord]:
    """Return the records of our own backends by name."""
    modules = (import_module(f"{__package__}.{folder}") for folder in _FOLDERS)
    return {module.NAME: module.BACKEND for module in modules}


def record_of(name: str) -> BackendRecord:
    """Return the record of a backend; one without parts if the backend is not our own."""
    return records().get(name) or BackendRecord(name=name)


# ** kernels **


@cache
def _kernels() -> NamedObjects:
    """Return the backends of kernels: those in sessions, and launches of plans outside sessions."""
    own = records().values()
    inside = {one.name: one.kernels for one in own if one.kernels}
    beside = {one.launched_name: partial(_LAUNCHED_BACKEND, one) for one in own if one.launches}
    hidden = (name for name in inside if not record_of(name).is_portable)
    return NamedObjects(
        kind="backend",
        group="eqsat_opt.backends",
        own={**inside, **beside},
        hidden=frozenset((*hidden, *beside)),
        why_named="measurements are stored under it",
    )


_LAUNCHED_BACKEND = Lazy("eqsat_opt.runtime.backends.launched:LaunchedBackend")


def portable_names() -> tuple[str, ...]:
    """Return the names of backends whose kernels may be in a portable result, our own first."""
    return _kernels().names


@cache
def load_backend(name: str) -> Backend:
    """Return the backend of a name.

    Raises:
        OptionError: there is no such backend, or it cannot be loaded.
    """
    backend: Backend = _kernels().made(name, _Installed)
    return backend


class _Installed:
    """A third-party backend; errors in its methods are reported with its name."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend

    def __getattr__(self, method: str) -> Callable[..., object]:
        ask = getattr(self._backend, method)

        def asked(*arguments: object) -> object:
            try:
                return ask(*arguments)
            except EqsatError:
                raise
            except Exception as error:
                raise RuntimeFailed(
                    f"the backend {self.name!r} failed in {method}: {type(error).__name__}: "
                    f"{error}; tell its author, and leave it out of --backends"
                ) from error

        return asked


# ** launches of plans **


def launcher_names() -> tuple[str, ...]:
    """Return the names of all backends that may run plans here, first the one that runs all."""
    named = (one for one in records().values() if one.launcher and one.is_offered)
    return tuple(one.name for one in sorted(named, key=lambda one: not one.runs_all))


def fallback() -> str:
    """Return the name of the backend that runs whatever others cannot."""
    return next(name for name, one in records().items() if one.runs_all)


@cache
def load_launcher(name: str) -> Launcher:
    """Return the launcher of a backend.

    Raises:
        PlanError: there is no such backend, or a package that it needs is missing.
    """
    make = record_of(name).launcher
    if make is None:
        raise PlanError(f"no backend {name!r} runs plans; there are {', '.join(launcher_names())}")
    try:
        launcher: Launcher = make()
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise PlanError(
            f"the backend {name!r} needs {package!r}, which is not installed; "
            f"run pip install {package}"
        ) from error
    return launcher


def load_runner(name: str, device: CudaDevice) -> Launcher:
    """Make the launcher of a backend that runs on a GPU.

    Raises:
        RuntimeFailed: the backend does not run on a GPU, or lacks a package or a version of one.
    """
    make = record_of(name).runner
    if make is None:
        raise RuntimeFailed(f"the backend {name!r} runs nothing on a GPU")
    runner: Launcher = make(device)
    return runner


# ** whole models **


@cache
def _runtimes() -> NamedObjects:
    own = {name: one.runtime for name, one in records().items() if one.runtime}
    return NamedObjects(
        kind="runtime",
        group="eqsat_opt.runtimes",
        own=own,
        hidden=frozenset(name for name in own if not record_of(name).runs_models),
        why_named="tuned files are opened by it",
    )


def racing_runtimes() -> tuple[str, ...]:
    """Return the names of runtimes that run any model, and may race with it, our own first."""
    return _runtimes().names


@cache
def load_runtime(name: str) -> Runtime:
    """Return the runtime of a name, whether it can run here or not.

    Raises:
        OptionError: there is no such runtime, or it cannot be loaded.
    """
    runtime: Runtime = _runtimes().made(name)
    return runtime
