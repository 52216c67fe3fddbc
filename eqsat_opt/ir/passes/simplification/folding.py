"""Nodes whose operands are constants."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.graph.graph import Constant, Node
from eqsat_opt.ir.graph.handles import array_constant, held_bytes, is_expensive
from eqsat_opt.ir.onnx.folding import evaluate_opaque, fold, is_deterministic, is_exact
from eqsat_opt.ir.onnx.quantised import may_fold
from eqsat_opt.ir.onnx.types import opset_of
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.passes.simplification.draft import Draft
from eqsat_opt.ir.values.types import StaticType, TensorType, numpy_dtype

__all__ = ["ROUNDING", "folded", "folded_opaque"]

ROUNDING = frozenset(name for name in OPS if not is_exact(name))
"""Operators whose results two implementations may round differently."""

_FOLDED_BYTES = 4 << 20
"""Bytes up to which a folded constant is allowed; it may also be as large as its operands."""


def folded(node: Node, draft: Draft) -> tuple[Constant] | None:
    """Return the constant that an operator of the registry on constants equals."""
    constants = []
    for name in node.inputs:
        constant = draft.constants.get(name)
        if constant is None:
            return None
        constants.append(constant)
    type_ = draft.types[node.output]
    if not isinstance(type_, StaticType) or type_.dtype == "string":
        return None
    result = fold(node, constants, type_, _FOLDED_BYTES)
    return None if result is None else (result,)


def folded_opaque(node: Node, draft: Draft) -> tuple[Constant | None, ...] | None:
    """Return the constants that the results of an opaque standard operator on constants equal."""
    operands = [draft.constants.get(name) for name in node.inputs]
    given = [one for one in operands if one is not None]
    if len(given) != sum(map(bool, node.inputs)) or not _may_evaluate(node, given, draft):
        return None
    arrays = [None if one is None else one.load() for one in operands]
    results = evaluate_opaque(node.payload, arrays, opset_of(draft.original))
    if results is None:
        return None
    constants: list[Constant | None] = []
    for name, array in zip(node.outputs, results, strict=True):
        type_ = draft.types.get(name)
        if not name:
            constants.append(None)
        elif isinstance(type_, TensorType) and array.shape == type_.shape:
            constants.append(array_constant(array.astype(numpy_dtype(type_.dtype))))
        else:
            return None
    return tuple(constants)


def _may_evaluate(node: Node, operands: Sequence[Constant], draft: Draft) -> bool:
    """Return whether evaluating an opaque node is defined, allowed and cheap."""
    if (
        not operands
        or node.captures
        or node.payload is None
        or not is_deterministic(node.payload)
        or not may_fold(node.payload, [one.type.dtype for one in operands])
        or is_expensive(*operands)
    ):
        return False
    room = max(_FOLDED_BYTES, held_bytes(operands))
    results = (draft.types.get(name) for name in node.outputs if name)
    return all(one.type.bytes <= room for one in operands) and all(
        isinstance(type_, StaticType) and type_.dtype != "string" and type_.bytes <= room
        for type_ in results
    )
