"""Launches of cuBLASLt on a GPU through nvmath-python, into the memory of the plan."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat_opt.errors import RuntimeFailed, reason
from eqsat_opt.runtime.backends.cublaslt.described import Space, calls, compute_type, name_of
from eqsat_opt.runtime.backends.cublaslt.launcher import (
    CublasLtLauncher,
    batches_of_launch,
    product_of_launch,
)
from eqsat_opt.runtime.backends.cublaslt.recorded import (
    HEURISTIC,
    MARGIN_BYTES,
    epilogue_of,
)
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CublasLtRunner"]

_RANKED = 64
"""Number of ranked algorithms that are searched for the algorithm of a plan."""


class CublasLtRunner(CublasLtLauncher):
    """Launcher that builds and runs the products of one plan.

    Args:
        device: the device that runs them.

    Raises:
        RuntimeFailed: nvmath-python is missing.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        try:
            self._linalg: Any = importlib.import_module("nvmath.linalg")
            self._advanced: Any = importlib.import_module("nvmath.linalg.advanced")
            self._memory: Any = importlib.import_module("nvmath.memory")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        self._buffers: Mapping[str, Buffer] = {}

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches."""
        super().prepare(launches, buffers)
        self._buffers = buffers

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """Build the products of all batches on this memory.

        One product computes all batches if a single stride covers them. The library adds a bias by
        row, so the transposed matrices are multiplied.

        Raises:
            RuntimeFailed: this device does not have the algorithm, or needs more workspace for it.
        """
        product = product_of_launch(launch, self._buffers)
        a, b, y = bound.reads[product.a], bound.reads[product.b], bound.writes[0]
        bias = None if product.bias is None else bound.reads[product.bias].reshape(-1)
        stream = self._device.on_stream(launch.stream)
        space = Space(self._memory.MemoryPointer, bound.workspace)
        batches, epilogue = batches_of_launch(launch, self._buffers), epilogue_of(product)
        planned = [
            self._planned(launch, matrices, bias, epilogue, space=space)
            for matrices in calls((a, b, y), batches, self._device.cupy.ndarray)
        ]

        def run() -> None:
            for made, algorithm in planned:
                made.execute(algorithm=algorithm, stream=stream)

        return run

    def _planned(
        self,
        launch: Launch,
        matrices: Sequence[Any],
        bias: Any,
        epilogue: str,
        *,
        space: Any,
    ) -> tuple[Any, Any]:
        """Return a product that is ready to run, and the algorithm that the launch names."""
        a, b, y = matrices
        stream = self._device.on_stream(launch.stream)
        options = {
            "inplace": True,
            "compute_type": getattr(self._linalg.ComputeType, compute_type(launch)),
            "memory_limit": max(launch.workspace.size_bytes - MARGIN_BYTES, 0),
            "allocator": space,
        }
        turned = [one.swapaxes(-1, -2) for one in (b, a, y)]
        why = "plan again"
        try:
            made = self._advanced.Matmul(*turned, beta=0.0, options=options, stream=stream)
            found = made.plan(
                preferences={"limit": _RANKED},
                epilog=getattr(self._advanced.MatmulEpilog, epilogue) if epilogue else None,
                epilog_inputs=None if bias is None else {"bias": bias},
                stream=stream,
            )
        except Exception as error:  # no algorithm, or matrices that cuBLASLt rejects
            found, why = (), reason(error)
        for algorithm in found:
            if launch.algorithm == HEURISTIC or launch.algorithm == name_of(algorithm):
                return made, algorithm
        raise RuntimeFailed(
            f"launch {launch.name!r}: cuBLASLt has no algorithm {launch.algorithm!r} here that "
            f"needs at most {launch.workspace.size_bytes} bytes of workspace: {why}"
        )
