"""Generation of rules: arithmetic, enumeration, statements, and the rulebook that comes out."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from eqsat_opt.cli import main
from eqsat_opt.egraph.derivation.derive import readable
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.ops import Array, AttrMap, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.lab.certification import verify
from eqsat_opt.lab.generation import arithmetic
from eqsat_opt.lab.generation.candidates import CandidateEquation, KnownEquations, candidates
from eqsat_opt.lab.generation.enumeration import Enumerated, Tree, enumerate_terms
from eqsat_opt.lab.generation.generate import Generated, generate
from eqsat_opt.lab.generation.settings import OPERATORS, Setting, settings_for
from eqsat_opt.lab.generation.siblings import siblings
from eqsat_opt.lab.generation.source import rulebook_source
from eqsat_opt.lab.generation.statements import matchable, statements
from eqsat_opt.rules.library import book
from eqsat_opt.rules.rule import Phase
from eqsat_opt.rules.rulebooks import read_rulebook

P = arithmetic.PRIME

# Arithmetic --------------------------------------------------------------------------------------


def _drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(0, P, shape).astype(np.float64)


def test_residues_are_exact() -> None:
    rng = np.random.default_rng(0)
    exact = [0, 1, P - 1, P, P + 1, 2**49 - 1, (2**49 // P) * P, *rng.integers(0, 2**49, 2_000)]
    found = arithmetic.reduced(np.array(exact, dtype=np.float64))
    assert found.tolist() == [int(one) % P for one in exact]


def test_reciprocals() -> None:
    values = _drawn(np.random.default_rng(1), 500)
    products = arithmetic.reduced(values * arithmetic.inverse(values))
    assert products.tolist() == [float(one != 0) for one in values]


def _in_integers(op: str, attrs: AttrMap, *operands: Array) -> Array:
    """Evaluate an operator of the registry on integers, and reduce the result."""
    made = get_op(op).eval_fn(FLOAT, [one.astype(np.int64) for one in operands], attrs)
    return np.asarray(made % P)


@pytest.mark.parametrize("setting", settings_for(OPERATORS), ids=lambda one: one.name)
def test_all_pairs_are_what_the_registry_computes(setting: Setting) -> None:
    rng = np.random.default_rng(2)
    tried = 0
    for operation in setting.operations:
        if operation.op in ("Relu", "Softmax", "ReduceMean"):  # random functions and quotients
            continue
        for leaf in setting.leaves:
            for other in setting.leaves:
                shapes = (leaf.shape, other.shape)[: operation.arity]
                if operation.result(*shapes) is None:
                    continue
                batches = [_drawn(rng, 2 + i, *shape) for i, shape in enumerate(shapes)]
                found = operation.evaluate(*batches)
                expected = [
                    _in_integers(operation.op, operation.attrs, *pair)
                    for pair in itertools.product(*batches)
                ]
                assert np.array_equal(found, np.stack(expected)), operation
                tried += 1
    assert tried > 8


# Enumeration -------------------------------------------------------------------------------------

NAMES = ("add", "mul", "transpose", "concat", "slice")


@pytest.fixture(scope="module")
def found() -> Enumerated:
    (setting,) = settings_for(NAMES)
    return enumerate_terms(setting, 2, seed=0)


def _value(tree: Tree | int, setting: Setting, point: list[Array]) -> Array:
    if isinstance(tree, int):
        return point[tree]
    operation = setting.operations[tree[0]]
    operands = [_value(one, setting, point) for one in tree[1:]]
    return np.asarray(get_op(operation.op).eval_fn(FLOAT, operands, operation.attrs))


def test_terms_that_are_equal_at_one_point_are_equal_at_another(found: Enumerated) -> None:
    rng = np.random.default_rng(3)
    point = [rng.integers(-9, 9, leaf.shape) for leaf in found.setting.leaves]
    assert len(found.equal) > 50
    for number, other in found.equal:
        left, right = (_value(found.tree(one), found.setting, point) for one in (number, other))
        assert np.array_equal(left, right)


def test_enumeration_is_the_same_for_a_seed_and_finds_the_same_for_all(found: Enumerated) -> None:
    again, other = (enumerate_terms(found.setting, 2, seed) for seed in (0, 1))
    assert (again.terms, again.equal) == (found.terms, found.equal)
    assert candidates(other) == candidates(found)


def test_candidates_are_named_in_the_order_of_reading(found: Enumerated) -> None:
    kept = candidates(found)
    assert len(set(kept)) == len(kept)
    assert [one.size for one in kept] == sorted(one.size for one in kept)
    add = next(n for n, op in enumerate(found.setting.operations) if op.op == "Add")
    assert CandidateEquation((add, 0, 1), (add, 1, 0)) in kept
    assert not any(one.left == (add, 1, 0) for one in kept)


def test_instances_are_recognised_in_both_directions() -> None:
    known = KnownEquations()
    known.add(CandidateEquation((0, 0, (0, 1, 2)), (0, (0, 0, 1), 2)))
    assert known.has(CandidateEquation((0, (1, 0), (0, 1, 1)), (0, (0, (1, 0), 1), 1)))
    assert known.has(CandidateEquation((0, (0, 0, 1), (1, 2)), (0, 0, (0, 1, (1, 2)))))
    assert not known.has(CandidateEquation((0, 0, (0, 1, 2)), (0, (0, 1, 0), 2)))


# Statements --------------------------------------------------------------------------------------


def test_the_most_general_statement_comes_first(found: Enumerated) -> None:
    names = [op.op for op in found.setting.operations]
    add, concat = names.index("Add"), names.index("Concat")
    one = CandidateEquation(
        (add, (concat, 0, 1), (concat, 2, 3)), (concat, (add, 0, 2), (add, 1, 3))
    )
    ladder = [str(rule) for rule in statements(one, found.setting)]
    assert ladder[0] == (
        "(Concat(x, y, axis=i) + Concat(z, u, axis=i)) = Concat((x + z), (y + u), axis=i)"
    )
    assert f"{ladder[0]}   when same-shape(x, z), same-shape(u, y)" in ladder
    assert "axis=0" in ladder[-1]
    assert "x.rank == 2" in ladder[-1]
    assert len(set(ladder)) == len(ladder)


def test_bounds_of_slices_are_matched(found: Enumerated) -> None:
    names = [op.op for op in found.setting.operations]
    one = CandidateEquation((names.index("Slice") + 1, (names.index("Concat"), 0, 1)), 1)
    statement = next(statements(one, found.setting))
    assert not readable([statement])
    rule = matchable(statement)
    assert readable([rule])
    assert str(rule) == (
        "Slice(Concat(x, y, axis=i), axis=i, lo=a, hi=b) => y"
        "   when a == x.dim(i), b == (x.dim(i) + y.dim(i))"
    )


# Rulebooks ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated() -> Generated:
    return generate(("add", "relu", "concat", "slice"), 2)


def test_what_is_generated_is_proven_and_independent(generated: Generated) -> None:
    assert {str(one.rule) for one in generated.kept} == {
        "(x + y) = (y + x)",
        "(x + (y + z)) = (y + (z + x))",
        "Concat(Concat(x, y, axis=i), z, axis=i) = Concat(x, Concat(y, z, axis=i), axis=i)",
        "Slice(x, axis=i, lo=0, hi=a) => x   when a == x.dim(i)",
        "Slice(Concat(x, y, axis=i), axis=i, lo=0, hi=a) => x   when a == x.dim(i)",
        "Slice(Concat(x, y, axis=i), axis=i, lo=a, hi=b) => y"
        "   when a == x.dim(i), b == (x.dim(i) + y.dim(i))",
    }
    assert {one.certificate.level for one in generated.kept} == {2}
    assert all(one.certificate.rule == one.rule.name for one in generated.kept)
    assert f"{len(generated.kept)} rules" in generated.summary
    assert len(generated.to_json()["rules"]) == len(generated.kept)


def test_the_source_is_the_same_for_a_seed(generated: Generated) -> None:
    again = generate(("slice", "concat", "relu", "add"), 2)
    assert again.source("Found.") == generated.source("Found.")


def test_a_rulebook_reads_back_as_the_rules_that_were_written(tmp_path: Path) -> None:
    """All rules of the book, with every kind of term and condition."""
    rules = list(book().values())
    path = tmp_path / "written.py"
    path.write_text(rulebook_source(rules, "The book."))
    back = read_rulebook(path)
    assert [(one.name, str(one), one.kinds, one.phase) for one in back] == [
        (one.name, str(one), one.kinds, one.phase) for one in rules
    ]
    for one, other in zip(back, rules, strict=True):
        assert (one.numerics, one.backward, one.bidirectional) == (
            other.numerics, other.backward, other.bidirectional,
        )  # fmt: skip
        assert [c.reason for c in one.when] == [c.reason for c in other.when]


def test_siblings_are_parts_of_one_operator() -> None:
    columns = book()["equations/matmul-columns"]
    (rule,) = siblings([columns, book()["elementwise/add-commute"], book()["concat/map"]])
    assert rule.phase is Phase.SIBLINGS
    assert len(rule.lhs) == 2
    assert verify([rule], level=1)[0].passed


def test_the_command_writes_what_the_gate_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.py"
    command = ["rules", "generate", "--ops", "add,relu", "--size", "1", "-o", str(path)]
    assert main(command) == 0
    assert "generated/add: (x + y) = (y + x)" in capsys.readouterr().out
    assert (tmp_path / "found.certificates.json").is_file()
    assert main(["rules", "import", str(path), "--jobs", "1"]) == 0
    assert "1 of 1 rule accepted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "ad", "-o", "x.py"], "--ops has 'ad'; .*did you mean add"),
        (["--ops", " ,", "-o", "x.py"], "--ops is empty"),
        (["--size", "5", "-o", "x.py"], "--size 5 is not supported"),
        (["-o", "x.txt"], "give a name that ends in .py"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "generate", *arguments]) == 1
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_operators_have_names() -> None:
    with pytest.raises(OptionError, match="choose from"):
        settings_for(["conv3"])
