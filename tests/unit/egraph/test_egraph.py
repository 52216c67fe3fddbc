"""The e-graph: loading, saturation, budgets, provenance, determinism and invariants."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import Budget, EClasses, Saturation, lower, saturate
from eqsat_opt.egraph.encoding.schema import Schema
from eqsat_opt.egraph.encoding.typing import typing_rules
from eqsat_opt.egraph.recognition.fragments import fragments
from eqsat_opt.egraph.saturation import program
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import RuleError, SaturationError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.values.dims import sym
from eqsat_opt.ir.values.types import OtherType, TensorType
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import default_rules, load_rules
from eqsat_opt.rules import Rule, families, rule
from eqsat_opt.rules.rule import Numerics, Sides, Tensor, Weight
from eqsat_opt.rules.term import ops

BOOK = {one.name: one for rules in families().values() for one in rules}


def book(*names: str) -> list[Rule]:
    return [BOOK[name] for name in names]


def class_of(saturation: Saturation, value: str) -> int:
    return int(saturation.eclasses.term_class[saturation.lowered.value[value]])


def members(saturation: Saturation, value: str) -> set[str]:
    """Operators of the class of a value."""
    eclasses = saturation.eclasses
    return {eclasses.op[node] for node in eclasses.nodes_of[class_of(saturation, value)]}


def weight_chain(length: int = 2) -> tuple[Graph, str]:
    g = GraphMaker()
    value = g.input("x", 2, 4)
    for _ in range(length):
        value = g("MatMul", value, g.weight(4, 4))
    return g.graph(value), value


def siblings(count: int, outputs: int = 3) -> Graph:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    return g.graph(*(g("MatMul", x, g.weight(4, outputs)) for _ in range(count)))


# Loading -----------------------------------------------------------------------------------------


def test_without_rules_the_egraph_is_the_model() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 2, 4, 4)
    y = g("Relu", g.conv(x, g.weight(3, 2, 3, 3), g.weight(3), pad=1))
    saturation = saturate(g.graph(y), [])
    assert saturation.report.stopped_by == "saturated"
    eclasses = saturation.eclasses
    assert sorted(eclasses.op) == sorted(["Leaf"] * 4 + ["Conv", "Add", "Relu"])
    assert not eclasses.origin.any()
    assert eclasses.types[class_of(saturation, y)] == TensorType("float32", (1, 3, 4, 4))


def test_bias_becomes_an_addition() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 2, 4, 4)
    y = g.conv(x, g.weight(3, 2, 1, 1), g.weight(3))
    lowered = lower(g.graph(y))
    add = lowered.terms[lowered.value[y]]
    assert add.op == "Add"
    conv, bias = (lowered.terms[child] for child in add.children)
    assert (conv.op, bias.op) == ("Conv", LEAF)
    assert bias.type == TensorType("float32", (1, 3, 1, 1))


def test_long_concatenation_computes_the_same() -> None:
    g = GraphMaker()
    parts = [g.input(f"x{i}", 2, 2) for i in range(3)]
    y = g("Concat", *parts, axis=1)
    saturation = saturate(g.graph(y), [])
    assert saturation.eclasses.types[class_of(saturation, y)] == TensorType("float32", (2, 6))


def test_uniform_constants_are_literals() -> None:
    g = GraphMaker()
    y = g("Mul", g.input("x", 2, 3), g.constant(np.full((1, 3), 0.5, np.float32)))
    lowered = lower(g.graph(y))
    literal = lowered.terms[lowered.terms[lowered.value[y]].children[1]]
    assert (literal.op, dict(literal.attrs)["value"]) == ("Scalar", 0.5)


def test_a_literal_must_not_change_the_shape() -> None:
    g = GraphMaker()
    y = g("Mul", g.input("x", 1, 3), g.constant(np.full((2, 1), 0.5, np.float32)))
    lowered = lower(g.graph(y))
    assert lowered.terms[lowered.terms[lowered.value[y]].children[1]].op == LEAF


def test_negative_zero_is_no_literal() -> None:
    g = GraphMaker()
    y = g("Add", g.input("x", 2), g.constant(np.array([0.0, -0.0], np.float32)))
    lowered = lower(g.graph(y))
    assert lowered.terms[lowered.terms[lowered.value[y]].children[1]].op == LEAF


def test_equal_constants_share_a_term() -> None:
    g = GraphMaker()
    array = np.arange(4, dtype=np.float32)
    first, second = g.constant(array), g.constant(array.copy())
    lowered = lower(g.graph(g("Add", first, second)))
    assert lowered.value[first] == lowered.value[second]


def test_same_bytes_of_another_type_are_another_constant() -> None:
    g = GraphMaker()
    array = np.zeros(4, np.float32)
    first, second = g.constant(array), g.constant(array.view(np.int32))
    lowered = lower(g.graph(g("Abs", first), g("Abs", second)))
    assert lowered.value[first] != lowered.value[second]


# Opaque nodes ------------------------------------------------------------------------------------


def test_opaque_nodes_never_merge() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    random = [g.opaque("RandomNormalLike", x, outputs=(g.type(x),))[0] for _ in range(2)]
    y = g("Sub", *random)
    saturation = saturate(g.graph(y), default_rules())
    assert class_of(saturation, random[0]) != class_of(saturation, random[1])
    assert saturation.eclasses.op.count(OPAQUE) == 2


def test_opaque_nodes_keep_all_outputs() -> None:
    g = GraphMaker()
    x = g.input("x", 4)
    kinds = (g.type(x), TensorType("int64", (4,)), OtherType("sequence"))
    values, indices, sequence = g.opaque("Custom", x, outputs=kinds)
    saturation = saturate(g.graph(g("Relu", values), indices, sequence), default_rules())
    eclasses = saturation.eclasses
    assert [eclasses.types[class_of(saturation, v)] for v in (values, indices, sequence)] == list(
        kinds
    )
    assert eclasses.op.count(OUT) == 3
    assert members(saturation, sequence) == {OUT}


def test_opaque_without_operands() -> None:
    g = GraphMaker()
    (noise,) = g.opaque("RandomNormal", outputs=(TensorType("float32", (2, 2)),))
    saturation = saturate(g.graph(g("Relu", g("Relu", noise))), default_rules())
    assert saturation.report.stopped_by == "saturated"


# Rules at work -----------------------------------------------------------------------------------


def test_associativity_finds_the_folded_weight() -> None:
    graph, value = weight_chain()
    saturation = saturate(graph, book("matmul/assoc"))
    eclasses = saturation.eclasses
    products = [
        n for n in eclasses.nodes_of[class_of(saturation, value)] if eclasses.op[n] == "MatMul"
    ]
    assert len(products) == 2
    folded = {c for n in products for c in eclasses.children(n) if eclasses.is_const[c]}
    assert any("MatMul" in {eclasses.op[n] for n in eclasses.nodes_of[c]} for c in folded)


def test_provenance_names_the_rule_and_the_model() -> None:
    graph, value = weight_chain()
    saturation = saturate(graph, book("matmul/assoc"))
    eclasses = saturation.eclasses
    made = [eclasses.rule_of(n) for n in eclasses.nodes_of[class_of(saturation, value)]]
    assert sorted(made, key=str) == [None, "matmul/assoc"]
    assert saturation.report.matches["matmul/assoc"] >= 1
    assert eclasses.united_by[class_of(saturation, value)][0] == "matmul/assoc"


def test_siblings_merge() -> None:
    graph = siblings(2)
    saturation = saturate(graph, load_rules("default", Numerics.REASSOCIATE))
    for value in graph.outputs:
        assert "Slice" in members(saturation, value)


def test_crossed_kernels_share_a_square_one() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 2, 4, 4)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    wide = g("Conv", x, g.weight(3, 2, 1, 3), pads=(0, 1, 0, 1), **attrs)
    tall = g("Conv", x, g.weight(5, 2, 3, 1), pads=(1, 0, 1, 0), **attrs)
    rules = book("conv/use-padded-kernel", "conv/slice-filters")
    saturation = saturate(g.graph(wide, tall), rules)
    assert all("Slice" in members(saturation, name) for name in (wide, tall))


def test_empty_weights_are_no_siblings() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    empty, value = (g("MatMul", x, g.weight(4, n)) for n in (0, 3))
    saturation = saturate(g.graph(empty, value), default_rules())
    assert members(saturation, value) == {"MatMul"}


def test_grouped_convolutions_do_not_merge() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 4, 4, 4)
    values = [g.conv(x, g.weight(4, 2, 3, 3), group=2) for _ in range(2)]
    saturation = saturate(g.graph(*values), default_rules())
    for value in values:
        assert members(saturation, value) == {"Conv"}


def test_dependent_products_are_not_stacked() -> None:
    g = GraphMaker()
    w = g.weight(4, 4)
    first = g("MatMul", g.input("x", 2, 4), w)
    second = g("MatMul", g("Tanh", first), w)
    saturation = saturate(g.graph(second), default_rules())
    assert "Slice" not in members(saturation, second)


def test_many_siblings_grow_linearly() -> None:
    sizes = {n: saturate(siblings(n), default_rules()).report for n in (8, 16, 32)}
    assert all(report.stopped_by == "saturated" for report in sizes.values())
    first, second = (sizes[2 * n].enodes - sizes[n].enodes for n in (8, 16))
    assert second <= 2 * first + 8


def test_symbolic_sizes_pass_through() -> None:
    g = GraphMaker()
    x = g.input("x", "N", "L", 4)
    y = g("MatMul", g("MatMul", x, g.weight(4, 4)), g.weight(4, 2))
    z = g("Slice", g("Add", y, g.weight(2)), axis=2, lo=0, hi=2)
    saturation = saturate(g.graph(z), default_rules())
    eclasses = saturation.eclasses
    assert eclasses.types[class_of(saturation, z)] == TensorType("float32", (sym("N"), sym("L"), 2))
    assert "Add" in members(saturation, z)  # The slice is of everything.
    assert (
        len([n for n in eclasses.nodes_of[class_of(saturation, y)] if eclasses.op[n] == "MatMul"])
        == 2
    )


def test_different_symbols_do_not_unite() -> None:
    """Rows of N and of M are not one shape, even where the weights agree."""
    g = GraphMaker()
    x, y = g.input("x", "N", 4), g.input("y", "M", 4)
    w = g.weight(4, 2)
    values = [g("MatMul", v, w) for v in (x, y)]
    saturation = saturate(g.graph(*values), default_rules())
    assert class_of(saturation, values[0]) != class_of(saturation, values[1])


def test_float_conditions_hold_for_every_float_type() -> None:
    for dtype, expected in (("float64", True), ("int64", False)):
        g = GraphMaker()
        x = g.input("x", 3, dtype=dtype)
        value = g("Mul", g("Relu", x), g("Relu", x))
        saturation = saturate(g.graph(value), book("elementwise/relu-scale"))
        assert (len(saturation.eclasses.nodes_of[class_of(saturation, value)]) > 1) is expected


def test_an_operator_without_typing_rule_is_refused() -> None:
    @rule("test/untyped")
    def untyped(x: Tensor) -> Sides:
        return ops.Relu(x), ops.PRelu(x, x)

    graph, _ = weight_chain()
    with pytest.raises(RuleError, match="PRelu has no typing rule"):
        saturate(graph, [untyped])


def test_an_ill_typed_right_side_is_not_united() -> None:
    @rule("test/ill-typed")
    def broken(x: Tensor, y: Weight) -> Sides:
        return x @ y, y @ x

    g = GraphMaker()
    value = g("MatMul", g.input("x", 2, 4), g.weight(4, 3))
    saturation = saturate(g.graph(value), [broken])
    assert members(saturation, value) == {"MatMul"}
    assert len(saturation.eclasses.nodes_of[class_of(saturation, value)]) == 1


def test_uniting_other_shapes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own check, reached by taking the commit guard away."""

    @rule("test/transposed")
    def transposed(x: Tensor) -> Sides:
        return ops.Relu(x), ops.Transpose(ops.Relu(x), perm=(1, 0))

    def unguarded(schema: Schema) -> list[str]:
        rules = [text for text in typing_rules(schema) if ':name "commit"' not in text]
        return [*rules, '(rule ((want a b n)) ((union a b)) :ruleset commit :name "commit")']

    monkeypatch.setattr(program, "typing_rules", unguarded)
    g = GraphMaker()
    graph = g.graph(g("Relu", g.input("x", 2, 3)))
    with pytest.raises(SaturationError, match="e-graph engine"):
        saturate(graph, [transposed])


