"""Candidates as rules: from the most general statement of a pair of terms to the most special.

Terms are equal at fixed small shapes. A statement says for which others: ranks, equal extents,
axes, groups and functions are variables wherever the gate lets them be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import get_op
from eqsat_opt.lab.generation.candidates import CandidateEquation, leaves_of
from eqsat_opt.lab.generation.enumeration import Tree
from eqsat_opt.lab.generation.settings import Operation, Setting
from eqsat_opt.rules.extents import extent, seam
from eqsat_opt.rules.patterns import names_of
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import (
    MAP,
    Apply,
    AttrPattern,
    Condition,
    Expr,
    Function,
    Term,
    Var,
    applied,
    expr,
)

__all__ = ["matchable", "named", "statements"]

_FUNCTION = "f"
_FUNCTION_KEY = "relu"
_AXES = ("i", "j")
_BOUNDS = ("a", "b", "c", "e", "h", "k")
_WINDOWS = ("strides", "pads", "dilations")


@dataclass(frozen=True)
class _Form:
    """The choice of what is a variable in a statement.

    Attributes:
        axes: whether axes are variables.
        functions: whether elementwise functions are.
        groups: whether the number of groups is.
    """

    axes: bool
    functions: bool
    groups: bool


def statements(one: CandidateEquation, setting: Setting) -> Iterator[Rule]:
    """Yield the statements of a candidate, the most general first; none if it cannot be said.

    They all have the name of the candidate's operators and the strictest numerics class.
    """
    used = [setting.operations[number] for number in _numbers((one.left, one.right))]
    free_axes = _treat_axes_alike(used) and any("axis" in op.attrs for op in used)
    seen: set[str] = set()
    for axes, functions, groups in product(
        (True, False) if free_axes else (False,),
        (True, False) if any(op.key == _FUNCTION_KEY for op in used) else (False,),
        (True, False) if any("group" in op.attrs for op in used) else (False,),
    ):
        try:
            bare = _stated(one, setting, _Form(axes, functions, groups))
            ladder = list(_conditions(bare, setting, one))
        except RuleError:
            continue
        for when in ladder:
            made = replace(bare, when=(*bare.when, *when))
            if str(made) not in seen:
                seen.add(str(made))
                yield made


def _numbers(trees: Sequence[Tree | int]) -> list[int]:
    found: dict[int, None] = {}
    for tree in trees:
        if not isinstance(tree, int):
            found.update(dict.fromkeys((tree[0], *_numbers(tree[1:]))))
    return list(found)


def _treat_axes_alike(used: Sequence[Operation]) -> bool:
    return all("axis" in op.attrs or get_op(op.op).kind == "pointwise" for op in used)


# Terms -------------------------------------------------------------------------------------------


def _stated(one: CandidateEquation, setting: Setting, form: _Form) -> Rule:
    """Return the rule of a candidate without conditions on shapes."""
    literals = _Terms(setting, replace(form, axes=False))
    sides = literals.term(one.left), literals.term(one.right)
    axes = sorted({_axis_of(term) for term in applied(sides)} - {None}) if form.axes else []
    names = dict(zip(axes, _AXES, strict=False))
    if len(names) < len(axes):
        raise RuleError("more axes than names")
    lhs, rhs = (_with_axes(side, names) for side in sides)
    kinds = {setting.leaves[leaf].name: "Tensor" for leaf in dict.fromkeys(leaves_of(one.left))}
    kinds |= literals.kinds | dict.fromkeys(names.values(), "Int")
    when = (Expr("attr", ("i",)) != Expr("attr", ("j",)),) if len(names) == 2 else ()
    backwards = one.reads_both_ways and names_of(lhs) <= names_of(rhs)
    return Rule(
        name=named(lhs), lhs=(lhs,), rhs=(rhs,), when=when, kinds=tuple(kinds.items()),
        numerics=Numerics.BITEXACT, phase=Phase.EXPLORE, bidirectional=backwards, doc="",
    )  # fmt: skip


def named(term: Term) -> str:
    """Return the name of a rule whose left side is ``term``: its operators from the root on."""
    words = [one.op.lower() for one in reversed(list(applied([term])))]
    return f"generated/{'-'.join(words)}"


class _Terms:
    """A maker of terms from trees, which keeps the attribute variables that it introduces."""

    def __init__(self, setting: Setting, form: _Form) -> None:
        self.setting, self.form = setting, form
        self.kinds: dict[str, str] = {}

    def term(self, tree: Tree | int) -> Term:
        if isinstance(tree, int):
            return Var(self.setting.leaves[tree].name)
        operation = self.setting.operations[tree[0]]
        args = tuple(self.term(one) for one in tree[1:])
        if operation.key == _FUNCTION_KEY and self.form.functions:
            self.kinds[_FUNCTION] = "Func"
            return Function(_FUNCTION)(args[0])
        attrs = {name: self.attribute(name, value) for name, value in operation.attrs.items()}
        if operation.part is not None:
            axis = operation.attrs["axis"]
            bounds = _bounds(args[0], axis, operation.part)
            attrs |= dict(zip(("lo", "hi"), bounds, strict=True))
        return Apply(operation.op, args, attrs)

    def attribute(self, name: str, value: Any) -> AttrPattern:
        if name in _WINDOWS or (name == "group" and self.form.groups):
            self.kinds[name[0]] = "Int" if name == "group" else "Ints"
            return Expr("attr", (name[0],))
        return tuple(expr(one) for one in value) if isinstance(value, tuple) else expr(value)


def _bounds(whole: Term, axis: int, part: int) -> tuple[Expr, Expr]:
    """Return the bounds of a part: before or after the seam, or everything if there is none."""
    end = extent(whole, axis)
    try:
        cut = seam(whole, axis)
    except RuleError:
        if part:
            raise
        return expr(0), end
    return (cut, end) if part else (expr(0), cut)


def _axis_of(term: Apply) -> Any:
    axis = term.attrs.get("axis")
    return axis.args[0] if isinstance(axis, Expr) else None


def _with_axes(term: Term, names: Mapping[int, str]) -> Term:
    """Return a term with variables for its axes, in extents too."""
    if not names or isinstance(term, Var):
        return term
    assert isinstance(term, Apply)

    def renamed(name: str, value: AttrPattern) -> AttrPattern:
        if name == "axis":
            assert isinstance(value, Expr)
            return Expr("attr", (names[value.args[0]],))
        return value if isinstance(value, tuple) else _extents_along(value, names)

    attrs = {name: renamed(name, value) for name, value in term.attrs.items()}
    return Apply(term.op, tuple(_with_axes(one, names) for one in term.args), attrs)


def _extents_along(value: Expr, names: Mapping[int, str]) -> Expr:
    if value.kind == "dim":
        name, axis = value.args
        return Expr("dim", (name, Expr("attr", (names[axis.args[0]],))))
    args = (_extents_along(one, names) if isinstance(one, Expr) else one for one in value.args)
    return Expr(value.kind, tuple(args))


def matchable(statement: Rule) -> Rule:
    """Return a rule whose left side binds the bounds of slices, which conditions then compare.

    Bounds that are computed cannot be matched. A rule with slices is read from left to right.
    """
    bounds: list[Condition] = []
    kinds: dict[str, str] = {}

    def bound(name: str, value: AttrPattern) -> AttrPattern:
        if name not in ("lo", "hi") or isinstance(value, tuple) or value.kind == "literal":
            return value
        variable = Expr("attr", (_BOUNDS[len(kinds)],))
        kinds[_BOUNDS[len(kinds)]] = "Int"
        bounds.append(variable == value)
        return variable

    def term(one: Term) -> Term:
        if isinstance(one, Var):
            return one
        assert isinstance(one, Apply)
        args = tuple(map(term, one.args))
        return Apply(one.op, args, {name: bound(name, v) for name, v in one.attrs.items()})

    lhs = tuple(map(term, statement.lhs))
    slices = any("lo" in one.attrs for one in applied(statement.roots))
    return replace(
        statement, lhs=lhs, when=(*statement.when, *bounds),
        kinds=(*statement.kinds, *kinds.items()),
        bidirectional=statement.bidirectional and not slices,
    )  # fmt: skip


# Conditions --------------------------------------------------------------------------------------


def _conditions(
    bare: Rule, setting: Setting, one: CandidateEquation
) -> Iterator[tuple[Condition, ...]]:
    """Yield conditions from none to all: equal shapes of operands, all equal extents, ranks."""
    shapes = {leaf.name: leaf.shape for leaf in setting.leaves}
    together = [
        term for term in applied(bare.roots)
        if len(term.args) == 2 and term.op != MAP and get_op(term.op).kind == "pointwise"
    ]  # fmt: skip
    same: dict[str, Condition] = {}
    extents: dict[str, Condition] = {}
    rank = len(setting.leaves[next(leaves_of(one.left))].shape)
    for term in together:
        a, b = term.args
        if isinstance(a, Var) and isinstance(b, Var):
            if a.name != b.name:
                first, second = sorted((a.name, b.name))
                condition = Var(first).shape == Var(second).shape
                same.setdefault(str(condition), condition)
            continue
        for axis in range(rank):
            try:
                left, right = extent(a, axis), extent(b, axis)
            except RuleError:  # a variable axis
                continue
            if str(left) != str(right):
                condition = left == right
                extents.setdefault(str(condition), condition)
    names = dict.fromkeys(str(v) for root in bare.roots for v in sorted(root.variables()))
    ranks = tuple(Var(name).rank == len(shapes[name]) for name in names)
    for tail in ((), ranks):
        yield tail
        yield (*tail, *same.values())
        yield (*tail, *same.values(), *extents.values())
