"""What can be compared: methods with their parameters and sources, devices, rule sets."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.errors import OptionError
from eqsat_opt.lab.comparison.engines import ENGINES
from eqsat_opt.lab.comparison.settings import EQSAT, method_names
from eqsat_opt.lab.search import search_class
from eqsat_opt.proving.rule_sets import RULE_SETS
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rulebooks import installed_rulebooks
from eqsat_opt.runtime.devices.profile import load_profile, profile_names

__all__ = ["DeviceFacts", "Listing", "MethodFacts", "Parameter", "listing"]

_PAPER = re.compile(r"[A-Z][\w-]+ et al\.,[^.;:()]*?\b20\d\d\b(?:, §\d+(?:\.\d+)*)?")
"""How the docstring of a search names its source."""

_ATTRIBUTE = re.compile(r"\n {4}(?: {4})?(\w+): (.*?)(?=\n {4}(?: {4})?\w+: |\n\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method.

    Attributes:
        name: as ``--set METHOD.NAME=VALUE`` has it.
        default: value.
        choices: texts that it may be; empty for numbers.
        meaning: in words.
    """

    name: str
    default: Any
    choices: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class MethodFacts:
    """A method.

    Attributes:
        name: as ``--methods`` has it.
        title: what it is.
        source: where it was published; empty where its docstring does not say.
        exact: whether it proves its result where its budget is not spent.
        parameters: that ``--set`` changes.
        trouble: why it cannot be used; empty if it can.
    """

    name: str
    title: str
    source: str
    exact: bool
    parameters: tuple[Parameter, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class DeviceFacts:
    """A device whose profile ships.

    Attributes:
        name: as ``--device`` has it.
        title: of the product.
        metrics: that its kernels are priced in.
    """

    name: str
    title: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Listing:
    """All of it.

    Attributes:
        methods: the e-graph first.
        devices: whose profiles ship.
        rule_sets: names of published sets.
        families: of the book, to the number of their rules.
        rulebooks: that packages have installed.
    """

    methods: tuple[MethodFacts, ...]
    devices: tuple[DeviceFacts, ...]
    rule_sets: tuple[str, ...]
    families: Mapping[str, int]
    rulebooks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def listing() -> Listing:
    """What there is in this installation."""
    pricers = (ProfilePricer(load_profile(name)) for name in profile_names())
    return Listing(
        methods=tuple(map(_method, method_names())),
        devices=tuple(
            DeviceFacts(
                one.profile.name,
                one.profile.title,
                tuple(METRICS[name].alias or name for name in one.metrics),
            )
            for one in pricers
        ),
        rule_sets=RULE_SETS,
        families={name: len(rules) for name, rules in families().items()},
        rulebooks=tuple(installed_rulebooks()),
    )


def _method(name: str) -> MethodFacts:
    try:
        kind: Any = ENGINES[name] if name in ENGINES else search_class(name)
    except OptionError as error:
        return MethodFacts(name, "", "", exact=False, trouble=str(error))
    own = inspect.getdoc(kind) or ""
    # Searches have a module each, methods on an e-graph one together.
    module = "" if name in ENGINES else getattr(sys.modules[kind.__module__], "__doc__", None) or ""
    told = " ".join(module.split())
    paper = _PAPER.search(told) or _PAPER.search(" ".join(own.split()))
    first = " ".join((module or own).strip().partition("\n\n")[0].split())
    title = re.sub(r" \([^()]*(et al\.[^()]*|Algorithm[^()]*|\b[A-Z]{3})\)", "", first)
    return MethodFacts(
        name,
        title=title,
        source=paper.group() if paper else "this project" if name == EQSAT else "",
        exact=kind.exact,
        parameters=tuple(_parameters(kind)),
    )


def _parameters(kind: Any) -> Iterator[Parameter]:
    meanings: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        for name, text in _ATTRIBUTE.findall(one.__dict__.get("__doc__") or ""):
            meanings[name] = " ".join(text.split())
    types = get_type_hints(kind)
    for field in fields(kind):
        if field.init:
            type_ = types[field.name]
            choices = get_args(type_) if get_origin(type_) is Literal else ()
            default = None if field.default is MISSING else field.default
            yield Parameter(field.name, default, choices, meanings.get(field.name, ""))
