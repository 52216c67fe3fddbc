"""The runtimes of whole models by name: our own, and those of installed packages.

A package offers a runtime through an entry point of the group ``eqsat_opt.runtimes``, which names a
class (or another callable without arguments) that makes a `Runtime`.
"""

from __future__ import annotations

from functools import cache

from eqsat_opt.runtime.backends.entry_points import Offered
from eqsat_opt.runtime.source import Runtime

__all__ = ["GROUP", "NATIVE", "ORT", "load_runtime", "racing_runtimes"]

GROUP = "eqsat_opt.runtimes"

ORT, NATIVE = "ort", "native"
"""Names of onnxruntime, and of onnxruntime with our kernels, which runs graphs that use them."""

_RUNTIMES = Offered(
    kind="runtime",
    group=GROUP,
    own={
        ORT: ("eqsat_opt.runtime.backends.ort.runtime", "OrtRuntime"),
        NATIVE: ("eqsat_opt.runtime.backends.native.runtime", "NativeRuntime"),
        "openvino": ("eqsat_opt.runtime.backends.openvino.runtime", "OpenVinoRuntime"),
    },
    hidden=frozenset({NATIVE}),
    why_named="tuned files are opened by it",
)


def racing_runtimes() -> tuple[str, ...]:
    """Return the names of runtimes that run any model, and may race with it, our own first."""
    return _RUNTIMES.names


@cache
def load_runtime(name: str) -> Runtime:
    """Return the runtime of a name, whether it can run here or not.

    Raises:
        OptionError: there is no such runtime, or it cannot be loaded.
    """
    runtime: Runtime = _RUNTIMES.made(name)
    return runtime
