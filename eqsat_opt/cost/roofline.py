"""A lower bound on a kernel's time from the device's peak arithmetic and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import TensorType

__all__ = ["BANDWIDTH_PROBE", "DEFAULT_ROOFLINE", "PEAK_PROBE", "Roofline", "calibrated", "reached"]

_HEADROOM = 1.5
"""Factor by which the best kernel may be better than a probe; a bound must not exceed a true
time."""


@dataclass(frozen=True)
class Roofline:
    """The greatest rates of arithmetic and of memory traffic.

    Attributes:
        flops_per_us: floating point operations per microsecond.
        bytes_per_us: bytes per microsecond, from a cache.
    """

    flops_per_us: float
    bytes_per_us: float

    def bound_us(self, kernel: Kernel, arithmetic: float = 1.0) -> float:
        """Return a lower bound on the time of ``kernel``, µs; 0 if it only renames a buffer.

        Args:
            kernel: a kernel of literal sizes.
            arithmetic: the least share of its operations that is really done.
        """
        if all(step.op == "Reshape" for step in kernel.steps):
            return 0.0
        flops, size = arithmetic * literal(kernel.flops), float(literal(kernel.bytes))
        return max(flops / self.flops_per_us, size / self.bytes_per_us)


DEFAULT_ROOFLINE = Roofline(300e3, 200e3)
"""300 GFLOP/s and 200 GB/s: above any present CPU core, so a bound where nothing was measured."""


def _probe(op: str, shapes: list[tuple[int, ...]]) -> Kernel:
    operands = tuple(
        Operand(TensorType("float32", shape), const=i > 0) for i, shape in enumerate(shapes)
    )
    return Kernel(operands, (Step(op, attributes(), tuple(range(len(shapes)))),), (len(shapes),))


PEAK_PROBE = _probe("MatMul", [(256, 512), (512, 512)])
BANDWIDTH_PROBE = _probe("Relu", [(32, 1024)])


def reached(peak_us: float, bandwidth_us: float) -> Roofline:
    """Return the rates that the two probes reached on a device, from their times, µs."""
    flops = literal(PEAK_PROBE.flops) / peak_us
    size = literal(BANDWIDTH_PROBE.bytes) / bandwidth_us
    return Roofline(flops, size)


def calibrated(peak_us: float, bandwidth_us: float) -> Roofline:
    """Return the roofline of a device from the times of the two probes, µs."""
    rates = reached(peak_us, bandwidth_us)
    return Roofline(_HEADROOM * rates.flops_per_us, _HEADROOM * rates.bytes_per_us)
