"""The rule object and the decorator that makes one from a function."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuleError
from eqsat_opt.rules.term import Condition, Expr, Function, Term, Var, applied, parts

__all__ = [
    "Float",
    "Func",
    "Int",
    "Ints",
    "Numerics",
    "Phase",
    "Rule",
    "Sides",
    "Tensor",
    "Weight",
    "directed",
    "made_in",
    "opposite",
    "rule",
]

_MOST_TOLERANCE = 1e-5
"""Largest tolerance of a condition ``near``.

A rule is verified at the target of a constant, so other values may differ by a rounding only.
"""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")
_REVERSED = "-reversed"
_MADE = "__rules__"
"""The variable in which a module keeps the rules that were made while its body ran."""


class Phase(enum.StrEnum):
    """The ruleset in which a rule runs."""

    RECOGNISE = "recognise"
    SIMPLIFY = "simplify"
    EXPLORE = "explore"
    SIBLINGS = "siblings"
    ALGEBRA = "algebra"
    DERIVATION = "derivation"


Sides: TypeAlias = tuple[Any, ...]
"""The result of the function of a rule: left side, right side, conditions."""


class Tensor(Var):
    """Annotation: any tensor."""


class Weight(Var):
    """Annotation: a tensor that is known at compile time."""


class Int(Expr):
    """Annotation: an integer attribute."""


class Ints(Expr):
    """Annotation: a list attribute."""


class Float(Expr):
    """Annotation: a float attribute."""


class Func(Function):
    """Annotation: any elementwise unary function."""


@dataclass(frozen=True)
class Rule:
    """An equation, read left to right, or both ways where ``bidirectional``.

    Attributes:
        name: ``family/name``, stable for ever.
        lhs, rhs: one term per root; roots of one rule are replaced together.
        when: conditions beyond the typing of both sides.
        kinds: variable name to annotation.
        numerics: class of the floating point change.
        phase: the phase in which it runs.
        doc: text on the equation and when it pays.
        subsumes: whether a left side is no longer matched once its right side exists; this changes
            what is searched, never what is equal.
        backward: numerics class of the reading from right to left, where it differs.
    """

    name: str
    lhs: tuple[Term, ...]
    rhs: tuple[Term, ...]
    when: tuple[Condition, ...]
    kinds: tuple[tuple[str, str], ...]
    numerics: Numerics
    phase: Phase
    bidirectional: bool
    doc: str
    subsumes: bool = False
    backward: Numerics | None = None

    @property
    def roots(self) -> tuple[Term, ...]:
        """The roots of both sides, those of the left side first."""
        return (*self.lhs, *self.rhs)

    @property
    def family(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/")[0]

    @property
    def base(self) -> str:
        """The name of the rule that this is a direction of."""
        return self.name.removesuffix(_REVERSED)

    def admitted(self, numerics: Numerics) -> Rule | None:
        """Return what a numerics class admits of the rule: all of it, one direction, or nothing."""
        ways = [one for one in self.ways if one.numerics <= numerics]
        return self if len(ways) == len(self.ways) else next(iter(ways), None)

    @cached_property
    def ways(self) -> tuple[Rule, ...]:
        """The rule once per direction; the reverse of ``f/n`` is called ``f/n-reversed``."""
        forward = replace(self, bidirectional=False, backward=None)
        if not self.bidirectional:
            return (forward,)
        name = f"{self.name}{_REVERSED}"
        numerics = self.numerics if self.backward is None else self.backward
        return forward, replace(forward, name=name, lhs=self.rhs, rhs=self.lhs, numerics=numerics)

    def __str__(self) -> str:
        arrow = "=" if self.bidirectional else "=>"
        sides = ", ".join(map(str, self.lhs)), ", ".join(map(str, self.rhs))
        conditions = f"   when {', '.join(map(str, self.when))}" if self.when else ""
        return f"{sides[0]} {arrow} {sides[1]}{conditions}"


def _tuple(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _parameter(name: str, annotation: str) -> object:
    match annotation:
        case "Tensor":
            return Var(name)
        case "Weight":
            return Var(name, const=True)
        case "Int" | "Ints" | "Float":
            return Expr("attr", (name,))
        case "Func":
            return Function(name)
        case _:
            raise RuleError(
                f"parameter {name!r} needs an annotation: Tensor, Weight, Int, Ints, Float or Func"
            )


def rule(
    name: str,
    *,
    numerics: Numerics = Numerics.BITEXACT,
    phase: Phase = Phase.EXPLORE,
    bidirectional: bool = False,
    subsumes: bool = False,
    backward: Numerics | None = None,
) -> Callable[[Callable[..., Sides]], Rule]:
    """Make a :class:`Rule` from a function whose parameters are the pattern variables.

    The function returns ``lhs, rhs, *conditions``; a side with several roots is a tuple. A rule
    that is read both ways may have another numerics class ``backward``.

    Raises:
        RuleError: the name is not ``family/name``, an argument has another type, a variable is
            unbound, an operator is unknown or a tolerance is too wide.
    """
    if not isinstance(name, str):
        raise RuleError('@rule takes a name; write @rule("family/name")')
    if not _NAME.fullmatch(name):
        raise RuleError(f"rule name {name!r} is not of the form family/kebab-case")
    if name.endswith(_REVERSED):
        raise RuleError(
            f"rule name {name!r} ends in {_REVERSED}, which is added where a rule is read "
            "backwards; rename it"
        )
    for value, kind in ((numerics, Numerics), (backward or numerics, Numerics), (phase, Phase)):
        if not isinstance(value, kind):
            members = ", ".join(f"{kind.__name__}.{one.name}" for one in kind)
            raise RuleError(f"{name}: {value!r} is not one of {members}")
    if backward is not None and not bidirectional:
        raise RuleError(f"{name}: it is not read backward; add bidirectional=True or leave it out")

    def make(function: Callable[..., Sides]) -> Rule:
        kinds = tuple(
            (p.name, _annotation(p)) for p in inspect.signature(function).parameters.values()
        )
        returned = function(*(_parameter(n, k) for n, k in kinds))
        if not isinstance(returned, tuple) or len(returned) < 2:
            raise RuleError(f"{name}: a rule returns lhs, rhs and its conditions")
        lhs, rhs, *when = returned
        made = Rule(
            name=name, lhs=_tuple(lhs), rhs=_tuple(rhs), when=tuple(when), kinds=kinds,
            numerics=numerics, phase=phase, bidirectional=bidirectional,
            doc=inspect.cleandoc(function.__doc__ or ""), subsumes=subsumes, backward=backward,
        )  # fmt: skip
        for one in directed([made]):
            _check(one)
        _remember(made)
        return made

    return make


def _remember(made: Rule) -> None:
    """Record a rule in the module whose body is running, which may have called this indirectly."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is not None:
        frame.f_globals.setdefault(_MADE, []).append(made)


