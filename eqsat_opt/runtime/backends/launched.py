"""Launches of plans as backends: kernels that run beside sessions, with separate prices."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.backends.generated.eligible import is_eligible
from eqsat_opt.runtime.backends.generated.patterns import generated_patterns
from eqsat_opt.runtime.backends.launching import Bound, load_launcher, takes_views
from eqsat_opt.runtime.backends.native.launcher import can_run
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.measure import Measurement, measure
from eqsat_opt.runtime.plan.files import body_from_json, body_to_json
from eqsat_opt.runtime.plan.places import aligned_memory
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides

__all__ = [
    "LAUNCHED",
    "LaunchedBackend",
    "generated_launches",
    "native_launches",
    "numpy_launches",
    "openvino_launches",
]

LAUNCHED = "launched:"
"""Prefix of the names of these backends; the rest is their name in plans."""

_SMALL_BYTES = 1 << 20
"""Largest size of a kernel without products that NumPy is offered: it is fastest where the cost of
calls dominates, and in products."""


class LaunchedBackend:
    """Backend that runs kernels as launches of a plan, on dense memory.

    Args:
        launcher: the name of the launcher.
        can: returns whether the launcher can run a kernel.
        patterns: returns the patterns that it runs as one kernel, beyond single operators.
    """

    def __init__(
        self,
        launcher: str,
        can: Callable[[Kernel], bool],
        patterns: Callable[[], Sequence[KernelPattern]] = tuple,
    ) -> None:
        self.name = LAUNCHED + launcher
        self._launcher, self._can, self._patterns = launcher, can, patterns

    def version(self) -> str:
        """Return the version of the launcher."""
        return f"{load_launcher(self._launcher).version()}, launched"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return patterns around one operator; the plan itself joins elementwise neighbours."""
        return self._patterns()

    def carried(self) -> Sequence[CarriedForm]:
        """Return no forms: launches use the order of ONNX."""
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the default if the launcher runs the kernel on operands in the order of ONNX."""
        forms = {kernel.writes, *(operand.form for operand in kernel.operands)}
        if not kernel.steps or forms != {PLAIN} or kernel.static_types is None:
            return ()
        how = replace(DEFAULT, strided=takes_views(self._launcher))
        return (how,) if self._can(kernel) else ()

    def request(self, offer: Offer) -> bytes:
        """Serialise the kernel as plans store it."""
        return json.dumps(body_to_json(offer.body)).encode()

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure the launch alone, on random operands.

        Raises:
            RuntimeFailed: the launch cannot run.
        """
        if threads != 1:
            raise RuntimeFailed("launches beside sessions run on one thread")
        body = body_from_json(json.loads(request))
        drawn = replace(body, operands=tuple(replace(o, const=True) for o in body.operands))
        values = drawn.to_graph().constants
        arrays = {f"x{i}": np.asarray(values[f"x{i}"].load()) for i in range(len(body.operands))}
        reads = tuple(arrays)
        types = body.required_types()
        for number, output in enumerate(body.outputs):
            type_ = types[output]
            arrays[f"y{number}"] = np.empty(type_.shape, numpy_dtype(type_.dtype))
        writes = tuple(name for name in arrays if name not in reads)
        buffers = {
            name: Buffer(name, str(array.dtype), array.shape, dense_strides(array.shape))
            for name, array in arrays.items()
        }
        launch = Launch("it", self._launcher, body, "default", reads=reads, writes=writes)
        launcher = load_launcher(self._launcher)
        launcher.prepare([launch], buffers)
        bound = Bound(
            tuple(arrays[name] for name in reads),
            tuple(arrays[name] for name in writes),
            aligned_memory(launcher.workspace_bytes(launch, buffers)),
        )
        return measure(launcher.build(launch, bound), threads=threads, budget_s=budget_s)


def _is_float(kernel: Kernel) -> bool:
    return all(type_.dtype == "float32" for type_ in kernel.types)


@lru_cache(maxsize=1 << 12)
def _can_generate(kernel: Kernel) -> bool:
    graph = kernel.to_graph()
    return is_eligible(graph, graph.nodes, graph.outputs)


def _is_for_numpy(kernel: Kernel) -> bool:
    if any(step.op == "MatMul" for step in kernel.steps):
        return len(kernel.steps) == 1
    kinds = {get_op(step.op).kind for step in kernel.steps}
    size = kernel.bytes
    return kinds <= {"pointwise", "movement"} and isinstance(size, int) and size <= _SMALL_BYTES


def generated_launches() -> LaunchedBackend:
    """Return the backend of elementwise, movement, reduction and window kernels, small products."""
    return LaunchedBackend("generated", _can_generate, generated_patterns)


def native_launches() -> LaunchedBackend:
    """Return the backend of products and normalisations."""
    return LaunchedBackend("native", can_run)


def numpy_launches() -> LaunchedBackend:
    """Return the backend of products and of small kernels."""
    return LaunchedBackend("numpy", _is_for_numpy)


def openvino_launches() -> LaunchedBackend:
    """Return the backend of all kernels in float32; those that OpenVINO refuses have no price."""
    return LaunchedBackend("openvino", _is_float)
