"""Prices of kernels: measured where the store knows them or the caller asks, else a lower bound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import onnx

from eqsat_opt.cost.device import device_fingerprint
from eqsat_opt.cost.metrics import LAUNCH_US
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.roofline import (
    BANDWIDTH_PROBE,
    DEFAULT_ROOFLINE,
    PEAK_PROBE,
    Roofline,
    calibrated,
)
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import EqsatError, StoreError
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.kernel_export import export_kernel
from eqsat_opt.runtime.kernels import nchwc_block
from eqsat_opt.runtime.measure import PROTOCOL_VERSION, Measurement
from eqsat_opt.runtime.nchwc import between_reorders
from eqsat_opt.runtime.ort import ort_version
from eqsat_opt.runtime.workers import KernelWorker, measure_kernels

__all__ = ["Price", "Pricer"]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_IMPLEMENTATION = "default"


@dataclass(frozen=True, slots=True)
class Price:
    """Time of one kernel inside a session, and whether it was measured or is only a lower bound."""

    time_us: float
    measured: bool


_MADE_BYTES_PER_S = 1.5e8
"""Weights made up, written, sent to the measuring process and read there, on a slow machine."""


def _made_s(kernel: Kernel) -> float:
    """How long a kernel takes to be made, before it is measured at all."""
    size = kernel.bytes
    return size / _MADE_BYTES_PER_S if isinstance(size, int) else 0.0


class Pricer:
    """Looks kernels up, measures them on request and remembers the answers for the run.

    Args:
        store: the profile store; ``None`` keeps measurements for this run only. One that fails is
            left alone from then on.
        threads: threads per session.

    Attributes:
        trouble: what is wrong with the store, as a sentence; empty if nothing is.
    """

    def __init__(self, store: ProfileStore | None, threads: int) -> None:
        self.trouble = ""
        self._store = store
        self._threads = threads
        self._backend = f"onnxruntime {ort_version()}"
        self._device = device_fingerprint().id
        self._known: dict[str, Price] = {}
        self._worker: KernelWorker | None = None
        self._roofline: Roofline = DEFAULT_ROOFLINE
        self.n_measured = 0

    def _key(self, signature: str) -> ProfileKey:
        return ProfileKey(
            self._backend, signature, _IMPLEMENTATION, self._device, self._threads, PROTOCOL_VERSION
        )

    def calibrate(self, deadline: Deadline | None = None) -> None:
        """Fit the roofline to this device by measuring its two probes, once per store."""
        probes = (PEAK_PROBE, BANDWIDTH_PROBE)
        self.recall(probes)
        self.measure(probes, deadline=deadline)
        prices = [self.price(probe) for probe in probes]
        if all(price.measured for price in prices):
            self._roofline = calibrated(*(max(price.time_us - LAUNCH_US, 0.05) for price in prices))

    def recall(self, kernels: Iterable[Kernel]) -> None:
        """Take over what the store knows."""
        keys = {self._key(s): s for s in {k.signature for k in kernels} if s not in self._known}
        found = self._stored(lambda store: store.get_many(keys)) or {}
        for key, measurement in found.items():
            self._remember(keys[key], measurement)

    def _stored(self, use: Callable[[ProfileStore], _T]) -> _T | None:
        """What ``use`` makes of the store; ``None`` without one. A broken store ends no run."""
        if self._store is None:
            return None
        try:
            return use(self._store)
        except StoreError as error:
            self._store, self.trouble = None, str(error)
            return None

    def price(self, kernel: Kernel) -> Price:
        """The measured time, or the lower bound."""
        known = self._known.get(kernel.signature)
        return (
            known
            if known is not None
            else Price(self._roofline.bound_us(kernel) + LAUNCH_US, measured=False)
        )

    def is_known(self, kernel: Kernel) -> bool:
        """Whether measuring would tell nothing new."""
        return kernel.signature in self._known

    def measure(
        self,
        kernels: Iterable[Kernel],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Measure what is not known yet, and store it; what the deadline cuts off stays unknown.

        A kernel that cannot even be made until then keeps its lower bound for this run.
        """
        todo = {k.signature: k for k in kernels if not self.is_known(k)}
        models: dict[str, bytes] = {}
        for signature, kernel in todo.items():
            if deadline is not None and deadline.expired:
                break
            if deadline is not None and deadline.left_s < _made_s(kernel):
                self._remember_bound(kernel)
                continue
            try:
                models[signature] = self._model_of(kernel)
            except EqsatError as error:
                _log.info("%s cannot be measured: %s", kernel, error)
                self._remember_bound(kernel)
        if not models:
            return
        if self._worker is None:
            self._worker = KernelWorker()
        results = measure_kernels(
            list(models.values()), self._threads, progress, worker=self._worker, deadline=deadline
        )
        measured = dict(zip(models, results, strict=False))  # the deadline may have cut them off
        for signature, measurement in measured.items():
            if measurement is None:
                self._remember_bound(todo[signature])
            else:
                self._remember(signature, measurement)
                self.n_measured += 1
        results_by_key = {self._key(s): m for s, m in measured.items()}
        self._stored(lambda store: store.put_many(results_by_key))

    def _model_of(self, kernel: Kernel) -> bytes:
        model = export_kernel(kernel)
        block = nchwc_block() if kernel.between_blocked else 1
        if block == 1:
            return model
        surrounded: bytes = between_reorders(
            onnx.load_model_from_string(model), block
        ).SerializeToString()
        return surrounded

    def _remember(self, signature: str, measurement: Measurement | None) -> None:
        if measurement is not None:
            self._known[signature] = Price(measurement.time_us + LAUNCH_US, measured=True)

    def _remember_bound(self, kernel: Kernel) -> None:
        self._known[kernel.signature] = Price(
            self._roofline.bound_us(kernel) + LAUNCH_US, measured=False
        )

    def close(self) -> None:
        """End the measuring process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
