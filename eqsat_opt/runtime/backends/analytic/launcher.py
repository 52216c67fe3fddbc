"""Launches on devices of which only profiles are at hand: what they need is known, none can run."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.runtime.backends.analytic.backend import workspace_bytes
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AnalyticLauncher"]

_VERSION = 1
"""Of what algorithms need, and of the layouts that they take."""


class AnalyticLauncher(AbsentLauncher):
    """Says what a launch needs beside its operands."""

    name = "analytic"

    def version(self) -> str:
        """Of the model of devices."""
        return f"analytic {_VERSION}"

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """What the algorithm needs."""
        return workspace_bytes(launch.body, launch.algorithm)