def test_rules_for_derivations_never_run_on_a_model() -> None:
    """Whoever names a family gets them with the others."""
    g = GraphMaker()
    x, w = g.input("x", 2, 3), g.weight(3, 4)
    value = g("Slice", g("MatMul", x, w), axis=1, lo=0, hi=2)
    saturation = saturate(g.graph(value), book("matmul/take-columns", "matmul/take-rows"))
    assert members(saturation, value) == {"Slice"}


def test_an_integer_quotient_has_no_reciprocal() -> None:
    """The registry has reciprocals of floats only, so the right side does not type."""
    g = GraphMaker()
    x = g.input("x", 2, 3, dtype="int64")
    value = g("Div", x, g.constant(np.array([2, 3, 4])))
    saturation = saturate(g.graph(value), book("folding/divisor"))
    assert members(saturation, value) == {"Div"}


def test_what_an_unknown_operator_makes_is_no_constant() -> None:
    """Not even where it reads nothing, as a source of random numbers does."""
    g = GraphMaker()
    (noise,) = g.opaque("Noise", outputs=(TensorType("float32", (2, 3)),))
    value = g("Mul", noise, g("Sigmoid", noise))
    (window,) = fragments(lower(g.graph(value)))
    assert [term.op for term in window.terms].count(LEAF) == 1
    assert not window.constant


