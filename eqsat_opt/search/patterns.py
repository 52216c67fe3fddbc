"""The left side of a rule, taken apart, and what one root of it binds at one term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.matcher import Deferred, bind_or_defer
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Var
from eqsat_opt.rules.term import Term as Pattern
from eqsat_opt.search.terms import Term, Terms

__all__ = ["Binding", "CompiledRule", "bind", "compile_rule"]

_SCALAR = "Scalar"


@dataclass(frozen=True, slots=True)
class Binding:
    """What a pattern binds at one term."""

    values: Mapping[str, Term]
    attrs: Mapping[str, Any]
    matched: tuple[Term, ...]
    deferred: tuple[tuple[AttrPattern, Any], ...]


@dataclass
class _Trial:
    """A binding in the making."""

    values: dict[str, Term] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=Bindings)
    matched: list[Term] = field(default_factory=list)
    deferred: Deferred = field(default_factory=list)

    def bind(self, pattern: AttrPattern, value: Any) -> bool:
        return bind_or_defer(pattern, value, self.bindings, self.deferred)


@dataclass(frozen=True)
class _Needs:
    """What the top of a term must be before matching is worth trying."""

    operators: frozenset[str]
    operands: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, root: Apply) -> _Needs:
        return cls(_operators_of(root), tuple(_operators_of(arg) for arg in root.args))

    def fits(self, op: str, operands: Sequence[str]) -> bool:
        return (
            op in self.operators
            and len(operands) == len(self.operands)
            and all(
                not wanted or found in wanted
                for wanted, found in zip(self.operands, operands, strict=True)
            )
        )


@dataclass(frozen=True, kw_only=True)
class CompiledRule:
    """A directed rule, taken apart.

    Attributes:
        rule: it.
        number: its place among the rules.
        roots: patterns.
        needs: for each root, how many operands, and the operators that some of them must be.
        anchors: for each root but the first, a tensor variable that an earlier root binds too.
        local: conditions that depend on the terms alone.
        ordered: those that depend on the order of terms in a graph.
    """

    rule: Rule
    number: int
    roots: tuple[Apply, ...]
    needs: tuple[_Needs, ...]
    anchors: tuple[str | None, ...]
    local: tuple[Condition, ...]
    ordered: tuple[Condition, ...]


def compile_rule(rule: Rule, number: int) -> CompiledRule:
    """Take a directed rule apart; ``number`` is its place among the rules."""
    roots = tuple(root for root in rule.lhs if isinstance(root, Apply))
    seen: set[str] = roots[0].variables()
    anchors: list[str | None] = []
    for root in roots[1:]:
        shared = [t.name for t in root.walk() if isinstance(t, Var) and t.name in seen]
        anchors.append(shared[0] if shared else None)
        seen |= root.variables()
    ordered = tuple(c for c in rule.when if c.kind == "follows")
    local = tuple(c for c in rule.when if c.kind != "follows")
    needs = tuple(_Needs.of(root) for root in roots)
    return CompiledRule(
        rule=rule,
        number=number,
        roots=roots,
        needs=needs,
        anchors=tuple(anchors),
        local=local,
        ordered=ordered,
    )


def bind(rule: CompiledRule, index: int, term: Term, terms: Terms) -> Binding | None:
    """What root ``index`` of a rule binds at a term; ``None`` where it does not match."""
    pattern = rule.roots[index]
    trial = _Trial()
    if not _match(pattern, term, trial, terms):
        return None
    return Binding(trial.values, trial.bindings.attrs, tuple(trial.matched), tuple(trial.deferred))


def _match(pattern: Pattern, term: Term, trial: _Trial, terms: Terms) -> bool:
    if isinstance(pattern, Var):
        return _bind_value(pattern, term, trial)
    assert isinstance(pattern, Apply)
    if pattern.op == MAP:
        if term.op not in FUNCTIONS or not trial.bind(pattern.attrs["f"], (term.op, term.attrs)):
            return False
    elif term.op != pattern.op or len(term.operands) != len(pattern.args):
        return False
    else:
        values = dict(term.attrs)
        if not all(trial.bind(p, values[k]) for k, p in pattern.attrs.items()):
            return False
    trial.matched.append(term)
    for i, arg in enumerate(pattern.args):
        operand = terms.known[term.operands[i]]
        if isinstance(arg, Apply) and arg.op == _SCALAR:
            if not _match_scalar(arg, i, term, operand, trial=trial, terms=terms):
                return False
        elif not _match(arg, operand, trial, terms):
            return False
    return True


def _match_scalar(
    pattern: Apply, index: int, reader: Term, term: Term, trial: _Trial, terms: Terms
) -> bool:
    """A scalar literal meets a uniform constant, if its reader has the same type with it."""
    scalar = terms.scalar(term)
    if scalar is None or not isinstance(term.type, TensorType):
        return _match(pattern, term, trial, terms)
    types = [terms.known[key].type for key in reader.operands]
    types[index] = TensorType(term.type.dtype, ())
    try:
        result = get_op(reader.op).type_fn(types, dict(reader.attrs))  # type: ignore[arg-type]
    except IllTyped:
        return False
    return (
        result == reader.type
        and trial.bind(pattern.attrs["value"], scalar)
        and trial.bind(pattern.attrs["dtype"], term.type.dtype)
    )


def _operators_of(pattern: Pattern) -> frozenset[str]:
    """The operators that a pattern may meet; empty for any, a uniform constant included."""
    if not isinstance(pattern, Apply) or pattern.op == _SCALAR:
        return frozenset()
    return frozenset(FUNCTIONS) if pattern.op == MAP else frozenset((pattern.op,))


def _bind_value(variable: Var, term: Term, trial: _Trial) -> bool:
    if not isinstance(term.type, TensorType) or (variable.const and not term.const):
        return False
    trial.bindings.types.setdefault(variable.name, term.type)
    return trial.values.setdefault(variable.name, term).key == term.key
