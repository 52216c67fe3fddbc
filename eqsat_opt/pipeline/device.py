"""A target device other than this machine, and its prices."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.energy import MeteredEnergy
from eqsat_opt.cost.recorded import RecordedDevice, RecordedPricer, load_recorded
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile

__all__ = ["TargetDevice", "device_of", "device_pricer"]


@dataclass(frozen=True)
class TargetDevice:
    """A target device, which need not be part of this machine.

    Attributes:
        name: name of its profile or path of a file, as the user wrote it.
        profile: its figures.
        recorded: prices of kernels that were measured on it; ``None`` if there are none.
    """

    name: str
    profile: DeviceProfile
    recorded: RecordedDevice | None


def device_of(name: str) -> TargetDevice:
    """Load a device by its name or path.

    Raises:
        OptionError: there is no such device, or its file is damaged.
    """
    return TargetDevice(name, load_profile(name), load_recorded(name))


def device_pricer(
    device: TargetDevice, energy: EnergyModel | MeteredEnergy | None, precision: Precision
) -> ProfilePricer | RecordedPricer:
    """Return the prices of a device: measured ones where they are known for the precision.

    Args:
        device: the device that runs the result.
        energy: the user's energy model; ``None`` for the model of the profile.
        precision: precision in which the device multiplies.

    Raises:
        OptionError: the model of energy does not fit.
    """
    # Imported late: only targets other than this machine need backends of other devices.
    from eqsat_opt.cost.on_device import MeasuredPricer, is_measured_gpu
    from eqsat_opt.runtime.backends.gpu import device_backend

    assert not isinstance(energy, MeteredEnergy)
    recorded = device.recorded
    if recorded is not None and precision is Precision.STRICT:
        pricer = MeasuredPricer if is_measured_gpu(recorded) else RecordedPricer
        return pricer(recorded, energy)
    backend = device_backend(device.profile, precision)
    energy = energy or device.profile.energy
    if energy is not None:
        energy.require_precision(precision.peak)
    return ProfilePricer(device.profile, energy=energy, backend=backend)
