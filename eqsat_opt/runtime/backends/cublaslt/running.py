"""Launches of cuBLASLt on a GPU, by nvmath-python, into the memory of the plan."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.cublaslt.launcher import CublasLtLauncher, product_of_launch
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["NEEDED", "CublasLtRunner"]

NEEDED = {
    "linalg": ("ComputeType",),
    "linalg.ComputeType": ("COMPUTE_32F",),
    "linalg.advanced": ("Matmul", "MatmulEpilog"),
    "linalg.advanced.Matmul": ("execute", "plan"),
    "linalg.advanced.MatmulEpilog": ("BIAS", "DEFAULT", "RELU", "RELU_BIAS"),
}
"""What this module uses of nvmath-python, by owner."""


class CublasLtRunner(CublasLtLauncher):
    """Plans and launches the products of one plan.

    Args:
        device: that runs them.

    Raises:
        RuntimeFailed: nvmath-python is missing.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        try:
            self._linalg: Any = importlib.import_module("nvmath.linalg")
            self._advanced: Any = importlib.import_module("nvmath.linalg.advanced")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        self._buffers: Mapping[str, Buffer] = {}

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches."""
        super().prepare(launches, buffers)
        self._buffers = buffers

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """The products of all batches on this memory.

        The library adds a bias by row, so what is multiplied are the transposed matrices. Batches
        are products of their own: their strides need not be those of one array.
        """
        product = product_of_launch(launch, self._buffers)
        a, b, y = bound.reads[product.a], bound.reads[product.b], bound.writes[0]
        bias = None if product.bias is None else bound.reads[product.bias].reshape(-1)
        stream = self._device.on_stream(launch.stream)
        numbers = list(np.ndindex(*y.shape[:-2]))
        planned = [
            self._planned((a[_batch(a, n)], b[_batch(b, n)], y[n]), bias, product.epilogue, stream)
            for n in numbers
        ]

        def run() -> None:
            for one in planned:
                one.execute(stream=stream)

        return run

    def _planned(self, matrices: Sequence[Any], bias: Any, epilogue: str, stream: Any) -> Any:
        a, b, y = matrices
        made = self._advanced.Matmul(
            b.T,
            a.T,
            y.T,
            beta=0.0,
            options={"inplace": True, "compute_type": self._linalg.ComputeType.COMPUTE_32F},
            stream=stream,
        )
        kind = getattr(self._advanced.MatmulEpilog, epilogue or "DEFAULT")
        inputs = None if bias is None else {"bias": bias}
        made.plan(epilog=kind, epilog_inputs=inputs, stream=stream)
        return made


def _batch(array: Any, number: tuple[int, ...]) -> tuple[int, ...]:
    """Where a batch of the result reads an operand, which may have fewer of them."""
    extents = array.shape[:-2]
    own = number[len(number) - len(extents) :]
    return tuple(0 if extent == 1 else n for n, extent in zip(own, extents, strict=True))
