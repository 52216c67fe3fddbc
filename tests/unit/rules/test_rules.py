"""The rule language, what selects rules, and how the book is described."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.describe import describe
from eqsat_opt.proving.selection import default_rules, load_rules, standings
from eqsat_opt.rules import Numerics, families
from eqsat_opt.rules.bindings import Bindings, size
from eqsat_opt.rules.rule import Float, Phase, Sides, Tensor, directed, rule
from eqsat_opt.rules.term import Expr, near, ops

BOOK = {one.name: one for one in directed([r for rules in families().values() for r in rules])}


# The language ------------------------------------------------------------------------------------


def test_names_are_family_slash_kebab_case() -> None:
    with pytest.raises(RuleError, match="kebab-case"):
        rule("Wrong Name")


def test_every_parameter_needs_a_known_annotation() -> None:
    def untyped(x: int) -> Sides:
        return ops.Relu(x), x

    with pytest.raises(RuleError, match="'x' needs an annotation"):
        rule("test/untyped")(untyped)


def test_both_sides_must_be_returned() -> None:
    def one_side(x: Tensor) -> Sides:
        return (ops.Relu(x),)

    with pytest.raises(RuleError, match="returns lhs, rhs"):
        rule("test/one-side")(one_side)


def test_the_left_side_must_bind_every_variable() -> None:
    def unbound(x: Tensor, y: Tensor) -> Sides:
        return ops.Relu(x), x + y

    with pytest.raises(RuleError, match="y is not bound"):
        rule("test/unbound")(unbound)


def test_both_directions_must_bind() -> None:
    def forgets(x: Tensor, y: Tensor) -> Sides:
        return x - y + y, ops.Relu(x)

    with pytest.raises(RuleError, match="test/forgets-reversed: y is not bound"):
        rule("test/forgets", bidirectional=True)(forgets)


def test_the_left_side_is_no_bare_variable() -> None:
    def everything(x: Tensor) -> Sides:
        return x, ops.Relu(x)

    with pytest.raises(RuleError, match="match everything"):
        rule("test/everything")(everything)


def test_a_wide_tolerance_is_refused() -> None:
    """The rule is verified at the target alone, where it is nothing; 5 is near 1 by its word."""

    def anything(x: Tensor, c: Float) -> Sides:
        return x * ops.Scalar(value=c, dtype="float32"), x, near(c, 1.0, 10.0)

    with pytest.raises(RuleError, match="give a tolerance from 0 to 1e-05"):
        rule("test/anything")(anything)


def test_as_many_roots_right_as_left() -> None:
    def roots(x: Tensor) -> Sides:
        return (ops.Relu(x), ops.Tanh(x)), x

    with pytest.raises(RuleError, match="2 roots on the left, 1 on the right"):
        rule("test/roots")(roots)


def test_patterns_are_checked_against_the_registry() -> None:
    with pytest.raises(RuleError, match="unknown operator 'Convolve'"):
        ops.Convolve  # noqa: B018
    with pytest.raises(RuleError, match="takes 2 to 2 operands"):
        ops.Add(BOOK["elementwise/add-commute"].lhs[0])
    with pytest.raises(RuleError, match=r"exactly the attributes \['perm'\]"):
        ops.Transpose(BOOK["elementwise/add-commute"].lhs[0])


def test_conditions_are_symbolic() -> None:
    condition = BOOK["concat/slice-left"].when[0]
    with pytest.raises(RuleError, match="symbolic"):
        bool(condition)
    assert str(condition) == "hi <= x.dim(axis)"


def computed(n: Any) -> list[Any]:
    return [60 // n, n // 3, n % 3, 7 % n, -n, 10 - n * 2 + 1]


@pytest.mark.parametrize("extent", range(1, 9))
def test_sizes_compute_as_python_does(extent: int) -> None:
    bindings = Bindings({}, {"n": extent})
    symbolic = computed(Expr("attr", ("n",)))
    assert [size(one, bindings) for one in symbolic] == computed(extent)


def test_directed_names_the_reverse() -> None:
    names = [
        one.name for one in directed([r for r in families()["matmul"] if r.name == "matmul/assoc"])
    ]
    assert names == ["matmul/assoc", "matmul/assoc-reversed"]


# Selection ---------------------------------------------------------------------------------------


def test_numerics_admit_what_lies_below() -> None:
    strict = {one.name for one in default_rules(Numerics.BITEXACT)}
    assert "concat/whole-slice" in strict
    assert "matmul/assoc" not in strict
    assert strict < {one.name for one in default_rules(Numerics.RELAXED)}


def test_selection_by_family_name_and_exclusion() -> None:
    chosen = load_rules("matmul,-matmul/assoc,pool/max-relu", Numerics.RELAXED)
    names = [one.name for one in chosen]
    assert "matmul/assoc" not in names
    assert "matmul/block-sum" in names
    assert names[-1] == "pool/max-relu"
    assert load_rules("none", Numerics.RELAXED) == []
    everything = load_rules("-conv", Numerics.RELAXED)
    assert {one.family for one in everything} == {
        one.family for one in default_rules(Numerics.RELAXED)
    } - {"conv"}


def test_rules_from_a_file(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from eqsat_opt.rules.rule import Tensor, rule\n"
        "from eqsat_opt.rules.term import ops\n"
        "@rule('mine/abs')\n"
        "def absolute(x: Tensor):\n"
        "    'Twice is once.'\n"
        "    return ops.Abs(ops.Abs(x)), ops.Abs(x)\n"
    )
    (mine,) = load_rules(str(source), Numerics.RELAXED)
    assert mine.name == "mine/abs"
    assert check_rule(mine).passed
    source.write_text("x = 1\n")
    with pytest.raises(RuleError, match="defines no rule"):
        load_rules(str(source), Numerics.RELAXED)
    source.write_text("import nothing_of_that_name\n")
    with pytest.raises(RuleError, match="cannot be loaded"):
        load_rules(str(source), Numerics.RELAXED)
    with pytest.raises(RuleError, match="no rule file"):
        load_rules(str(tmp_path / "absent.py"), Numerics.RELAXED)


# The book ----------------------------------------------------------------------------------------


def test_book_is_documented() -> None:
    for one in BOOK.values():
        assert one.doc.endswith((".", ").", ")")), one.name
        assert one.name in describe(one)


def test_pages_count_the_rules_of_the_book() -> None:
    root, known = Path(__file__).parents[3], standings().values()
    total = len(known)
    proven = sum(one.certificate is not None and one.certificate.level > 1 for one in known)
    general = sum(one.rule.phase is Phase.DERIVATION for one in known)
    exact = sum(one.rule.numerics is Numerics.BITEXACT for one in known)
    readme, results, how = (
        (root / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/results.md", "docs/how-it-works.md")
    )
    assert f"of {total} rules, of which {proven} are proven for all sizes" in readme
    assert f"the {total} rules of the book ({total - general} for optimising" in results
    assert f"{general} general ones for deriving others) {proven} are proven" in results
    assert f"The {exact} that claim to be bitexact" in results
    assert total - proven == 12, "the pages write this number out"
    assert f"all but twelve of {total}, proven for all sizes" in how


def test_description_shows_reasons() -> None:
    text = describe(BOOK["conv/enlarge-kernel"])
    assert "when c == (a + 1)   (the pads must grow with the kernel)" in text
    assert "w v: Weight" in text


def test_phases_are_rulesets() -> None:
    assert {one.phase for one in BOOK.values()} == set(Phase)
