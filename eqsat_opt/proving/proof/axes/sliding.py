"""Windows over any number of axes: an axis may be left out where all windows slide alike on it.

Take an axis with windows and one position on it. A convolution there is a sum over the taps of the
kernel; each addend is the convolution without this axis, of the data that the tap meets and the
weights of the tap. Let all windows of a rule have the same strides, pads, dilations and kernels,
let every operation on data and weights before them be elementwise along this axis, and let every
operation after them be additive. Then each side of the rule is the sum, over the same taps, of the
side without the axis, and where these agree the sides do. A transposed convolution is a sum over
pairs of an element and a tap that lead to the position. Average pools add up over a number of
elements that is a product over the axes; for max pools the sum is a maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.ops import get_op
from eqsat_opt.proving.proof.axes.frames import Frames
from eqsat_opt.proving.proof.axes.relations import Key
from eqsat_opt.proving.typing.scenario import WINDOWS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Expr, Term, Var, offset

__all__ = ["slides_alike"]

_GEOMETRY = (
    "strides", "pads", "dilations", "kernel", "ceil", "count_include_pad", "output_padding",
)  # fmt: skip
_ADDITIVE = frozenset({"Add", "Sub", "Neg", "Scale"})
_MONOTONE = frozenset({"Max", "Relu"})
_BESIDE = frozenset({"Concat", "Slice"})


class _Unlike(Exception):
    """The error raised where windows of a rule do not treat all axes alike, with the reason."""


def slides_alike(rule: Rule, frames: Frames, windows: Sequence[Key]) -> str:
    """Return why windows of any rank are not known to treat all axes alike; empty if they are."""
    try:
        _check_geometry(frames, [frames.terms[key] for key in windows])
        for left, right in zip(rule.lhs, rule.rhs, strict=True):
            kinds = {_after(rule, frames, left), _after(rule, frames, right)}
            if not kinds <= {"sum"} and not kinds <= {"max"}:
                raise _Unlike("windows of several kinds")
    except _Unlike as reason:
        return f"windows over any number of axes: {reason}"
    return ""


def _check_geometry(frames: Frames, windows: Sequence[Apply]) -> None:
    attrs = [tuple(str(term.attrs.get(name)) for name in _GEOMETRY) for term in windows]
    if len(set(attrs)) > 1:
        raise _Unlike("they differ in their attributes")
    for place in (0, 1):
        operands = [term.args[place] for term in windows if len(term.args) > place]
        leaves = {frames.shapes.find(leaf) for one in operands for leaf in frames.leaves(one)}
        if len(leaves) > 1:
            raise _Unlike("they slide over tensors of different shapes")
    if any(len(term.args) > 2 for term in windows):
        raise _Unlike("a bias is added once, not for each tap")
    if len({term.op == "ConvTranspose" for term in windows}) > 1:
        raise _Unlike("a transposed convolution meets other taps")


def _after(rule: Rule, frames: Frames, term: Term) -> str:
    """Classify a term: ``sum`` or ``max`` after a window, ``before`` one, or ``free`` of axes.

    Raises:
        _Unlike: the term is none of these.
    """
    if isinstance(term, Var):
        most = frames.ranks.most(term.name)
        if most is not None and most > 0:
            raise _Unlike(f"{term.name} is of a few ranks")
        return "free" if most == 0 else "before"
    assert isinstance(term, Apply)
    found = [_after(rule, frames, arg) for arg in term.args]
    if term.op in WINDOWS:
        if set(found) != {"before"}:
            raise _Unlike("a window behind another")
        return "max" if term.op == "MaxPool" else "sum"
    if term.op in _BESIDE:
        if not _is_in_front(rule, term.attrs["axis"]):
            raise _Unlike(f"the axis {term.attrs['axis']} may be one of theirs")
        return _only(found)
    # The axes of the bounds of a Clamp are not those of its operand.
    pointwise = term.op == MAP or (get_op(term.op).kind == "pointwise" and term.op != "Clamp")
    if not {"sum", "max"} & set(found):
        if term.op == "Scalar" or (pointwise and set(found) <= {"free"}):
            return "free"
        if pointwise and term.op != "BatchNormalization":
            return "before"
    elif _is_additive(term.op, found):
        return "sum"
    elif term.op in _MONOTONE and set(found) == {"max"}:
        return "max"
    raise _Unlike(f"{term.op} is not taken apart with them")


def _is_additive(op: str, found: list[str]) -> bool:
    if op == "Mul":
        return sorted(found) == ["free", "sum"]
    return (op == "Div" and found == ["sum", "free"]) or (op in _ADDITIVE and set(found) == {"sum"})


def _only(found: Sequence[str]) -> str:
    if len(set(found)) != 1:
        raise _Unlike("what is put together differs")
    return found[0]


def _is_in_front(rule: Rule, axis: AttrPattern) -> bool:
    """Return whether an axis is one of the first two, over which no window slides."""
    assert isinstance(axis, Expr)
    if axis.kind == "literal":
        return axis.args[0] in (0, 1)
    for condition in rule.when:
        if condition.kind in ("<", "<=") and str(condition.args[0]) == str(axis):
            limit, more = offset(condition.args[1])
            if limit.kind == "literal" and limit.args[0] + more < 2 + (condition.kind == "<"):
                return True
    return False
