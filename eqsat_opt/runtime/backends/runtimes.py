"""The runtimes by name: what runs whole models, ours and those of installed packages.

A package offers one through an entry point of the group ``eqsat_opt.runtimes``, which names a class
(or anything else to be called without arguments) that makes a `Runtime`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.source import Runtime

__all__ = ["GROUP", "NATIVE", "ORT", "load_runtime", "racing_runtimes"]

GROUP = "eqsat_opt.runtimes"

ORT, NATIVE = "ort", "native"
"""Onnxruntime, and onnxruntime with our kernels, which runs graphs that name them."""

_OWN = {
    ORT: ("eqsat_opt.runtime.backends.ort.runtime", "OrtRuntime"),
    NATIVE: ("eqsat_opt.runtime.backends.native.runtime", "NativeRuntime"),
    "openvino": ("eqsat_opt.runtime.backends.openvino.runtime", "OpenVinoRuntime"),
}


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _OWN}


def racing_runtimes() -> tuple[str, ...]:
    """Names of those that run any model, and may race with it: ours first."""
    return (*(name for name in _OWN if name != NATIVE), *sorted(_installed()))


@cache
def load_runtime(name: str) -> Runtime:
    """The runtime of a name, whether it can run here or not.

    Raises:
        OptionError: there is none, or it cannot be loaded.
    """
    if name in _OWN:
        module, attribute = _OWN[name]
        own: Runtime = getattr(import_module(module), attribute)()
        return own
    point = _installed().get(name)
    if point is None:
        raise OptionError(f"unknown runtime {name!r}; there are {', '.join(racing_runtimes())}")
    try:
        runtime: Runtime = point.load()()
    except Exception as error:  # whatever goes wrong in somebody else's package
        raise OptionError(
            f"the runtime {name!r} cannot be loaded from {point.value}: {error}"
        ) from error
    if runtime.name != name:
        raise OptionError(
            f"the runtime {name!r} of {point.value} calls itself {runtime.name!r}; both names must "
            "be the same, because tuned files are opened by it"
        )
    return runtime
