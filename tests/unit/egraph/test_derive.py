"""Derivations: what follows from the book, what must not, and what an unsound rule would prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from eqsat_opt.egraph.derivation.derive import Prover, derive, readable
from eqsat_opt.egraph.derivation.generic import generic_instances
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.errors import RuleError
from eqsat_opt.lab.testing.redundancy import redundant
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules.axioms import EQUATIONS, axioms
from eqsat_opt.rules.bindings import type_of
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import (
    Func,
    Int,
    Ints,
    Numerics,
    Phase,
    Rule,
    Sides,
    Tensor,
    directed,
    rule,
)
from eqsat_opt.rules.term import Apply, Expr, Term, concat, expr, ops, slice_
from tests.sampling import sampled

AXIOMS = axioms()
BOOK = {one.name: one for rules in families().values() for one in rules}
GROUPED_MERGE = ("equations/conv-merge-groups", "equations/conv-split-groups")
"""R24, sound only under its conditions; no sound rule of TASO needs it."""
PLAIN = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover(AXIOMS, iterations=4, most=2)


# What follows ------------------------------------------------------------------------------------


@rule("test/block-of-three")
def block_of_three(x: Tensor, y: Tensor, z: Tensor, u: Tensor, v: Tensor, w: Tensor) -> Sides:
    left = concat(concat(x, y, axis=1), z, axis=1)
    right = concat(concat(u, v, axis=0), w, axis=0)
    ranks = (t.rank == 2 for t in (x, y, z, u, v, w))
    return left @ right, (x @ u + y @ v) + z @ w, *ranks


def test_a_derivation_names_the_axioms_that_it_needs(prover: Prover) -> None:
    derivation = prover.derive(block_of_three)
    assert derivation is not None
    assert derivation.axioms == ("equations/matmul-blocks",)
    assert derivation.iterations == 1
    assert derivation.enodes > 0
    assert "x: float32[" in derivation.instances[0]
    assert str(derivation) == (
        "test/block-of-three: derived in 1 iteration from equations/matmul-blocks"
    )


@rule("test/product-of-sums")
def product_of_sums(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return (x + y) * z, z * y + z * x, x.shape == y.shape, x.shape == z.shape


def test_none_of_the_named_axioms_can_be_left_out(prover: Prover) -> None:
    derivation = prover.derive(product_of_sums)
    assert derivation is not None
    assert len(derivation.axioms) > 1
    for name in derivation.axioms:
        assert prover.derive(product_of_sums, without=[name]) is None, name


def test_every_axiom_that_fired_is_reported_unless_it_is_asked_which_are_needed(
    prover: Prover,
) -> None:
    needed, fired = (prover.derive(product_of_sums, minimise=m) for m in (True, False))
    assert needed is not None
    assert fired is not None
    assert set(needed.axioms) <= set(fired.axioms)


def test_a_rule_is_not_derived_from_itself() -> None:
    assert derive(BOOK["matmul/assoc"], AXIOMS) is None
    reverse = directed([BOOK["matmul/assoc"]])[1]
    assert derive(reverse, AXIOMS) is None


def test_equal_sides_need_no_axiom() -> None:
    @rule("test/same")
    def same(x: Tensor, y: Tensor) -> Sides:
        return x + y, x + y

    derivation = derive(same, AXIOMS[:1])
    assert derivation is not None
    assert (derivation.axioms, derivation.iterations) == ((), 0)


def test_several_roots_must_all_meet(prover: Prover) -> None:
    def roots(swapped: bool) -> Rule:
        @rule("test/roots")
        def two(x: Tensor, y: Tensor, z: Tensor) -> Sides:
            second = x @ (z @ y) if swapped else x @ (y @ z)
            return (x + y, (x @ y) @ z), (y + x, second), *(
                t.rank == 2 for t in (x, y, z)
            )  # fmt: skip

        return two

    assert prover.derive(roots(swapped=False)) is not None
    assert prover.derive(roots(swapped=True)) is None


def test_any_function_maps_over_parts(prover: Prover) -> None:
    @rule("test/map")
    def mapped(f: Func, x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
        return (
            f(concat(concat(x, y, axis), z, axis)),
            concat(concat(f(x), f(y), axis), f(z), axis),
        )

    derivation = prover.derive(mapped)
    assert derivation is not None
    assert derivation.axioms == ("concat/map",)


def test_a_rule_for_weights_only_does_not_derive_one_for_tensors() -> None:
    general = BOOK["equations/conv-add-weights"]
    reverse = directed([general])[1]
    assert derive(reverse, [BOOK["conv/linear-in-weight"]]) is None
    assert derive(BOOK["conv/linear-in-weight"], [general]) is not None


# What must not follow ----------------------------------------------------------------------------


@rule("test/matmul-commutes")
def matmul_commutes(x: Tensor, y: Tensor) -> Sides:
    return x @ y, y @ x, x.rank == 2, y.rank == 2


@rule("test/conv-is-conv-relu")
def conv_is_conv_relu(x: Tensor, w: Tensor) -> Sides:
    conv = ops.Conv(x, w, group=1, **PLAIN)
    return conv, ops.Relu(conv)


@rule("test/concat-commutes")
def concat_commutes(x: Tensor, y: Tensor, axis: Int) -> Sides:
    return concat(x, y, axis), concat(y, x, axis)


@rule("test/double-is-single")
def double_is_single(x: Tensor) -> Sides:
    return x + x, x


@rule("test/concat-shuffle")
def concat_shuffle(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    return (
        concat(x, y, axis) + concat(z, w, axis),
        concat(x + w, y + z, axis),
        *(x.shape == t.shape for t in (y, z, w)),
    )


CONTROLS = [
    matmul_commutes, conv_is_conv_relu, concat_commutes, double_is_single, concat_shuffle
]  # fmt: skip


@pytest.mark.parametrize("control", CONTROLS, ids=lambda one: one.name)
def test_wrong_equations_are_not_derived(control: Rule, prover: Prover) -> None:
    assert generic_instances(control), "a control without instances proves nothing"
    assert prover.derive(control) is None


MUTATED = (
    "elementwise/factor", "matmul/assoc", "concat/map", "equations/matmul-blocks",
    "equations/concat-exchange", "equations/conv-filters",
)  # fmt: skip


def _mutants(term: Term) -> Iterator[Term]:
    """Terms that differ in one operator: its operands exchanged, or another in its place."""
    if not isinstance(term, Apply):
        return
    if len(term.args) == 2:
        yield Apply(term.op, term.args[::-1], term.attrs)
    if term.op in ("Add", "Mul"):
        yield Apply({"Add": "Mul", "Mul": "Add"}[term.op], term.args, term.attrs)
    if term.op == "Concat":
        axis = term.attrs["axis"]
        if isinstance(axis, Expr) and axis.kind == "literal":
            yield Apply("Concat", term.args, {"axis": expr(1 - axis.args[0])})
    for i, arg in enumerate(term.args):
        for mutant in _mutants(arg):
            yield Apply(term.op, (*term.args[:i], mutant, *term.args[i + 1 :]), term.attrs)


def test_a_mutant_is_derived_only_if_it_holds() -> None:
    prover = Prover(AXIOMS, iterations=3, nodes=1_500, most=2)
    derived = refused = 0
    for name in MUTATED:
        for number, mutant in enumerate(_mutants(BOOK[name].rhs[0])):
            goal = replace(BOOK[name], name=f"mutant/{number}", rhs=(mutant,))
            if not generic_instances(goal, most=1):
                continue
            if prover.derive(goal, minimise=False) is None:
                refused += 1
                continue
            derived += 1
            report = check_rule(goal, max_points=24, minimise=False)
            assert report.refutation is None, f"{goal} was derived, but\n{report}"
    assert derived >= 2
    assert refused >= 10


# What unsound rules would prove ------------------------------------------------------------------


@rule("test/split-groups-unguarded")
def split_unguarded(
    x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int
) -> Sides:
    """Rule 99 of TASO, read from right to left, with its groups made explicit."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    first, second = x.dim(1) // w.dim(1), y.dim(1) // v.dim(1)
    return (
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=0), group=g, **attrs),
        concat(ops.Conv(x, w, group=first, **attrs), ops.Conv(y, v, group=second, **attrs), axis=1),
    )


