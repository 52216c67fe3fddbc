"""Pricers for a search: for this machine, for another target device, and for plans."""

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
    """Open prices with the user's store, or without a store where it cannot be used.

    Args:
        request: the user's choices.
        further: names of backends besides the user's.
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
    """Describe the source of energies in words; empty where there is none.

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
    """Open prices of kernels that may be in a plan, with the user's store.

    Args:
        request: the user's choices.
        inside: names of backends that run inside sessions, besides the user's.
        beside: names of backends that run outside of sessions.
        deadline: deadline of the search that needs the prices.
    """
    from eqsat_opt.cost.in_plans import PlanPricer  # only plans need it

    with open_pricer(request, *inside, *beside) as pricer:
        pricer.calibrate(deadline.share(CALIBRATION))
        yield PlanPricer(pricer, (*request.portable_backends, *inside))


CALIBRATION = 0.4
"""Share of the time of a search that calibration to the device gets, unless the store has it."""
