"""What launchers share whose device need not be here: nothing runs on memory of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.launching import Bound, alignment_bytes
from eqsat_opt.runtime.devices.protocol import Launched
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["AbsentLauncher", "require_aligned"]


class AbsentLauncher:
    """Says what launches need, for a device that is elsewhere; see `Launcher`."""

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Nothing."""

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """None."""
        return 0

    def build(self, launch: Launch, bound: Bound) -> Launched:
        """Nothing runs here.

        Raises:
            RuntimeFailed: always.
        """
        raise RuntimeFailed(
            f"launch {launch.name!r} is for a device that is not here; plan again with "
            "another backend"
        )


def require_aligned(launch: Launch, buffers: Mapping[str, Buffer]) -> None:
    """Check that all tensors of a launch begin where its backend takes them.

    Raises:
        RuntimeFailed: one does not.
    """
    unit = alignment_bytes(launch.backend)
    for name in (*launch.reads, *launch.writes):
        buffer = buffers[name]
        if buffer.base and buffer.offset % unit:
            raise RuntimeFailed(
                f"launch {launch.name!r}: {name!r} does not begin at a multiple of {unit} bytes, "
                f"as {launch.backend} needs it: plan again"
            )
