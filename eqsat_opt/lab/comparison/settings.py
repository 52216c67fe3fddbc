"""Settings of a comparison: the methods, their parameters, and what they may spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import ENERGY, PEAK, TIME, metric_name, peaks_capped, require_priced
from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.extract import Objective, parse_objective
from eqsat_opt.lab.comparison.engines import ENGINES, EGraphMethod, EqSat
from eqsat_opt.lab.comparison.installed import ALL, chosen_backends
from eqsat_opt.lab.search import (
    LEVELS,
    Budget,
    Level,
    Search,
    make_search,
    search_names,
    with_parameters,
)
from eqsat_opt.lab.search.pricing.own_cost import (
    OwnCost,
    SearchObjective,
    is_own_cost,
    load_own_cost,
)
from eqsat_opt.runtime.devices.energy import load_energy_model
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile, profile_names

__all__ = [
    "EQSAT",
    "EXTRACTION_S",
    "LOCAL",
    "SATURATION_S",
    "CompareSettings",
    "method_names",
    "parse_budget",
]

EQSAT = EqSat.name
"""Our own method: saturation and extraction."""

SATURATION_S, EXTRACTION_S = 30.0, 20.0
"""Seconds for the stages of the e-graph where no limit is given."""


LOCAL = "local"
"""The device that is this machine's processor."""


def method_names() -> tuple[str, ...]:
    """Return the names of all methods: those on an e-graph, and every search."""
    return (*ENGINES, *search_names())


