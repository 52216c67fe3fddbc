"""Rules of two outputs: siblings that share an operand are parts of one operator.

A rule ``F(concat(y, z)) = concat(F(y), F(z))`` of one output merges the siblings F(y) and
F(z): each is a slice of the left side. Only siblings with an operand in common are worth it
where the operator has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.extents import extent
from eqsat_opt.rules.rule import Phase, Rule
from eqsat_opt.rules.term import Apply, Expr, Term, Var, distinct, slice_

__all__ = ["siblings"]


def siblings(rules: Sequence[Rule]) -> Iterator[Rule]:
    """Yield the rules of two outputs that follow from rules of one."""
    for rule in rules:
        for apart, merged in ((rule.lhs[0], rule.rhs[0]), (rule.rhs[0], rule.lhs[0])):
            found = _merged(rule, apart, merged)
            if found is not None:
                yield found


def _merged(rule: Rule, apart: Term, merged: Term) -> Rule | None:
    if not _is(apart, "Concat") or _is(merged, "Concat") or isinstance(merged, Var):
        return None
    assert isinstance(apart, Apply)
    first, second = apart.args
    if not (isinstance(first, Apply) and isinstance(second, Apply) and first.op == second.op):
        return None
    shared = first.variables() & second.variables()
    if (len(first.args) > 1 and not shared) or len(second.variables() - shared) != 1:
        return None
    axis = apart.attrs["axis"]
    assert isinstance(axis, Expr)
    if axis.kind != "literal":  # nothing on the new left side binds it
        return None
    try:
        cut = extent(first, axis.args[0])
        end = cut + extent(second, axis.args[0])
    except RuleError:
        return None
    (one,), (other,) = first.variables() - shared, second.variables() - shared
    return replace(
        rule, name=f"{rule.name}-siblings", lhs=(first, second),
        rhs=(slice_(merged, axis, 0, cut), slice_(merged, axis, cut, end)),
        when=(*rule.when, distinct(Var(one), Var(other))), phase=Phase.SIBLINGS,
        bidirectional=False, backward=None,
    )  # fmt: skip


def _is(term: Term, op: str) -> bool:
    return isinstance(term, Apply) and term.op == op
