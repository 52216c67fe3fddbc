"""Costs of your own: a Python function of the totals of a graph, which searches minimise."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from eqsat_opt.cost.metrics import metric_name
from eqsat_opt.errors import OptionError, printable
from eqsat_opt.extract.objective import AnyObjective, Limited
from eqsat_opt.extract.spec import parse_objective

__all__ = ["OwnCost", "SearchObjective", "is_own_cost", "load_own_cost"]

_FORM = re.compile(r"(?P<place>.+):(?P<name>[^\W\d]\w*)\((?P<reads>[^()]*)\)")


@dataclass(frozen=True)
class OwnCost(Limited):
    """A cost that a function computes from the totals of a graph.

    Nothing is known of the function, so no kernels are chosen together for it: each is run in the
    way for which the function of its own metrics is least.

    Attributes:
        function: returns the cost for the totals, in the order of ``reads``.
        reads: names of the metrics that it gets.
        limits, path, caps: those of `Objective`; `path` is needed to limit the critical path.
    """

    function: Callable[..., float]
    reads: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the limits, and that the function reads something.

        Raises:
            OptionError: it reads nothing.
        """
        super().__post_init__()
        if not self.reads:
            raise OptionError("a cost of your own reads no metric; name those that it gets")
        self._settle_path({})

    @property
    def _sums(self) -> tuple[Mapping[str, float], ...]:
        return (dict.fromkeys(self.reads, 1.0),)

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the cost at these metrics.

        Raises:
            OptionError: the function fails, or returns no number.
        """
        given = [metrics[name] for name in self.reads]
        name = getattr(self.function, "__name__", "the cost function")
        told = f"{name}({', '.join(f'{x:g}' for x in given)})"
        try:
            found = float(self.function(*given))
        except Exception as error:
            why = printable(str(error))
            raise OptionError(f"{told} ended with {type(error).__name__}: {why}") from error
        if math.isnan(found):
            raise OptionError(f"{told} is no number; return the cost, infinite for what may not be")
        return found


SearchObjective = AnyObjective | OwnCost
"""Everything that a search can minimise."""


def is_own_cost(text: str) -> bool:
    """Return whether an objective names a function, as ``costs.py:slow(time, bytes)``."""
    return ":" in text


def load_own_cost(text: str, limits: Sequence[str]) -> OwnCost:
    """Load a cost from ``MODULE:NAME(METRICS)`` or ``FILE.py:NAME(METRICS)``.

    Raises:
        OptionError: the text has another form, or there is no such function.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise OptionError(
            f"the objective {text!r} names no function; write FILE.py:NAME(METRICS), for instance "
            "costs.py:slow(time, bytes)"
        )
    reads = tuple(metric_name(one.strip()) for one in match["reads"].split(",") if one.strip())
    if len(set(reads)) < len(reads):
        raise OptionError(f"the objective {text!r} names a metric twice; keep one")
    function = getattr(_module(match["place"]), match["name"], None)
    if not callable(function):
        raise OptionError(f"{match['place']} has no function {match['name']}; name one that it has")
    given = parse_objective("time", limits, metric=metric_name)
    return replace(OwnCost(function, reads), limits=given.limits, path=given.path, caps=given.caps)


def _module(place: str) -> ModuleType:
    """Load a module by its name, also beside the working folder, or by its file."""
    try:
        if not place.endswith(".py"):
            if os.getcwd() not in sys.path:
                sys.path.append(os.getcwd())
            return importlib.import_module(place)
        spec: Any = importlib.util.spec_from_file_location("eqsat_opt_own_cost", place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {printable(str(error))}"
        raise OptionError(f"cannot load {place} ({why}); give a module or a Python file") from error
    return module
