"""Objects found by name: our own, by their makers, and those that installed packages offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["NamedObjects"]


@dataclass(frozen=True)
class NamedObjects:
    """Objects of one kind that are found by name.

    Attributes:
        kind: the word for one object in messages.
        group: the group of entry points of packages; each entry point names a class, or another
            callable without arguments, that makes an object.
        own: makers of our own objects, by name.
        hidden: names of our own objects that users cannot ask for.
        why_named: the reason for which an object's own name has to be that of its entry point.
    """

    kind: str
    group: str
    own: Mapping[str, Callable[[], Any]]
    hidden: frozenset[str]
    why_named: str

    def _installed(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow to load, and seldom needed

        points = entry_points(group=self.group)
        return {point.name: point for point in points if point.name not in self.own}

    @property
    def names(self) -> tuple[str, ...]:
        """Names that users may ask for, our own first."""
        own = (name for name in self.own if name not in self.hidden)
        return (*own, *sorted(self._installed()))

    def made(self, name: str, wrap: Callable[[Any], Any] = lambda one: one) -> Any:
        """Make the object of a name; ``wrap`` is applied to an object that a package made.

        Raises:
            OptionError: there is no such name, or the object cannot be loaded.
        """
        if name in self.own:
            return self.own[name]()
        point = self._installed().get(name)
        if point is None:
            raise OptionError(f"unknown {self.kind} {name!r}; there are {', '.join(self.names)}")
        try:
            one = point.load()()
        except Exception as error:  # a third-party package may raise anything
            raise OptionError(
                f"the {self.kind} {name!r} cannot be loaded from {point.value}: {error}"
            ) from error
        if one.name != name:
            raise OptionError(
                f"the {self.kind} {name!r} of {point.value} calls itself {one.name!r}; both names "
                f"must be the same, because {self.why_named}"
            )
        return wrap(one)
