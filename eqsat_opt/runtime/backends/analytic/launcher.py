"""Launches on devices known only by their profiles: their workspace is known, none can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.runtime.backends.analytic.backend import workspace_bytes
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AnalyticLauncher", "is_generated"]

_VERSION = 2
"""Version of the workspaces that algorithms need, and of the layouts that they take."""


class AnalyticLauncher(AbsentLauncher):
    """Launcher that knows the workspace of each launch, and runs none."""

    def version(self) -> str:
        """Return the version of the model of devices."""
        return f"analytic {_VERSION}"

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the workspace that the algorithm needs."""
        return workspace_bytes(launch.body, launch.algorithm)


def is_generated(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> bool:
    """Return ``True``: the device has every kernel that was chosen, and can generate regions."""
    del graph, nodes, outputs
    return True
