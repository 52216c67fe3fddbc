"""Who tells the energy of kernels: a meter while they are measured, or a model of the user's."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.meters import EnergyMeter, FoundMeter, found_meter

__all__ = ["MeteredEnergy", "energy_text", "metered_energy"]

_OF_IDLE = 0.5
"""Share of the idle power that nothing which runs falls below, others who come and go included."""

_LEAST_W = 0.5
"""No busy processor draws less."""


@dataclass(frozen=True)
class MeteredEnergy:
    """Energy that a meter tells: mean power while a kernel runs over and over, times its time.

    It is that of all that the meter counts, idle parts and other processes included.

    Attributes:
        meter: that counts.
        floor_w: power below which no kernel runs, W; it bounds the energy of those not measured.
    """

    meter: EnergyMeter
    floor_w: float

    @property
    def text(self) -> str:
        """How energies are known, in words."""
        return f"measured by {self.meter.name} of {self.meter.scope}"


def energy_text(energy: EnergyModel | MeteredEnergy | None) -> str:
    """How energies are known, for whatever prints one; empty where they are not."""
    if isinstance(energy, EnergyModel):
        return f"estimated, from {energy.source}"
    return "" if energy is None else energy.text


def metered_energy(found: FoundMeter | None = None) -> MeteredEnergy:
    """The meter of this machine.

    Args:
        found: what a search for one found; by default that of this process.

    Raises:
        OptionError: none counts; what was tried is told.
    """
    found = found_meter() if found is None else found
    if found.meter is None:
        tried = "; ".join(found.tried)
        raise OptionError(
            f"energy has no prices: no meter counts here ({tried}); give a model with "
            "--energy-model FILE"
        )
    return MeteredEnergy(found.meter, max(_OF_IDLE * found.idle_w, _LEAST_W))
