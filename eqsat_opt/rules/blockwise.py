"""One schema for all operators that work block by block in one operand.

Where F is such an operator, along axis ``inner`` of its operand and ``outer`` of its result,

    F(x), F(y)                    are slices of F(concat(x, y, inner))          siblings
    concat(F(x), F(y), outer)     =  F(concat(x, y, inner))                     equation
    F(slice(x, inner, lo, hi))    =  slice(F(x), outer, lo, hi)                 outward, inward

Matrix products, convolutions, pools, softmax, reductions, transposes and elementwise functions are
rows of one table (:class:`Blockwise`), and each law is written once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.rule import Phase, Rule, Sides
from eqsat_opt.rules.term import Condition, Expr, Size, Term, Var, concat, follows, slice_

__all__ = ["Blockwise", "gathered", "inward", "merged_siblings", "outward", "scattered"]

_AXIS = "axis"


def _no_conditions(*_: Any, **__: Any) -> tuple[Condition, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Blockwise:
    """An operator that treats the blocks of one operand independently of each other.

    Attributes:
        apply: from the operand and the other variables to the operator's term.
        others: name to annotation of the other variables.
        inner: axis of the operand along which its blocks lie, from the other variables.
        outer: the same axis of the result, from the other variables.
        operand: names of two blocks.
        kind: their annotation.
        alike: conditions on one operand and the others.
        shapes: conditions on two blocks that typing alone does not imply.
        free_axis: whether the axis is a variable, called ``axis``.
    """

    apply: Callable[..., Term]
    others: Mapping[str, str]
    inner: Callable[..., Size]
    outer: Callable[..., Size]
    operand: tuple[str, str] = ("x", "y")
    kind: str = "Tensor"
    alike: Callable[..., Iterable[Condition]] = _no_conditions
    shapes: Callable[[Var, Var], Iterable[Condition]] = field(default=_no_conditions)
    free_axis: bool = False


def _kinds(form: Blockwise, blocks: int, *attributes: str) -> dict[str, str]:
    """Return the annotation of each variable: other tensors, blocks, and then attributes."""
    tensors = {n: k for n, k in form.others.items() if k in ("Tensor", "Weight", "Func")}
    rest = {n: k for n, k in form.others.items() if n not in tensors}
    own = dict.fromkeys(form.operand[:blocks], form.kind)
    axis = {_AXIS: "Int"} if form.free_axis else {}
    return {**tensors, **own, **rest, **axis, **dict.fromkeys(attributes, "Int")}


def _others(form: Blockwise, variables: Mapping[str, Any]) -> dict[str, Any]:
    names = [*form.others, _AXIS] if form.free_axis else list(form.others)
    return {name: variables[name] for name in names}


def _apply(form: Blockwise, operand: Term, others: Mapping[str, Any]) -> Term:
    return form.apply(operand, **{n: others[n] for n in form.others})


def _meets(form: Blockwise, operand: Var, others: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(form.alike(operand, **others))


def _of_two(form: Blockwise, x: Var, y: Var, others: Mapping[str, Any]) -> Sides:
    """Return the conditions on two blocks, each once."""
    of_y = (c for c in _meets(form, y, others) if _names(c, y))
    return *_meets(form, x, others), *of_y, *form.shapes(x, y)


def merged_siblings(name: str, doc: str, form: Blockwise, reason: str = "") -> Rule:
    """Make the rule that F(x), F(y) are slices of F(concat(x, y)): one operator instead of two."""

    def sides(variables: Mapping[str, Any]) -> Sides:
        x, y = (variables[n] for n in form.operand)
        others = _others(form, variables)
        inner, outer = form.inner(**others), form.outer(**others)
        both = _apply(form, concat(x, y, inner), others)
        size, more = x.dim(inner), y.dim(inner)
        order = follows(x, y)
        return (
            (_apply(form, x, others), _apply(form, y, others)),
            (slice_(both, outer, 0, size), slice_(both, outer, size, size + more)),
            order.because(reason) if reason else order,
            *_of_two(form, x, y, others),
        )

    return declared(name, doc, _kinds(form, 2), sides, phase=Phase.SIBLINGS)


def _names(condition: Condition, variable: Var) -> bool:
    named = {a for a in condition.args if isinstance(a, str)}
    for part in (a for a in condition.args if isinstance(a, Expr)):
        named |= {leaf.args[0] for leaf in part.leaves()}
    return variable.name in named


def _concatenated(form: Blockwise, variables: Mapping[str, Any]) -> tuple[Term, Term, Sides]:
    x, y = (variables[n] for n in form.operand)
    others = _others(form, variables)
    apart = concat(_apply(form, x, others), _apply(form, y, others), form.outer(**others))
    together = _apply(form, concat(x, y, form.inner(**others)), others)
    return apart, together, _of_two(form, x, y, others)


def gathered(name: str, doc: str, form: Blockwise, *, both_ways: bool = False) -> Rule:
    """Make the rule concat(F(x), F(y)) = F(concat(x, y)), read left to right or ``both_ways``."""

    def sides(variables: Mapping[str, Any]) -> Sides:
        apart, together, conditions = _concatenated(form, variables)
        return apart, together, *conditions

    return declared(name, doc, _kinds(form, 2), sides, bidirectional=both_ways)


def scattered(name: str, doc: str, form: Blockwise) -> Rule:
    """Make the rule F(concat(x, y)) = concat(F(x), F(y)), read both ways, for derivations."""

    def sides(variables: Mapping[str, Any]) -> Sides:
        apart, together, conditions = _concatenated(form, variables)
        return together, apart, *conditions

    return declared(name, doc, _kinds(form, 2), sides, phase=Phase.DERIVATION, bidirectional=True)


def _sliced(form: Blockwise, variables: Mapping[str, Any]) -> tuple[Term, Term, Sides]:
    x, lo, hi = variables[form.operand[0]], variables["lo"], variables["hi"]
    others = _others(form, variables)
    inside = _apply(form, slice_(x, form.inner(**others), lo, hi), others)
    outside = slice_(_apply(form, x, others), form.outer(**others), lo, hi)
    return inside, outside, _meets(form, x, others)


def outward(name: str, doc: str, form: Blockwise, *, both_ways: bool = False) -> Rule:
    """Make the rule F(slice(x)) = slice(F(x)), by which parts of one operand share one operator."""

    def sides(variables: Mapping[str, Any]) -> Sides:
        inside, outside, conditions = _sliced(form, variables)
        return inside, outside, *conditions

    return declared(name, doc, _kinds(form, 1, "lo", "hi"), sides, bidirectional=both_ways)


def inward(name: str, doc: str, form: Blockwise, *, phase: Phase = Phase.EXPLORE) -> Rule:
    """Make the rule slice(F(x)) = F(slice(x)), by which only the part that is read is computed."""

    def sides(variables: Mapping[str, Any]) -> Sides:
        inside, outside, conditions = _sliced(form, variables)
        return outside, inside, *conditions

    return declared(name, doc, _kinds(form, 1, "lo", "hi"), sides, phase=phase)
