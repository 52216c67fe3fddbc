"""Launches of cuDNN; the graph of each follows from its body and the strides of its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.cudnn.oracle import RECORDED_VERSION
from eqsat_opt.runtime.backends.cudnn.spec import CudnnSite, may_run, site_of
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher, require_aligned
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CudnnLauncher", "site_of_launch"]


class CudnnLauncher(AbsentLauncher):
    """Launcher that checks whether cuDNN can compute the launches of a plan.

    The plan names the engine of each launch and contains its workspace.
    """

    def version(self) -> str:
        """Return the version of the library whose engines plans name."""
        return f"cudnn {RECORDED_VERSION}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches.

        Raises:
            RuntimeFailed: cuDNN cannot compute a launch, or its memory is not aligned.
        """
        for launch in launches:
            require_aligned(launch, buffers)
            site_of_launch(launch, buffers)


def site_of_launch(launch: Launch, buffers: Mapping[str, Buffer]) -> CudnnSite:
    """Return a launch as cuDNN computes it, on the memory that the plan gives it.

    Raises:
        RuntimeFailed: cuDNN cannot compute it.
    """
    strides = [buffers[name].strides for name in (*launch.reads, *launch.writes)]
    site = site_of(launch.body, strides, precision=launch.precision)
    if site is None or not may_run(site.spec):
        raise RuntimeFailed(f"cuDNN has no kernel for launch {launch.name!r}: plan again")
    return site
