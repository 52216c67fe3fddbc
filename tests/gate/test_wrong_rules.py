"""Every wrong rule here is wrong, and the gate refuses it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gate
from eqsat_opt.rules import Numerics, Sides, Tensor, ops, rule
from eqsat_opt.rules.rulebooks import read_rulebook
from tests.gate.cases import Case, difference, f32, f64, u8, wrong
from tests.gate.wrong_rules import all_cases, natural

CASES = all_cases()
SEED, SAMPLE = 1, 4


def test_every_rule_is_wrong_where_it_says() -> None:
    right = [case.name for case in CASES if difference(case) is None]
    assert not right


def test_there_are_many_and_none_twice() -> None:
    counts = Counter(case.name for case in CASES)
    assert len(counts) >= 300
    assert [name for name, count in counts.items() if count > 1] == []
    assert all(case.rule.doc for case in CASES)


def test_files_are_rulebooks() -> None:
    folder = Path(__file__).parent / "wrong_rules"
    files = [path for path in folder.glob("*.py") if path.stem != "__init__"]
    found = {one.name for path in files for one in read_rulebook(path)}
    assert found == {case.name for case in natural()}


def _case(sides: tuple[object, ...], **given: object) -> Case:
    @wrong(**given)
    @rule("right/one", numerics=Numerics.REASSOCIATE)
    def one(x: Tensor, y: Tensor) -> Sides:
        """For the test."""
        return sides

    return one


X, Y = Tensor("x"), Tensor("y")


def test_what_is_right_shows_nothing() -> None:
    assert difference(_case((X + Y, Y + X), x=f64(2, 3), y=f64(3))) is None
    assert difference(_case((X - Y, ops.Neg(Y - X)), x=u8(3), y=u8(5))) is None
    rounded = _case(((X + Y) - Y, X + (Y - Y)), x=f64(2, 3), y=f64(2, 3))
    assert difference(rounded) is None


def test_what_is_wrong_shows() -> None:
    sums = (X + Y, X - Y)
    assert difference(_case(sums, x=f64(2), y=f64(2))) is not None
    assert difference(_case(sums, x=u8(3), y=u8(5))) == "8 becomes 254"
    shape = _case((X + Y, X), x=f64(1), y=f64(2))
    assert difference(shape) == "float64[2] becomes float64[1]"
    lost = _case((X - X + Y, Y), x=f32(np.inf), y=f32(1.0))
    assert difference(lost) == "nan becomes 1.0"


def test_a_condition_that_fails_shows_nothing() -> None:
    apart = _case((X + Y, X - Y, X.rank == 3), x=f64(2), y=f64(2))
    assert difference(apart) is None


def test_command_counts_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["wrong", "--only", "de-morgan", "--jobs", "1"]) == 0
    assert "1 wrong rules: 1 refused, 0 accepted, 0 proven, 0 crashed" in capsys.readouterr().out


def test_command_names_what_is_accepted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = _case((X + Y, Y + X), x=f64(2), y=f64(2))
    monkeypatch.setattr(gate, "all_cases", lambda: [right])
    assert gate.main(["wrong", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "right/one" in out
    assert "0 refused, 0 accepted, 1 proven" in out


def _refused(cases: list[Case]) -> list[str]:
    return [case.name for case in cases if gate.judge(case.rule).fooled]


def test_a_sample_is_refused() -> None:
    assert _refused(random.Random(SEED).sample(CASES, SAMPLE)) == []


@pytest.mark.slow
def test_all_are_refused() -> None:
    assert gate.main(["wrong"]) == 0
