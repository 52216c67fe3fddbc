"""Wrong rules, as a user might write them: each with the place where it shows.

Most are natural mistakes, in a module for each kind; what :mod:`tests.gate.grammar`,
:mod:`tests.gate.coincidences`, :mod:`tests.gate.ranges`, :mod:`tests.gate.placements` and
:mod:`tests.gate.roundings` make is added to them. Every module is a rulebook, so that
`eqsat-opt rules import` may be tried on it.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.gate.cases import Case, cases_of
from tests.gate.coincidences import of_coincidences
from tests.gate.grammar import generated
from tests.gate.placements import of_placements
from tests.gate.ranges import of_ranges, of_tolerances
from tests.gate.roundings import of_roundings

__all__ = ["all_cases", "natural"]


def natural() -> list[Case]:
    """The cases of all modules here, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return [case for module in found for case in cases_of(module)]


def all_cases() -> list[Case]:
    """The natural ones, then those of the grammars."""
    made = (generated, of_coincidences, of_ranges, of_tolerances, of_placements, of_roundings)
    return [*natural(), *(case for cases in made for case in cases())]
