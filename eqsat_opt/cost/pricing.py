"""Prices of backends' offers: measured if stored or measured on request, else lower bounds.

An unmeasured kernel has an expected price, too, by measured kernels of the kind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.energy import MeteredEnergy, energy_text
from eqsat_opt.cost.metrics import ENERGY, LAUNCH_US, TIME
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.quotes import Quote, Source
from eqsat_opt.cost.roofline import (
    BANDWIDTH_PROBE,
    DEFAULT_ROOFLINE,
    PEAK_PROBE,
    Roofline,
    calibrated,
    reached,
)
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.cost.trends import Expectation
from eqsat_opt.errors import EqsatError, StoreError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.runtime.backends.workers import KernelWorker, MeasurementRequest, measure_kernels
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import HOST_PROFILE, load_profile
from eqsat_opt.runtime.measure import PROTOCOL_VERSION, Measurement
from eqsat_opt.runtime.processor import device_fingerprint

__all__ = ["PRECISION", "Pricer"]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


PRECISION = "fp32"
"""Precision in which a processor's kernels compute, by its name in energy models."""

_MADE_BYTES_PER_S = 1.5e8
"""Bytes of random weights per second that a slow machine can draw, send to a process and read."""

_TELLING_BYTES = 1 << 24
"""Least size of a kernel, bytes, whose build time is used to predict that of the next kernels."""


