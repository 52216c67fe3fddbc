"""The searches by name: those of this folder, and those that installed packages offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.lab.search.search import Search

__all__ = ["GROUP", "make_search", "search_class", "search_names", "with_parameters"]

Made = TypeVar("Made")

GROUP = "eqsat_opt.searches"
"""Group of the entry points of packages, each a name and the class of a search."""

_OWN: Mapping[str, str] = {
    "exhaustive": "Exhaustive",
    "metaflow": "MetaFlow",
    "taso": "Taso",
    "enumeration": "Enumeration",
    "pruning": "Pruning",
    "dpp": "Dpp",
    "sampling": "Sampling",
    "energy": "Energy",
    "collage": "Collage",
    "nimble": "Nimble",
    "autograph": "AutoGraph",
    "ios": "Ios",
}
"""Name of a search, and so of its module in `methods`, to its class there."""


def search_names() -> tuple[str, ...]:
    """Return the names of all searches, our own first."""
    return tuple(dict.fromkeys((*_OWN, *sorted(one.name for one in entry_points(group=GROUP)))))


def make_search(name: str, parameters: Mapping[str, Any]) -> Search:
    """Make a search with given parameters and defaults for the others.

    Raises:
        OptionError: there is no such search or parameter, a value has no meaning, or an installed
            search cannot be loaded.
    """
    return with_parameters(search_class(name), name, parameters)


def with_parameters(kind: type[Made], name: str, parameters: Mapping[str, Any]) -> Made:
    """Make a method of a comparison, a dataclass, with given parameters.

    Raises:
        OptionError: there is no such parameter, or a value has no meaning.
    """
    known = [field.name for field in fields(cast("Any", kind)) if field.init]
    if unknown := [parameter for parameter in parameters if parameter not in known]:
        hint = or_nearest(unknown[0], known) if known else "it has none"
        raise OptionError(f"{name} has no parameter {unknown[0]!r}; {hint}")
    types = get_type_hints(kind)
    return kind(**{
        parameter: _value(f"{name}.{parameter}", value, types[parameter])
        for parameter, value in parameters.items()
    })  # fmt: skip


def search_class(name: str) -> type[Search]:
    """Return the class of a search.

    Raises:
        OptionError: there is none of this name, or an installed one cannot be loaded.
    """
    if name in _OWN:
        own = getattr(import_module(f"eqsat_opt.lab.search.methods.{name}"), _OWN[name])
        return cast("type[Search]", own)
    for found in _installed(name):
        is_search = isinstance(found, type) and is_dataclass(found) and hasattr(found, "run")
        if not is_search or getattr(found, "name", None) != name or not hasattr(found, "exact"):
            raise OptionError(
                f"the installed search {name!r} is {found!r:.60}; it must be a dataclass of this "
                "name with exact and run (see eqsat_opt.lab.search.Search)"
            )
        return cast("type[Search]", found)
    raise OptionError(f"unknown search {name!r}; {or_nearest(name, search_names())}")


def _installed(name: str) -> Iterator[object]:
    for point in entry_points(group=GROUP, name=name):
        try:
            yield point.load()
        except Exception as error:
            raise OptionError(
                f"the installed search {name!r} ({point.value}) cannot be loaded: {error}; correct "
                "or remove its package"
            ) from error


_KINDS: Mapping[type, str] = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
}
"""Types of parameters, by their names in messages; a search checks its other types itself."""


def _value(where: str, value: Any, type_: Any) -> Any:
    """Convert a parameter to its type; numbers and flags may be texts, as on the command line."""
    if get_origin(type_) is Literal:
        if value not in get_args(type_):
            choices = " or ".join(map(str, get_args(type_)))
            raise OptionError(f"{where} is {value!r}; choose {choices}")
        return value
    if type_ is bool and isinstance(value, str):
        return _value(where, value, Literal["true", "false"]) == "true"
    if type_ not in _KINDS:
        return value
    accepted = {float: (float, int, str), int: (int, str)}.get(type_, (type_,))
    # In Python a flag is a whole number.
    if isinstance(value, accepted) and isinstance(value, bool) is (type_ is bool):
        with suppress(ValueError, OverflowError):
            return type_(value)
    raise OptionError(f"{where} is {value!r}; give {_KINDS[type_]}")
