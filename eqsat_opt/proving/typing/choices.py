"""The source of attributes and ranks of an instance: every combination, or random ones.

Typing the left side of a rule takes decisions: which rank, which axis, which strides. It is written
as a straight-line procedure that asks a chooser. The result of each combination of decisions is
stored in a tree, so that no combination is tried twice, and no drawing reaches the same dead end
again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import permutations
from math import factorial
from typing import Generic, Protocol, TypeAlias, TypeVar

__all__ = ["Chooser", "Decisions", "Drawing", "orders"]

T = TypeVar("T")
_Result = TypeVar("_Result")


class Chooser(Protocol):
    """The interface through which a procedure asks for one decision after another."""

    def choose(self, options: Sequence[T], core: int = 0) -> T:
        """Choose one of ``options``; an enumeration covers the first ``core`` (0: all)."""
        ...

    def prefer(self, options: Sequence[T]) -> T:
        """Choose one of ``options``, of which the first is the usual one."""
        ...


class _Leaf(Generic[_Result]):
    """A result that the procedure returned."""

    __slots__ = ("result",)

    def __init__(self, result: _Result | None) -> None:
        self.result = result


class _Node(Generic[_Result]):
    """A decision, with the nodes or leaves that follow the options taken.

    Attributes:
        count: number of options.
        core: number of options that an enumeration covers.
        likely: number of options that are drawn half of the time.
    """

    __slots__ = ("children", "core", "count", "likely")

    def __init__(self, count: int, core: int, likely: int) -> None:
        self.count = count
        self.core = core
        self.likely = likely
        self.children: dict[int, _Node[_Result] | _Leaf[_Result]] = {}


_Way: TypeAlias = list[tuple[_Node[_Result], int]]
_Pick: TypeAlias = Callable[[_Node[_Result]], int]


class _Explorer(Generic[_Result]):
    """A chooser that repeats the decisions of a way, then extends it and the tree by ``pick``."""

    def __init__(self, way: _Way[_Result], pick: _Pick[_Result]) -> None:
        self._way = way
        self._pick = pick
        self._position = 0

    def _take(self, count: int, core: int, likely: int) -> int:
        self._position += 1
        if self._position == len(self._way):
            node: _Node[_Result] = _Node(count, core, likely)
            last, option = self._way[-1]
            last.children[option] = node
            self._way.append((node, self._pick(node)))
        return self._way[self._position][1]

    def choose(self, options: Sequence[T], core: int = 0) -> T:
        count = len(options)
        core = core if 0 < core < count else count
        return options[self._take(count, core, core)]

    def prefer(self, options: Sequence[T]) -> T:
        return options[self._take(len(options), len(options), 1)]


class Decisions(Generic[_Result]):
    """The results of a procedure for the combinations of its decisions, computed on demand."""

    def __init__(self, procedure: Callable[[Chooser], _Result | None]) -> None:
        """Start without results.

        ``procedure`` depends on nothing but the decisions of the chooser. A result of ``None``
        means that it gave up.
        """
        self._procedure = procedure
        self._top: _Node[_Result] = _Node(1, 1, 1)

    def follow(self, pick: _Pick[_Result]) -> tuple[_Result | None, _Way[_Result]]:
        """Follow the decisions of ``pick``, and return their result and the decisions."""
        node, index = self._top, 0
        way = [(node, index)]
        child = node.children.get(index)
        while isinstance(child, _Node):
            node, index = child, pick(child)
            way.append((node, index))
            child = node.children.get(index)
        if child is None:
            child = _Leaf(self._procedure(_Explorer(way, pick)))
            last, option = way[-1]
            last.children[option] = child
        return child.result, way

    def core(self) -> Iterator[_Result | None]:
        """Yield the results of all combinations that an enumeration covers, in order.

        The order is lexicographic. A procedure that gives up early has one result for all
        combinations of the decisions that it did not take.
        """
        path: list[int] | None = []
        while path is not None:
            result, way = self.follow(partial(_replayed, iter(path)))
            yield result
            path = _next_path(way[1:])


class Drawing(Generic[_Result]):
    """Independent random decisions that avoid the dead ends which this drawing has met."""

    def __init__(self, decisions: Decisions[_Result], rng: random.Random) -> None:
        """Start without dead ends; draws depend on ``rng`` alone."""
        self._decisions = decisions
        self._uniform = rng.random
        self._dead: dict[_Node[_Result], set[int]] = {}
        self._way: _Way[_Result] = []

    def next(self) -> _Result | None:
        """Return the result of the next combination; likely options are drawn half of the time."""
        result, self._way = self._decisions.follow(self._pick)
        if result is None:
            self.give_up()
        return result

    def _pick(self, node: _Node[_Result]) -> int:
        drawn, count, likely = self._uniform(), node.count, node.likely
        if likely >= count:
            index = int(drawn * count)
        elif drawn < 0.5:
            index = int(2 * drawn * likely)
        else:
            index = likely + int((2 * drawn - 1) * (count - likely))
        dead = self._dead.get(node, ())
        if index in dead and len(dead) < count:
            alive = [option for option in range(count) if option not in dead]
            return alive[int(self._uniform() * len(alive))]
        return index

    def give_up(self) -> None:
        """Record the last combination as a dead end."""
        for node, index in reversed(self._way):
            dead = self._dead.setdefault(node, set())
            dead.add(index)
            if len(dead) < node.count:
                break


def _replayed(decided: Iterator[int], _node: _Node[_Result]) -> int:
    return next(decided, 0)


def _next_path(way: _Way[_Result]) -> list[int] | None:
    while way and way[-1][1] + 1 >= way[-1][0].core:
        way = way[:-1]
    return [*(index for _, index in way[:-1]), way[-1][1] + 1] if way else None


_LISTED = 5
"""Most axes of which all orders are listed."""


class _Orders(Sequence[tuple[int, ...]]):
    """Orders of many axes, computed on demand: those that are one cycle first, then all."""

    def __init__(self, axes: int) -> None:
        self._axes = axes
        self.cycles = factorial(axes - 1)

    def __len__(self) -> int:
        return self.cycles + factorial(self._axes)

    def __getitem__(self, index: int) -> tuple[int, ...]:  # type: ignore[override]
        if index >= self.cycles:
            return _numbered(index - self.cycles, self._axes)
        cycle = (self._axes - 1, *_numbered(index, self._axes - 1))
        follows = dict(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        return tuple(follows[axis] for axis in range(self._axes))


def _numbered(index: int, count: int) -> tuple[int, ...]:
    """Return the order of ``count`` axes with number ``index``, in lexicographic order."""
    left, order = list(range(count)), []
    for remaining in range(count - 1, -1, -1):
        place, index = divmod(index, factorial(remaining))
        order.append(left.pop(place))
    return tuple(order)


@lru_cache(maxsize=16)
def orders(axes: int) -> tuple[Sequence[tuple[int, ...]], int]:
    """Return the orders of some axes, and how many of the first ones are to be likelier.

    The number is 0 if none is to be likelier. In an order that is one cycle an axis returns to its
    place after as many steps as there are axes, which no order of fewer axes takes.
    """
    if axes <= _LISTED:
        return list(permutations(range(axes))), 0
    many = _Orders(axes)
    return many, many.cycles