class Pricer:
    """Prices of offers: looked up in a store, measured on request, and cached for the run.

    Args:
        store: the profile store; ``None`` keeps measurements for this run only. A store that fails
            is not used again.
        threads: threads per session.
        backends: names of the backends whose kernels may be chosen; the first runs everything.
        energy: the model that derives energy from a time, or the meter that is read while kernels
            are measured; ``None`` if there is neither.

    Attributes:
        backends: the backends.
        metrics: the metrics in each quote: the time, and the energy if there is a source of it.
        energy_text: a phrase for the source of energies; empty where there is none.
        interface: form of the model's inputs and outputs: in the memory of the host, in the order
            of ONNX.
        trouble: a sentence on the trouble with the store; empty if there is none.
        roofline: the greatest rates of this device, after `calibrate` from its probes.
        peaks: the rates that the probes reached; ``None`` before `calibrate`.

    Raises:
        OptionError: there is no such backend.
    """

    def __init__(
        self,
        store: ProfileStore | None,
        threads: int,
        backends: Sequence[str] = (ORT,),
        *,
        energy: EnergyModel | MeteredEnergy | None = None,
    ) -> None:
        self.backends = tuple(load_backend(name) for name in backends)
        self.metrics = (TIME,) if energy is None else (TIME, ENERGY)
        self.trouble = ""
        self.interface = PLAIN
        self._store = store
        self._threads = threads
        self._versions = {backend.name: backend.version() for backend in self.backends}
        self._device = device_fingerprint().id
        self._energy = energy
        self.energy_text = energy_text(energy)
        self._known: dict[ProfileKey, Quote] = {}
        self._measured: dict[ProfileKey, Offer] = {}
        self._expectation: tuple[int, Expectation] | None = None
        self._worker: KernelWorker | None = None
        self.roofline: Roofline = DEFAULT_ROOFLINE
        self.peaks: Roofline | None = None
        self._made_bytes_per_s = _MADE_BYTES_PER_S
        self.n_measured = 0

    def key_of(self, offer: Offer) -> ProfileKey:
        return ProfileKey(
            backend=self._versions[offer.backend],
            kernel=offer.kernel.signature,
            implementation=offer.implementation.algorithm,
            device=self._device,
            threads=self._threads,
            protocol=PROTOCOL_VERSION,
            forms=offer.implementation.forms,
            precision=offer.implementation.precision,
        )

    @property
    def event_us(self) -> float:
        """Time that waiting for a kernel on another stream adds, µs, from a processor's profile."""
        return load_profile(HOST_PROFILE).event_us.value

    def usual(self, kernel: Kernel) -> Offer:
        """Return a kernel with the first implementation of the first backend."""
        first = self.backends[0]
        return Offer(kernel, first.name, first.implementations(kernel)[0])

    def calibrate(self, deadline: Deadline | None = None) -> None:
        """Fit the roofline to this device by measuring its two probes, once per store."""
        probes = [self.usual(probe) for probe in (PEAK_PROBE, BANDWIDTH_PROBE)]
        self.recall(probes)
        self.measure(probes, deadline=deadline)
        quotes = [self.price(probe) for probe in probes]
        if not any(quote.is_bound for quote in quotes):
            peak_us, bandwidth_us = (max(quote.time_us - LAUNCH_US, 0.05) for quote in quotes)
            self.roofline = calibrated(peak_us, bandwidth_us)
            self.peaks = reached(peak_us, bandwidth_us)
            self._expectation = None

    def recall(self, offers: Iterable[Offer]) -> None:
        """Look up the measurements of offers in the store."""
        wanted = {key: offer for offer in offers if (key := self.key_of(offer)) not in self._known}
        found = self._stored(lambda store: store.get_many(wanted)) or {}
        for key, measurement in found.items():
            if measurement is not None and self._is_enough(measurement):
                self._settle(key, wanted[key], measurement)

    def _stored(self, use: Callable[[ProfileStore], _T]) -> _T | None:
        """Return the result of ``use`` on the store; ``None`` if it is missing or has failed."""
        if self._store is None:
            return None
        try:
            return use(self._store)
        except StoreError as error:
            self._store, self.trouble = None, str(error)
            return None

    def price(self, offer: Offer) -> Quote:
        """Return the measured price, or a lower bound."""
        known = self._known.get(self.key_of(offer))
        return self._bound(offer) if known is None else known

    def expect(self, offer: Offer) -> Quote:
        """Return the measured price, or the expected one."""
        known = self._known.get(self.key_of(offer))
        if known is not None:
            return known
        time_us = self._expected().time_us(offer.backend, offer.kernel, self._bound_us(offer))
        return self._quote(offer, time_us + LAUNCH_US, "expected")

    def _expected(self) -> Expectation:
        """Return the expectation by all kernels that were measured, in this run or earlier."""
        if self._expectation is None or self._expectation[0] != len(self._measured):
            expectation = Expectation()
            for key, offer in self._measured.items():
                time_us = self._known[key].time_us - LAUNCH_US
                expectation.add(offer.backend, offer.kernel, self._bound_us(offer), time_us)
            self._expectation = len(self._measured), expectation
        return self._expectation[1]

    def _settle(self, key: ProfileKey, offer: Offer, measurement: Measurement) -> None:
        self._known[key] = self._quoted(offer, measurement)
        self._measured[key] = offer

    def _is_enough(self, measurement: Measurement) -> bool:
        """Return whether a stored measurement includes the power, if energy is metered."""
        is_metered = isinstance(self._energy, MeteredEnergy)
        return not is_metered or measurement.power_w is not None or not measurement.n

    def _bound(self, offer: Offer) -> Quote:
        return self._quote(offer, self._bound_us(offer) + LAUNCH_US, "bound")

    def _bound_us(self, offer: Offer) -> float:
        return self.roofline.bound_us(offer.kernel, offer.implementation.arithmetic)

    def _quoted(self, offer: Offer, measurement: Measurement) -> Quote:
        time_us = measurement.time_us + LAUNCH_US
        if self._is_enough(measurement):
            return self._quote(offer, time_us, "measured", measurement.power_w)
        return self._quote(offer, time_us, "bound")  # the meter failed

    def _quote(
        self, offer: Offer, time_us: float, source: Source, power_w: float | None = None
    ) -> Quote:
        metrics = {TIME: time_us}
        if isinstance(self._energy, MeteredEnergy):
            metrics[ENERGY] = (self._energy.floor_w if power_w is None else power_w) * time_us
        elif self._energy is not None:
            # The model rises with the time, so the energy of a lower bound is a lower bound.
            kernel, how = offer.kernel, offer.implementation
            metrics[ENERGY] = self._energy.energy_uj(
                time_us,
                literal(kernel.flops) * how.arithmetic,
                literal(kernel.bytes),
                PRECISION,
                algorithm=how.algorithm,
            )
        return Quote(metrics, source)

    def is_known(self, offer: Offer) -> bool:
        """Return whether the price is settled for this run: measured, or a bound that will stay."""
        return self.key_of(offer) in self._known

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Measure and store the offers that are not known yet; after the deadline they stay so.

        A kernel that cannot be built before the deadline keeps its lower bound in this run.
        """
        deadline = deadline or Deadline.never()
        todo = {self.key_of(offer): offer for offer in offers if not self.is_known(offer)}
        measured: dict[ProfileKey, Measurement | None] = {}
        # Kernels are built one at a time, since one may hold as many weights as the model.
        for n, (key, offer) in enumerate(todo.items(), start=1):
            if deadline.expired:
                break
            if deadline.left_s >= self._made_s(offer.kernel) and (request := self._made(offer)):
                found = measure_kernels(
                    [request], self._threads, worker=self._worker, deadline=deadline
                )
                if not found:  # cut off by the deadline
                    break
                measured[key] = found[0]
            measurement = measured.get(key)
            if measurement is None:
                self._known[key] = self._bound(offer)
            else:
                self._settle(key, offer, measurement)
                self.n_measured += 1
            if progress is not None:
                progress(n, len(todo))
        if measured:
            self._stored(lambda store: store.put_many(measured))

    def _made_s(self, kernel: Kernel) -> float:
        """Return the predicted seconds to build a kernel before it can be measured."""
        size = kernel.bytes
        return size / self._made_bytes_per_s if isinstance(size, int) else 0.0

    def _made(self, offer: Offer) -> MeasurementRequest | None:
        """Return the request to measure a kernel; ``None`` if its backend cannot build it."""
        if self._worker is None:
            meter = self._energy.meter if isinstance(self._energy, MeteredEnergy) else None
            self._worker = KernelWorker(meter="" if meter is None else meter.place)
        backend = next(one for one in self.backends if one.name == offer.backend)
        start = time.perf_counter()
        try:
            content = backend.request(offer)
        except EqsatError as error:
            _log.info("%s cannot be measured: %s", offer.kernel, error)
            return None
        if len(content) >= _TELLING_BYTES:
            rate = len(content) / max(time.perf_counter() - start, 1e-6)
            self._made_bytes_per_s = min(self._made_bytes_per_s, rate)
        return MeasurementRequest(offer.backend, content)

    def close(self) -> None:
        """End the measuring process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
