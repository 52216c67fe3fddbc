"""Kernels of several backends of this processor, measured side by side.

A backend may run kernels inside a session of onnxruntime and launch others outside it. Both kinds
go by one name here, the name that users and plans know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eqsat_opt.errors import EqsatError, OptionError, or_nearest
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search import BackendPricer, Quoted
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.protocol import Backend, Delegate
from eqsat_opt.runtime.backends.record import LAUNCHED
from eqsat_opt.runtime.backends.registry import load_backend, portable_names, record_of, records

__all__ = [
    "ALL",
    "Installed",
    "Placing",
    "chosen_backends",
    "known_as",
    "priced_sources",
    "sources_of",
]

ALL = "all"
"""The name that selects every installed backend."""


class Placing(Protocol):
    """The settings that choose backends."""

    @property
    def backends(self) -> Sequence[str]:
        """The backends that were asked for."""

    @property
    def placing(self) -> Sequence[str]:
        """The backends whose kernels are priced."""


def sources_of(backend: str) -> tuple[str, ...]:
    """Return the names under which the kernels of a backend are priced."""
    record = record_of(backend)
    inside = (backend,) if record.kernels else ()
    beside = (record.launched_name,) if record.launches else ()
    return (*inside, *beside) or (backend,)


def priced_sources(settings: Placing, threads: int) -> tuple[str, ...]:
    """Return the sources of all kernels that are measured with a number of threads.

    Raises:
        OptionError: a backend that was asked for runs on one thread only.
    """
    every = tuple(one for name in settings.placing for one in sources_of(name))
    if threads == 1:
        return every
    for name in settings.backends:
        if name != ALL and all(one.startswith(LAUNCHED) for one in sources_of(name)):
            raise OptionError(
                f"kernels of {name} run outside sessions, on one thread; add --threads 1, or leave "
                f"{name} out of --backends"
            )
    return tuple(one for one in every if not one.startswith(LAUNCHED))


def chosen_backends(given: Sequence[str]) -> tuple[str, ...]:
    """Return the named backends, `ALL` expanded; onnxruntime comes first since it runs everything.

    Raises:
        OptionError: there is no such backend, or it cannot be used here.
    """
    own = (name for name, one in records().items() if one.is_offered)
    known = tuple(dict.fromkeys((*own, *portable_names())))
    for name in given:
        if name not in (*known, ALL):
            raise OptionError(f"unknown backend {name!r}; {or_nearest(name, (*known, ALL))}")
        if name != ALL and (why := _missing(name)):
            raise OptionError(f"the backend {name} cannot be used here: {why}")
    every = (one for one in known if not _missing(one)) if ALL in given else given
    return tuple(dict.fromkeys((ORT, *every)))


def _missing(backend: str) -> str:
    """Return why a backend cannot be used here; empty if it can."""
    try:
        for one in sources_of(backend):
            load_backend(one).version()
    except EqsatError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Installed:
    """A pricer for searches that offers the kernels of several backends.

    Attributes:
        offered: prices all offers, under the names of their sources.
        spent: called with the seconds that measuring took.
    """

    offered: BackendPricer
    spent: Callable[[float], None]

    @property
    def metrics(self) -> Sequence[str]:
        """Counts and times."""
        return self.offered.metrics

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return one quote for each backend and algorithm that could be measured."""
        begun = time.perf_counter()
        found = self.offered.quotes(kernel)
        self.spent(time.perf_counter() - begun)
        return tuple(replace(one, backend=_plain(one.backend)) for one in found)


def known_as(backends: Sequence[Backend]) -> tuple[Backend, ...]:
    """Return the sources of kernels, renamed to their backends."""
    return tuple(map(_Named, backends))


def _plain(source: str) -> str:
    return source.removeprefix(LAUNCHED)


class _Named(Delegate):
    """A source of kernels under the name of its backend."""

    def __init__(self, source: Backend) -> None:
        super().__init__(source)
        self.name = _plain(source.name)