# Budgets and reports -----------------------------------------------------------------------------


def sums(count: int) -> Graph:
    g = GraphMaker()
    value = g.input("x0", 4)
    for i in range(1, count):
        value = g("Add", value, g.input(f"x{i}", 4))
    return g.graph(value)


def test_node_budget_stops() -> None:
    seen: list[str] = []
    budget = Budget(nodes=60, algebra_iterations=16)
    report = saturate(sums(9), default_rules(), budget, progress=seen.append).report
    assert report.stopped_by == "nodes"
    assert report.enodes_loaded == 17
    # The step beyond the limit is undone, and so is its size.
    assert seen[-1] == f"iteration {report.iterations}: {report.enodes} e-nodes"


@pytest.mark.parametrize(("rounds", "ended"), [(0, "algebra"), (2, "algebra"), (6, "saturated")])
def test_a_fixpoint_without_algebra_is_none(rounds: int, ended: str) -> None:
    """The other rules have nothing left to do; reordering four addends takes five rounds."""
    rules = book("elementwise/add-assoc", "elementwise/add-commute")
    report = saturate(sums(4), rules, Budget(algebra_iterations=rounds)).report
    assert report.stopped_by == ended


def test_iteration_budget_stops() -> None:
    report = saturate(sums(9), default_rules(), Budget(iterations=1)).report
    assert (report.stopped_by, report.iterations) == ("iterations", 1)


