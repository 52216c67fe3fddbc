"""The record of a backend: its parts, and the properties that planning, pricing and races ask for.

Each folder of a backend holds its record, which imports nothing of the backend: a part is imported
when it is first called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat_opt.ir.graph.graph import Graph, Node

__all__ = ["LAUNCHED", "BackendRecord", "Lazy"]

LAUNCHED = "launched:"
"""Prefix of the names under which launches outside sessions are priced; the rest is their backend's
name in plans."""


@dataclass(frozen=True)
class Lazy:
    """A class or function that is imported when it is called.

    Attributes:
        place: its module and its name there, as ``module:name``.
    """

    place: str

    def __call__(self, *arguments: object) -> Any:
        """Call the class or function.

        Raises:
            ImportError: a package that its module needs is missing.
        """
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)(*arguments)


@dataclass(frozen=True, kw_only=True)
class BackendRecord:
    """A backend, by its parts and properties.

    Attributes:
        name: name in plans, in options and in the files of results.
        title: name in tables and messages, if it is another one.
        kernels: class of its `Backend`, whose kernels run in sessions of onnxruntime.
        is_portable: whether these kernels may be in a portable result; otherwise they occur only in
            the form of a model for one machine.
        runtime: class of its `Runtime` of whole models.
        is_trusted: whether its runtime runs in this process; others get a process of their own.
        runs_models: whether it runs any model: as a runtime in races, and in a plan as one session
            of neighbouring operators.
        launcher: class of its `Launcher`.
        runner: class of its launcher on a GPU; an instance takes the device, and serves one plan.
        launches: function that returns whether a kernel is offered as a launch outside sessions,
            with a price of its own; ``None`` if no kernel is.
        patterns: function that returns the patterns of such kernels beyond single operators.
        has_kernel: function that returns whether it can launch a kernel of one operator; ``None``
            if it has no such limit.
        generates: function of a graph, some of its nodes and their outputs that returns whether one
            generated kernel can compute these; ``None`` if it generates no kernels of regions.
        is_modelled: whether it represents kernels of a device that need not be here, whatever
            backend would run them.
        runs_all: whether its launches run every operator, and so whatever other backends cannot.
        takes_views: whether launches read and write views with gaps in place, if no chosen
            implementation decides it. For other backends, launches that copy pack the values, so
            that the time of the copies is part of the price of a plan.
        copies: whether it also runs the launches that copy operands for its own launches.
        alignment_bytes: alignment that its launches need of the addresses of tensors.
    """

    name: str
    title: str = ""
    kernels: Lazy | None = None
    is_portable: bool = False
    runtime: Lazy | None = None
    is_trusted: bool = False
    runs_models: bool = False
    launcher: Lazy | None = None
    runner: Lazy | None = None
    launches: Lazy | None = None
    patterns: Lazy | None = None
    has_kernel: Lazy | None = None
    generates: Lazy | None = None
    is_modelled: bool = False
    runs_all: bool = False
    takes_views: bool = False
    copies: bool = False
    alignment_bytes: int = 1

    @property
    def launched_name(self) -> str:
        """The name under which its launches outside sessions are priced."""
        return LAUNCHED + self.name

    @property
    def is_offered(self) -> bool:
        """Whether users may ask for it: its kernels have prices on this machine.

        Others are combinations, or for absent devices; only plans name them.
        """
        return bool(self.kernels or self.launches)

    @property
    def is_plan_only(self) -> bool:
        """Whether users may ask for its launches in plans, and it has no portable kernels."""
        return self.is_offered and not self.is_portable

    @property
    def is_on_gpu(self) -> bool:
        """Whether its launches run on a GPU."""
        return self.runner is not None

    @property
    def is_on_host(self) -> bool:
        """Whether its launches run on the processor of this machine."""
        return self.runner is None and not self.is_modelled

    @property
    def is_gpu_library(self) -> bool:
        """Whether a library for GPUs computes its launches, which may refuse a plan's memory."""
        return self.is_on_gpu and not self.generates

    def can_generate(self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> bool:
        """Return whether one generated kernel can compute some nodes of a graph."""
        return self.generates is not None and bool(self.generates(graph, nodes, outputs))
