"""What is found by name: ours, by module and class, and what installed packages offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from eqsat_opt.errors import OptionError

__all__ = ["Offered"]


@dataclass(frozen=True)
class Offered:
    """Things of one kind.

    Attributes:
        kind: what people call one.
        group: entry points of packages; each names a class, or anything else to be called without
            arguments, that makes one.
        own: name to module and class of ours.
        hidden: those of ours that users cannot ask for by name.
        why_named: why one has to call itself by the name that it is found under.
    """

    kind: str
    group: str
    own: Mapping[str, tuple[str, str]]
    hidden: frozenset[str]
    why_named: str

    def _installed(self) -> dict[str, EntryPoint]:
        points = entry_points(group=self.group)
        return {point.name: point for point in points if point.name not in self.own}

    @property
    def names(self) -> tuple[str, ...]:
        """What users may ask for, ours first."""
        own = (name for name in self.own if name not in self.hidden)
        return (*own, *sorted(self._installed()))

    def made(self, name: str, wrap: Callable[[Any], Any] = lambda one: one) -> Any:
        """The one of a name; ``wrap`` is given what a package made.

        Raises:
            OptionError: there is none, or it cannot be loaded.
        """
        if name in self.own:
            module, attribute = self.own[name]
            return getattr(import_module(module), attribute)()
        point = self._installed().get(name)
        if point is None:
            raise OptionError(f"unknown {self.kind} {name!r}; there are {', '.join(self.names)}")
        try:
            one = point.load()()
        except Exception as error:  # whatever goes wrong in somebody else's package
            raise OptionError(
                f"the {self.kind} {name!r} cannot be loaded from {point.value}: {error}"
            ) from error
        if one.name != name:
            raise OptionError(
                f"the {self.kind} {name!r} of {point.value} calls itself {one.name!r}; both names "
                f"must be the same, because {self.why_named}"
            )
        return wrap(one)