def made_in(module: ModuleType) -> list[Rule]:
    """Return the rules that were made while the body of a module ran, bound to a name or not."""
    return list(vars(module).get(_MADE, ()))


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _names(terms: Sequence[Term]) -> set[str]:
    """Return the tensor and attribute variables that a match of ``terms`` binds."""
    tensors = {name for root in terms for name in root.variables()}
    entries = (part for t in applied(terms) for value in t.attrs.values() for part in parts(value))
    return tensors | {part.args[0] for part in entries if part.kind == "attr"}


def _used(rule: Rule) -> set[str]:
    used = {name for root in rule.rhs for name in root.variables()}
    expressions = [e for t in applied(rule.rhs) for v in t.attrs.values() for e in parts(v)]
    for condition in rule.when:
        expressions += [a for a in condition.args if isinstance(a, Expr)]
        used |= {a for a in condition.args if isinstance(a, str)}
    return used | {leaf.args[0] for e in expressions for leaf in e.leaves()}


def _check(rule: Rule) -> None:
    for root in rule.roots:
        if not isinstance(root, Term):
            raise RuleError(
                f"{rule.name}: {root} is not a term; return tensors and operators on them"
            )
    for condition in rule.when:
        if not isinstance(condition, Condition):
            raise RuleError(f"{rule.name}: {condition} is not a condition, such as x.rank == 2")
    if len(rule.lhs) != len(rule.rhs):
        raise RuleError(
            f"{rule.name}: {len(rule.lhs)} roots on the left, {len(rule.rhs)} on the right"
        )
    if any(isinstance(root, Var) for root in rule.lhs):
        raise RuleError(
            f"{rule.name}: the left side is a bare variable, so it would match everything"
        )
    for condition in rule.when:
        if condition.kind == "near" and not 0 <= condition.args[2] <= _MOST_TOLERANCE:
            raise RuleError(
                f"{rule.name}: {condition} is not a rounding; give a tolerance from 0 to "
                f"{_MOST_TOLERANCE:g}"
            )
    unbound = _used(rule) - _names(rule.lhs)
    if unbound:
        raise RuleError(f"{rule.name}: {', '.join(sorted(unbound))} is not bound by the left side")


def opposite(name: str) -> str:
    """Return the name of a direction of a rule in the other direction."""
    return name.removesuffix(_REVERSED) if name.endswith(_REVERSED) else f"{name}{_REVERSED}"


def directed(rules: Sequence[Rule]) -> list[Rule]:
    """Return each rule once per direction."""
    return [way for rule in rules for way in rule.ways]
