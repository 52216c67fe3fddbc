"""The refusal of rules whose use of ranks and axes cannot be verified at finitely many ranks.

Instances are tried at ranks up to a highest one. A rule may compare ranks and axes, and count a few
axes from another one or from the end; it may not compute with them. The further requirements of a
proof are in :mod:`eqsat_opt.proving.proof.axes.reach`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eqsat_opt.proving.typing.scenario import HIGHEST_RANK
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr, Var, applied, offset, parts

__all__ = ["uneven_ranks"]

_FARTHEST = 2
"""Most axes that a rule may count from another, and highest number it may compare ranks with.

It is so small that ranks without any axis between those named and ranks with some are both tried.
"""

_PLACES = frozenset({"axis", "axes", "perm"})


def uneven_ranks(rule: Rule) -> str | None:
    """Return why the ranks that are tried, by a proof or at instances, do not settle higher ones.

    Returns:
        ``None`` if the rule behaves in the same way at higher ranks.
    """
    try:
        if not _all_pinned(rule):
            _Places(rule).check()
    except _OutOfReach as reason:
        return str(reason)
    return None


class _OutOfReach(Exception):
    """The error raised where a few ranks do not show the behaviour at others, with the reason."""


# Ranks -------------------------------------------------------------------------------------------


def _pinned_ranks(rule: Rule) -> set[str]:
    """Return the tensor variables whose possible ranks are all tried."""
    pinned = {
        term.args[0].name
        for term in applied(rule.roots)
        if isinstance(term.attrs.get("perm"), tuple) and isinstance(term.args[0], Var)
    }
    before = -1
    while before != len(pinned):
        before = len(pinned)
        for condition in rule.when:
            pinned |= set(_pinned_by(condition, pinned))
    return pinned


def _pinned_by(condition: Condition, pinned: Iterable[str]) -> Iterator[str]:
    """Yield tensors of a rank that a condition equates with a known one, or bounds by one tried."""
    if condition.kind == "same-shape" and any(name in pinned for name in condition.args):
        yield from condition.args
    if condition.kind not in ("==", "<="):
        return
    low, high = condition.args[:2]
    bounded = condition.kind == "<=" and low.kind == "rank" and high.kind == "literal"
    if bounded and high.args[0] <= HIGHEST_RANK:
        yield low.args[0]
    if condition.kind != "==":
        return
    for one, other in ((low, high), (high, low)):
        if one.kind != "rank":
            continue
        if other.kind == "literal" or (other.kind == "rank" and other.args[0] in pinned):
            yield one.args[0]


def _all_pinned(rule: Rule) -> bool:
    lists = (term.attrs.get("shape") for term in applied(rule.roots))
    free_shapes = any(isinstance(shape, Expr) and shape.kind == "attr" for shape in lists)
    tensors = {name for root in rule.roots for name in root.variables()}
    return not free_shapes and tensors <= _pinned_ranks(rule)


# Places ------------------------------------------------------------------------------------------


class _Places:
    """The check of how a rule uses ranks, axes and permutations, which are tried one by one."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._names = {
            part.args[0]
            for term in applied(rule.roots)
            for key, value in term.attrs.items()
            if key in _PLACES
            for part in parts(value)
            if part.kind == "attr"
        }

    def check(self) -> None:
        """Check that the rule behaves in the same way at higher ranks.

        Raises:
            _OutOfReach: the behaviour may differ.
        """
        for term in applied(self._rule.roots):
            for key, value in term.attrs.items():
                for part in parts(value):
                    if key in _PLACES:
                        self._place(part)
                    else:
                        self._value(part)
        for condition in self._rule.when:
            self._condition(condition)

    def _condition(self, condition: Condition) -> None:
        sides = [arg for arg in condition.args if isinstance(arg, Expr)]
        if not any(map(self._about_places, sides)):
            for side in sides:
                self._value(side)
            return
        for side in sides:
            self._place(side)
            if side.kind == "literal" and side.args[0] > _FARTHEST and condition.kind != "==":
                raise _OutOfReach(
                    f"{condition}: ranks are tried up to {HIGHEST_RANK}, so a rule may compare "
                    f"ranks and axes with numbers up to {_FARTHEST} only"
                )

    def _about_places(self, expression: Expr) -> bool:
        return any(
            leaf.kind == "rank" or (leaf.kind == "attr" and leaf.args[0] in self._names)
            for leaf in expression.leaves()
        )

    def _value(self, expression: Expr) -> None:
        """Check a number that is not an axis; it may contain extents at axes."""
        if expression.kind == "dim":
            self._place(expression.args[1])
        elif expression.kind in ("rank", "attr") and self._about_places(expression):
            raise _OutOfReach(
                f"{expression} as a number: ranks are tried up to {HIGHEST_RANK}, so a rule "
                "may only compare ranks and axes or add small numbers to them"
            )
        else:
            for arg in expression.args:
                if isinstance(arg, Expr):
                    self._value(arg)

    def _check_nest(self, item: Expr, met: set[str]) -> None:
        """Check that the index into a list is not made from an element of the same list.

        Such a list may have a period that no rank that is tried distinguishes from 1.
        """
        names = {str(leaf.args[0]) for leaf in item.args[0].leaves()}
        if names & met:
            raise _OutOfReach(
                f"{', '.join(sorted(names))} at a place that comes from itself: ranks are tried up "
                f"to {HIGHEST_RANK}, where a permutation has few periods"
            )
        pending: list[Any] = [item.args[1]]
        while pending:
            inner = pending.pop()
            if isinstance(inner, Expr) and inner.kind == "item":
                self._check_nest(inner, met | names)
            elif isinstance(inner, Expr):
                pending += inner.args

    def _place(self, expression: Expr) -> None:
        """Check an axis that is counted from the start, the end or another axis."""
        base, added = offset(expression)
        if base.kind == "item":
            if isinstance(base.args[1], Expr):
                self._check_nest(base, set())
                self._place(base.args[1])
            base = base.args[0]
        known = base.kind in ("literal", "rank") or (
            base.kind == "attr" and base.args[0] in self._names
        )
        if not known or abs(added) > _FARTHEST:
            raise _OutOfReach(
                f"{expression} as a place: ranks are tried up to {HIGHEST_RANK}, so a rule may "
                f"only compare ranks and axes or add numbers up to {_FARTHEST} to them"
            )
