"""Rules of other systems: what is read, how it is said here, and the verdicts."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat_opt.errors import OptionError, RuleError
from eqsat_opt.lab.certification import SerialExecutor
from eqsat_opt.lab.imports.foreign import ForeignRule
from eqsat_opt.lab.imports.formats import FORMATS, format_of, read_foreign
from eqsat_opt.lab.imports.judging import Judgement, judge, judge_all
from eqsat_opt.lab.imports.tensat import parse_equations, read_tensat
from eqsat_opt.rules.rule import Numerics, Rule, Tensor, rule
from eqsat_opt.rules.term import ops, slice_

TENSAT = Path(
    os.environ.get("TENSAT_RULES")
    or Path(__file__).parents[4] / "shared" / "data" / "tensat" / "taso_rules.txt"
)
needs_tensat = pytest.mark.skipif(
    not TENSAT.is_file(), reason=f"needs TENSAT's rules: set TENSAT_RULES or put them at {TENSAT}"
)

EQUATIONS = {
    "matmul(input_1,ewadd(input_4,input_5))==ewadd(matmul(input_1,input_4),matmul(input_1,input_5))":
        "derived",
    "transpose(transpose(input_2))==input_2": "proven",
    "input_2==transpose(transpose(input_2))": "proven",
    "split_0(0,transpose(concat(1,input_1,input_2)))==transpose(input_1)": "proven",
    "ewadd(input_1,matmul(input_1,input_4))==matmul(input_1,ewadd(input_4,Imatmul))": "proven",
    "matmul(smul(Imatmul,input_20),input_1)==smul(input_1,input_20)": "proven",
    "ewmul(input_1,Iewmul)==input_1": "proven",
    "conv2d(1,1,0,2,input_7,enlarge(3,3,input_16))==relu(conv2d(1,1,0,0,input_7,input_16))":
        "proven",
    "conv2d(1,1,0,0,input_7,Iconv(3,3))==input_7": "proven",
    "poolavg(3,3,1,1,0,input_7)==conv2d(1,1,0,0,input_7,Cpool(3,3))": "proven",
    "poolmax(3,3,1,1,0,input_7)==split_0(0,poolmax(3,3,1,1,0,concat(0,input_7,input_8)))":
        "derived or proven",
    "relu(ewadd(input_7,input_8))==ewadd(relu(input_7),relu(input_8))": "refuted",
    "poolavg(3,3,1,1,0,relu(input_7))==relu(poolavg(3,3,1,1,0,input_7))": "refuted",
    "conv2d(2,2,0,0,input_7,input_10)==conv2d(2,2,0,0,input_7,input_10)": "unsayable",
    "dropout(input_7)==input_7": "unsayable",
    "relu(input_1)==relu(input_2)": "unsayable",
    "split_0(0,relu(input_1))==relu(split_0(0,input_1))": "unsayable",
}  # fmt: skip
"""Equations as TENSAT writes them, and their verdicts."""


@pytest.fixture(scope="module")
def judgement(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    path = tmp_path_factory.mktemp("rules") / "equations.txt"
    path.write_text("".join(EQUATIONS))  # as published: nothing separates them
    return judge_all(read_tensat(path), SerialExecutor())


def test_each_equation_has_the_verdict_that_it_deserves(judgement: Judgement) -> None:
    found = [one.status for one in judgement.verdicts]
    assert len(found) == len(EQUATIONS)
    for (text, expected), status in zip(EQUATIONS.items(), found, strict=True):
        assert status in expected.split(" or "), text


def test_a_wrong_equation_differs_in_onnxruntime(judgement: Judgement) -> None:
    refuted = [one for one in judgement.verdicts if one.status == "refuted"]
    assert [one.runs for one in refuted] == [True, True]
    assert all("differ in onnxruntime as well" in str(one) for one in refuted)
    for one in refuted:
        with pytest.raises(AssertionError):
            exec(one.code, {})


def test_the_summary_counts_and_names_what_is_missing(judgement: Judgement) -> None:
    plain = judgement.to_json()
    counted = Counter(one["status"] for one in plain["verdicts"])
    assert all(plain[status] == count for status, count in counted.items())
    assert "1 lack dropout of 1 operands as in dropout(input_7)" in judgement.summary
    assert str(judgement).endswith(judgement.summary)


def test_equations_come_once_and_with_any_separator() -> None:
    text = "relu(input_1)==input_1\nrelu(input_1)==input_1relu(input_2) == input_2"
    assert [str(left) for left, _ in parse_equations(text)] == ["relu(input_1)", "relu(input_2)"]


@pytest.mark.parametrize(
    "text", ["", "relu(input_1)", "relu(input_1)=input_1", "relu(==input_1", "relu()==input_1", "§"]
)
def test_what_is_no_equation_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match="TENSAT"):
        parse_equations(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        read_foreign(tmp_path / "none.txt", "tensat")


def test_formats_follow_from_names() -> None:
    assert format_of(Path("mine.PY"), None) == "rulebook"
    assert format_of(Path("rules.pb"), None) == "taso"
    assert format_of(Path("rules.txt"), None) == "tensat"
    assert all(format_of(Path("rules"), name) == name for name in FORMATS)
    with pytest.raises(OptionError, match="give --format tensat"):
        format_of(Path("rules.json"), None)
    with pytest.raises(
        OptionError, match=r"there is no format 'tenset'; choose from .*; did you mean tensat"
    ):
        format_of(Path("rules"), "tenset")


def test_a_rule_is_stated_or_says_what_is_missing() -> None:
    with pytest.raises(RuleError, match="and not both"):
        ForeignRule("some/1", "x => x", None)


@rule("some/too-long", numerics=Numerics.BITEXACT)
def too_long(x: Tensor) -> tuple[object, ...]:
    """Only one shape is in reach."""
    return ops.Relu(ops.Relu(x)), ops.Relu(x), x.rank == 1, x.dim(0) == 2


def _foreign(one: Rule) -> ForeignRule:
    return ForeignRule(one.name, str(one), one)


def test_verdicts_of_rules_that_are_stated_already() -> None:
    assert judge(_foreign(too_long)).status == "proven"
    cut = replace(too_long, rhs=(slice_(ops.Relu(Tensor("x")), 0, 0, 1),))
    verdict = judge(_foreign(cut))
    assert (verdict.status, verdict.runs) == ("refuted", True)


@needs_tensat
def test_all_but_one_of_tensats_equations_are_said() -> None:
    found = read_tensat(TENSAT)
    assert len(found) == 674
    assert [one.missing for one in found if one.rule is None] == [
        "Cpool as in ewadd(input_19, Cpool(3, 3))"
    ]


@needs_tensat
@pytest.mark.slow
def test_verdicts_on_tensats_equations() -> None:
    found = judge_all(read_tensat(TENSAT), SerialExecutor())
    assert [found.count(one) for one in ("derived", "proven", "exact")] == [268, 396, 9]
    assert found.count("refuted", "open") == 0
