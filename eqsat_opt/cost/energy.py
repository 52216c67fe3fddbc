"""Sources of the energy of kernels: a meter read while they are measured, or a user's model."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.meters import EnergyMeter, FoundMeter, found_meter

__all__ = ["MeteredEnergy", "energy_text", "metered_energy"]

_OF_IDLE = 0.5
"""Share of the idle power below which no kernel runs, allowing for other processes that come and
go."""

_LEAST_W = 0.5
"""Least power that a busy processor draws, W."""


@dataclass(frozen=True)
class MeteredEnergy:
    """Energy from a meter: mean power while a kernel runs repeatedly, times its time.

    It covers everything that the meter counts, including idle components and other processes.

    Attributes:
        meter: the energy meter.
        floor_w: power below which no kernel runs, W; it bounds the energy of kernels that are not
            measured.
    """

    meter: EnergyMeter
    floor_w: float

    @property
    def text(self) -> str:
        """A phrase that describes how energies are measured."""
        return f"measured by {self.meter.name} of {self.meter.scope}"


def energy_text(energy: EnergyModel | MeteredEnergy | None) -> str:
    """Return a phrase for the source of energies, for printing; empty where there is none."""
    if isinstance(energy, EnergyModel):
        return f"estimated, from {energy.source}"
    return "" if energy is None else energy.text


def metered_energy(found: FoundMeter | None = None) -> MeteredEnergy:
    """Return the meter of this machine.

    Args:
        found: the result of a search for a meter; by default the search of this process.

    Raises:
        OptionError: there is no working meter; the message lists those that were tried.
    """
    found = found_meter() if found is None else found
    if found.meter is None:
        tried = "; ".join(found.tried)
        raise OptionError(
            f"energy has no prices: no meter counts here ({tried}); give a model with "
            "--energy-model FILE"
        )
    return MeteredEnergy(found.meter, max(_OF_IDLE * found.idle_w, _LEAST_W))
