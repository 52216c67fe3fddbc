"""Prices for a search: measured here, of a device that need not be here, or of plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.energy import MeteredEnergy, energy_text, metered_energy
from eqsat_opt.cost.metrics import (
    ENERGY,
    metric_name,
)
from eqsat_opt.cost.pricing import PRECISION, Pricer
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.cost.recorded import RecordedPricer, load_recorded
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import StoreError
from eqsat_opt.extract import parse_objective
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.devices.energy import EnergyModel, load_energy_model
from eqsat_opt.runtime.devices.profile import load_profile

if TYPE_CHECKING:
    from eqsat_opt.cost.in_plans import PlanPricer


__all__ = [
    "CALIBRATION",
    "energy_source",
    "known_energy",
    "open_plan_pricer",
    "open_pricer",
    "pricer_elsewhere",
    "target_pricer",
]


@contextmanager
def open_pricer(options: Options, *further: str) -> Iterator[Pricer]:
    """Prices with the user's store; without one where it cannot be used.

    Args:
        options: what the user chose.
        further: names of backends beside the user's.
    """
    store, trouble = None, ""
    try:
        store = None if options.store == "" else ProfileStore(options.store)
    except StoreError as error:
        trouble = str(error)
    names = tuple(dict.fromkeys((*options.portable_backends, *further)))
    pricer = Pricer(store, options.threads, names, energy=known_energy(options))
    pricer.trouble = trouble
    try:
        yield pricer
    finally:
        pricer.close()
        if store is not None:
            store.close()


def known_energy(options: Options) -> EnergyModel | MeteredEnergy | None:
    """What tells the energy of kernels: the user's model, or a meter where the objective asks.

    Raises:
        OptionError: the model cannot be used, or nothing counts energy here.
    """
    if options.energy_model is not None:
        model = load_energy_model(options.energy_model)
        model.require_precision(PRECISION)  # prices would find out late
        return model
    objective = parse_objective(options.objective, options.limits, metric=metric_name)
    return metered_energy() if options.is_here and objective.uses(ENERGY) else None


def energy_source(options: Options) -> str:
    """How energies are known under these options, in words; empty where none is told.

    Raises:
        OptionError: the model cannot be used, nothing counts energy here, or there is no such
            target.
    """
    if options.is_here:
        return energy_text(known_energy(options))
    return pricer_elsewhere(options).energy_text


@contextmanager
def target_pricer(options: Options) -> Iterator[AnyPricer]:
    """Who knows prices of the target.

    Raises:
        OptionError: there is no such target.
    """
    if not options.is_here:
        yield pricer_elsewhere(options)
        return
    with open_pricer(options) as pricer:
        yield pricer


def pricer_elsewhere(options: Options) -> ProfilePricer | RecordedPricer:
    """Prices of a device that need not be here.

    Raises:
        OptionError: there is no such target, or its model of energy does not fit.
    """
    # These load what knows the kernels of other devices.
    from eqsat_opt.cost.on_device import MeasuredPricer, is_measured_gpu
    from eqsat_opt.runtime.backends.gpu import device_backend

    energy = known_energy(options)
    assert not isinstance(energy, MeteredEnergy)
    precision = Precision(options.precision)
    recorded = load_recorded(options.target)
    if recorded is not None and is_measured_gpu(recorded) and precision is Precision.STRICT:
        return MeasuredPricer(recorded, energy)
    if recorded is not None and precision is Precision.STRICT:
        return RecordedPricer(recorded, energy)
    profile = load_profile(options.target)
    backend = device_backend(profile, precision)
    energy = energy or profile.energy
    if energy is not None:
        energy.require_precision(precision.peak)
    return ProfilePricer(profile, energy=energy, backend=backend)


@contextmanager
def open_plan_pricer(
    options: Options, inside: Sequence[str], beside: Sequence[str], deadline: Deadline
) -> Iterator[PlanPricer]:
    """Prices of what may stand in a plan, with the user's store.

    Args:
        options: what the user chose.
        inside: names of backends that run inside sessions, beside the user's.
        beside: names of those that run outside of them.
        deadline: of the search for which prices are wanted.
    """
    from eqsat_opt.cost.in_plans import PlanPricer  # only plans need it

    with open_pricer(options, *inside, *beside) as pricer:
        pricer.calibrate(deadline.share(CALIBRATION))
        yield PlanPricer(pricer, (*options.portable_backends, *inside))


CALIBRATION = 0.4
"""Share of the search that measuring the device itself gets, where the store does not know it."""
