"""The element types that a proof covers: real numbers, and integers where nothing rounds them.

A proof shows an equation of real numbers. Where both sides of it are made of sums, differences and
products of elements alone, they are the same polynomial with whole coefficients. Then they are
equal in every ring, and so for whole numbers that wrap around as well, signed or not. Where they
are made of maxima and minima alone, they are equal in every order, and nothing wraps. Functions
that are unknown to the proof give equal results for equal operands. A rule that mixes sums with
maxima, or that rounds, is proved for floating-point elements only, so its conditions must exclude
others.
"""

from __future__ import annotations

from eqsat_opt.ir.ops import OPS, OUTPUT, IllTyped, get_op, with_trait
from eqsat_opt.ir.values.types import FLOATS, TensorType
from eqsat_opt.proving.proof.axes.unions import Classes
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Expr, Term, Var, applied, parts

__all__ = ["Rounded", "elements_of"]

_RING, _ORDER, _TRUTHS = with_trait("ring"), with_trait("order"), with_trait("truth")
_CAST = "Cast"


class Rounded(Exception):
    """The error raised where a rule may meet whole numbers, which no proof over reals covers."""


def elements_of(rule: Rule) -> str:
    """Return a description of the elements that a proof of a rule covers.

    Raises:
        Rounded: the rule may meet whole numbers, which the proof does not cover.
    """
    for root in rule.roots:
        _made(root)
    classes, floats = _element_types(rule)
    tensors = {name for root in rule.roots for name in root.variables()}
    free = {classes.find(name) for name in tensors} - floats
    if not free:
        return "floating point elements"
    met = {
        term.op
        for term in applied(rule.roots)
        if any(classes.find(_key(one)) in free for one in (*term.args, term))
    }
    moving = {op for op in met if op == MAP or get_op(op).is_moving}
    rounding = sorted(met - moving - _RING - _ORDER - _TRUTHS - {_CAST})
    ring, order = sorted(met & _RING), sorted(met & _ORDER)
    rounding += (
        f"{term.op} of computed numbers"
        for term in applied(rule.roots)
        if classes.find(_key(term)) in free and _is_computed(term)
    )
    if rounding:
        raise Rounded(
            f"{rounding[0]} of whole numbers is not that of real ones, of which a proof speaks; "
            "add is_float(…) if the rule is for floating point"
        )
    if ring and order:
        raise Rounded(
            f"whole numbers wrap around in {ring[0]} and meet {order[0]}; real ones, of which a "
            "proof speaks, do not; add is_float(…) if the rule is for floating point"
        )
    return "elements of any type"


def _is_computed(term: Apply) -> bool:
    """Return whether some real attribute is computed, and not a literal or a variable."""
    kinds = get_op(term.op).attrs if term.op != MAP else {}
    numbers = (
        part for key, kind in kinds.items() if kind == "float" for part in parts(term.attrs[key])
    )
    return any(part.kind not in ("literal", "attr") for part in numbers)


def _key(term: Term) -> str | int:
    return term.name if isinstance(term, Var) else id(term)


def _element_types(rule: Rule) -> tuple[Classes, set[object]]:
    """Return the classes of terms of one element type, and those that are floating point."""
    classes, told = Classes(), []
    for term in applied(rule.roots):
        operands = [_key(arg) for arg in term.args]
        key = _key(term)
        dtype = term.attrs.get("to" if term.op == _CAST else "dtype")
        if isinstance(dtype, Expr) and dtype.kind == "literal" and dtype.args[0] in FLOATS:
            told.append(key)
        if isinstance(dtype, Expr) and dtype.kind == "dtype":
            classes.join(key, dtype.args[0])
        alike = operands if term.op in _TRUTHS or _result_types(term) else [*operands, key]
        if term.op == _CAST:
            alike = []
        elif term.op != MAP and term.op not in _TRUTHS:
            others = get_op(term.op).element_types
            alike = [one for number, one in enumerate(alike) if number not in others]
        for one in alike[1:]:
            classes.join(alike[0], one)
        if alike and term.op not in _TRUTHS and _is_of_floats(term.op):
            told.append(key)
    for left, right in zip(rule.lhs, rule.rhs, strict=True):
        classes.join(_key(left), _key(right))
    told += [condition.args[0] for condition in rule.when if condition.kind == "is-float"]
    return classes, {classes.find(one) for one in told}


def _result_types(term: Apply) -> set[str]:
    """Return the element types that the result may have whatever types the operands have."""
    made = get_op(term.op).result_types if term.op != MAP else {}
    output = term.attrs.get(OUTPUT)
    if not made or not isinstance(output, Expr) or output.kind != "literal":
        return set(made.values())
    return {dtype for number, dtype in made.items() if number == output.args[0]}


def _is_of_floats(op: str) -> bool:
    """Return whether an operator has no result of whole numbers."""
    if op == MAP:
        return False
    known = get_op(op)
    if "floats" in known.traits or known.kind != "pointwise":
        return "floats" in known.traits
    try:
        known.type_fn([TensorType("int32", ())] * known.arity[0], dict.fromkeys(known.attrs, 1.0))
    except IllTyped:
        return True
    return False


# Whole numbers that the rule makes ----------------------------------------------------------------


def _made(term: Term) -> str:
    """Classify a term that the rule makes: ``bool`` for truth values, ``whole`` for whole numbers.

    The class of any other term is empty.

    Raises:
        Rounded: such a term meets an operator that may round it or take it for real numbers.
    """
    if not isinstance(term, Apply):
        return ""
    operands = [_made(arg) for arg in term.args]
    made = term.attrs.get("to" if term.op == _CAST else "dtype")
    if isinstance(made, Expr) and made.kind == "literal":
        if made.args[0] in FLOATS:
            return ""
        _check_value(term)
        return "bool" if made.args[0] == "bool" else "whole"
    known = get_op(term.op).element_types if term.op != MAP else {}
    if known.get(0) == "bool" and term.op not in _TRUTHS:
        operands[0] = ""  # a condition is true or false in any numbers
    allowed = {name for name, op in OPS.items() if op.keeps_elements}
    if "bool" not in operands:
        allowed |= {name for name in _RING if get_op(name).kind == "pointwise"}
    if any(operands) and term.op not in allowed:
        raise Rounded(
            f"{term.op} of whole numbers that the rule makes: proofs are over the real numbers, "
            f"where nothing is rounded, so these may meet {', '.join(sorted(allowed))} only"
        )
    return "whole" if _result_types(term) else max(operands, default="")


def _check_value(term: Apply) -> None:
    value = term.attrs.get("value")
    if isinstance(value, Expr):
        known = value.args[0] if value.kind == "literal" else None
        if known is None or not float(known).is_integer():
            raise Rounded(f"{term.op} makes a whole number of {value}, which rounds it")
