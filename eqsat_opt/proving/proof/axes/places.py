"""The axes that a rule names or numbers, and its comparisons of them.

Each distinguishes some columns from the others. :mod:`eqsat_opt.proving.proof.axes.reach` counts
these columns and gives the argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from eqsat_opt.proving.proof.axes.frames import Frames
from eqsat_opt.proving.proof.axes.relations import Key
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr, offset, parts

__all__ = ["Places", "Uneven"]

_PLACES = frozenset({"axis", "axes"})


class Uneven(Exception):
    """The error raised where ranks above those tried may behave differently, with the reason."""


class Places:
    """The axes in the attributes and conditions of a rule, where ranks are open.

    Attributes:
        groups: classes of families that are connected.
        open: groups with ranks that are not all tried.
        zones: number of columns from the right that are distinguished, by family.
        lefts: number of axes from the left that are distinguished, by frame.
        named: variable to the frame in which it is an axis.
        more: expressions with an offset from a variable, and the offset, by group.
        gaps: number of columns between axes that conditions compare with an offset, by group.
        last: variable that is counted from the end, to a tensor and its offset from the tensor's
            rank.
    """

    def __init__(self, rule: Rule, frames: Frames) -> None:
        self.rule, self.frames = rule, frames
        self.groups = frames.components()
        self.zones: dict[Key, int] = defaultdict(int)
        self.lefts: dict[tuple[Key, Key], int] = defaultdict(int)
        self.named: dict[str, tuple[Key, Key]] = {}
        self.more: dict[Key, set[Any]] = defaultdict(set)
        self.gaps: dict[Key, int] = defaultdict(int)
        self.last = dict(self._aliases())
        self.open: set[Key] = set()
        self._places = set(self._place_names())
        self._numbers: set[str] = set()
        self._closed: set[str] = set()

    def group(self, key: Key) -> Key:
        """Return the group of a term: the families that are connected with its own."""
        return self.groups.find(self.frames.families.find(key))

    def is_open(self, key: Key) -> bool:
        """Return whether a term belongs to a group with ranks that are not tried."""
        return self.group(key) in self.open

    def of(self, frame: tuple[Key, Key]) -> Key:
        """Return the group of a frame."""
        return self.groups.find(frame[0])

    # Names and numbers of axes -------------------------------------------------------------------

    def _aliases(self) -> Iterator[tuple[str, tuple[Key, int]]]:
        """Yield the axes that are counted from the end: name, tensor and offset from its rank."""
        for condition in self.rule.when:
            if condition.kind == "==":
                for one, other in (condition.args, condition.args[::-1]):
                    (a, more), (b, less) = offset(one), offset(other)
                    if a.kind == "attr" and b.kind == "rank":
                        yield str(a.args[0]), (b.args[0], more - less)

    def _place_names(self) -> Iterator[str]:
        """Yield the variables that are axes."""
        expressions: list[tuple[Expr, bool]] = []
        for term in self.frames.terms.values():
            for key, value in term.attrs.items():
                expressions += [(part, key in _PLACES) for part in parts(value)]
        for condition in self.rule.when:
            expressions += [(arg, False) for arg in condition.args if isinstance(arg, Expr)]
        for expression, is_place in expressions:
            yield from _inside(expression, is_place)

    def read(self) -> None:
        """Read all attributes and conditions.

        Raises:
            Uneven: they use axes or ranks in a way that a few ranks do not show.
        """
        for term in self.frames.terms.values():
            for key, value in term.attrs.items():
                for part in parts(value):
                    if key in _PLACES and not (key == "axes" and part is value):
                        self._place(part, self.frames.key(term.args[0]))
                    elif key not in ("axes", "perm", "f"):
                        self._value(part)
        for condition in self.rule.when:
            self._condition(condition)
        counted = {name for name, (tensor, _) in self.last.items() if self.is_open(tensor)}
        for name in sorted(counted | self.named.keys()):
            if name in self._numbers:
                raise Uneven(f"the axis {name} is used as a number")
            if name in self._closed:
                raise Uneven(f"{name} is an axis of tensors whose ranks may differ")

    def _value(self, expression: Expr) -> None:
        """Read a number that is not an axis; it may contain extents at axes."""
        if expression.kind == "dim":
            self._place(expression.args[1], expression.args[0])
        elif expression.kind == "rank":
            if self.is_open(expression.args[0]):
                raise Uneven(f"{expression} is used as a number")
        elif expression.kind == "attr":
            self._numbers.add(str(expression.args[0]))
        elif expression.kind == "item":
            self._entry(expression)
        else:
            for arg in expression.args:
                if isinstance(arg, Expr):
                    self._value(arg)

    def _entry(self, item: Expr) -> None:
        """Read an element of a list of extents."""
        frames = self.frames
        name = str(item.args[0])
        key = ("list", name)
        if key in frames.known:
            index = item.args[1]
            self._place(index if isinstance(index, Expr) else Expr("literal", (index,)), key)
            return
        for other, term in frames.terms.items():
            for value in term.attrs.values():
                if isinstance(value, Expr) and str(value) == name and self.is_open(other):
                    raise Uneven(f"{item} is an element of a list of any length")

    def _place(self, expression: Any, key: Key) -> None:
        """Read an axis of a term."""
        frames = self.frames
        lifted = expression if isinstance(expression, Expr) else Expr("literal", (expression,))
        base, more = offset(lifted)
        if not self.is_open(key):
            self._closed.update(str(leaf.args[0]) for leaf in lifted.leaves())
            return
        frame = frames.frame(key)
        last = self.last.get(str(base.args[0])) if base.kind == "attr" else None
        if base.kind == "literal":
            self.lefts[frame] = max(self.lefts[frame], base.args[0] + more + 1)
        elif base.kind == "rank" and frames.ranks.same(base.args[0], key) and more < 0:
            self.zones[frame[0]] = max(self.zones[frame[0]], -more)
        elif last is not None and frames.ranks.same(last[0], key):
            self.zones[frame[0]] = max(self.zones[frame[0]], last[1], last[1] - more)
        elif base.kind == "attr" and last is None:
            self._name(str(base.args[0]), frame)
            self._offset(expression, more, frame)
        elif base.kind == "item":
            ends = frames.ends(str(base.args[0]))
            if ends is None or frames.frame(ends[0]) != frame:
                raise Uneven(f"{expression} is not an axis of the tensor that it is used with")
            self._place(base.args[1], ends[1])
            self._offset(expression, more, frame)
        else:
            raise Uneven(f"{expression} is not an axis of the tensor that it is used with")

    def _name(self, name: str, frame: tuple[Key, Key]) -> None:
        if self.named.setdefault(name, frame) != frame:
            raise Uneven(f"{name} is an axis of tensors whose ranks may differ")

    def _offset(self, expression: Any, more: int, frame: tuple[Key, Key]) -> None:
        if more:
            self.more[self.of(frame)].add((str(expression), more))

    # Conditions ----------------------------------------------------------------------------------

    def _condition(self, condition: Condition) -> None:
        sides = [arg for arg in condition.args if isinstance(arg, Expr)]
        if condition.kind not in ("==", "!=", "<", "<=") or not any(map(self._is_about, sides)):
            for side in sides:
                self._value(side)
            return
        (a, more), (b, less) = map(offset, sides)
        for side in (a, b):
            if side.kind == "item" and (ends := self.frames.ends(str(side.args[0]))):
                self._place(side, ends[0])
        match self._kind(a), self._kind(b):
            case "rank", "rank":
                self._two_ranks(condition, a.args[0], b.args[0], abs(more - less))
            case "rank", "literal":
                if condition.kind == "!=":
                    self._zone(a.args[0], b.args[0] + less - more + 1)
            case "literal", "rank":
                strict = condition.kind in ("<", "!=")
                self._zone(b.args[0], a.args[0] + more - less + strict)
            case "place", "literal":
                if condition.kind in ("==", "!="):
                    self._left(a, b.args[0] + less - more + (condition.kind == "!="))
            case "literal", "place":
                self._left(b, a.args[0] + more - less + (condition.kind in ("<", "!=")))
            case "place", "place":
                self._two_places(condition, a, b, abs(more - less))
            case "place", "rank":
                self._place_and_rank(condition, a, b.args[0], more - less)
            case "rank", "place":
                self._place_and_rank(condition, b, a.args[0], less - more, above=True)
            case _:
                if any(map(self._is_free, (a, b))):
                    raise Uneven(f"{condition} compares ranks or axes with other numbers")

    def _is_about(self, expression: Expr) -> bool:
        base, _ = offset(expression)
        return self._kind(base) in ("rank", "place")

    def _is_free(self, base: Expr) -> bool:
        """Return whether an axis or a rank may be higher than those that are tried."""
        kind = self._kind(base)
        return (kind == "place" and self._frame_of(base) is not None) or (
            kind == "rank" and self.is_open(base.args[0])
        )

    def _kind(self, base: Expr) -> str:
        if base.kind == "attr":
            return "place" if base.args[0] in self._places else "number"
        if base.kind == "item":
            return "place" if self.frames.ends(str(base.args[0])) else "number"
        return base.kind

    def _frame_of(self, base: Expr) -> tuple[Key, Key] | None:
        """Return the frame that an axis is counted in; ``None`` where all its ranks are tried."""
        if base.kind == "item":
            ends = self.frames.ends(str(base.args[0]))
            assert ends is not None
            return self.frames.frame(ends[0]) if self.is_open(ends[0]) else None
        name = str(base.args[0])
        if name in self.last and self.is_open(self.last[name][0]):
            return self.frames.frame(self.last[name][0])
        return self.named.get(name)

    def _zone(self, tensor: Key, columns: int) -> None:
        family = self.frames.families.find(tensor)
        self.zones[family] = max(self.zones[family], columns)

    def _left(self, place: Expr, axes: int) -> None:
        frame = self._frame_of(place)
        if frame is not None:
            self.lefts[frame] = max(self.lefts[frame], axes)

    def _two_ranks(self, condition: Condition, one: Key, other: Key, gap: int) -> None:
        frames = self.frames
        if frames.ranks.same(one, other) or not (self.is_open(one) or self.is_open(other)):
            return
        if not frames.families.same(one, other):
            raise Uneven(f"{condition} compares ranks of tensors that do not meet")
        self.gaps[self.group(one)] += gap + (condition.kind in ("<", "!="))

    def _two_places(self, condition: Condition, one: Expr, other: Expr, gap: int) -> None:
        frames = self._frame_of(one), self._frame_of(other)
        if frames == (None, None):
            return
        if frames[0] != frames[1] or frames[0] is None:
            raise Uneven(f"{condition} compares axes of tensors whose ranks may differ")
        self.gaps[self.of(frames[0])] += gap

    def _place_and_rank(
        self, condition: Condition, place: Expr, tensor: Key, gap: int, *, above: bool = False
    ) -> None:
        """Read a comparison of ``place + gap`` with a rank."""
        frame = self._frame_of(place)
        if frame is None and not self.is_open(tensor):
            return
        if frame is None or frame[1] != self.frames.ranks.find(tensor):
            raise Uneven(f"{condition} compares an axis with the rank of another tensor")
        more = {"==": 0, "!=": 1, "<": 0, "<=": -1}[condition.kind]
        if not above or condition.kind in ("==", "!="):
            self.zones[frame[0]] = max(self.zones[frame[0]], gap + more)


def _inside(expression: Expr, is_place: bool) -> Iterator[str]:
    """Yield the variables that an expression uses as an axis."""
    base, _ = offset(expression)
    if is_place and base.kind == "attr":
        yield str(base.args[0])
    if expression.kind in ("dim", "item") and isinstance(expression.args[1], Expr):
        yield from _inside(expression.args[1], True)
    else:
        for arg in expression.args:
            if isinstance(arg, Expr):
                yield from _inside(arg, False)
