"""The correspondence between the axes of the terms of a rule, at any rank.

Terms whose ranks are provably equal and whose axes correspond one to one have the same *frame*.
Frames that broadcast against each other are aligned at their last axes and form a *family*. An axis
of a family is a *column*, counted from the right. A transposition, or an operator that drops axes,
leads from one family to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops import OPS, get_op, with_trait
from eqsat_opt.ir.ops.index.signatures import HIGHEST, ranks_of
from eqsat_opt.proving.proof.axes.relations import Key, Open, Relations, variable
from eqsat_opt.proving.typing.scenario import WINDOWS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, parts

__all__ = ["REDUCTIONS", "Frames"]

REDUCTIONS = frozenset(name for name, op in OPS.items() if "keepdims" in op.attrs)
_ALONG, _LAYERS = with_trait("along"), with_trait("trailing")
_PLANES, _CHANNELS = with_trait("plane"), with_trait("channel")


class Frames(Relations):
    """The frames of a rule.

    Attributes:
        zones: number of columns from the right that an operator treats on their own, by key.
        lefts: number of axes from the left that an operator treats on their own, by key.
        flat: keys of terms whose elements are taken in order.
        sets: key of a term that reduces a set of axes of its operand, of any size, to the source of
            that set.
        padded: keys of frames with pads of every axis.
        windows: keys of windows of any rank, all on lists of any length.
        strange: key to an operator of which nothing is known here.
    """

    def __init__(self, rule: Rule, given: Mapping[Key, int]) -> None:
        """Relate all terms of ``rule``.

        Raises:
            Open: the axes depend on a property that ``given`` leaves open.
        """
        super().__init__(rule, given)
        self._relate()
        while self._linked():
            self._relate()
        if self._open is not None:
            raise self._open

    def _begin(self) -> None:
        super()._begin()
        self.zones: dict[Key, int] = {}
        self.lefts: dict[Key, int] = {}
        self.flat: set[Key] = set()
        self.sets: dict[Key, Key] = {}
        self.padded: list[Key] = []
        self.windows: list[Key] = []
        self.strange: dict[Key, str] = {}
        self._open: Open | None = None

    def _relate(self) -> None:
        before = -1
        while before != self._changes:
            before = self._changes
            self._begin()
            for condition in self.rule.when:
                self._condition(condition)
            for left, right in zip(self.rule.lhs, self.rule.rhs, strict=True):
                self._alike(self.key(left), self.key(right))
            for key, term in self.terms.items():
                self._operator(key, term)

    def _linked(self) -> bool:
        """Align terms of equal rank that no operator relates, and return whether any was new."""
        before = self.families.changes
        first: dict[Key, Key] = {}
        for key in self.known:
            if self.ranks.most(key) != 0:
                one = first.setdefault(self.ranks.find(key), key)
                families = self.families.find(one), self.families.find(key)
                if not self.components().same(*families):
                    self.families.join(one, key)
        return self.families.changes != before

    # Operators -----------------------------------------------------------------------------------

    def _operator(self, key: Key, term: Apply) -> None:
        operands = [self.key(arg) for arg in term.args]
        op, attrs = term.op, term.attrs
        if op in _LAYERS or op in _CHANNELS or op in _PLANES:
            self._normalisation(key, term, operands)
        elif op == MAP or (get_op(op).kind == "pointwise" and op != "Clamp"):
            if op == "PRelu":
                self._orders.add((operands[1], operands[0]))
            self._broadcast(key, operands)
        elif op in _ALONG:
            for one in operands:
                self._alike(key, one)
            self._axes(key, term)
        elif op in REDUCTIONS:
            self._reduction(key, term, operands[0])
        elif op == "Transpose":
            self._transposition(key, attrs["perm"], operands[0])
        elif op == "MatMul":
            self._product(key, operands)
        elif op in ("Reshape", "Expand", "Fill"):
            self._shaped(key, term, operands)
        elif op == "Pad":
            self._alike(key, operands[0])
            if isinstance(attrs["pads"], tuple):
                self._fix(key, len(attrs["pads"]) // 2)
            else:
                first = self._derived.setdefault(("pads", variable(attrs["pads"])), key)
                self._framed(first, key)
                self.padded.append(key)
        elif op in WINDOWS:
            self._window(key, term, operands)
        elif op == "Gather" and self.ranks.most(operands[1]) == 1 == self.ranks.least(operands[1]):
            self._alike(key, operands[0])
        else:
            self._strange(key, op, operands)

    def _strange(self, key: Key, op: str, operands: Sequence[Key]) -> None:
        """Record an operator of which nothing is known but, if it takes few, its ranks."""
        told = list(zip(*ranks_of(op, len(operands)), strict=True))
        if told and max(map(max, told)) < HIGHEST:
            for one, ranks in zip((*operands, key), told, strict=True):
                self.ranks.at_least(one, min(ranks))
                self.ranks.at_most(one, max(ranks))
            return
        for one in (key, *operands):
            self.families.join(key, one)
            self.strange[one] = op

    def _axes(self, key: Key, term: Apply) -> None:
        """Record the set of axes of an operator, where it may have any size."""
        name = variable(term.attrs.get("axes"))
        if name is not None:
            self.sets[key] = ("axes", name)

    def _reduction(self, key: Key, term: Apply, operand: Key) -> None:
        name = variable(term.attrs["axes"])
        keepdims = self._flag(term.attrs["keepdims"])
        self._axes(key, term)
        if keepdims is None:
            return
        if keepdims and name is None:
            self._alike(key, operand)
        elif keepdims:
            self._framed(key, operand)
        else:
            axes = term.attrs["axes"]
            text = name or ", ".join(map(str, parts(axes)))
            fewer = (len(axes), len(axes)) if isinstance(axes, tuple) else (1, None)
            self._derive(("drop", text), operand, key, fewer)

    def _flag(self, value: Any) -> int | None:
        if value.kind == "literal":
            return int(value.args[0])
        what = ("flag", str(value))
        if what not in self.given:
            self._open = Open(what, (0, 1))
            return None
        return self.given[what]

    def _transposition(self, key: Key, perm: Any, operand: Key) -> None:
        if isinstance(perm, tuple):
            self._fix(key, len(perm))
            self._fix(operand, len(perm))
            return
        name = variable(perm)
        first = self._derived.setdefault(("perm", name), (operand, key))
        assert isinstance(first, tuple)
        self._framed(operand, first[0])
        self._framed(key, first[1])
        self.ranks.join(operand, key)
        self._derived.setdefault(("turned", name, self.shapes.find(operand)), key)
        self.shapes.join(key, self._derived["turned", name, self.shapes.find(operand)])
        if (operand, key) == first:
            self.edges.append(first)
            self.permuted.append(first)

    def ends(self, perm: str) -> tuple[Key, Key] | None:
        """Return a term that a permutation transposes, and the result; ``None`` without one."""
        found = self._derived.get(("perm", perm))
        return found if isinstance(found, tuple) else None

    def _product(self, key: Key, operands: Sequence[Key]) -> None:
        vectors = []
        for one in operands:
            self.ranks.at_least(one, 1)
            is_vector = self.ranks.most(one) == 1
            if not is_vector and self.ranks.least(one) < 2:
                what = ("vector", one)
                if what not in self.given:
                    self._open = Open(what, (0, 1))
                    return
                is_vector = bool(self.given[what])
                if is_vector:
                    self.ranks.at_most(one, 1)
                else:
                    self.ranks.at_least(one, 2)
            vectors.append(is_vector)
        match vectors:
            case [False, False]:
                self._broadcast(key, operands, "product")
                self.zones[key] = 2
            case [True, False]:
                self._derive("row", operands[1], key)
                self.zones[operands[1]], self.zones[key] = 2, 1
            case [False, True]:
                self._derive("column", operands[0], key)
                self.zones[operands[0]] = 1
            case _:
                self._fix(key, 0)

    def _shaped(self, key: Key, term: Apply, operands: Sequence[Key]) -> None:
        shape = term.attrs["shape"]
        name = variable(shape)
        if name is None:
            self._fix(key, len(parts(shape)))
        else:
            self._alike(key, self._list(name))
        if term.op == "Reshape":
            self.flat |= {key} | ({operands[0]} - (self.thin if name is None else set()))
        elif term.op == "Expand":
            self.families.join(key, operands[0])
            if name is None:
                self.ranks.at_most(operands[0], len(parts(shape)))
            else:
                self._orders.add((operands[0], key))

    def _window(self, key: Key, term: Apply, operands: Sequence[Key]) -> None:
        data = operands[: 2 if term.op.startswith("Conv") else 1]
        for one in data:
            self._framed(key, one)
        for bias in operands[2:]:
            self._fix(bias, 1)
        self.ranks.at_least(key, 3)
        for name in ("strides", "dilations", "kernel", "pads", "output_padding"):
            value = term.attrs.get(name)
            if isinstance(value, tuple):
                self._fix(key, 2 + len(value) // (2 if name == "pads" else 1))
        self.windows.append(key)

    def _normalisation(self, key: Key, term: Apply, operands: Sequence[Key]) -> None:
        data, *parameters = operands
        self._alike(key, data)
        if term.op in _LAYERS:
            for one in parameters:
                self.families.join(key, one)
                self._orders.add((one, data))
            self.sets[key] = ("from", str(term.attrs["axis"]))
            return
        for one in parameters:
            self._fix(one, 1)
        self.lefts[key] = 2
        if term.op in _PLANES:
            self.ranks.at_least(key, 3)
            self.sets[key] = ("from", "2")
