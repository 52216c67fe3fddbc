"""Extents of terms, from those of their variables, and where terms were concatenated."""

from __future__ import annotations

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import get_op
from eqsat_opt.rules.term import MAP, Apply, Expr, Size, Term, Var, expr

__all__ = ["extent", "literal_axis", "seam"]


def extent(term: Term, axis: Size) -> Expr:
    """Return the extent of a term along an axis, from the extents of its variables.

    Operands of elementwise operators have one shape, and windows cover images at stride 1, so that
    these keep their extents. The axis may be a variable where all operators are elementwise.

    Raises:
        RuleError: it does not follow in this way.
    """
    if isinstance(term, Var):
        return term.dim(axis)
    assert isinstance(term, Apply)
    if _is_elementwise(term):
        return extent(term.args[0], axis)
    if isinstance(axis, Expr):
        raise RuleError(f"the extent of {term} along a variable axis does not follow")
    axis = int(axis)
    match term.op:
        case "MatMul":
            return extent(term.args[1 if axis == 1 else 0], axis)
        case "Conv":
            return extent(term.args[1], 0) if axis == 1 else extent(term.args[0], axis)
        case "Transpose":
            return extent(term.args[0], _literals(term, "perm")[axis])
        case "Fill" | "Reshape":
            shape = term.attrs["shape"]
            assert isinstance(shape, tuple)
            return shape[axis]
        case "IdentityKernel":
            size = term.attrs[("channels", "channels", "height", "width")[axis]]
            assert isinstance(size, Expr)
            return size
        case "Concat":
            parts = [extent(arg, axis) for arg in term.args]
            return parts[0] + parts[1] if literal_axis(term) == axis else parts[0]
        case "Slice" if literal_axis(term) == axis:
            lo, hi = term.attrs["lo"], term.attrs["hi"]
            assert isinstance(lo, Expr)
            assert isinstance(hi, Expr)
            return hi - lo
        case "Pad":
            pads = _literals(term, "pads")
            added = pads[axis] + pads[axis + len(pads) // 2]
            return extent(term.args[0], axis) + expr(added) if added else extent(term.args[0], axis)
        case "Slice" | "MaxPool" | "AveragePool":
            return extent(term.args[0], axis)
    raise RuleError(f"the extent of {term} along axis {axis} does not follow from its operands")


def _is_elementwise(term: Apply) -> bool:
    return term.op == MAP or (bool(term.args) and get_op(term.op).kind == "pointwise")


def literal_axis(term: Apply) -> int:
    """Return the axis of a term as a number.

    Raises:
        RuleError: it is a variable.
    """
    axis = term.attrs["axis"]
    assert isinstance(axis, Expr)
    if axis.kind != "literal":
        raise RuleError(f"the axis of {term} is a variable")
    return int(axis.args[0])


def _literals(term: Apply, name: str) -> list[int]:
    values = term.attrs[name]
    if not isinstance(values, tuple) or any(one.kind != "literal" for one in values):
        raise RuleError(f"{name} of {term} is a variable")
    return [int(one.args[0]) for one in values]


def seam(term: Term, axis: int) -> Expr:
    """Return where a split along an axis cuts: at the boundary in the concatenated operand.

    Raises:
        RuleError: no concatenation made the term.
    """
    if isinstance(term, Apply):
        match term.op:
            case "Concat" if literal_axis(term) == axis:
                return extent(term.args[0], axis)
            case "Transpose":
                return seam(term.args[0], _literals(term, "perm")[axis])
            case "MatMul" if axis < 2:
                return seam(term.args[axis], axis)
            case "Conv" if axis < 2:
                return seam(term.args[axis], 0)
            case "Concat" | "MaxPool" | "AveragePool":
                return seam(term.args[0], axis)
            case _ if _is_elementwise(term):
                return seam(term.args[0], axis)
    raise RuleError(f"a split along axis {axis} of {term}, which no concatenation made")
