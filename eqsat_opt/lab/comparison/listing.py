"""A listing of what can be compared: methods, their parameters and sources, devices, rules."""

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

__all__ = ["DeviceFacts", "Listing", "MethodFacts", "MethodParameter", "listing"]

_PAPER = re.compile(r"[A-Z][\w-]+ et al\.,[^.;:()]*?\b20\d\d\b(?:, §\d+(?:\.\d+)*)?")
"""The citation in the docstring of a search."""

_ATTRIBUTE = re.compile(r"\n {4}(?: {4})?(\w+): (.*?)(?=\n {4}(?: {4})?\w+: |\n\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class MethodParameter:
    """A parameter of a method.

    Attributes:
        name: name in ``--set METHOD.NAME=VALUE``.
        default: default value.
        choices: accepted texts; empty for numbers.
        meaning: description of the parameter.
    """

    name: str
    default: Any
    choices: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class MethodFacts:
    """A method.

    Attributes:
        name: name in ``--methods``.
        title: a line about the method.
        source: the publication; empty where the docstring of the method cites none.
        exact: whether the method proves its result unless its budget is spent.
        parameters: parameters that ``--set`` changes.
        trouble: why the method cannot be used; empty if it can.
    """

    name: str
    title: str
    source: str
    exact: bool
    parameters: tuple[MethodParameter, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class DeviceFacts:
    """A device whose profile ships.

    Attributes:
        name: name in ``--device``.
        title: name of the product.
        metrics: metrics in which its kernels are priced.
    """

    name: str
    title: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Listing:
    """All methods, devices and rules of this installation.

    Attributes:
        methods: all methods, those on the e-graph first.
        devices: devices whose profiles ship.
        rule_sets: names of published sets.
        families: family of the book to the number of its rules.
        rulebooks: rulebooks that packages have installed.
    """

    methods: tuple[MethodFacts, ...]
    devices: tuple[DeviceFacts, ...]
    rule_sets: tuple[str, ...]
    families: Mapping[str, int]
    rulebooks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def listing() -> Listing:
    """Return everything that this installation can compare."""
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
    # Searches have a module each; the methods on an e-graph share one.
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


def _parameters(kind: Any) -> Iterator[MethodParameter]:
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
            yield MethodParameter(field.name, default, choices, meanings.get(field.name, ""))
