"""Launches of plans as backends: kernels that run outside sessions, with separate prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.backends.record import BackendRecord
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.measure import Measurement, measure
from eqsat_opt.runtime.plan.files import body_from_json, body_to_json
from eqsat_opt.runtime.plan.places import aligned_memory
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides

__all__ = ["LaunchedBackend"]


class LaunchedBackend:
    """Backend that runs kernels as launches of a plan, on dense memory.

    Args:
        record: the record of the backend in plans.
    """

    def __init__(self, record: BackendRecord) -> None:
        self.name = record.launched_name
        self._record = record

    def version(self) -> str:
        """Return the version of the launcher."""
        return f"{load_launcher(self._record.name).version()}, launched"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return patterns around one operator; the plan itself joins elementwise neighbours."""
        patterns: Sequence[KernelPattern] = self._record.patterns() if self._record.patterns else ()
        return patterns

    def carried(self) -> Sequence[CarriedForm]:
        """Return no forms: launches use the order of ONNX."""
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the default if the launcher runs the kernel on operands in the order of ONNX."""
        forms = {kernel.writes, *(operand.form for operand in kernel.operands)}
        if not kernel.steps or forms != {PLAIN} or kernel.static_types is None:
            return ()
        how = replace(DEFAULT, strided=self._record.takes_views)
        return (how,) if self._record.launches and self._record.launches(kernel) else ()

    def request(self, offer: Offer) -> bytes:
        """Serialise the kernel as plans store it."""
        return json.dumps(body_to_json(offer.body)).encode()

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure the launch alone, on random operands.

        Raises:
            RuntimeFailed: the launch cannot run.
        """
        if threads != 1:
            raise RuntimeFailed("launches outside sessions run on one thread")
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
        launch = Launch("it", self._record.name, body, "default", reads=reads, writes=writes)
        launcher = load_launcher(self._record.name)
        launcher.prepare([launch], buffers)
        bound = Bound(
            tuple(arrays[name] for name in reads),
            tuple(arrays[name] for name in writes),
            aligned_memory(launcher.workspace_bytes(launch, buffers)),
        )
        return measure(launcher.build(launch, bound), threads=threads, budget_s=budget_s)
