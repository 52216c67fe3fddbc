"""The laws of the book at work: small models get smaller, and wrong neighbours are refuted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.egraph.saturation.program import relevant
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.proving.checks.exact import check_rule
from eqsat_opt.rules import families
from eqsat_opt.rules.blockwise import gathered, inward, merged_siblings, outward
from eqsat_opt.rules.forms import MAPPED, SAMPLES, SOFTMAX
from eqsat_opt.rules.rule import Numerics, Phase, Rule, directed
from eqsat_opt.rules.term import ops
from eqsat_opt.runtime.backends.ort.backend import OrtBackend
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select import PricedCandidates, raise_graph, selected, tile

BOOK = {one.name: one for rules in families().values() for one in rules}
LAUNCHES = {"time_us": 1.0, "flops": 1e-9}
FLOPS = {"flops": 1.0, "time_us": 1e-3}
VIEWS = frozenset({"Reshape"})


def book(numerics: Numerics) -> list[Rule]:
    """All rules that run on models, whether they have a certificate yet or not."""
    return [r for r in BOOK.values() if r.phase is not Phase.DERIVATION and r.numerics <= numerics]


def _launch(offer: Offer) -> Quote:
    """Every operator costs the same, but one that only changes a shape costs little."""
    return Quote({TIME: 0.1 if offer.kernel.name in VIEWS else 1.0}, "bound")


def best(
    graph: Graph,
    objective: dict[str, float],
    numerics: Numerics = Numerics.RELAXED,
    without: str = "",
) -> Graph:
    """The cheapest graph, operator by operator; it computes the same."""
    graph = normalise(graph)
    rules = [rule for rule in book(numerics) if not (without and rule.name.startswith(without))]
    found = saturate(graph, rules, Budget(nodes=5_000))
    candidates = tile(found.eclasses, ())
    classes = found.eclasses.term_class
    roots = tuple(dict.fromkeys(int(classes[found.lowered.value[n]]) for n in graph.outputs))
    priced = PricedCandidates.of(candidates, (OrtBackend(),), roots, max_constant_bytes=1 << 30)
    problem = priced.problem(_launch)
    answer = extract(problem.problem, Objective(objective), time_limit_s=5, deterministic=True)
    chosen = selected(priced, problem, answer)
    result = raise_graph(found.lowered, found.eclasses, chosen)
    inputs = random_inputs(graph)
    for one, other in zip(evaluate(graph, inputs), evaluate(result, inputs), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    return result


def operators(graph: Graph) -> Counter[str]:
    """Operators by name; what only changes a shape is not counted."""
    return Counter(node.op for node in graph.nodes if node.op not in VIEWS)


def flops(graph: Graph) -> int:
    """Floating point operations of a static graph."""
    total = 0
    for node in graph.nodes:
        types = [t for n in node.inputs if isinstance(t := graph.types.get(n), TensorType)]
        result = graph.types[node.output]
        assert isinstance(result, TensorType)
        total += literal(get_op(node.op).flops(types, result, dict(node.attrs)))
    return total


# Smaller ------------------------------------------------------------------------------------------

Build = Callable[[GraphMaker], str]
POOL = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}


def between_reshapes(g: GraphMaker) -> str:
    x = g.input("x", 2, 3, 4)
    return g("Reshape", g("Relu", g("Reshape", x, shape=(6, 4))), shape=(2, 3, 4))


def flattened_product(g: GraphMaker) -> str:
    x = g("Relu", g.input("x", 2, 3, 4))
    flat = g("MatMul", g("Reshape", x, shape=(6, 4)), g.weight(4, 5))
    return g("Reshape", g("Add", flat, g.weight(5)), shape=(2, 3, 5))


def transposed_one(g: GraphMaker) -> str:
    x = g.input("x", 2, 1, 3, 4)
    return g("Relu", g("Transpose", x, perm=(0, 2, 1, 3)))


def stacked_steps(g: GraphMaker) -> str:
    parts = [g("Reshape", g("Relu", g.input(n, 3, 4)), shape=(1, 3, 4)) for n in "xy"]
    return g("Concat", *parts, axis=0)


def two_sums(g: GraphMaker) -> str:
    once = g("ReduceSum", g.input("x", 2, 3, 4), axes=(2,), keepdims=1)
    return g("ReduceSum", once, axes=(0,), keepdims=1)


def weighted_sum(g: GraphMaker) -> str:
    product = g("Mul", g.input("x", 5, 8), g.weight(1, 8))
    return g("ReduceSum", product, axes=(1,), keepdims=1)


def stacked_means(g: GraphMaker) -> str:
    parts = [g("ReduceMean", g.input(n, 2, 3, 5), axes=(2,), keepdims=1) for n in "xy"]
    return g("Relu", g("Concat", *parts, axis=1))


def global_pool(g: GraphMaker) -> str:
    x = g("Transpose", g.input("x", 2, 4, 5, 3), perm=(0, 3, 1, 2))
    pool = g("AveragePool", x, kernel=(4, 5), count_include_pad=1, **POOL)
    return g("Reshape", pool, shape=(2, 3))


def shifted_softmax(g: GraphMaker) -> str:
    shift = g("Sigmoid", g.input("c", 3, 1))
    return g("Softmax", g("Add", g.input("x", 3, 5), shift), axis=1)


def biased_keys(g: GraphMaker) -> str:
    keys = g("Add", g.input("k", 1, 2, 4, 5), g.weight(1, 2, 4, 1))
    return g("Softmax", g("MatMul", g.input("q", 1, 2, 3, 4), keys), axis=3)


def log_softmax(g: GraphMaker) -> str:
    x = g.input("x", 3, 5)
    total = g("ReduceSum", g("Exp", x), axes=(1,), keepdims=1)
    return g("Sub", x, g("Log", total))


def biases(g: GraphMaker) -> str:
    x = g("MatMul", g.input("x", 3, 4), g.weight(4, 5))
    return g("Add", g("Add", g.weight(5), x), g.weight(5))


def biases_of_both(g: GraphMaker) -> str:
    parts = [g("Add", g("Sigmoid", g.input(n, 3, 4)), g.weight(4)) for n in "xy"]
    return g("Add", *parts)


def factor_after_product(g: GraphMaker) -> str:
    x = g("Add", g("MatMul", g.input("x", 3, 4), g.weight(4, 5)), g.weight(5))
    return g("Add", g("Mul", x, g.weight(1, 5)), g.weight(5))


def factor_before_product(g: GraphMaker) -> str:
    x = g("Div", g("Relu", g.input("x", 2, 3, 4)), g.weight(4))
    return g("MatMul", x, g.weight(4, 5))


def scaled_kernel(g: GraphMaker) -> str:
    x = g("Mul", g("Relu", g.input("x", 1, 3, 6, 6)), g.weight(1, 3, 1, 1))
    return g.conv(x, g.weight(4, 3, 3, 3), pad=1)


def scaled_filters(g: GraphMaker) -> str:
    x = g("Mul", g("Relu", g.input("x", 1, 4, 6, 6)), g.weight(1, 4, 1, 1))
    return g.conv(x, g.weight(4, 1, 3, 3), pad=1, group=4)


def shifted_image(g: GraphMaker) -> str:
    x = g("Sub", g.input("x", 1, 3, 6, 6), g.weight(1, 3, 1, 1))
    return g.conv(x, g.weight(4, 3, 3, 3), g.weight(4))


def affine_layer(g: GraphMaker) -> str:
    x = g.input("x", 3, 8)
    layer = g("LayerNormalization", x, g.weight(8), g.weight(8), axis=1, epsilon=1e-5)
    return g("Add", g("Mul", layer, g.weight(8)), g.weight(8))


def scaled_layer(g: GraphMaker) -> str:
    x = g("Mul", g.input("x", 3, 8), g.constant(np.array(0.5, np.float32)))
    return g("LayerNormalization", x, g.weight(8), g.weight(8), axis=1, epsilon=1e-3)


def centred_layer(g: GraphMaker) -> str:
    x = g("Add", g.input("x", 3, 8), g("Tanh", g.input("c", 3, 1)))
    return g("LayerNormalization", x, g.weight(8), g.weight(8), axis=1, epsilon=1e-3)


def scaled_rms(g: GraphMaker) -> str:
    layer = g("RMSNormalization", g.input("x", 3, 8), g.weight(8), axis=1, epsilon=1e-5)
    return g("Mul", layer, g.weight(8))


def halves_of_relu(g: GraphMaker) -> str:
    x = g.input("x", 3, 4)
    return g("Sub", g("Relu", x), g("Relu", g("Neg", x)))


def lattice(g: GraphMaker) -> str:
    x, y = g.input("x", 3, 4), g.input("y", 3, 4)
    return g("Sigmoid", g("Max", x, g("Min", x, y)))


def shared_addend(g: GraphMaker) -> str:
    x, y, z = (g.input(n, 3, 4) for n in "xyz")
    return g("Max", g("Add", x, z), g("Add", y, z))


def transposed_parts(g: GraphMaker) -> str:
    parts = [g("Transpose", g.input(n, 2, 3, 4), perm=(2, 0, 1)) for n in "xy"]
    return g("Concat", *parts, axis=1)


def transposed_twice(g: GraphMaker) -> str:
    x = g("Transpose", g.input("x", 2, 3, 4), perm=(0, 2, 1))
    scaled = g("Mul", x, g.constant(np.array(0.3, np.float32)))
    return g("Transpose", g("Softmax", scaled, axis=1), perm=(0, 2, 1))


def pools_of_averages(g: GraphMaker) -> str:
    attrs = {**POOL, "strides": (2, 2), "kernel": (2, 2), "count_include_pad": 0}
    x = g("AveragePool", g.input("x", 1, 3, 12, 12), **attrs)
    return g("AveragePool", x, **attrs)


def pools_of_maxima(g: GraphMaker) -> str:
    attrs = {**POOL, "pads": (1, 1, 1, 1), "kernel": (3, 3)}
    return g("MaxPool", g("MaxPool", g.input("x", 1, 3, 8, 8), **attrs), **attrs)


def stacked_averages(g: GraphMaker) -> str:
    attrs = {**POOL, "kernel": (3, 3), "count_include_pad": 0}
    parts = [g("AveragePool", g.input(n, 1, 3, 8, 8), **attrs) for n in "xy"]
    return g("Concat", *parts, axis=1)


def two_samples(g: GraphMaker) -> str:
    w = g.weight(4, 3, 3, 3)
    return g("Concat", *(g.conv(g.input(n, 1, 3, 6, 6), w) for n in "xy"), axis=0)


SMALLER: dict[Build, dict[str, int]] = {
    between_reshapes: {"Relu": 1},
    flattened_product: {"Relu": 1, "MatMul": 1, "Add": 1},
    transposed_one: {"Relu": 1},
    stacked_steps: {"Concat": 1, "Relu": 1},
    two_sums: {"ReduceSum": 1},
    weighted_sum: {"MatMul": 1},
    stacked_means: {"Concat": 1, "GlobalAveragePool": 1, "Relu": 1},
    global_pool: {"ReduceMean": 1},
    shifted_softmax: {"Softmax": 1},
    biased_keys: {"MatMul": 1, "Softmax": 1},
    log_softmax: {"LogSoftmax": 1},
    biases: {"MatMul": 1, "Add": 1},
    biases_of_both: {"Sigmoid": 2, "Add": 2},
    factor_after_product: {"MatMul": 1, "Add": 1},
    factor_before_product: {"Relu": 1, "MatMul": 1},
    scaled_kernel: {"Relu": 1, "Conv": 1},
    scaled_filters: {"Relu": 1, "Conv": 1},
    shifted_image: {"Conv": 1, "Add": 1},
    affine_layer: {"LayerNormalization": 1},
    scaled_layer: {"LayerNormalization": 1},
    centred_layer: {"LayerNormalization": 1},
    scaled_rms: {"RMSNormalization": 1},
    halves_of_relu: {},
    lattice: {"Sigmoid": 1},
    shared_addend: {"Max": 1, "Add": 1},
    transposed_parts: {"Concat": 1, "Transpose": 1},
    transposed_twice: {"Mul": 1, "Softmax": 1},
    pools_of_averages: {"AveragePool": 1},
    pools_of_maxima: {"MaxPool": 1},
    stacked_averages: {"Concat": 1, "AveragePool": 1},
    two_samples: {"Concat": 1, "Conv": 1},
}


@pytest.mark.parametrize("build", SMALLER, ids=lambda build: build.__name__)
def test_fewer_operators(build: Build) -> None:
    g = GraphMaker()
    assert operators(best(g.graph(build(g)), LAUNCHES)) == SMALLER[build]


def last_token(g: GraphMaker) -> str:
    logits = g("MatMul", g("Relu", g.input("x", 2, 16, 8)), g.weight(8, 32))
    return g("Slice", g("Add", logits, g.weight(32)), axis=1, lo=15, hi=16)


def pooled_head(g: GraphMaker) -> str:
    x = g("Add", g("MatMul", g.input("x", 2, 16, 8), g.weight(8, 32)), g.weight(1, 1, 32))
    return g("ReduceMean", x, axes=(1,), keepdims=1)


def pooled_pixels(g: GraphMaker) -> str:
    x = g.conv(g.input("x", 1, 8, 10, 10), g.weight(16, 8, 1, 1), g.weight(16))
    return g("ReduceMean", x, axes=(2, 3), keepdims=1)


def half_of_the_groups(g: GraphMaker) -> str:
    x = g.conv(g.input("x", 1, 8, 10, 10), g.weight(12, 2, 3, 3), pad=1, group=4)
    return g("Slice", g("Relu", x), axis=1, lo=3, hi=9)


def some_filters(g: GraphMaker) -> str:
    x = g.conv(g.input("x", 3, 8, 10, 10), g.weight(12, 8, 3, 3), pad=1)
    part = g("Slice", g("Sigmoid", x), axis=1, lo=3, hi=6)
    return g("Slice", part, axis=0, lo=0, hi=1)


def relu_before_maximum(g: GraphMaker) -> str:
    return g("ReduceMax", g("Relu", g.input("x", 4, 64)), axes=(1,), keepdims=1)


def pyramid(g: GraphMaker) -> str:
    x = g.input("x", 1, 4, 16, 16)
    sizes = {5: 2, 9: 4, 13: 6}
    attrs = [{**POOL, "kernel": (k, k), "pads": (p,) * 4} for k, p in sizes.items()]
    return g("Concat", x, *(g("MaxPool", x, **a) for a in attrs), axis=1)


CHEAPER: dict[Build, float] = {
    pyramid: 3.0,
    last_token: 8.0, pooled_head: 6.0, pooled_pixels: 15.0, half_of_the_groups: 1.9,
    some_filters: 10.0, relu_before_maximum: 1.8,
}  # fmt: skip
"""How many times fewer operations there are at least."""


@pytest.mark.parametrize("build", CHEAPER, ids=lambda build: build.__name__)
def test_fewer_operations(build: Build) -> None:
    g = GraphMaker()
    graph = g.graph(build(g))
    assert flops(best(graph, FLOPS)) * CHEAPER[build] <= flops(graph)


def test_it_is_the_law_that_helps() -> None:
    g = GraphMaker()
    graph = g.graph(pooled_head(g))
    assert flops(best(graph, FLOPS, without="reduction/mean-of-")) > flops(graph) / 2


def test_weights_are_recomputed_only_where_this_is_allowed() -> None:
    g = GraphMaker()
    graph = g.graph(scaled_kernel(g))
    assert operators(best(graph, LAUNCHES, Numerics.REASSOCIATE))["Mul"] == 1


# Wrong neighbours ---------------------------------------------------------------------------------


def refuted(rule: Rule) -> bool:
    """Whether level 1 finds a counterexample to either direction."""
    return any(
        check_rule(one, max_points=80, minimise=False).refutation is not None
        for one in directed([rule])
    )


NEEDED = {
    "softmax/shift-2d": "c.dim(i) == 1",
    "softmax/key-bias": "b.dim(3) == 1",
    "softmax/take": "axis != i",
    "softmax/stacked": "axis != i",
    "reduction/mean-of-product": "c.dim(i) == 1",
    "reduction/sum-of-product": "c.dim(i) == 1",
    "reduction/mean-of-bias": "c.dim(i) == 1",
    "reduction/mean-of-bias-over-two": "c.dim(j) == 1",
    "reduction/take-mean": "axis != i",
    "reduction/max-stacked": "axis != i",
    "reduction/sum-of-one": "x.dim(i) == 1",
    "reduction/global-average": "w == x.dim(3)",
    "reduction/mean-of-matmul": "x is floating point",
    "folding/factor-before-conv": "c.dim(2) == 1",
    "folding/factor-before-depthwise": "w.dim(1) == 1",
    "layernorm/ignores-rows-2d": "c.dim(1) == 1",
    "reshape/transpose-of-ones-2d": "== 0",
    "matmul/take-rows": "(axis + 1) < x.rank",
    "pool/take-max": "axis < 2",
    "pool/average-concat": "axis < 2",
    "concat/take-other-axis": "axis != along",
    "concat/take-add-row": "y.dim(axis) == 1",
    "conv/take-groups": "(hi * g)",
}


@pytest.mark.parametrize("name", NEEDED)
def test_law_needs_its_condition(name: str) -> None:
    rule = BOOK[name]
    kept = tuple(c for c in rule.when if NEEDED[name] not in str(c))
    assert len(kept) == len(rule.when) - 1
    assert refuted(replace(rule, when=kept))


def test_an_epsilon_must_be_rescaled() -> None:
    rule = BOOK["layernorm/scaled-rms"]
    (left,) = rule.lhs
    x, g = BOOK["layernorm/scaled-rms"].rhs[0].args  # type: ignore[attr-defined]
    kept = ops.RMSNormalization(x, g, axis=left.attrs["axis"], epsilon=left.attrs["epsilon"])  # type: ignore[attr-defined]
    assert refuted(replace(rule, rhs=(kept,)))


# The schema ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [gathered, inward, outward])
def test_schema_gives_sound_rules(law: Callable[..., Rule]) -> None:
    assert not refuted(law("test/softmax", "", SOFTMAX))
    assert not refuted(law("test/mapped", "", MAPPED))


def test_schema_merges_siblings() -> None:
    rule = merged_siblings("test/samples", "", SAMPLES)
    assert rule.phase is Phase.SIBLINGS
    assert len(rule.lhs) == 2
    assert not refuted(rule)


@pytest.mark.parametrize("law", [gathered, inward, outward])
def test_schema_is_refuted_where_the_operator_is_not_blockwise(law: Callable[..., Rule]) -> None:
    every_axis = replace(SOFTMAX, alike=lambda x, i, axis: ())
    assert refuted(law("test/every-axis", "", every_axis))


# What is compiled ---------------------------------------------------------------------------------


def test_rules_that_cannot_match_are_left_out() -> None:
    chosen = directed([BOOK[n] for n in ("softmax/take", "reshape/compose", "concat/whole-slice")])
    assert relevant(chosen, {"Reshape"}) == [chosen[1]]
    assert relevant(chosen, {"Softmax", "Slice"}) == [chosen[0], chosen[2]]


def test_rules_that_others_make_possible_are_kept() -> None:
    chosen = directed([BOOK[n] for n in ("reduction/global-average", "reduction/mean-of-bias")])
    assert relevant(chosen, {"AveragePool", "Add"}) == chosen
    assert relevant(chosen, {"Add"}) == []


def test_any_function_stands_for_a_map() -> None:
    chosen = directed([BOOK["reshape/expand-map"]])
    assert relevant(chosen, {"Expand", "Sigmoid"}) == chosen
    assert relevant(chosen, {"Expand", "Add"}) == []
