"""Rules that take an axis for another one where both are equally long, so that types agree.

A right rule moves a transpose past an operator along an axis, or composes two transposes. Each
mistake with the permutation is a rule: none applied, or the inverse one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

from eqsat_opt.rules import Numerics, Term, concat, declared, ops
from tests.gate.cases import Case, difference, f64

__all__ = ["of_placements"]

_RANK = 3
_ORDERS = [order for order in permutations(range(_RANK)) if order != tuple(range(_RANK))]
_Along = Callable[[Mapping[str, Any], Callable[[Term], Term], int], Term]
_ALONG: Mapping[str, _Along] = {
    "sum": lambda v, t, axis: ops.ReduceSum(t(v["x"]), axes=(axis,), keepdims=1),
    "greatest": lambda v, t, axis: ops.ReduceMax(t(v["x"]), axes=(axis,), keepdims=1),
    "softmax": lambda v, t, axis: ops.Softmax(t(v["x"]), axis=axis),
    "logarithmic-softmax": lambda v, t, axis: ops.LogSoftmax(t(v["x"]), axis=axis),
    "joined": lambda v, t, axis: concat(t(v["x"]), t(v["y"]), axis=axis),
    "mean": lambda v, t, axis: t(v["x"])
    - ops.ReduceMean(t(v["x"]), axes=(axis,), keepdims=1),
}  # fmt: skip


def _same(x: Term) -> Term:
    return x


def _transposed(order: tuple[int, ...]) -> Callable[[Term], Term]:
    return lambda x: ops.Transpose(x, perm=order)


def _cases(name: str, left: Callable[..., Term], right: Callable[..., Term]) -> Iterator[Case]:
    kinds = {"x": "Tensor", "y": "Tensor"} if name.startswith("joined") else {"x": "Tensor"}
    rule = declared(
        f"placement/{name}",
        "One axis stands for another one of the same length.",
        kinds,
        lambda v: (
            left(v), right(v), v["x"].rank == _RANK,
            *(v[n].shape == v["x"].shape for n in kinds if n != "x"),
            v["x"].dim(0) == v["x"].dim(1), v["x"].dim(1) == v["x"].dim(2),
        ),
        numerics=Numerics.REASSOCIATE,
    )  # fmt: skip
    case = Case(rule, dict.fromkeys(kinds, f64(2, 2, 2)))
    if difference(case) is not None:
        yield case


def of_placements() -> Iterator[Case]:
    """All mistakes with a permutation, for each operator along an axis, and for two transposes."""
    for (name, along), order, axis in product(_ALONG.items(), _ORDERS, range(_RANK)):
        moved = _transposed(order)
        for mistake, other in (("kept", axis), ("inverse", order.index(axis))):
            if other != order[axis] and (mistake == "kept" or other != axis):
                text = "".join(map(str, order))
                yield from _cases(
                    f"{name}-{mistake}-{axis}-of-{text}",
                    lambda v, a=along, t=moved, at=axis: a(v, t, at),
                    lambda v, a=along, t=moved, at=other: t(a(v, _same, at)),
                )
    for first, second in product(_ORDERS, _ORDERS):
        turned = tuple(second[axis] for axis in first)  # the right order is first[second]
        yield from _cases(
            f"turns-{''.join(map(str, first))}-{''.join(map(str, second))}",
            lambda v, p=first, q=second: _transposed(q)(_transposed(p)(v["x"])),
            lambda v, p=turned: _transposed(p)(v["x"]),
        )
