"""The interface of launchers, which run the launches of a plan.

It is separate from the protocol of kernels, prices and patterns, so that running a plan imports
nothing of the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.protocol import Launched
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["Bound", "Launcher", "require_default"]


@dataclass(frozen=True, eq=False)
class Bound:
    """The memory of one launch; the same for every run.

    Attributes:
        reads: a view for each operand, with the strides of the plan; constants hold their values.
        writes: a view for each output.
        workspace: the bytes of the workspace.
    """

    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    workspace: npt.NDArray[np.uint8]


class Launcher(Protocol):
    """A backend that runs launches on a device whose memory NumPy sees."""

    def version(self) -> str:
        """Return the version of the library; another version may compute other results."""

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Do the work that is cheaper for all launches of a plan at once, before any is built.

        There is no such work by default.

        Raises:
            RuntimeFailed: the backend cannot run one of the launches.
        """
        return

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the bytes that a launch needs in addition to its operands and results."""
        return 0

    def build(self, launch: Launch, bound: Bound) -> Launched:
        """Build a callable that runs the launch on this memory any number of times.

        Raises:
            RuntimeFailed: the backend cannot run the launch, or not by its algorithm.
        """


def require_default(launch: Launch) -> None:
    """Check that a launch is by the only algorithm that most backends have.

    Raises:
        RuntimeFailed: the launch names another algorithm.
    """
    if launch.algorithm != "default":
        raise RuntimeFailed(
            f"launch {launch.name!r}: {launch.backend} has no algorithm {launch.algorithm!r}; it "
            "has 'default'"
        )
