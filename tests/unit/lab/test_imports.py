"""Rules of other systems: what is read, how it is said here, and the verdicts."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat_opt.errors import OptionError, RuleError
from eqsat_opt.lab.certification import SerialExecutor
from eqsat_opt.lab.imports.foreign import ForeignRule, Unsayable
from eqsat_opt.lab.imports.formats import FORMATS, format_of, read_foreign
from eqsat_opt.lab.imports.haskell import parse
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

TENSORRIGHT = Path(
    os.environ.get("TENSORRIGHT_RULES")
    or Path(__file__).parents[4] / "shared" / "data" / "tensorright" / "rules" / "xla"
)
needs_tensorright = pytest.mark.skipif(
    not TENSORRIGHT.is_dir(),
    reason=f"needs TensorRight's rules: set TENSORRIGHT_RULES or put them at {TENSORRIGHT}",
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
    with pytest.raises(OptionError, match=r"give --format tensat\|tensorright"):
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


# TensorRight -------------------------------------------------------------------------------------

HASKELL = r"""module Main (main) where

import TensorRight

sumOfParts :: forall a. NumRule a
sumOfParts _ = do
  [rows, columns] <- newRClasses ["rows", "columns"]
  [high, low] <- newMaps ["high", "low"] rows
  wide <- newMap "wide" columns
  [si, sj, sk] <- newMaps ["si", "sj", "sk"] rows
  x <- newTensor @a "x" [rows --> high, columns --> wide]
  y <- newTensor @a "y" [rows --> low, columns --> wide]
  lhs <- numBinOp Add (reduce x [rows --> si]) (reduce y [rows --> sj])
  rhs <- reduce (concatTensor x y (ByRClass rows)) [rows --> sk]
  -- indices of sums are related, and need nothing here
  siRelation [si, sk] $ \[i, k] -> i .== k
  rewrite "Add(Reduce(X), Reduce(Y)) => Reduce(Concat(X, Y))" lhs rhs

paddedSlice :: forall a. AnyDTypeRule a
paddedSlice _ = do
  axis <- newRClass "axis"
  size <- newMap "size" axis
  [start, end, before, after] <- newNonNegMaps ["start", "end", "before", "after"] axis
  step <- newConstMap "step" 1 axis
  inner <- newMap "inner" axis
  x <- newTensor @a "x" [axis --> size]
  lhs <-
    slice
      (pad x ("v" :: a) $ Padding {low = [axis --> before], interior = [axis --> inner],
        high = [axis --> after]})
      $ Slice {start = [axis --> start], end = [axis --> end], strides = [axis --> step]}
  precondition [inner] $ \[i] -> i .== 0
  precondition [start, before] $ \[s, b] -> s .>= b
  precondition [size, end, before] $ \[n, e, b] -> e .<= n + b
  moved <- combineMap "moved" (\[s, b] -> s - b) [start, before]
  ended <- combineMap "ended" (\[e, b] -> e - b) [end, before]
  rhs <- slice x $ Slice {start = [axis --> moved], end = [axis --> ended], strides = []}
  rewrite "Slice(Pad(X)) => Slice(X)" lhs rhs

broadcastSum :: forall a. NumRule a
broadcastSum _ = do
  [rows, columns] <- newRClasses ["rows", "columns"]
  high <- newMap "high" rows
  wide <- newMap "wide" columns
  x <- newTensor @a "x" [rows --> high]
  y <- newTensor @a "y" [columns --> wide]
  lhs <- numBinOp Add (broadcast x [columns --> wide]) (broadcast y [rows --> high])
  rhs <- numBinOp Mul (broadcast x [columns --> wide]) (broadcast y [rows --> high])
  rewrite "wrong" lhs rhs

compared :: T.Text -> CompareOp -> Bool -> NumRule a
compared name op value _ = do
  axis <- newRClass "axis"
  size <- newMap "size" axis
  x <- newTensor @a "x" [axis --> size]
  lhs <- compareOp op x x
  rhs <- constant @SymBool (con value) [axis --> size]
  rewrite name lhs rhs

isLess :: forall a. NumRule a
isLess = compared "Lt(X, X) => False" Lt False

spaced :: forall a. NumRule a
spaced _ = do
  axis <- newRClass "axis"
  [size, inner] <- newMaps ["size", "inner"] axis
  x <- newTensor @a "x" [axis --> size]
  lhs <- pad x (0 :: a) $ Padding {low = [], interior = [axis --> inner], high = []}
  rewrite "Pad(X) => X" lhs x

branching :: forall a. NumRule a
branching _ = do
  let f a = a
  rewrite "?" f f

main :: IO ()
main = do
  print "rules"
  verifyNumDSL sumOfParts
  verifyNumDSLWith cvc5 paddedSlice
  verifyNumDSL broadcastSum
  verifyDSLWith (withTimeout 10000000 z3) isLess
  verifyNumDSL spaced
  verifyNumDSL branching
"""


def test_rules_in_haskell_are_read_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "Main.hs"
    path.parent.mkdir()
    path.write_text(HASKELL)
    found = read_foreign(path.parent, "tensorright")
    assert [one.name.removeprefix("tensorright/parts-") for one in found] == [
        "sumofparts", "paddedslice", "broadcastsum", "isless", "spaced", "branching",
    ]  # fmt: skip
    assert found[3].text == "Lt(X, X) => False"
    assert [one.missing for one in found[4:]] == [
        "a pad between elements", "a function or branch of Haskell in a rule",
    ]  # fmt: skip
    verdicts = [judge(one) for one in found]
    assert verdicts[0].status in ("derived", "proven")
    assert verdicts[1].status in ("proven", "exact")
    assert (verdicts[2].status, verdicts[2].runs) == ("refuted", True)
    # A comparison of what is no number with itself is false, as the rule has it.
    assert verdicts[3].status in ("proven", "exact", "open")


def test_what_is_no_rule_in_haskell_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Main.hs"
    path.write_text("module Main where")
    with pytest.raises(RuleError, match="has no rule of TensorRight"):
        read_foreign(path, "tensorright")
    with pytest.raises(RuleError, match="cannot be read"):
        read_foreign(tmp_path / "None.hs", "tensorright")


@pytest.mark.parametrize("text", ["(a, b)", "f (", "a ? b", "x $ y $", "(f x) y z"])
def test_other_haskell_is_named(text: str) -> None:
    with pytest.raises(Unsayable, match="Haskell"):
        parse(text)


@needs_tensorright
def test_most_of_tensorrights_rules_are_said() -> None:
    found = read_foreign(TENSORRIGHT, "tensorright")
    assert len(found) == 119
    assert sum(one.rule is not None for one in found) == 93


@needs_tensorright
@pytest.mark.slow
def test_verdicts_on_tensorrights_rules() -> None:
    found = judge_all(read_foreign(TENSORRIGHT, "tensorright"), SerialExecutor())
    assert [found.count(one) for one in ("derived", "proven", "exact")] == [16, 53, 22]
    assert found.count("refuted") == 0