@rule("test/filters-of-any-group", bidirectional=True)
def filters_of_any_group(
    x: Tensor, w: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int
) -> Sides:
    """Rule 125 of TASO, with its groups made explicit."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return (
        ops.Conv(x, concat(w, v, axis=0), **attrs),
        concat(ops.Conv(x, w, **attrs), ops.Conv(x, v, **attrs), axis=1),
    )


@rule("test/witness")
def witness(x: Tensor, z: Tensor, y: Tensor, v: Tensor) -> Sides:
    """A convolution that ignores half of its input; the other root only offers a term."""
    both = concat(x, z, axis=1)
    merged = slice_(ops.Conv(both, concat(y, v, axis=0), group=2, **PLAIN), 1, 0, y.dim(0))
    return (ops.Conv(both, y, group=2, **PLAIN), merged), (ops.Conv(x, y, group=1, **PLAIN), merged)


@rule("test/witness-of-three")
def witness_of_three(x: Tensor, z: Tensor, p: Tensor, q: Tensor, r: Tensor) -> Sides:
    """Two inputs that give the same result whatever they are."""
    filters = concat(concat(p, q, axis=0), r, axis=0)
    merged = ops.Conv(concat(x, z, axis=1), filters, group=2, **PLAIN)
    part = slice_(merged, 1, p.dim(0), p.dim(0) + q.dim(0))
    return (
        (ops.Conv(x, q, group=1, **PLAIN), part),
        (ops.Conv(z, q, group=1, **PLAIN), part),
        p.dim(1) == q.dim(1),
        q.dim(1) == r.dim(1),
    )


def _proves(goal: Rule, *more: Rule, names: Sequence[str] = ()) -> bool:
    extended = (*AXIOMS, *axioms(list(names)), *more)
    return derive(goal, extended, iterations=6, nodes=3_000, most=1) is not None


def test_the_unguarded_grouped_merge_is_inconsistent() -> None:
    assert _proves(witness, split_unguarded, filters_of_any_group)
    assert not _proves(witness, names=GROUPED_MERGE)
    assert not _proves(witness)


def test_it_is_inconsistent_beside_sound_equations_alone() -> None:
    associative = ["equations/concat-assoc"]
    assert _proves(witness_of_three, split_unguarded, names=associative)
    assert not _proves(witness_of_three, names=[*associative, *GROUPED_MERGE])


HISTORY = (
    "(datatype H (In String) (Cat H H) (First H))",
    "(rewrite (First (Cat x y)) x)",
    "(birewrite (Cat x (Cat y z)) (Cat (Cat x y) z))",
    '(let $one (First (Cat (In "a") (Cat (In "b") (In "c")))))',
    '(let $two (First (Cat (Cat (In "a") (In "b")) (In "c"))))',
    "(run 3)",
    "(relation absurd ())",
    '(rule ((= c (In "a")) (= c (Cat (In "a") (In "b")))) ((absurd)))',
    "(run 1)",
)
"""A split that cuts where its operand was put together, as TASO's and TENSAT's tensors remember."""


def test_a_split_that_remembers_proves_that_a_tensor_is_longer_than_itself() -> None:
    engine = Engine()
    try:
        engine.run(HISTORY)
        assert engine.sizes()["absurd"] == 1
    finally:
        engine.close()


def test_a_slice_with_bounds_does_not() -> None:
    def first(bounds_of: str) -> Rule:
        @rule("test/first")
        def one(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
            whole = concat(concat(x, y, axis), z, axis)
            part: Term = {"x": x, "y": y}[bounds_of]
            extent = x.dim(axis)
            return slice_(whole, axis, 0, extent), part, x.shape == y.shape

        return one

    assert _proves(first("x"), names=["equations/concat-assoc"])
    assert not _proves(first("y"), names=["equations/concat-assoc"])


# Instances ---------------------------------------------------------------------------------------


UNSOLVED = {
    "conv/take-groups", "equations/conv-split-groups", "folding/pairs-of-groups",
    "form/add-before-reshape-4d", "form/mul-before-reshape-4d",
    "reshape/transpose-of-ones-2d", "reshape/transpose-of-ones-3d", "reshape/transpose-of-ones-4d",
}  # fmt: skip
"""Rules with conditions on products of extents, which no drawn number meets."""


@pytest.mark.parametrize(
    "name", sampled(sorted(one.name for one in directed(list(BOOK.values()))), 4)
)
def test_generic_instances_type(name: str) -> None:
    chosen = next(one for one in directed(list(BOOK.values())) if one.name == name)
    instances = generic_instances(chosen, most=2)
    assert bool(instances) == (name not in UNSOLVED)
    for bindings in instances:
        for left, right in zip(chosen.lhs, chosen.rhs, strict=True):
            assert type_of(left, bindings) == type_of(right, bindings)


def test_extents_agree_only_where_they_must() -> None:
    (bindings,) = generic_instances(matmul_commutes)
    assert bindings.types["x"].shape == bindings.types["y"].shape[::-1]
    (bindings, *_) = generic_instances(BOOK["matmul/assoc"])
    extents = [e for t in bindings.types.values() for e in t.shape]
    assert len(set(extents)) == 4
    assert bindings.types["x"].shape[1] == bindings.types["y"].shape[0]


def test_broadcasting_is_among_the_instances() -> None:
    found = generic_instances(BOOK["elementwise/add-commute"])
    assert any(1 in t.shape for bindings in found for t in bindings.types.values())


def test_instances_repeat_with_the_seed() -> None:
    chosen = BOOK["conv/fold-scale"]
    assert generic_instances(chosen, seed=3) == generic_instances(chosen, seed=3)
    assert generic_instances(chosen, seed=3) != generic_instances(chosen, seed=4)


# The book ----------------------------------------------------------------------------------------


def test_there_are_23_equations() -> None:
    assert len(EQUATIONS) == 23
    assert {one.name for one in AXIOMS} == {n for names in EQUATIONS.values() for n in names}


def test_general_equations_stay_out_of_the_default_set() -> None:
    default = {one.name for one in default_rules(Numerics.RELAXED)}
    general = {one.name for one in BOOK.values() if one.phase is Phase.DERIVATION}
    assert general
    assert not default & general


def test_an_unknown_equation_is_an_error() -> None:
    with pytest.raises(RuleError, match="no equation or rule 'R24'"):
        axioms(["R24"])


def test_what_the_e_graph_does_not_read_is_no_axiom() -> None:
    """Siblings are merged in an order that only a graph has."""
    siblings, product = BOOK["matmul/batch-steps"], BOOK["matmul/assoc"]
    assert readable([siblings, product]) == (product,)
    assert Prover([siblings, product]).axioms == (product,)
    assert Prover([siblings]).derive(siblings) is None


def test_redundancy_finds_what_follows_and_keeps_a_basis() -> None:
    names = (
        "equations/concat-add", "concat/add", "matmul/batch-steps", "equations/matmul-rows",
        "concat/slice-left", "concat/slice-right", "concat/whole-slice", "matmul/assoc",
    )  # fmt: skip
    seen: list[str] = []
    report = redundant([BOOK[n] for n in names], progress=lambda _d, _n, name: seen.append(name))
    assert seen == list(names)
    # Each of the two sums gives the other, and only one of them may leave.
    assert set(report.redundant) == {"equations/concat-add", "concat/add", "matmul/batch-steps"}
    assert len({"equations/concat-add", "concat/add"} & set(report.basis)) == 1
    assert "matmul/batch-steps" not in report.basis
    assert report.to_json()["basis"] == list(report.basis)
    assert str(report).endswith(
        f"8 rules, 3 follow from the others, {len(report.basis)} are a basis"
    )
