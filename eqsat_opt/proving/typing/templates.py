"""The instances of one typing, computed from its open extents without typing anything again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any, TypeAlias

from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.typing.extents import Derived, Unknown, resolve
from eqsat_opt.proving.typing.most_general import Typing
from eqsat_opt.rules.bindings import Bindings

__all__ = ["Instance", "Template"]

_OPEN = (Unknown, Derived)
_Slot: TypeAlias = "int | tuple[_Slot, ...]"
"""The slot of a value; for a list, the slots of its parts."""


class Instance:
    """Values of all variables, to be compared and counted before they are typed.

    Attributes:
        key: key that is the same for equal instances of a rule: element types, shapes and
            attributes, each in order of the names.
        elements: number of elements of all operands together.
    """

    __slots__ = ("_template", "_values", "elements", "key")

    def __init__(self, template: Template, values: Sequence[int], key: Any) -> None:
        self._template = template
        self._values = values
        self.key = key
        self.elements = sum(map(prod, key[1]))

    def bindings(self) -> Bindings:
        """Return the types and attributes of the instance, as readers of rules take them."""
        tensors, attributes = self._template.names
        dtypes, shapes, values = self.key
        types = map(TensorType, dtypes, shapes)
        return Bindings(dict(zip(tensors, types)), dict(zip(attributes, values)))  # noqa: B905

    def shrunk(self) -> Iterator[Instance]:
        """Yield instances of the same typing with one or two smaller extents."""
        lows = self._template.lows
        open_ = [i for i, value in enumerate(self._values) if value > lows[i]]
        least = [{i: lows[i]} for i in open_]
        less = [{i: self._values[i] - 1} for i in open_]
        both = [a | b for a, b in combinations(less, 2)]
        for changes in (*least, *less, *both):
            values = [changes.get(i, value) for i, value in enumerate(self._values)]
            instance = self._template.at(values)
            if instance is not None and instance.elements < self.elements:
                yield instance

    def emptied(self) -> Iterator[Instance]:
        """Yield instances of the same typing with one extent of 0."""
        for place in range(len(self._values)):
            values = [0 if i == place else value for i, value in enumerate(self._values)]
            instance = self._template.at(values, least=0)
            if instance is not None:
                yield instance

    def stretched(self, extent: int, others: int) -> Iterator[Instance]:
        """Yield instances of the same typing with one extent as given, and others small.

        All other extents are at most ``others``.
        """
        lows = self._template.lows
        for place in range(len(self._values)):
            values = [extent if i == place else min(v, others) for i, v in enumerate(self._values)]
            instance = self._template.at(values) if lows[place] >= 0 else None
            if instance is not None:
                yield instance


class Template:
    """A straight-line program from values of the open extents to shapes and attributes."""

    def __init__(self, typing: Typing) -> None:
        """Flatten the result of a run of ``typing``.

        Attributes:
            lows: least values of the open extents.
        """
        free = typing.extents.free()
        self.lows = tuple(unknown.low for unknown in free)
        self._slots: list[Any] = list(self.lows)
        self._place: dict[Unknown | Derived, int] = {u: i for i, u in enumerate(free)}
        self._steps: list[tuple[int, Callable[..., int], list[int]]] = []
        tensors, attributes = sorted(typing.shapes), sorted(typing.attrs)
        self.names = tuple(tensors), tuple(attributes)
        self._dtypes = tuple(typing.dtypes.get(name, typing.dtype) for name in tensors)
        self._shapes = tuple(self._list(typing.shapes[name]) for name in tensors)
        self._attrs = tuple(self._of(typing.attrs[name]) for name in attributes)
        self._given = list(typing.attrs.values())
        self._equations = [self._list(pair) for pair in typing.extents.equations]
        self._least = [(self._of(e), low) for e, low in typing.extents.derived_bounds()]

    @cached_property
    def reach(self) -> int:
        """Greatest whole number among the attributes that have a value; at least 1."""
        return max((n for value in self._given for n in _whole(value)), default=1)

    @cached_property
    def named(self) -> tuple[int, ...]:
        """Positions of the open extents that occur in attributes, not only in shapes."""
        in_attributes = {slot for attr in self._attrs for slot in _slots_of(attr)}
        return tuple(place for place in range(len(self.lows)) if place in in_attributes)

    def _list(self, values: Sequence[Any]) -> list[int]:
        return [self._of(value) for value in values]

    def _of(self, value: Any) -> Any:
        value = resolve(value)
        if isinstance(value, tuple) and any(isinstance(v, _OPEN) for v in value):
            return tuple(self._of(part) for part in value)
        if isinstance(value, _OPEN) and value in self._place:
            return self._place[value]
        step = (value.function, self._list(value.args)) if isinstance(value, Derived) else None
        self._slots.append(value)
        place = len(self._slots) - 1
        if step is not None:
            assert isinstance(value, Derived)
            self._place[value] = place
            self._steps.append((place, *step))
        return place

    def all(self, bound: int) -> Iterator[Instance | None]:
        """Yield one instance per assignment with open extents up to ``bound``.

        An assignment without an instance yields ``None``.
        """
        return map(self.at, product(*(range(low, bound + 1) for low in self.lows)))

    def at(self, values: Sequence[int], least: int = 1) -> Instance | None:
        """Return the instance at these extents, raised to their least values, if it fits.

        Extents are at least 1, or at least 0 where ``least`` is 0.
        """
        slots = self._slots.copy()
        lows = [min(low, least) for low in self.lows] if least < 1 else self.lows
        slots[: len(values)] = map(max, lows, values)
        try:
            for place, function, args in self._steps:
                slots[place] = function(*[slots[i] for i in args])
        except ZeroDivisionError:
            return None
        for a, b in self._equations:
            if slots[a] != slots[b]:
                return None
        for place, low in self._least:
            if slots[place] < min(low, least):
                return None
        shapes = tuple([tuple([slots[i] for i in shape]) for shape in self._shapes])
        if any(min(shape) < least for shape in shapes if shape):
            return None
        attrs = tuple([slots[a] if isinstance(a, int) else _read(a, slots) for a in self._attrs])
        return Instance(self, slots[: len(values)], (self._dtypes, shapes, attrs))


def _slots_of(attribute: _Slot) -> Iterator[int]:
    if isinstance(attribute, int):
        yield attribute
        return
    for part in attribute:
        yield from _slots_of(part)


def _whole(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for part in value:
            yield from _whole(part)
    elif type(value) is int:
        yield max(1, value)


def _read(places: _Slot, slots: list[Any]) -> Any:
    if isinstance(places, int):
        return slots[places]
    return tuple([_read(place, slots) for place in places])
