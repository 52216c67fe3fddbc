"""Base of launchers for devices that need not be present: nothing runs on memory of the host."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.backends.registry import record_of
from eqsat_opt.runtime.devices.protocol import Launched
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AbsentLauncher", "require_aligned"]


class AbsentLauncher(Launcher):
    """Launcher for a device that is not here; it checks launches and runs none; see `Launcher`."""

    def build(self, launch: Launch, bound: Bound) -> Launched:
        """Refuse the launch, since nothing runs here.

        Raises:
            RuntimeFailed: always.
        """
        raise RuntimeFailed(
            f"launch {launch.name!r} is for a device that is not here; plan again with "
            "another backend"
        )


def require_aligned(launch: Launch, buffers: Mapping[str, Buffer]) -> None:
    """Check that all tensors of a launch are aligned as its backend needs.

    Raises:
        RuntimeFailed: a tensor is not aligned.
    """
    unit = record_of(launch.backend).alignment_bytes
    for name in (*launch.reads, *launch.writes):
        buffer = buffers[name]
        if buffer.base and buffer.offset % unit:
            raise RuntimeFailed(
                f"launch {launch.name!r}: {name!r} does not begin at a multiple of {unit} bytes, "
                f"as {launch.backend} needs it: plan again"
            )
