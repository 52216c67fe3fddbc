"""Prices for a search: measured here, of a device that need not be here, or of plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.energy import energy_text
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import StoreError
from eqsat_opt.pipeline.device import device_pricer
from eqsat_opt.pipeline.request import Request

if TYPE_CHECKING:
    from eqsat_opt.cost.in_plans import PlanPricer


__all__ = [
    "CALIBRATION",
    "energy_source",
    "open_plan_pricer",
    "open_pricer",
    "target_pricer",
]


@contextmanager
def open_pricer(request: Request, *further: str) -> Iterator[Pricer]:
    """Prices with the user's store; without one where it cannot be used.

    Args:
        request: what the user chose.
        further: names of backends beside the user's.
    """
    store, trouble = None, ""
    try:
        store = None if request.store == "" else ProfileStore(request.store)
    except StoreError as error:
        trouble = str(error)
    names = tuple(dict.fromkeys((*request.portable_backends, *further)))
    pricer = Pricer(store, request.threads, names, energy=request.energy)
    pricer.trouble = trouble
    try:
        yield pricer
    finally:
        pricer.close()
        if store is not None:
            store.close()


def energy_source(request: Request) -> str:
    """Describe how energies are known, in words; empty where they are not.

    Raises:
        OptionError: the model of energy does not fit the target.
    """
    if request.device is None:
        return energy_text(request.energy)
    return device_pricer(request.device, request.energy, request.precision).energy_text


@contextmanager
def target_pricer(request: Request) -> Iterator[AnyPricer]:
    """Open the prices of the target, with the user's store where kernels are measured."""
    if request.device is not None:
        yield device_pricer(request.device, request.energy, request.precision)
        return
    with open_pricer(request) as pricer:
        yield pricer


@contextmanager
def open_plan_pricer(
    request: Request, inside: Sequence[str], beside: Sequence[str], deadline: Deadline
) -> Iterator[PlanPricer]:
    """Prices of what may stand in a plan, with the user's store.

    Args:
        request: what the user chose.
        inside: names of backends that run inside sessions, beside the user's.
        beside: names of those that run outside of them.
        deadline: of the search for which prices are wanted.
    """
    from eqsat_opt.cost.in_plans import PlanPricer  # only plans need it

    with open_pricer(request, *inside, *beside) as pricer:
        pricer.calibrate(deadline.share(CALIBRATION))
        yield PlanPricer(pricer, (*request.portable_backends, *inside))


CALIBRATION = 0.4
"""Share of the search that measuring the device itself gets, where the store does not know it."""
