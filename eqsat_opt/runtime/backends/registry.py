"""The backends by name: our own, and those of installed packages.

A package offers a backend through an entry point of the group ``eqsat_opt.backends``, which names
a class (or anything else to be called without arguments) that makes one.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.backends.protocol import Backend

__all__ = ["GROUP", "load_backend", "names"]

GROUP = "eqsat_opt.backends"

_OWN = {"ort": ("eqsat_opt.runtime.backends.ort.backend", "OrtBackend")}


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _OWN}


def names() -> tuple[str, ...]:
    """All names that `load_backend` knows, our own first."""
    return (*_OWN, *sorted(_installed()))


@cache
def load_backend(name: str) -> Backend:
    """The backend of a name.

    Raises:
        OptionError: there is none, or it cannot be loaded.
    """
    if name in _OWN:
        module, attribute = _OWN[name]
        own: Backend = getattr(import_module(module), attribute)()
        return own
    point = _installed().get(name)
    if point is None:
        raise OptionError(f"unknown backend {name!r}; installed are {', '.join(names())}")
    try:
        backend: Backend = point.load()()
    except Exception as error:  # whatever goes wrong in somebody else's package
        raise OptionError(
            f"the backend {name!r} cannot be loaded from {point.value}: {error}"
        ) from error
    if backend.name != name:
        raise OptionError(
            f"the backend {name!r} of {point.value} calls itself {backend.name!r}; both names must "
            "be the same, because measurements are stored under it"
        )
    return backend
