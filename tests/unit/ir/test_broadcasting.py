"""Types of operators on sizes that fit because the model runs, and of nothing else."""

from __future__ import annotations

import pytest

from eqsat_opt.ir.graph.broadcasting import Joins, assumed, result_type
from eqsat_opt.ir.graph.graph import Attrs, attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.sizes.facts import SizeFacts
from eqsat_opt.ir.values.dims import Dim, dim_broadcast, floor_div, sym
from eqsat_opt.ir.values.types import TensorType

N, M, K = map(sym, "nmk")
BOTH = dim_broadcast(N, M)


def floats(*shape: Dim) -> TensorType:
    return TensorType("float32", shape)


@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [
        (N, N, N),
        (N, 1, N),
        (N, 7, 7),
        (0, N, 0),
        (N, M + 2, M + 2),
        (N, 2 * M, 2 * M),
        (2 * floor_div(N, 2), N, 2 * floor_div(N, 2)),
        (BOTH, N, BOTH),
        (M, BOTH, BOTH),
        (BOTH, K, dim_broadcast(dim_broadcast(K, N), M)),
        (BOTH, 3, 3),
    ],
)
def test_a_common_size_is_the_one_that_is_never_one(left: Dim, right: Dim, whole: Dim) -> None:
    assert dim_broadcast(left, right) == dim_broadcast(right, left) == whole


def test_facts_choose_the_common_size() -> None:
    facts = SizeFacts(frozenset({(2, N)}))
    assert facts.simplified(BOTH + 1) == N + 1
    assert SizeFacts().simplified(BOTH) == BOTH


def test_a_common_size_may_be_either() -> None:
    facts = SizeFacts(frozenset({(N, K), (M, K)}))
    assert facts.is_size(K - BOTH)
    assert not SizeFacts(frozenset({(N, K)})).is_size(K - BOTH)
    assert SizeFacts(frozenset({(5, N), (5, M)})).is_size(BOTH - 5)
    assert not SizeFacts(frozenset({(5, N)})).is_size(dim_broadcast(N - 7, M) - 5)


@pytest.mark.parametrize(
    ("op", "attrs", "operands", "result"),
    [
        ("Add", (), [floats(N, 1), floats(M, 4)], floats(BOTH, 4)),
        ("Add", (), [floats(K, N), floats(M)], floats(K, BOTH)),
        ("MatMul", (), [floats(N, 2, 3), floats(M, 3, 4)], floats(BOTH, 2, 4)),
        ("Expand", attributes(shape=(5, M)), [floats(N, 1)], floats(5, M)),
        ("Expand", attributes(shape=(BOTH, 2)), [floats(N, 1)], floats(BOTH, 2)),
        ("MaskedAttention", attributes(scale=1.0),
         [floats(1, 2, 5, 8), floats(1, 2, 6, 8), floats(1, 2, 6, 8), floats(N, 1, 5, 6)],
         None),
        ("Expand", attributes(shape=(M, 2)), [floats(N, 1)], None),
        ("Reshape", attributes(shape=(M, 4)), [floats(N, 2)], floats(M, 4)),
        ("Reshape", attributes(shape=(3, 4)), [floats(5, 2)], None),
        ("Add", (), [floats(5, N), floats(3, N)], None),
        ("MatMul", (), [floats(2, N), floats(M, 4)], None),
    ],
)  # fmt: skip
def test_a_model_shows_what_fits(
    op: str, attrs: Attrs, operands: list[TensorType], result: TensorType | None
) -> None:
    if result is None:
        with pytest.raises(IllTyped):
            result_type(op, operands, dict(attrs))
    else:
        assert result_type(op, operands, dict(attrs)) == result


def test_only_pairs_of_the_model_fit() -> None:
    joins = Joins.of([("Add", (), [floats(N, 4), floats(M, 1)], floats(BOTH, 4))])
    for left, right in ((N, M), (M, N), (N, BOTH), (BOTH, M)):
        assert result_type("Mul", [floats(left), floats(right)], {}, joins) == floats(BOTH)
    assert result_type("MatMul", [floats(N, 2, 3), floats(M, 3, 4)], {}, joins) == floats(
        BOTH, 2, 4
    )
    for left, right in ((N, K), (BOTH, K), (N, 5), (4, M)):
        with pytest.raises(IllTyped):
            result_type("Mul", [floats(left), floats(right)], {}, joins)
    with pytest.raises(IllTyped):
        result_type("Reshape", [floats(N, 2)], {"shape": (M, 2)}, Joins({}))


def test_what_is_known_to_be_larger_is_the_common_size() -> None:
    joins = Joins.of([("Less", (), [floats(N), floats(M)], TensorType("bool", (M,)))])
    assert joins(N, M) == joins(M, N) == M
    assert assumed(N, 1) == N


def test_of_three_sizes_only_their_common_size_is_known() -> None:
    whole = dim_broadcast(BOTH, K)
    types = [TensorType("bool", (N,)), floats(M), floats(K)]
    joins = Joins.of([("Where", (), types, floats(whole))])
    assert joins(N, whole) == joins(whole, K) == whole
    with pytest.raises(IllTyped):
        joins(N, M)
