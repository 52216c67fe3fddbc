"""Prices of a GPU, measured for kernels of the libraries that plans call.

Kernels without a measurement have the price of the profile, whose figures were measured too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import ENERGY, TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.recorded import RecordedDevice
from eqsat_opt.ir.graph.commuted_kernels import commuted_key
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.runtime.backends.cudnn import NAME as CUDNN
from eqsat_opt.runtime.backends.cudnn.oracle import recorded
from eqsat_opt.runtime.backends.cudnn.spec import site_of
from eqsat_opt.runtime.backends.gpu import GpuBackend, runner_of
from eqsat_opt.runtime.backends.protocol import Implementation, Offer
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import DeviceProfile
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["MeasuredPricer", "is_measured_gpu", "plan_times_us"]

_Times = Mapping[tuple[str, str, str, str], float]


def is_measured_gpu(device: RecordedDevice | None) -> bool:
    """Return whether the recorded prices are of kernels that CUDA libraries run."""
    return device is not None and device.profile.description is not None


def strict_times_us(device: RecordedDevice) -> _Times:
    """Return the times that were measured without rounding factors to fewer bits."""
    return replace(device, rows=tuple(row for row in device.rows if not row.key.precision)).times_us


class MeasuredPricer(ProfilePricer):
    """Prices of a GPU: recorded times where there are any, else those of the profile.

    Args:
        device: the device; its profile has a description.
        energy: the model that derives energy from time, in place of the profile's.
    """

    def __init__(self, device: RecordedDevice, energy: EnergyModel | None = None) -> None:
        self._times_us = strict_times_us(device)
        backend = _MeasuredGpu(device.profile, self._times_us)
        super().__init__(device.profile, energy=energy, backend=backend)

    def _quote(self, offer: Offer) -> Quote:
        quote, how = super()._quote(offer), offer.implementation
        time_us = _time_us(self._times_us, offer.kernel, how, self.interface)
        if time_us is None or quote.is_bound:
            return quote
        metrics = {**quote.metrics, TIME: time_us}
        if self._energy is not None:
            metrics[ENERGY] += self._energy.static_w.value * (time_us - quote.time_us)
        return Quote(metrics, "recorded")


class _MeasuredGpu(GpuBackend):
    """A backend that offers only those algorithms of cuDNN that were measured, if there are any."""

    def __init__(self, profile: DeviceProfile, times_us: _Times) -> None:
        super().__init__(profile)
        assert profile.description is not None
        self._table = recorded(profile.description.architecture)
        self._times_us = times_us

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the implementations of a kernel; see `GpuBackend`."""
        offered, site = super().implementations(kernel), site_of(kernel)
        if site is None or not offered or runner_of(offered[0].algorithm)[0] != CUDNN:
            return offered
        first, *others = offered
        ways = [
            replace(first, algorithm=f"{CUDNN} {one.name}", workspace_bytes=one.workspace_bytes)
            for one in self._table.get(site.spec.key, ())
        ]
        measured = [
            one for one in ways if _time_us(self._times_us, kernel, one, self.interface) is not None
        ]
        return (*(measured or (first,)), *others)


def _time_us(
    times_us: _Times, kernel: Kernel, how: Implementation, interface: Form
) -> float | None:
    """Return the recorded time of a kernel, µs; `None` if there is none.

    The kernel's own forms are used where the implementation names none.
    """
    reads = how.reads or tuple(_form(one.form, interface) for one in kernel.operands)
    writes = how.writes or (_form(kernel.writes, interface),) * len(kernel.outputs)
    backend, own = runner_of(how.algorithm)
    signature, forms = commuted_key(kernel, reads, writes)
    return times_us.get((backend, signature, own, forms))


def _form(form: Form, interface: Form) -> Form:
    """Return the form of a value on the device: the interface's in place of the plain form."""
    return interface if form == PLAIN else form


def plan_times_us(device: RecordedDevice, plan: Plan) -> tuple[list[float], int]:
    """Return the time of each launch of a plan, µs, and how many of them were measured."""
    times, known = device.profile.launch_times_us(plan.launches), strict_times_us(device)
    count = 0
    for number, launch in enumerate(plan.launches):
        signature, forms = commuted_key(
            launch.body,
            tuple(plan.buffer_of[name].form for name in launch.reads),
            tuple(plan.buffer_of[name].form for name in launch.writes),
        )
        found = known.get((launch.backend, signature, launch.algorithm, forms))
        if found is not None:
            times[number] = found
            count += 1
    return times, count
