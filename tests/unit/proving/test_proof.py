"""Proofs for all sizes: the book is proved, planted rules are if they are right."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops.index.evaluation import formula_value
from eqsat_opt.ir.ops.index.integers import (
    Atom,
    atom,
    broadcast,
    choose,
    less,
    pick,
    quotient,
    within,
)
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.proof.budget import Budget
from eqsat_opt.proving.proof.sums.integers_z3 import definition, nested_quotients, products_facts
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.rule import Int, Ints, Sides, Tensor, directed, rule
from eqsat_opt.rules.term import ops
from tests.sampling import sampled
from tests.unit.planted_rules import RIGHT, WRONG, further

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

BOOK = {one.name: one for rules in families().values() for one in rules}

# The book ----------------------------------------------------------------------------------------

SAMPLE = [
    "elementwise/add-commute", "elementwise/gate", "elementwise/relu-idempotent",
    "elementwise/relu-scale", "matmul/assoc", "matmul/merge-weights", "matmul/block-sum",
    "matmul/merge-operands", "conv/merge-siblings", "conv/use-padded-kernel",
    "conv/enlarge-kernel", "conv/residual-identity", "conv/linear-in-data", "conv/block-sum",
    "conv/fold-scale", "folding/pairs-of-groups", "concat/slice-of-slice",
    "concat/adjacent-slices", "concat/map",
    "concat/add-row-slice", "pool/average-conv", "lrn/three-quarters", "lrn/power",
    "transpose/compose-3d", "transpose/identity-5d", "transpose/matmul", "transpose/map",
]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_rule_of_the_book_is_proved(name: str) -> None:
    proof = prove(BOOK[name])
    assert (proof.status, proof.reason) == ("proven", "")
    assert proof.scenarios > 0
    assert proof.scope.startswith("all sizes, ")


@pytest.mark.slow
def test_most_of_the_book_is_proved() -> None:
    proofs = {name: prove(one) for name, one in BOOK.items()}
    for name, proof in proofs.items():
        print(f"{name:34} {proof.status:11} {proof.time_s:5.2f} s  {proof.reason}")
    proved = sum(proof.status == "proven" for proof in proofs.values())
    print(f"{proved} of {len(proofs)} in {sum(p.time_s for p in proofs.values()):.0f} s")
    assert proved >= 0.8 * len(proofs)


def test_both_directions_are_one_proof() -> None:
    for one in directed([BOOK["matmul/distribute-right"]]):
        assert prove(one).status == "proven"


# Planted rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: one.name)
def test_right_rule_is_proved(right: Rule) -> None:
    assert prove(right).status == "proven"


@pytest.mark.parametrize("wrong", sampled(WRONG, 3), ids=lambda one: one.name)
def test_wrong_rule_is_not_proved(wrong: Rule) -> None:
    proof = prove(wrong)
    assert proof.status in ("unknown", "unsupported")
    assert proof.reason


NEEDED = [
    ("matmul/assoc", "2 <= y.rank"),
    ("matmul/distribute-right", "same-shape(y, z)"),
    ("matmul/scale-left", "s.rank == 0"),
    ("conv/enlarge-kernel", "c == (a + 1)"),
    ("conv/residual-identity", "w.dim(2) == ((p * 2) + 1)"),
    ("pool/average-conv", "w.dim(2) == 1"),
]


@pytest.mark.parametrize(("name", "condition"), NEEDED)
def test_rule_without_its_condition_is_not_proved(name: str, condition: str) -> None:
    guarded = BOOK[name]
    kept = tuple(one for one in guarded.when if str(one) != condition)
    assert len(kept) == len(guarded.when) - 1
    assert prove(replace(guarded, when=kept)).status in ("unknown", "unsupported")


def test_a_proof_takes_equal_types_for_granted() -> None:
    """One row and two addends: the left side has two rows, so level 1 refuses what is proved."""
    guarded = further.softmax_shift_of_rows
    kept = tuple(one for one in guarded.when if str(one) != "c.dim(0) == x.dim(0)")
    assert len(kept) == len(guarded.when) - 1
    unguarded = replace(guarded, when=kept)
    assert prove(unguarded).status == "proven"
    assert check_rule(unguarded).method == "types"


# What there is no proof for ----------------------------------------------------------------------


def test_what_has_no_index_semantics_says_so() -> None:
    @rule("test/product")
    def product(x: Tensor, axes: Ints) -> Sides:
        """No index semantics: a product over an extent has no normal form."""
        return ops.ReduceProd(x, axes=axes, keepdims=1), ops.ReduceProd(x, axes=axes, keepdims=1)

    proof = prove(product)
    assert proof.status == "unsupported"
    assert "ReduceProd has no index semantics" in proof.reason


def _gathered(x: Any, i: Any, axis: Any) -> Any:
    return ops.Gather(x, i, axis=axis)


def test_what_is_gathered_from_a_sum_is_one() -> None:
    @rule("test/gather-sum")
    def gather(x: Tensor, y: Tensor, i: Tensor, axis: Int) -> Sides:
        """Linear in what is gathered from."""
        both = _gathered(x, i, axis) + _gathered(y, i, axis)
        return both, _gathered(x + y, i, axis), x.shape == y.shape, x.rank == 2, i.rank == 1

    assert prove(gather).status == "proven"


def test_what_is_gathered_from_elsewhere_is_another() -> None:
    @rule("test/gather-moved")
    def moved(x: Tensor, i: Tensor) -> Sides:
        """The other axis of a square."""
        there = ops.Transpose(_gathered(x, i, 1), perm=(1, 0))
        return _gathered(x, i, 0), there, x.rank == 2, i.rank == 1, x.dim(0) == x.dim(1)

    @rule("test/gather-transposed")
    def transposed(x: Tensor, i: Tensor) -> Sides:
        """Rows of a matrix are columns of its transpose."""
        columns = _gathered(ops.Transpose(x, perm=(1, 0)), i, 1)
        return _gathered(x, i, 0), ops.Transpose(columns, perm=(1, 0)), x.rank == 2, i.rank == 1

    assert prove(moved).status == "unknown"
    assert prove(transposed).status == "proven"


def test_too_many_cases_are_not_tried() -> None:
    @rule("test/three-transposes")
    def three(x: Tensor, p: Ints, q: Ints, r: Ints) -> Sides:
        """120 x 120 x 120 permutations."""
        twice = ops.Transpose(ops.Transpose(x, perm=p), perm=q)
        return (
            ops.Relu(ops.Transpose(twice, perm=r)),
            (ops.Transpose(ops.Transpose(ops.Relu(ops.Transpose(x, perm=p)), perm=q), perm=r)),
            x.rank == 5,
        )

    proof = prove(three)
    assert proof.status == "unsupported"
    assert "combinations of axes and flags" in proof.reason


def test_a_rule_that_never_types_is_not_proved() -> None:
    @rule("test/never")
    def never(x: Tensor) -> Sides:
        """No rank fits."""
        return ops.Transpose(x, perm=(1, 0)), x, x.rank == 3

    assert "type" in prove(never).reason

    @rule("test/contradiction")
    def contradiction(x: Tensor) -> Sides:
        """The premises exclude each other, so that anything follows from them."""
        return ops.Relu(x), ops.Tanh(x), x.dim(0) < 3, x.dim(0) * 2 == 7

    assert prove(contradiction).status == "unknown"


def test_without_z3_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(RuleError, match=r"pip install 'eqsat-opt\[verify\]'"):
        prove(BOOK["elementwise/add-commute"])


def test_work_is_limited() -> None:
    proof = prove(BOOK["elementwise/factor"], time_limit_s=0.0002)
    assert proof.status == "unknown"
    assert proof.reason == "no proof within the work of about 0.0002 s"


def test_the_same_work_is_done_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    count = Budget.question

    def noted(self: Budget, characters: int, resources: int) -> None:
        spent.append((characters, resources))
        count(self, characters, resources)

    monkeypatch.setattr(Budget, "question", noted)
    prove(BOOK["pool/max-concat"])
    once = list(spent)
    spent.clear()
    prove(BOOK["pool/max-concat"])
    assert once == spent
    assert sum(resources for _, resources in once) > 0


# What the solver is told about integers ----------------------------------------------------------


def test_facts_about_products_are_true() -> None:
    draw = random.Random(0)
    a, b, c = (Atom(name) for name in "abc")
    facts = products_facts([(a, b), (b, c), (a, b, c), (a, a)])
    assert len(facts) > 10
    for _ in range(300):
        sizes = {symbol: draw.randint(-3, 6) for symbol in (a, b, c)}
        for fact in facts:
            assert formula_value(fact, sizes), f"{fact} at {sizes}"


def test_digits_of_nested_quotients_are_true() -> None:
    """As o // ab = (o // a) // b, for any sign of o, whatever multiple of a is added."""
    draw = random.Random(0)
    a, b, n, s = (Atom(name) for name in "abns")
    i, fine, coarse = atom(n), atom(a), atom(a) * atom(b)
    numerators = [i, i + fine - 1, i + 3 * fine]
    parts = [
        quotient(i, fine),
        *(quotient(one, coarse) for one in numerators),
        quotient(i, 2 * fine),
    ]
    atoms = sorted({part for value in parts for part in value.atoms()})
    digits = nested_quotients(atoms)
    bases = {str(base) for _, base in digits}
    assert bases == {"b", "2"}
    assert len(digits) == 3  # n and n + 3a over ab, n over 2a; n + a - 1 is another integer
    products = {m for digit, _ in digits for m, _ in (digit * atom(s)).terms}
    facts = products_facts(products, [digit for digit, _ in digits])
    assert len(facts) > len(products_facts(products))
    for _ in range(300):
        sizes = {n: draw.randint(-30, 60), a: draw.randint(1, 5), b: draw.randint(1, 5)}
        sizes[s] = draw.randint(-3, 6)
        for digit, base in digits:
            assert formula_value(within(digit, base), sizes), f"{digit} at {sizes}"
        for fact in facts:
            assert formula_value(fact, sizes), f"{fact} at {sizes}"


def test_definitions_are_true() -> None:
    draw = random.Random(0)
    n, d, e = (atom(name) for name in "nde")
    parts = [quotient(n, d), pick(n, e), broadcast(d, e), choose(less(n, d), n, e)]
    for _ in range(300):
        sizes = {Atom("n"): draw.randint(-5, 9), Atom("d"): draw.randint(1, 4)}
        sizes[Atom("e")] = draw.choice((1, sizes[Atom("d")]))
        for part in parts:
            (only,) = part.atoms()
            assert formula_value(definition(only), sizes), f"{only} at {sizes}"
