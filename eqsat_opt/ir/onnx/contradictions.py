"""Nodes that cannot run on any input, though inference and runtimes load them without error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.values.types import StaticType, TensorType

__all__ = ["NeverRuns", "contradiction"]

Types = Sequence[TensorType | None]


class NeverRuns(ModelError):
    """A node of a model cannot run on any input.

    Attributes:
        results: names of the results of the node.
    """

    def __init__(self, why: str, results: Sequence[str]) -> None:
        super().__init__(why)
        self.results = frozenset(results)


def contradiction(
    op: str, types: Types, attributes: Mapping[str, Any], target: Sequence[Any] | None
) -> str:
    """Return why a standard node can never run, as a sentence; empty if no reason is known.

    Args:
        op: the operator.
        types: the types of the inputs, ``None`` for an unknown one.
        attributes: the attributes by name.
        target: the value of the second input, if it is known.
    """
    check = _CHECKS.get(op)
    if check is None or not types or types[0] is None:
        return ""
    try:
        return check(types, attributes, target)
    except (IndexError, TypeError, ValueError):  # malformed; other checks report it
        return ""


def _channels(
    types: Types, attributes: Mapping[str, Any], _: object, *, transposed: bool = False
) -> str:
    x, w, group = types[0], types[1], int(attributes.get("group", 1))
    if group < 1:
        return f"it has {group} groups"
    if x is None or w is None:
        return ""
    if x.rank != w.rank:
        return f"its input has {x.rank} dimensions and its weights have {w.rank}"
    channels, out, per_group = x.shape[1], w.shape[0], w.shape[1]
    if not (isinstance(channels, int) and isinstance(out, int) and isinstance(per_group, int)):
        return ""
    takes = out if transposed else per_group * group
    if channels != takes:
        groups = f" in {group} groups" if group > 1 else ""
        return f"its input has {channels} channels and its weights take {takes}{groups}"
    if out % group:
        return f"{out} channels cannot be parted into {group} groups"
    return ""


def _depth_to_space(types: Types, attributes: Mapping[str, Any], _: object) -> str:
    assert types[0] is not None
    channels, block = types[0].shape[1], int(attributes["blocksize"])
    if isinstance(channels, int) and block > 0 and channels % block**2:
        return f"{channels} channels cannot be parted into blocks of {block} x {block}"
    return ""


def _space_to_depth(types: Types, attributes: Mapping[str, Any], _: object) -> str:
    assert types[0] is not None
    block = int(attributes["blocksize"])
    for size in types[0].shape[2:]:
        if isinstance(size, int) and block > 0 and size % block:
            return f"{size} rows or columns cannot be parted into blocks of {block}"
    return ""


def _reshape(types: Types, attributes: Mapping[str, Any], target: Sequence[Any] | None) -> str:
    x = types[0]
    if not isinstance(x, StaticType) or target is None:
        return ""
    if not all(isinstance(size, int) for size in target):
        return ""
    shape = x.shape
    kept = not attributes.get("allowzero", 0)
    sizes = [shape[i] if size == 0 and kept else size for i, size in enumerate(target)]
    known = math.prod(size for size in sizes if size != -1)
    total = math.prod(shape)
    fits = (total % known == 0 if known else total == 0) if -1 in sizes else known == total
    return "" if fits else f"{list(shape)} has {total} elements, which do not fit {list(target)}"


def _operand_ranks(types: Types, _: object, __: object, *, ranks: Sequence[Sequence[int]]) -> str:
    for index, (type_, allowed) in enumerate(zip(types, ranks, strict=False)):
        if type_ is not None and type_.rank not in allowed:
            return f"operand {index} has {type_.rank} dimensions instead of {allowed[-1]}"
    return ""


_OF_RECURRENCES = partial(_operand_ranks, ranks=((3,), (3,), (3,)))

_CHECKS: Mapping[str, Callable[[Types, Mapping[str, Any], Sequence[Any] | None], str]] = {
    "Conv": _channels,
    "ConvTranspose": partial(_channels, transposed=True),
    "DepthToSpace": _depth_to_space,
    "GRU": _OF_RECURRENCES,
    "Gemm": partial(_operand_ranks, ranks=((1, 2), (2,))),  # onnxruntime takes a vector too
    "LSTM": _OF_RECURRENCES,
    "RNN": _OF_RECURRENCES,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
}
