"""Rules that compute with extents apply to models with two and more symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eqsat_opt.egraph import Budget, Saturation, saturate
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.dims import Dim, sym
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import default_rules, load_rules
from eqsat_opt.rules.rule import Numerics, Phase
from tests.sampling import sampled

N, S, K = map(sym, "NSK")
Build = Callable[[GraphMaker, Dim, Dim, Dim], str]
"""Makes the left side of a rule from three extents."""


def _x(g: GraphMaker, *shape: Dim, name: str = "x") -> str:
    return g.input(name, *shape)


def _reshape(g: GraphMaker, x: str, *shape: Dim) -> str:
    return g("Reshape", x, shape=shape)


def _together(op: str) -> Build:
    def build(g: GraphMaker, a: Dim, b: Dim, c: Dim) -> str:
        x, y = (_reshape(g, _x(g, a, b, c, name=name), a * b, c) for name in "xy")
        return g(op, x, y)

    return build


def _by_scalar(op: str) -> Build:
    return lambda g, a, b, c: g(op, _reshape(g, _x(g, a, b, c), a * b, c), _x(g, name="c"))


def _stack(*rest: Dim) -> Build:
    def build(g: GraphMaker, a: Dim, b: Dim, c: Dim) -> str:
        x = _reshape(g, _x(g, a * b, *rest), a, b, *rest)
        y = _reshape(g, _x(g, c * b, *rest, name="y"), c, b, *rest)
        return g("Concat", x, y, axis=0)

    return build


def _take_first(*shape: Dim) -> Build:
    return lambda g, a, b, c: g(
        "Slice", _reshape(g, _x(g, 6, a, b, c), 6, *_of(shape, a, b, c)), axis=0, lo=1, hi=3
    )


def _take_last(axis: int, *shape: Dim) -> Build:
    def build(g: GraphMaker, a: Dim, b: Dim, c: Dim) -> str:
        x = _x(g, *((a, b, c) if axis == 1 else (a * b * c,)), 6)
        return g("Slice", _reshape(g, x, *_of(shape, a, b, c), 6), axis=axis, lo=1, hi=3)

    return build


def _of(shape: tuple[Dim, ...], a: Dim, b: Dim, c: Dim) -> tuple[Dim, ...]:
    """A shape that is written in N, S and K, in three other extents."""
    known = {N: a, S: b, K: c, N * S: a * b, S * K: b * c, N * S * K: a * b * c}
    return tuple(known[dim] for dim in shape)


def _unflatten(*batch: Dim) -> Build:
    def build(g: GraphMaker, a: Dim, b: Dim, c: Dim) -> str:
        dims = _of(batch, a, b, c)
        rows = a * b if len(batch) == 2 else a * b * c
        flat = _reshape(g, _x(g, *dims, 8), rows, 8)
        return _reshape(g, g("MatMul", flat, g.weight(8, 5)), *dims, 5)

    return build


def _biased(g: GraphMaker, *rows: Dim) -> str:
    """A batched product with one matrix, and its bias."""
    return g("Add", g("MatMul", _x(g, *rows, 8), g.weight(8, 6)), g.weight(6))


BUILDS: dict[str, Build] = {
    "compose": lambda g, a, b, c: _reshape(g, _reshape(g, _x(g, a, b, c), a * b, c), a, b * c),
    "expand-compose": lambda g, a, b, c: g(
        "Expand", g("Expand", _x(g, 1, 1, c), shape=(1, b, c)), shape=(a, b, c)
    ),
    "identity-2d": lambda g, a, b, c: _reshape(g, _x(g, a * b, c), a * b, c),
    "identity-3d": lambda g, a, b, c: _reshape(g, _x(g, a, b, c), a, b, c),
    "identity-4d": lambda g, a, b, c: _reshape(g, _x(g, a, b, c, 2), a, b, c, 2),
    "transpose-of-ones-2d": lambda g, a, b, c: g("Transpose", _x(g, a * b * c, 1), perm=(1, 0)),
    "transpose-of-ones-3d": lambda g, a, b, c: g("Transpose", _x(g, a * b, c, 1), perm=(2, 0, 1)),
    "transpose-of-ones-4d": lambda g, a, b, c: g("Transpose", _x(g, a, b, 1, c), perm=(0, 2, 1, 3)),
    "map": lambda g, a, b, c: g("Relu", _reshape(g, _x(g, a, b, c), a * b, c)),
    "map-reversed": lambda g, a, b, c: _reshape(g, g("Relu", _x(g, a, b, c)), a * b * c),
    "expand-map": lambda g, a, b, c: g("Relu", g("Expand", _x(g, 1, b, c), shape=(a, b, c))),
    "add": _together("Add"),
    "mul": _together("Mul"),
    "add-scalar": _by_scalar("Add"),
    "mul-scalar": _by_scalar("Mul"),
    "bias-2d": lambda g, a, b, c: _reshape(
        g, g("Add", _x(g, a, b, c, 8), g.weight(8)), a * b * c, 8
    ),
    "bias-3d": lambda g, a, b, c: _reshape(
        g, g("Add", _x(g, a, b, c, 8), g.weight(8)), a, b * c, 8
    ),
    "matmul-unflatten-3d": _unflatten(N, S),
    "matmul-unflatten-4d": _unflatten(N, S, K),
    "stack-2d": _stack(),
    "stack-3d": _stack(3),
    "stack-4d": _stack(3, 5),
    "flatten-sum-3d": lambda g, a, b, c: _biased(g, a, b * c),
    "flatten-sum-4d": lambda g, a, b, c: _biased(g, a, b, c),
    "flatten-sum-5d": lambda g, a, b, c: _biased(g, a, b, c, 2),
    "heads-of-part": lambda g, a, b, c: _reshape(
        g, g("Slice", _x(g, a, b * c, 24), axis=2, lo=8, hi=16), a, b * c, 2, 4
    ),
    "take-first-2d": _take_first(N * S * K),
    "take-first-3d": _take_first(N * S, K),
    "take-first-4d": _take_first(N, S, K),
    "take-last-2d": _take_last(1, N * S * K),
    "take-last-3d": _take_last(2, N * S, K),
    "take-last-4d": _take_last(3, N, S, K),
}


def united(saturation: Saturation) -> set[str]:
    return {name for names in saturation.eclasses.united_by.values() for name in names}


def test_every_reshape_rule_has_a_graph_here() -> None:
    rules = [r for r in default_rules() if r.phase is not Phase.DERIVATION]
    names = {r.name.removeprefix("reshape/") for r in rules if r.name.startswith("reshape/")}
    assert names <= set(BUILDS)


@pytest.mark.parametrize("name", sampled(BUILDS, 3))
@pytest.mark.parametrize(
    "sizes", [(2, 3, 4), (N, 3, 4), (N, S, 4), (N, S, K), (N, S * 2, K), (N + 1, S - N, K)], ids=str
)
def test_reshape_rules_apply_to_symbolic_extents(name: str, sizes: tuple[Dim, Dim, Dim]) -> None:
    g = GraphMaker()
    out = BUILDS[name](g, *sizes)
    rules = load_rules([f"reshape/{name.removesuffix('-reversed')}"], Numerics.RELAXED)
    saturation = saturate(g.graph(out), rules, Budget(iterations=3))
    assert f"reshape/{name}" in united(saturation)
    assert not check_eclasses(saturation, dims={"N": 3, "S": 5, "K": 2}).bad


def heads(batch: Dim, queries: Dim, keys: Dim, *, masked: bool) -> Graph:
    g = GraphMaker()
    q = _x(g, batch, 4, queries, 8, name="q")
    k, v = (_x(g, batch, 4, keys, 8, name=name) for name in "kv")
    logits = g("MatMul", q, g("Transpose", k, perm=(0, 1, 3, 2)))
    logits = g("Mul", logits, g.constant(np.array(0.25, np.float32)))
    if masked:
        logits = g("Add", logits, _x(g, batch, 1, queries, keys, name="mask"))
    return g.graph(g("MatMul", g("Softmax", logits, axis=3), v))


def merged(batch: Dim, queries: Dim, keys: Dim, *, masked: bool) -> Graph:
    """Batch and heads in one axis, split and merged by reshapes."""
    g = GraphMaker()
    q = _reshape(g, _x(g, batch, 4, queries, 8, name="q"), batch * 4, queries, 8)
    k, v = (_reshape(g, _x(g, batch, 4, keys, 8, name=name), batch * 4, keys, 8) for name in "kv")
    logits = g("MatMul", q, g("Transpose", k, perm=(0, 2, 1)))
    logits = g("Mul", logits, g.constant(np.array(0.25, np.float32)))
    if masked:
        logits = g("Add", logits, _x(g, 1, queries, keys, name="mask"))
    y = g("MatMul", g("Softmax", logits, axis=2), v)
    return g.graph(_reshape(g, y, batch, 4, queries, 8))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("graph", [heads, merged])
@pytest.mark.parametrize("sizes", [(2, 6, 6), (N, S, S), (N, S, K), (N, S, S + K)], ids=str)
def test_attention_is_recognised_with_symbolic_extents(
    graph: Callable[..., Graph], sizes: tuple[Dim, Dim, Dim], masked: bool
) -> None:
    rules = [r for r in default_rules(Numerics.RELAXED) if r.phase is not Phase.DERIVATION]
    saturation = saturate(graph(*sizes, masked=masked), rules, Budget())
    assert saturation.report.recognised == {"MaskedAttention" if masked else "Attention": 1}
    dims = {"N": 2, "S": 5, "K": 3}
    assert not check_eclasses(saturation, dims=dims, rtol=1e-4).bad


def test_what_is_computed_from_an_open_extent_is_no_constant() -> None:
    g = GraphMaker()
    ones = g("Expand", g.constant(np.ones((1, 1), np.float32)), shape=(N, 4))
    out = g("Add", _x(g, 1, 4), g("ReduceSum", ones, axes=(0,), keepdims=1))
    saturation = saturate(g.graph(out), load_rules(["reduction", "reshape"], Numerics.RELAXED))
    eclasses = saturation.eclasses
    for node in range(eclasses.n_nodes):
        if eclasses.op[node] in ("Expand", "ReduceSum"):
            assert not eclasses.is_const[int(eclasses.class_of[node])]
