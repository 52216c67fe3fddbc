"""Launches in OpenVINO: a compiled model for each, with its tensors in the memory of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat_opt.errors import EqsatError, PlanError, RuntimeFailed
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.launching import Bound, Launcher, require_default
from eqsat_opt.runtime.backends.openvino.runtime import OpenVinoRuntime, OpenVinoSession
from eqsat_opt.runtime.backends.shared.session_models import operand_names, session_model
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["OpenVinoLauncher", "is_launched"]


def is_launched(kernel: Kernel) -> bool:
    """Return whether a kernel is in float32; one that OpenVINO refuses has no price."""
    return all(type_.dtype == "float32" for type_ in kernel.types)


class OpenVinoLauncher(Launcher):
    """Launcher that compiles each body for one thread.

    Raises:
        PlanError: the package is missing.
    """

    def __init__(self) -> None:
        if why := OpenVinoRuntime().missing():
            raise PlanError(why)

    def version(self) -> str:
        """Return the version of the package."""
        return f"openvino {OpenVinoRuntime().facts()['openvino']}"

    def build(self, launch: Launch, bound: Bound) -> _Compiled:
        """Build the compiled body on this memory.

        Raises:
            RuntimeFailed: OpenVINO is missing or refuses the body, or the algorithm is unknown.
        """
        require_default(launch)
        try:
            return _Compiled(launch, bound)
        except EqsatError as error:
            raise RuntimeFailed(f"launch {launch.name!r}: {error}") from error


class _Compiled:
    """A compiled launch on its memory."""

    def __init__(self, launch: Launch, bound: Bound) -> None:
        self.name = launch.name
        graph = launch.body.to_graph()
        model = session_model(launch, bound.reads)
        session: OpenVinoSession = OpenVinoRuntime().open(model, 1, {})
        self._before: list[tuple[Array, Array]] = []
        self._after: list[tuple[Array, Array]] = []
        feeds: dict[str, Any] = {}
        for name, array in zip(operand_names(launch), bound.reads, strict=True):
            if name not in graph.constants:
                feeds[name] = _dense(array)
                if feeds[name] is not array:
                    self._before.append((feeds[name], array))
        results: dict[str, Array] = {}
        for name, array in zip(graph.outputs, bound.writes, strict=True):
            known = results.setdefault(name, _dense(array))
            if known is not array:
                self._after.append((array, known))
        self._run = session.bind_all(
            feeds, [results[name] for name in dict.fromkeys(graph.outputs)]
        )

    def __call__(self) -> None:
        for target, source in self._before:
            np.copyto(target, source)
        self._run()
        for target, source in self._after:
            np.copyto(target, source)


def _dense(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
