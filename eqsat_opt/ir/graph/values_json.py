"""Sizes, types and applied operators as JSON, for every module that stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.common.codecs import Entry, number_from_json, number_to_json
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.graph import Attr, Attrs
from eqsat_opt.ir.ops import AttrKind, IllTyped, get_op, is_known
from eqsat_opt.ir.values.dims import FUNCTIONS, Dim, SymDim, applied, atom_of, sym
from eqsat_opt.ir.values.types import DTYPE_CODES, OtherType, TensorType, ValueType

__all__ = [
    "TYPING_FAILURES",
    "attrs_text",
    "dim_from_json",
    "dim_to_json",
    "operator_from_json",
    "operator_to_json",
    "type_from_json",
    "type_to_json",
]

TYPING_FAILURES = (
    IllTyped, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions of an operator's typing for operands that no importer or rule would make: it raises
:class:`~eqsat_opt.ir.ops.IllTyped` only if the types and attributes make sense by themselves.
"""


# ** sizes **


def dim_to_json(dim: Dim) -> Any:
    """Return a number, or the terms of a polynomial: ``[[coefficient, [factor, ...]], ...]``.

    A factor is a name, or ``{"floor": [size, size]}`` for a division with a remainder; maxima and
    minima are written in the same way.
    """
    if not isinstance(dim, SymDim):
        return int(dim)
    return [[coefficient, [_atom(name) for name in names]] for names, coefficient in dim.terms]


def _atom(name: str) -> Any:
    atom = atom_of(name)
    if atom is None:
        return name
    return {atom.function: [dim_to_json(atom.left), dim_to_json(atom.right)]}


def dim_from_json(value: Any, where: str) -> Dim:
    """Return the size that :func:`dim_to_json` wrote.

    Raises:
        StageError: the value is not a size, or not written in its normal form.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(map(_is_term, value)):
        raise StageError(f"{where} holds {value!r:.40}, which is not a size")
    total: Dim = 0
    for coefficient, factors in value:
        product: Dim = coefficient
        for factor in factors:
            product = product * _factor(factor, where)
        total = total + product
    if not isinstance(total, SymDim) or dim_to_json(total) != value:
        raise StageError(f"{where} holds {value!r:.40}, which is not the normal form of a size")
    return total


def _is_term(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], int)
        and not isinstance(value[0], bool)
        and isinstance(value[1], list)
    )


def _factor(value: Any, where: str) -> Dim:
    if isinstance(value, str):
        return sym(value)
    if isinstance(value, dict) and len(value) == 1:
        ((function, parts),) = value.items()
        if function in FUNCTIONS and isinstance(parts, list) and len(parts) == 2:
            left, right = (dim_from_json(part, where) for part in parts)
            if function != "floor" or right != 0:
                return applied(function, left, right)
    raise StageError(f"{where} holds {value!r:.40}, which is not a factor of a size")


# ** types **


def type_to_json(type_: ValueType) -> Any:
    """Return ``["float32", [1, 8]]``, or ``{"other": text}`` for a type that is not a tensor's."""
    if isinstance(type_, OtherType):
        return {"other": type_.text}
    return [type_.dtype, [dim_to_json(dim) for dim in type_.shape]]


def type_from_json(value: Any, where: str) -> ValueType:
    """Return the type that :func:`type_to_json` wrote.

    Raises:
        StageError: the value is not a type.
    """
    if isinstance(value, dict):
        entry = Entry(value, where)
        entry.require_fields("other")
        return OtherType(entry.text("other"))
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise StageError(f"{where} is {value!r:.40}, which is not a type")
    if not isinstance(value[0], str) or value[0] not in DTYPE_CODES:
        raise StageError(f"{where} has the unknown element type {value[0]!r:.40}")
    shape = tuple(dim_from_json(dim, where) for dim in value[1])
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise StageError(f"{where} has a negative size")
    return TensorType(value[0], shape)


# ** operators **


def operator_to_json(op: str, attrs: Attrs) -> dict[str, Any]:
    """Return ``{"op": "Concat", "attrs": {"axis": 1}}``, without ``attrs`` if there are none."""
    if not attrs:
        return {"op": op}
    return {"op": op, "attrs": {name: _attr_to_json(value) for name, value in attrs}}


def operator_from_json(
    entry: Entry, n_operands: int, others: Mapping[str, Mapping[str, AttrKind]]
) -> tuple[str, Attrs]:
    """Return the operator and the attributes that :func:`operator_to_json` wrote.

    Args:
        entry: the object.
        n_operands: the number of operands that the operator is applied to.
        others: operators besides those of the registry, with their attributes; they take any number
            of operands.

    Raises:
        StageError: the operator is unknown, an attribute is missing, unknown or of another kind, or
            the operator takes another number of operands.
    """
    op = entry.text("op")
    if op not in others and not is_known(op):
        raise StageError(f"{entry.where} has the unknown operator {op!r}")
    if op not in others:
        least, most = get_op(op).arity
        if not least <= n_operands <= most:
            raise StageError(f"{entry.where}: {op} is applied to {n_operands} operands")
    kinds = others[op] if op in others else get_op(op).attrs
    given = Entry(entry.value.get("attrs", {}), f"attributes of {entry.where}")
    if odd := sorted(given.value.keys() ^ kinds.keys()):
        what = "lacks the attribute" if odd[0] in kinds else "has the unknown attribute"
        raise StageError(f"{entry.where}: {op} {what} {odd[0]!r}")
    return op, tuple(
        (name, _attr_from_json(value, kinds[name], given.place(name)))
        for name, value in given.value.items()
    )


def _attr_to_json(value: Attr) -> Any:
    if isinstance(value, tuple):
        return [dim_to_json(dim) for dim in value]
    if isinstance(value, SymDim):
        return dim_to_json(value)
    return value if isinstance(value, str) else number_to_json(value)


def _attr_from_json(value: Any, kind: AttrKind, where: str) -> Attr:
    if kind == "ints" and isinstance(value, list):
        return tuple(dim_from_json(item, where) for item in value)
    if kind == "size":
        return dim_from_json(value, where)
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "int" and isinstance(value, int):
        return value
    if kind == "float":
        return number_from_json(value, where)
    raise StageError(f"{where} is {value!r:.40}; it is an attribute of the kind {kind!r}")


def attrs_text(attrs: Attrs) -> str:
    """Return attributes in readable form: ``group=1, pads=1,1,1,1``."""
    return ", ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in attrs
    )
