"""The rank up to which a rule must be tried so that it holds at every rank, and why that is enough.

The prover shows a rule for all sizes at one rank at a time. Let a rule be wrong at some instance of
high rank, at one element of a result. We make from it an instance of a lower rank at which the rule
is wrong, too; so a rule that is right at all low ranks is right at all ranks. This module computes
which ranks are low enough.

*Columns.* :class:`~eqsat_opt.proving.proof.axes.frames.Frames` relates all axes of all terms, of
both sides: elementwise operators align their operands at the last axis, a concatenation or a
softmax keeps the axes of its operand, a transposition exchanges them. Axes that are related are one
column. No column has two axes of one term: the operators between families (transpositions, products
with vectors, and reductions that drop axes) form no cycle (``x + Transpose(x)`` does, and is
refused). Terms of provably equal rank have equal numbers for the axis of a column.

*Distinguished columns* stay as they are. They are those that an operator treats on their own (the
last two of a matrix product, the first two of a batch normalisation); those that an attribute or a
``dim`` names by a number from the left or the right, with all axes between them and that end; one
for each variable that is an axis; those between two axes that a condition compares with an offset;
all those of a tensor whose rank a condition bounds. A variable must be an axis at one rank only,
p[i] must be an axis of the operand of the permutation p and i an axis of the result, and no rank or
axis may be a number. Then leaving out any other column keeps the meaning of every axis, all
conditions that hold, and all types: axes to its right are counted down by one in every term that
has it.

*Leaving out a column.* Every operator treats all other columns elementwise. So the element that is
wrong reads, along such a column, the operands at the index of this element (or at 0, where an
operand has extent 1). Fixing the index there leaves the same value and one axis less. Hence every
wrong instance implies a wrong one whose columns are all distinguished: ranks up to their number
suffice.

*Sets of axes* (``axes=k``, a layer normalisation from any axis on) have any number of columns,
which are summed and not fixed. Columns outside of the set are left out as before. Two neighbours
inside are joined to one column, of the product of their extents: a sum over both is a sum over that
one. This needs that all tensors below such reductions have one shape; other tensors have their
index fixed by the element, and extent 1 from then on. It also needs that no permutation separates
neighbours. So at most one column per kind (2^s - 1 for s sets) is left in each gap between
distinguished columns.

*Orders of elements.* A reshape takes elements in order, so columns of its operand are joined, not
left out, which keeps the order. This needs one shape for all tensors that meet there, except those
with a single axis that is not 1, by the condition that makes them a vector.

*Pads of every axis*: an element is in the padding if it is there along one column. This column
stays, one for each such operator; all others may be left out. *Windows* over any number of axes:
:mod:`eqsat_opt.proving.proof.axes.sliding`. Where the argument does not apply, a rule is proved if
its conditions bound the ranks, such as x.rank <= 4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_opt.proving.proof.axes.frames import Frames
from eqsat_opt.proving.proof.axes.places import Places, Uneven
from eqsat_opt.proving.proof.axes.relations import Key, Open
from eqsat_opt.proving.proof.axes.sliding import slides_alike
from eqsat_opt.rules.rule import Rule

__all__ = ["MOST_RANKS", "Reach", "Uneven", "reach_of"]

MOST_RANKS = 7
"""The highest rank that is ever tried."""
_SLIDING = 4
"""Rank of windows over two axes."""


@dataclass(frozen=True)
class Reach:
    """The ranks that must be tried so that a rule is known to hold at all ranks.

    Attributes:
        highest: rank up to which all ranks are to be tried.
        open: tensor and list variables that may have a higher rank.
    """

    highest: int
    open: frozenset[str]


def reach_of(rule: Rule, given: Mapping[Key, int] | None = None) -> Reach:
    """Return the ranks to try.

    Raises:
        Uneven: no rank up to :data:`MOST_RANKS` is known to suffice.
    """
    given = given or {}
    try:
        frames = Frames(rule, given)
    except Open as open_:
        cases = [reach_of(rule, {**given, open_.what: value}) for value in open_.values]
        return Reach(
            max(case.highest for case in cases), frozenset().union(*(case.open for case in cases))
        )
    return _Count(rule, frames).reach()


class _Count(Places):
    """The count of the columns that one rule distinguishes, family by family."""

    # Groups of families --------------------------------------------------------------------------

    def _is_bounded(self, key: Key) -> bool:
        """Return whether all ranks that a term may have are tried."""
        ranks = self.frames.ranks
        most = ranks.most(key)
        return most is not None and (most <= MOST_RANKS or most == ranks.least(key))

    def _members(self) -> dict[Key, list[Key]]:
        found: dict[Key, list[Key]] = defaultdict(list)
        for key in self.frames.known:
            if self.frames.ranks.most(key) != 0:
                found[self.group(key)].append(key)
        return found

    def reach(self) -> Reach:
        """Return the ranks to try."""
        frames, members = self.frames, self._members()
        if not all(map(self._is_possible, frames.known)):
            return Reach(0, frozenset())
        self.open = {g for g, keys in members.items() if not all(map(self._is_bounded, keys))}
        self.read()
        highest = max((self._of_group(g, keys) for g, keys in members.items()), default=0)
        free = (key for keys in members.values() for key in keys if not self._is_bounded(key))
        names = (key[1] if isinstance(key, tuple) else key for key in free)
        return Reach(highest, frozenset(name for name in names if isinstance(name, str)))

    def _is_possible(self, key: Key) -> bool:
        most = self.frames.ranks.most(key)
        return most is None or self.frames.ranks.least(key) <= most

    def _of_group(self, group: Key, keys: list[Key]) -> int:
        frames = self.frames
        mosts = [
            most
            for key in keys
            if self._is_bounded(key)
            and (most := frames.ranks.most(key)) is not None
            and most <= MOST_RANKS
        ]
        bounded = max(mosts, default=0)
        if group not in self.open:
            return bounded
        if any(self.group(key) == group for key in frames.windows):
            self._check_front(group)
            reason = slides_alike(self.rule, frames, [k for k in keys if k in frames.windows])
            if reason:
                raise Uneven(f"{reason}; add the condition that their rank is 4")
            return max(_SLIDING, bounded)
        for key in keys:
            if key in frames.strange:
                raise Uneven(f"{frames.strange[key]} is not known to treat all axes alike")
        if frames.cyclic & {frames.families.find(key) for key in keys}:
            raise Uneven("an axis may meet another one of the same tensor")
        told = self._told_apart(group, keys)
        patterns = self._patterns(group, keys)
        needed = max(told + (told + 1) * patterns, bounded)
        if needed > MOST_RANKS:
            raise Uneven(f"it may tell {needed} axes apart")
        return needed

    def _check_front(self, group: Key) -> None:
        """Check that only the first two axes are named, where windows slide over the others.

        Raises:
            Uneven: another axis is named.
        """
        lefts = [n for frame, n in self.lefts.items() if self.of(frame) == group]
        zones = [n for family, n in self.zones.items() if self.groups.find(family) == group]
        if max(lefts, default=0) > 2 or any(zones) or self.more[group] or self.gaps[group]:
            raise Uneven("windows over any number of axes, of which some are told apart")

    def _told_apart(self, group: Key, keys: list[Key]) -> int:
        """Count the columns that a name, a number or an operator distinguishes."""
        frames = self.frames
        zones: dict[Key, int] = defaultdict(int)
        for key in keys:
            family = frames.families.find(key)
            known = [self.zones[family], frames.zones.get(key, 0)]
            if self._is_bounded(key):
                known.append(frames.ranks.most(key) or 0)
            zones[family] = max(zones[family], *known)
        lefts: dict[tuple[Key, Key], int] = defaultdict(int)
        for key in keys:
            frame = frames.frame(key)
            lefts[frame] = max(lefts[frame], self.lefts[frame], frames.lefts.get(key, 0))
        names = [name for name, frame in self.named.items() if self.of(frame) == group]
        padded = [key for key in frames.padded if self.group(key) == group]
        offsets = sum(len(range(abs(more))) for _, more in self.more[group])
        return (
            sum(zones.values()) + sum(lefts.values()) + len(names) + len(padded) + offsets
            + self.gaps[group]
        )  # fmt: skip

    def _patterns(self, group: Key, keys: list[Key]) -> int:
        """Count the kinds of other columns, which can only be joined with a neighbour."""
        frames = self.frames
        sets = {
            what for key, what in frames.sets.items()
            if self.group(frames.key(frames.terms[key].args[0])) == group and self._is_set(what)
        }  # fmt: skip
        flat = [key for key in frames.flat if self.group(key) == group]
        flat = [key for key in flat if not self._is_bounded(key)]
        padded = [key for key in frames.padded if self.group(key) == group]
        if sets and padded:
            raise Uneven("a set of axes is reduced of what has pads of every axis")
        if sets:
            self._check_sets(group)
        if flat:
            shapes = {
                frames.shapes.find(key) for key in keys
                if key not in frames.thin and not self._is_bounded(key)
            }  # fmt: skip
            edges = [a for a, b in frames.edges if self.group(a) == group]
            if sets or edges or padded or len(shapes) > 1:
                raise Uneven("elements are taken in order from tensors of several shapes or sets")
        return 2 ** len(sets) - 1 if sets else bool(flat)

    def _is_set(self, what: Key) -> bool:
        """Return whether axes are a set of any size, not a few that are counted from the end."""
        assert isinstance(what, tuple)
        kind, name = what
        return kind == "axes" or not (name in self.last or ".rank - " in str(name))

    def _check_sets(self, group: Key) -> None:
        """Check that all tensors reduced over a set have one shape, and that axes keep their order.

        Raises:
            Uneven: the shapes differ, or a permutation meets the set.
        """
        frames = self.frames
        if any(self.group(a) == group for a, _ in frames.permuted):
            raise Uneven("a set of axes meets a permutation")
        used: dict[Key, tuple[Key, Key]] = {}
        shapes: set[Key] = set()
        for key, what in frames.sets.items():
            operand = frames.terms[key].args[0]
            if self.group(frames.key(operand)) != group:
                continue
            frame = frames.frame(frames.key(operand))
            if used.setdefault(what, frame) != frame:
                raise Uneven("one set of axes is reduced at different ranks")
            leaves = (leaf for leaf in frames.leaves(operand) if self.group(leaf) == group)
            shapes |= {frames.shapes.find(leaf) for leaf in leaves}
        if len(shapes) > 1:
            raise Uneven("a set of axes of tensors of different shapes is reduced")
