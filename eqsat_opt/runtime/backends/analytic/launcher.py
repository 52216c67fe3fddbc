"""Launches on devices of which only profiles are at hand: what they need is known, none can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.analytic.backend import workspace_bytes
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AnalyticLauncher"]

_VERSION = 1
"""Of what algorithms need, and of the layouts that they take."""


class AnalyticLauncher:
    """Says what a launch needs beside its operands."""

    name = "analytic"

    def version(self) -> str:
        """Of the model of devices."""
        return f"analytic {_VERSION}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Nothing."""

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """What the algorithm needs."""
        return workspace_bytes(launch.body, launch.algorithm)

    def build(self, launch: Launch, bound: Bound) -> NoReturn:
        """Nothing runs here.

        Raises:
            RuntimeFailed: always.
        """
        raise RuntimeFailed(
            f"launch {launch.name!r} is for a device that is not here; plan again with "
            "another backend"
        )