def test_time_budget_stops() -> None:
    report = saturate(sums(9), default_rules(), Budget(deadline=Deadline.after(0.0))).report
    assert report.stopped_by == "time"
    assert report.iterations == 1


def test_a_step_that_would_end_too_late_is_not_begun() -> None:
    ticks = itertools.count()
    deadline = Deadline.after(45.0, lambda: float(next(ticks)))  # each look takes a second
    rules = book("elementwise/add-assoc", "elementwise/add-commute")
    budget = Budget(deadline=deadline, algebra_iterations=16)
    report = saturate(sums(9), rules, budget).report
    assert report.stopped_by == "time"
    assert report.iterations > 2
    assert not deadline.expired


def test_report_accounts_for_all_stages() -> None:
    graph, _ = weight_chain()
    seen: list[str] = []
    report = saturate(graph, default_rules(), progress=seen.append).report
    assert set(report.time_s) == {
        "lower", "recognise", "compile", "load", "saturate", "freeze"
    }  # fmt: skip
    assert len(seen) == report.iterations
    assert f"{report.enodes} e-nodes in {report.eclasses} e-classes" in str(report)


# The frozen arrays -------------------------------------------------------------------------------


def frozen() -> EClasses:
    g = GraphMaker()
    x = g.input("x", 1, 4, 6, 6)
    parts = [
        g("Relu", g.conv(x, g.weight(2, 4, k, k), g.weight(2), pad=k // 2)) for k in (1, 3, 1, 3)
    ]
    return saturate(g.graph(g("Concat", *parts, axis=1)), default_rules()).eclasses


def test_two_runs_freeze_to_equal_arrays() -> None:
    first, second = frozen(), frozen()
    assert first.fingerprint() == second.fingerprint()
    for name in ("class_of", "child_ptr", "child_ix", "is_const", "origin", "term_class"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert (first.op, first.attrs, first.types) == (second.op, second.attrs, second.types)


def test_fingerprint_sees_the_structure() -> None:
    eclasses = frozen()
    assert replace(eclasses, op=("Neg", *eclasses.op[1:])).fingerprint() != eclasses.fingerprint()


def test_indices_are_consistent() -> None:
    eclasses = frozen()
    assert (np.diff(eclasses.class_of) >= 0).all()
    assert [n for nodes in eclasses.nodes_of for n in nodes] == list(range(eclasses.n_nodes))
    assert all(len(nodes) for nodes in eclasses.nodes_of)
    for eclass, parents in enumerate(eclasses.parents):
        assert parents == [n for n in range(eclasses.n_nodes) if eclass in eclasses.children(n)]
    for node in range(eclasses.n_nodes):
        assert eclasses.class_of[node] not in eclasses.children(node)
