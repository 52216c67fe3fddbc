"""Launches on devices known only by their profiles: their workspace is known, none can run."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.runtime.backends.analytic.backend import workspace_bytes
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AnalyticLauncher"]

_VERSION = 1
"""Version of the workspaces that algorithms need, and of the layouts that they take."""


class AnalyticLauncher(AbsentLauncher):
    """Launcher that knows the workspace of each launch, and runs none."""

    def version(self) -> str:
        """Return the version of the model of devices."""
        return f"analytic {_VERSION}"

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the workspace that the algorithm needs."""
        return workspace_bytes(launch.body, launch.algorithm)
