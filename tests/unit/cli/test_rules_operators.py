"""`rules operators`: what rules may name."""

from __future__ import annotations

import json

import pytest

from eqsat_opt.cli import main
from eqsat_opt.ir.ops import OPS


def test_all_operators_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "operators", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["operators"]
    assert [one["name"] for one in found] == sorted(OPS)
    by_name = {one["name"]: one for one in found}
    assert by_name["Conv"]["attributes"]["group"] == "int"
    assert "matmul/assoc" in by_name["MatMul"]["rules"]


def test_one_operator_and_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "operators", "Concat"]) == 0
    output = capsys.readouterr().out
    assert "1 or more" in output
    assert "concat/slice-left" in output.splitlines()


def test_an_unknown_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "operators", "MatMull"]) == 1
    assert "did you mean MatMul?" in capsys.readouterr().err
