"""Codes of extents are never taken for one another nor for literals, and add and multiply."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.egraph.encoding import extents
from eqsat_opt.egraph.encoding.extents import ExtentCodes, congruent, plus, times
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.egraph.terms import LEAF, TermNode
from eqsat_opt.errors import SaturationError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.values.dims import LITERALS, MODULUS, Dim, SymDim, dim_product, encode_dim, sym
from eqsat_opt.ir.values.types import TensorType

NAMES = st.text(min_size=1, max_size=12).filter(lambda name: not name.startswith("floor("))
FACTORS = st.integers(-4096, 4096).filter(bool)


@st.composite
def affine(draw: st.DrawFn, names: Sequence[str]) -> Dim:
    total: Dim = draw(st.integers(-(1 << 16), 1 << 16))
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        total = total + sym(name) * draw(FACTORS)
    return total


@st.composite
def models(draw: st.DrawFn) -> list[Dim]:
    """Extents of one model: sums, differences and products of up to four of its sizes."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    found: list[Dim] = [sym(name) for name in names]
    found += [sym(a) - sym(b) for a in names for b in names if a != b]
    found += draw(st.lists(affine(names), max_size=4))
    parts = st.lists(st.sampled_from(found), min_size=2, max_size=4)
    found += [dim_product(part) for part in draw(st.lists(parts, max_size=4))]
    return [*found, *draw(st.lists(st.integers(0, 1 << 40), max_size=3))]


def codes_of(dims: Sequence[Dim]) -> ExtentCodes:
    return ExtentCodes.of([
        TermNode(LEAF, attributes(index=i), (), TensorType("float32", (dim,)))
        for i, dim in enumerate(dims)
    ])  # fmt: skip


@given(models(), st.integers(0, LITERALS - 1))
def test_no_code_is_decoded_wrongly(dims: list[Dim], number: int) -> None:
    codes = codes_of(dims)
    for dim in dims:
        code = codes.encode(dim)
        assert codes.decode(code) == dim
        if isinstance(dim, SymDim):
            for near, meant in ((code + number, dim + number), (code - number, dim - number)):
                assert codes.decode(near) in (None, meant)
                assert LITERALS <= near < MODULUS
    for one in dims:
        for other in dims:
            a, b = codes.encode(one), codes.encode(other)
            assert codes.decode((a + b) % MODULUS) in (None, one + other)
            product = one * other
            if isinstance(product, SymDim) or product < MODULUS:  # no tensor has more elements
                assert codes.decode(a * b % MODULUS) in (None, product)
            difference = codes.decode((a - b) % MODULUS)
            assert difference in (None, one - other)


@given(models())
def test_arithmetic_on_codes_gives_codes(dims: list[Dim]) -> None:
    symbolic = [dim for dim in dims if isinstance(dim, SymDim)]
    for one in symbolic:
        for other in symbolic:
            a, b = encode_dim(one), encode_dim(other)
            assert encode_dim(one + other) % MODULUS == (a + b) % MODULUS
            assert encode_dim(one - other) % MODULUS == (a - b) % MODULUS
            assert encode_dim(one * other) % MODULUS == a * b % MODULUS


EDGES = (0, 1, -1, 2**31 - 1, 2**31, LITERALS - 1, 2**60, -(2**60), MODULUS - 1, 1 - MODULUS)


def test_the_engine_computes_alike() -> None:
    rng = random.Random(0)
    numbers = [*EDGES, *(rng.randrange(1 - MODULUS, MODULUS) for _ in range(15))]
    pairs = [(a, b) for a in numbers for b in numbers]
    facts = [*times("a", "b", "p"), f"(= s {plus('a', 'b')})", f"(= c {congruent('a', 'b')})"]
    engine = Engine()
    try:
        engine.run(
            [
                "(relation operands (i64 i64))",
                "(relation result (i64 i64 i64 i64 i64))",
                *(f"(operands {a} {b})" for a, b in pairs),
                f"(rule ((operands a b) {' '.join(facts)}) ((result a b p s c)))",
                "(run 1)",
            ]
        )
        rows = [[engine.i64(v) for v in row.inputs] for row in engine.tables()["result"].rows]
    finally:
        engine.close()
    assert {(a, b) for a, b, *_ in rows} == set(pairs)  # No overflow anywhere.
    for a, b, product, total, congruence in rows:
        assert (product - a * b) % MODULUS == 0
        assert (total - a - b) % MODULUS == 0
        assert (congruence == 0) == ((a - b) % MODULUS == 0)
        if 0 <= a < MODULUS and 0 <= b < MODULUS:
            assert min(product, total) >= 0
            assert max(product, total) < MODULUS


@pytest.mark.parametrize("unlucky", [0, 1, LITERALS - 1, LITERALS, MODULUS - 1])
def test_a_salt_that_looks_like_a_literal_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, unlucky: int
) -> None:
    n, m = sym("n"), sym("m")

    def coded(dim: Dim, salt: int = 0) -> int:
        return unlucky if dim == n - m and salt < 2 else encode_dim(dim, salt)

    monkeypatch.setattr(extents, "encode_dim", coded)
    codes = codes_of([n, m, n - m, 7])
    assert codes.encode(n - m) == encode_dim(n - m, 2)
    assert [codes.decode(codes.encode(dim)) for dim in (n, m, n - m, 7)] == [n, m, n - m, 7]


def test_extents_that_cannot_be_told_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "encode_dim", lambda dim, salt: 1 << 40)
    codes_of([sym("n")])
    with pytest.raises(SaturationError, match="cannot be told"):
        codes_of([sym("n"), sym("m")])
