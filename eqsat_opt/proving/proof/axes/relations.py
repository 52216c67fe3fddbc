"""Relations between the axes of terms: equal ranks, axes that are aligned, equal extents.

The relations that each operator implies are in :mod:`eqsat_opt.proving.proof.axes.frames`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from eqsat_opt.proving.proof.axes.unions import Classes
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Condition, Expr, Term, Var, offset

__all__ = ["Key", "Open", "Relations", "variable"]

Key = Hashable
"""The key of a variable (its name), a list of extents (("list", name)) or a term (a number)."""


class Open(Exception):
    """The error raised where axes depend on an open property; each of its values is to be tried."""

    def __init__(self, what: Key, values: Sequence[int]) -> None:
        super().__init__(str(what))
        self.what, self.values = what, values


def variable(value: Any) -> str | None:
    """Return the list variable that an attribute is; ``None`` if it is none."""
    is_one = isinstance(value, Expr) and value.kind == "attr"
    return str(value.args[0]) if is_one else None


class Relations:
    """Relations between the terms of a rule, as far as they are known.

    Attributes:
        terms: key to term, for all operators.
        known: all keys.
        ranks, families, shapes: classes of keys of equal rank, of axes that are aligned, and of
            extents that are equal except at axes that the rule names.
        thin: tensors of which all axes but the last have extent 1.
        edges: operand and result of each operator that drops or permutes axes, and so leads from
            family to family.
        permuted: edges that are permutations.
    """

    def __init__(self, rule: Rule, given: Mapping[Key, int]) -> None:
        """Give every term of ``rule`` a key; ``given`` has values of properties left open."""
        self.rule, self.given = rule, given
        self.ranks, self.families, self.shapes = Classes(), Classes(), Classes()
        self.terms: dict[Key, Apply] = {}
        self._keys: dict[int, Key] = {}
        self.known: list[Key] = []
        for root in rule.roots:
            self._number(root)
        self.thin = set(self._thin())
        self._orders: set[tuple[Key, Key]] = set()
        self._begin()

    def _begin(self) -> None:
        """Forget relations that are derived again in each round."""
        self.edges: list[tuple[Key, Key]] = []
        self.permuted: list[tuple[Key, Key]] = []
        self._derived: dict[Key, Key] = {}

    def components(self) -> Classes:
        """Return the classes of families that edges connect."""
        groups = Classes()
        for a, b in self.edges:
            groups.join(self.families.find(a), self.families.find(b))
        return groups

    @property
    def cyclic(self) -> set[Key]:
        """Families in which a column may meet another column of the same family."""
        groups, found = Classes(), set()
        for a, b in self.edges:
            one, other = self.families.find(a), self.families.find(b)
            if groups.same(one, other):
                found |= {one, other}
            groups.join(one, other)
        return found

    @property
    def _changes(self) -> int:
        classes = self.ranks, self.families, self.shapes
        return sum(one.changes for one in classes) + len(self._orders)

    def key(self, term: Term) -> Key:
        """Return the key of a term."""
        return term.name if isinstance(term, Var) else self._keys[id(term)]

    def frame(self, key: Key) -> tuple[Key, Key]:
        """Return the family of a term, and its class of equal ranks."""
        return self.families.find(key), self.ranks.find(key)

    def leaves(self, term: Term) -> Iterator[Key]:
        """Yield the tensor and list variables of a term that give extents of axes."""
        for part in term.walk():
            if isinstance(part, Var) and self.ranks.most(part.name) != 0:
                yield part.name
            elif isinstance(part, Apply) and (name := variable(part.attrs.get("shape"))):
                yield ("list", name)

    def _number(self, term: Term) -> Key:
        if isinstance(term, Var):
            self._declare(term.name)
            return term.name
        assert isinstance(term, Apply)
        if id(term) not in self._keys:
            for arg in term.args:
                self._number(arg)
            self._keys[id(term)] = len(self._keys)
            self.terms[self._keys[id(term)]] = term
            self._declare(self._keys[id(term)])
        return self._keys[id(term)]

    def _declare(self, key: Key) -> None:
        if key not in self.known:
            self.known.append(key)
        for classes in (self.ranks, self.families, self.shapes):
            classes.find(key)

    def _list(self, name: str) -> Key:
        key = ("list", name)
        self._declare(key)
        return key

    # Relations -----------------------------------------------------------------------------------

    def _framed(self, one: Key, other: Key) -> None:
        """Relate two terms of equal ranks, axis by axis."""
        self.ranks.join(one, other)
        self.families.join(one, other)

    def _alike(self, one: Key, other: Key) -> None:
        """Relate two terms of equal shapes, except at named axes."""
        self._framed(one, other)
        self.shapes.join(one, other)

    def _fix(self, key: Key, rank: int) -> None:
        self.ranks.at_least(key, rank)
        self.ranks.at_most(key, rank)

    def below(self, low: Key, high: Key) -> bool:
        """Return whether the rank of ``low`` is known to be at most that of ``high``."""
        most = self.ranks.most(low)
        known = most is not None and most <= self.ranks.least(high)
        pair = self.ranks.find(low), self.ranks.find(high)
        pairs = {(self.ranks.find(a), self.ranks.find(b)) for a, b in self._orders}
        return known or pair[0] == pair[1] or pair in pairs

    def _broadcast(self, result: Key, operands: Sequence[Key], tag: str = "") -> None:
        """Align broadcast operands at their last axes; the result has their highest rank."""
        axes = [o for o in operands if self.ranks.most(o) != 0]
        for one in axes:
            self.families.join(result, one)
            self.ranks.at_least(result, self.ranks.least(one))
            if (most := self.ranks.most(result)) is not None:
                self.ranks.at_most(one, most)
        mosts = [self.ranks.most(o) for o in axes]
        if None not in mosts:
            self.ranks.at_most(result, max((m for m in mosts if m is not None), default=0))
        highest: list[Key] = []
        for one in axes:
            if not any(self.below(one, other) for other in highest):
                highest = [o for o in highest if not self.below(o, one)] + [one]
        self._joined(self.ranks, result, highest, tag)
        self._joined(self.shapes, result, [o for o in axes if o not in self.thin], tag)

    def _joined(self, classes: Classes, result: Key, operands: Sequence[Key], tag: str) -> None:
        """Put a broadcast into the class of its operands, or into one for each set of classes."""
        found = frozenset(map(classes.find, operands))
        if len(found) == 1 and (not tag or classes is self.ranks):
            classes.join(result, next(iter(found)))
        elif found:
            classes.join(result, self._derived.setdefault((id(classes), tag, found), result))

    def _derive(
        self, tag: Key, operand: Key, result: Key, fewer: tuple[int, int | None] = (1, 1)
    ) -> None:
        """Give ``result`` the family that terms of this frame get by losing ``fewer`` axes."""
        first = self._derived.setdefault((tag, self.frame(operand)), result)
        self._framed(first, result)
        alike = self._derived.setdefault((tag, "shape", self.shapes.find(operand)), result)
        self.shapes.join(alike, result)
        least, most = fewer
        if most is not None:
            self.ranks.at_least(result, self.ranks.least(operand) - most)
        if (highest := self.ranks.most(operand)) is not None:
            self.ranks.at_most(result, highest - least)
        # Counted from the right, a row or a column is dropped alike at all ranks.
        place = self.families.find(operand) if tag in ("row", "column") else self.frame(operand)
        if self._derived.setdefault((tag, "edge", place), result) == result:
            self.edges.append((operand, result))

    # Conditions ----------------------------------------------------------------------------------

    def _condition(self, condition: Condition) -> None:
        if condition.kind == "same-shape":
            self._alike(*condition.args)
        if condition.kind not in ("==", "!=", "<", "<="):
            return
        low, high = (offset(side) for side in condition.args)
        gap = low[1] - high[1] + (condition.kind == "<")  # low + gap <= high
        match low[0].kind, high[0].kind:
            case "rank", "rank":
                a, b = low[0].args[0], high[0].args[0]
                if condition.kind == "==" and gap == 0:
                    self.ranks.join(a, b)
                    return
                self.families.join(a, b)
                if (gap >= 0 or condition.kind == "==") and condition.kind != "!=":
                    self._orders.add((a, b) if gap >= 0 else (b, a))
            case "rank", "literal" if condition.kind != "!=":
                self.ranks.at_most(low[0].args[0], high[0].args[0] - gap)
                if condition.kind == "==":
                    self._fix(low[0].args[0], high[0].args[0] - gap)
            case "literal", "rank" if condition.kind != "!=":
                self.ranks.at_least(high[0].args[0], low[0].args[0] + gap)
                if condition.kind == "==":
                    self._fix(high[0].args[0], low[0].args[0] + gap)
            case (("attr" | "item"), "rank") if condition.kind != "!=":
                self.ranks.at_least(high[0].args[0], gap)
            case "rank", ("attr" | "item") if condition.kind == "==":
                self.ranks.at_least(low[0].args[0], -gap)
            case _:
                pass

    def _thin(self) -> Iterator[Key]:
        """Yield the tensors that are reshaped to as many elements as their last axis has.

        All their other axes have extent 1, so their rank changes only the number of such axes.
        """
        for term in self.terms.values():
            shape = term.attrs.get("shape")
            if term.op != "Reshape" or not isinstance(shape, tuple):
                continue
            (operand,) = term.args
            if isinstance(operand, Var):
                last = f"{operand.name}.dim(({operand.name}.rank - 1))"
                wanted = sorted(f for part in shape for f in _factors(part))
                known = [[last], *self._equal_to(last)]
                if wanted in known:
                    yield operand.name

    def _equal_to(self, text: str) -> Iterator[list[str]]:
        """Yield the products that a condition equates with an extent."""
        for condition in self.rule.when:
            if condition.kind == "==":
                for one, other in (condition.args, condition.args[::-1]):
                    if str(one) == text:
                        yield sorted(_factors(other))


def _factors(expression: Expr) -> Iterator[str]:
    """Yield the factors of a product of sizes, except 1."""
    if expression.kind == "*":
        for arg in expression.args:
            yield from _factors(arg)
    elif expression.kind != "literal" or expression.args[0] != 1:
        yield str(expression)
