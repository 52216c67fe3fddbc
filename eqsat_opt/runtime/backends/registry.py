"""The backends by name: our own, and those of installed packages.

A package offers a backend through an entry point of the group ``eqsat_opt.backends``, which names
a class (or another callable without arguments) that makes a `Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.entry_points import Offered
from eqsat_opt.runtime.backends.protocol import (
    Backend,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.measure import Measurement

__all__ = ["GROUP", "TUNED_ONLY", "load_backend", "names"]

GROUP = "eqsat_opt.backends"

_T = TypeVar("_T")

TUNED_ONLY = "native"
"""Backend whose kernels occur only in the form of a model for one machine, never in a portable
result."""

_LAUNCHED = {
    f"launched:{name}": ("eqsat_opt.runtime.backends.launched", f"{name}_launches")
    for name in ("generated", "native", "numpy", "openvino")
}
"""Backends that run launches of plans, beside sessions."""

_BACKENDS = Offered(
    kind="backend",
    group=GROUP,
    own={
        "ort": ("eqsat_opt.runtime.backends.ort.backend", "OrtBackend"),
        TUNED_ONLY: ("eqsat_opt.runtime.backends.native.backend", "NativeBackend"),
        **_LAUNCHED,
    },
    hidden=frozenset({TUNED_ONLY, *_LAUNCHED}),
    why_named="measurements are stored under it",
)


def names() -> tuple[str, ...]:
    """Return the names of backends whose kernels may be in a portable result, our own first."""
    return _BACKENDS.names


@cache
def load_backend(name: str) -> Backend:
    """Return the backend of a name.

    Raises:
        OptionError: there is no such backend, or it cannot be loaded.
    """
    backend: Backend = _BACKENDS.made(name, _Installed)
    return backend


@dataclass(frozen=True)
class _Installed:
    """A third-party backend; errors in its methods are reported with its name."""

    backend: Backend

    @property
    def name(self) -> str:
        return self.backend.name

    def version(self) -> str:
        return self._asked("version", self.backend.version)

    def patterns(self) -> Sequence[KernelPattern]:
        return self._asked("patterns", self.backend.patterns)

    def carried(self) -> Sequence[CarriedForm]:
        return self._asked("carried", self.backend.carried)

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        return self._asked("implementations", self.backend.implementations, kernel)

    def request(self, offer: Offer) -> bytes:
        return self._asked("request", self.backend.request, offer)

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        return self.backend.measure(request, threads, budget_s)

    def _asked(self, method: str, ask: Callable[..., _T], *arguments: object) -> _T:
        try:
            return ask(*arguments)
        except EqsatError:
            raise
        except Exception as error:
            raise RuntimeFailed(
                f"the backend {self.name!r} failed in {method}: {type(error).__name__}: {error}; "
                "tell its author, and leave it out of --backends"
            ) from error