@dataclass(frozen=True)
class CompareSettings:
    """The settings of a comparison.

    Attributes:
        methods: names from :func:`method_names`.
        parameters: parameters of the methods, by name of the method and then of the parameter; the
            others have their defaults.
        budget: budget of each search. Its seconds also limit saturation and extraction, in
            wall-clock time. Without them these have :data:`SATURATION_S` and :data:`EXTRACTION_S`.
        nodes: limit on the number of e-nodes.
        seed: seed of extraction and of searches, in the first run of each.
        seeds: runs of each method, with this seed and those that follow it.
        device: name or file of the profile that prices; empty, or `LOCAL`, for this machine's
            processor.
        energy_model: file with a model of energy, in place of the one in the profile.
        objective: the objective, as `optimize` reads it, or a function that gets totals and returns
            the cost, as ``FILE.py:NAME(METRICS)``.
        level: ``operators``, each a kernel of its own; ``kernels``, which may be fused; or
            ``streams``, on which kernels run side by side.
        limits: limits on totals, on the longest chain, or on the values of one kernel.
        measure: whether operators are priced by measuring them, instead of by the roofline.
        backends: backends whose kernels are measured, above level ``operators``. If empty, these
            are all installed backends where a method places kernels on backends, and else
            onnxruntime.
    """

    methods: tuple[str, ...] = (EQSAT, "metaflow")
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    nodes: int = 20_000
    seed: int = 0
    device: str = ""
    energy_model: str = ""
    objective: str = "time"
    level: Level = "operators"
    limits: tuple[str, ...] = ()
    measure: bool = False
    backends: tuple[str, ...] = ()
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.device == LOCAL:
            object.__setattr__(self, "device", "")
        known = method_names()
        unknown = [name for name in self.methods if name not in known]
        if unknown:
            raise OptionError(f"unknown method {unknown[0]!r}; {or_nearest(unknown[0], known)}")
        if not self.methods:
            raise OptionError(f"no method is given; choose from {', '.join(known)}")
        if len(set(self.methods)) < len(self.methods):
            raise OptionError("a method is given twice; keep one")
        for name in self.parameters:
            if name not in self.methods:
                raise OptionError(
                    f"parameters are given for {name!r}, which is not among the methods "
                    f"({', '.join(self.methods)}); add it to them, or leave them out"
                )
        if self.seeds < 1:
            raise OptionError(f"seeds is {self.seeds}; give at least 1")
        assert {*self.engines, *self.searches} >= self.parameters.keys()  # refuses bad values
        if self.device and self.measure:
            raise OptionError(
                "a device that is not here cannot be measured; leave out --measure or --device"
            )
        if self.backends and not (self.measure and self.level == "kernels"):
            raise OptionError(
                "kernels of several backends are measured as they are fused; add --measure and "
                "--level kernels, or leave out --backends"
            )
        assert self.placing
        if self.energy_model and not self.device:
            raise OptionError(
                "a model of energy goes with the profile of a device; give one with --device, v100 "
                "for instance"
            )
        assert self.profile is not None or not self.device
        self._require_energy()
        if self.goal.uses(PEAK):
            raise OptionError(
                f"{PEAK} depends on the order of the kernels, which searches do not compare; "
                "minimise or limit it with eqsat-opt optimize"
            )
        require_priced(self.goal, self._priced)
        if self.level not in LEVELS:
            raise OptionError(f"unknown level {self.level!r}; {or_nearest(self.level, LEVELS)}")
        if isinstance(self.goal, OwnCost) and self.engines:
            raise OptionError(
                f"{', '.join(self.engines)} extracts sums, products and ratios of totals, no "
                "function; leave it out with --methods, metaflow for instance"
            )
        if self.level == "streams" and not isinstance(self.goal, Objective):
            raise OptionError(
                "on several streams times do not add up; give a sum, or level kernels or operators"
            )

    def _require_energy(self) -> None:
        """Refuse an objective with energy if the device has no model of it; name some that do."""
        if not self.goal.uses(ENERGY) or ENERGY in self._priced:
            return
        known = [name for name in profile_names() if load_profile(name).energy is not None]
        where = f"the profile of {self.device}" if self.device else "this processor's roofline"
        how = "--energy-model FILE" if self.device else "--device NAME with --energy-model FILE"
        raise OptionError(
            f"{where} tells no energy; give {how}, or --device "
            + (f"one of {', '.join(known)}, or " if known else "")
            + "a profile as a .json file that has a model of it"
        )

    @cached_property
    def profile(self) -> DeviceProfile | None:
        """The profile of the chosen device and its model of energy; ``None`` for this machine."""
        if not self.device:
            return None
        profile = load_profile(self.device)
        if not self.energy_model:
            return profile
        return replace(profile, energy=load_energy_model(self.energy_model))

    @cached_property
    def placing(self) -> tuple[str, ...]:
        """The backends whose kernels are priced here; onnxruntime's first."""
        places = any(getattr(one, "places", False) for one in self.searches.values())
        is_all = places and self.measure and self.level == "kernels" and not self.backends
        return chosen_backends((ALL,) if is_all else self.backends)

    @cached_property
    def goal(self) -> SearchObjective:
        """The objective, with limits on peaks as caps of every kernel."""
        if is_own_cost(self.objective):
            return peaks_capped(load_own_cost(self.objective, self.limits))
        return peaks_capped(parse_objective(self.objective, self.limits, metric=metric_name))

    @property
    def runs_streams(self) -> bool:
        """Whether results have streams that threads of this processor run."""
        return self.level == "streams" and self.profile is None

    @property
    def measures_plans(self) -> bool:
        """Whether a search measures whole outcomes as plans on this processor."""
        return self.profile is None and any(
            getattr(one, "plans", False) for one in self.searches.values()
        )

    @property
    def is_time(self) -> bool:
        """Whether costs are times, in µs, and can be shown as such."""
        goal = self.goal
        return isinstance(goal, Objective) and set(goal.weights) <= {TIME}

    @property
    def _priced(self) -> Sequence[str]:
        return (TIME,) if self.profile is None else ProfilePricer(self.profile).metrics

    @cached_property
    def searches(self) -> Mapping[str, Search]:
        """The searches among the methods, with their parameters."""
        return {
            name: make_search(name, self.parameters.get(name, {}))
            for name in self.methods
            if name not in ENGINES
        }

    @cached_property
    def engines(self) -> Mapping[str, EGraphMethod]:
        """The methods on an e-graph, with their parameters."""
        return {
            name: with_parameters(ENGINES[name], name, self.parameters.get(name, {}))
            for name in self.methods
            if name in ENGINES
        }

    def to_json(self) -> dict[str, Any]:
        """Return all settings and all parameters of the methods, defaults included, for JSON."""
        methods: Mapping[str, Any] = {**self.engines, **self.searches}
        parameters = {name: asdict(method) for name, method in methods.items()}
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            **given,
            "methods": list(self.methods),
            "limits": list(self.limits),
            "backends": list(self.backends),
            "parameters": parameters,
            "budget": asdict(self.budget),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CompareSettings:
        """Build settings from the result of `to_json`.

        Raises:
            OptionError: a value has no meaning.
        """
        names = ("methods", "limits", "backends")
        lists = {name: tuple(value[name]) for name in names if name in value}
        return cls(**{**value, **lists, "budget": Budget(**value["budget"])})


_BUDGETS = {"graphs": int, "substitutions": int, "cpu": float, "length": int}
"""Names in a budget, and the type of each."""


def parse_budget(texts: Iterable[str]) -> Budget:
    """Parse a budget as users write it: ``300``, which counts graphs, or ``cpu=60,graphs=0``.

    Raises:
        OptionError: a part has another form or name, or is given twice.
    """
    found: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, _, value = part.rpartition("=")
        name = name.strip() or "graphs"
        if name not in _BUDGETS:
            raise OptionError(f"a budget has no {name!r}; {or_nearest(name, _BUDGETS)}")
        if name in found:
            raise OptionError(f"the budget's {name} is given twice; keep one")
        try:
            found[name] = _BUDGETS[name](value)
        except ValueError as error:
            raise OptionError(
                f"the budget {part!r} is no number; write for instance 300 or cpu=60"
            ) from error
    seconds = found.pop("cpu", 0.0)
    return Budget(**found, cpu_s=seconds)  # type: ignore[arg-type]
