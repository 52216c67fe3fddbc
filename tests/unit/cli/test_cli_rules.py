"""`eqsat-opt rules`: tables, JSON, exit codes, and one line for each mistake."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat_opt.cli.app import run
from eqsat_opt.lab import certification
from eqsat_opt.proving import selection
from eqsat_opt.proving.selection import standings
from eqsat_opt.rules import Numerics, families
from eqsat_opt.rules.glossary import closed_form

RIGHT = """
from eqsat_opt.rules.rule import Tensor, rule
from eqsat_opt.rules.term import ops

@rule("mine/abs")
def absolute(x: Tensor):
    "Twice is once."
    return ops.Abs(ops.Abs(x)), ops.Abs(x)
"""
WRONG = """
@rule("mine/sub")
def exchanged(x: Tensor, y: Tensor):
    "The operands in the wrong order."
    return x - y, y - x
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a mistake earns."""
    assert run(["rules", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("list", "show", "verify", "import"))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in standings())
    assert f"{len(standings())} rules:" in text
    assert "proven for all sizes" in text


def test_list_of_a_family_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list", "--family", "pool", "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["rules"]
    assert [one["name"] for one in listed] == [one.name for one in families()["pool"]]
    assert all(one["certificate"]["level"] >= 1 and one["obstacle"] == "" for one in listed)


def test_list_with_filters(capsys: pytest.CaptureFixture[str]) -> None:
    """Filters add up, and a rule without a valid certificate counts as level 0."""
    found = {}
    for level in ("0", "1", "2", "3"):
        assert run(["rules", "list", "--level", level, "--json", "-"]) == 0
        found[level] = [one["name"] for one in json.loads(capsys.readouterr().out)["rules"]]
    assert sorted(name for names in found.values() for name in names) == sorted(standings())
    left_out = {name for name, one in standings().items() if one.obstacle}
    assert set(found["0"]) == left_out
    filters = ["--phase", "recognise", "--family", "attention", "--numerics", "relaxed"]
    assert run(["rules", "list", *filters, "--json", "-"]) == 0
    shown = {one["name"] for one in json.loads(capsys.readouterr().out)["rules"]}
    relaxed = {r.name for r in families()["attention"] if r.numerics is Numerics.RELAXED}
    assert shown == relaxed  # all of them recognise
    assert "attention/guarded-softmax" in shown


def test_list_fits_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["rules", "list", "--family", "activation"]) == 0
    lines = capsys.readouterr().out.splitlines()[: 1 + len(families()["activation"])]
    assert max(map(len, lines)) <= 80
    title, *rows = lines
    assert title.split() == ["rule", "level", "numerics", "equation"]
    for row, rule in zip(rows, families()["activation"], strict=True):
        level = standings()[rule.name].certificate
        assert level is not None
        assert row.split()[:3] == [rule.name, str(level.level), rule.numerics.name.lower()]


def test_families_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    counts = {row[0]: row[1] for row in rows if row[0] in families()}
    assert counts == {name: str(len(rules)) for name, rules in families().items()}


def test_rules_that_are_left_out_are_named_by_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [rule.name for rule in families()["matmul"]]
    known = dict(standings())
    for name in names[:2]:
        known[name] = replace(known[name], obstacle="it is stale")
    monkeypatch.setattr(selection, "standings", lambda: known)
    assert run(["rules", "list", "--family", "matmul"]) == 0
    text = capsys.readouterr().out
    assert f"left out: {', '.join(names[:2])}: it is stale" in text
    assert f"{len(names)} rules: {len(names) - 2} proven for all sizes" in text
    levels = [row.split()[1] for row in text.splitlines()[1 : 1 + len(names)]]
    assert levels == ["-", "-", *["2"] * (len(names) - 2)]
    assert run(["rules", "show", names[0]]) == 0
    assert f"rules verify {names[0]} --write certifies it" in capsys.readouterr().out


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "conv/enlarge-kernel"]) == 0
    text = capsys.readouterr().out
    for part in ("when c == (a + 1)", "level ", "instances", "float16", "probability at most 2^-"):
        assert part in text
    assert run(["rules", "show", "lrn", "--json", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rules"]) == len(families()["lrn"])


def test_show_of_one_direction(capsys: pytest.CaptureFixture[str]) -> None:
    """Reports name the direction in which a rule was read."""
    assert run(["rules", "show", "elementwise/add-assoc-reversed"]) == 0
    assert capsys.readouterr().out.startswith("elementwise/add-assoc\n")
    assert "no rule" in error_of(capsys, "show", "elementwise/add-commute-reversed")


def test_show_of_constants(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "activation/gelu"]) == 0
    text = capsys.readouterr().out
    assert "when c ≈ √(1/2) = 0.7071067811865476 (relative tolerance 1e-06)" in text
    assert "when s ≈ 1.0 (relative tolerance 1e-06)" in text
    assert text.count("toleran") == 3  # the two conditions, and what the proof makes of them


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (math.sqrt(0.5), "√(1/2)"),
        (math.sqrt(8), "√(8)"),
        (1 / 0.044715, "1/0.044715"),
        (0.044715 * math.sqrt(8 / math.pi), "0.08943·√(2/π)"),
        (1.702, None),
        (-3.0, None),
        (0.0, None),
        (0.7071068, None),
        (math.e, None),
    ],
)
def test_closed_forms(value: float, form: str | None) -> None:
    assert closed_form(value) == form


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no family 'recurrence'; choose from " in error_of(
        capsys, "list", "--family", "recurrence"
    )
    assert "no rule or family 'conv/fly'" in error_of(capsys, "show", "conv/fly")
    assert "no rule or family 'conv/fly'" in error_of(capsys, "verify", "conv/fly")
    assert "did you mean pool/max-relu" in error_of(capsys, "show", "pool/max-rel")
    assert "nowhere does not exist" in error_of(capsys, "show", "lrn", "--json", "nowhere/lrn")
    assert "--level 4 does not exist" in error_of(capsys, "verify", "--level", "4")
    assert "--level 4 does not exist" in error_of(capsys, "list", "--level", "4")
    assert "there is no phase 'late'; choose from recognise" in error_of(
        capsys, "list", "--phase", "late"
    )
    assert "choose from bitexact" in error_of(capsys, "list", "--numerics", "loose")
    assert "--jobs -1 is negative" in error_of(capsys, "verify", "--jobs", "-1")
    assert "-q is where a file name belongs" in error_of(capsys, "list", "--json", "-q")


def test_closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert run(["rules", "list", "--family", "pool"]) == 0
    assert run(["rules", "list", "--family", "recurrence"]) == 1
    sys.stdout.close()
    sys.stderr.close()


def test_verify_one_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, target = "elementwise/add-assoc", tmp_path / "found.json"
    command = [
        "rules",
        "verify",
        f"{name}-reversed",
        name,
        "--level",
        "1",
        "--jobs",
        "1",
        "--json",
        str(target),
    ]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "1 rule in" in text
    (found,) = json.loads(target.read_text())["rules"]
    assert (found["name"], found["passed"], found["error"]) == (name, True, None)
    assert found["certificate"]["directions"][0]["instances"] >= 20


def test_verify_in_fresh_processes(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["transpose/compose-2d", "transpose/compose-3d"]
    assert run(["rules", "verify", *names, "--level", "1", "--jobs", "2", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["rules"]] == names
    assert all(one["passed"] for one in found["rules"])


def test_import_of_a_rulebook(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT)
    assert run(["rules", "import", str(path), "--jobs", "1", "--write"]) == 0
    text = capsys.readouterr().out
    assert "mine/abs: Abs(Abs(x)) => Abs(x)" in text
    assert "accepted: level 1" in text
    assert "1 of 1 rule accepted" in text
    beside = tmp_path / "mine.certificates.json"
    assert f"certificates written to {beside}" in text.replace("\n", "")
    beside.unlink()
    assert run(["rules", "import", str(path), "--jobs", "1", "--write", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == [str(beside)]
    assert beside.is_file()
    assert run(["rules", "import", str(path), "--jobs", "1", "--write", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert "--jobs -1 is negative" in error_of(capsys, "import", str(path), "--jobs", "-1")


def test_import_says_early_that_it_cannot_write(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    monkeypatch.setattr(certification, "verify", None)
    assert "no permission to write in" in error_of(capsys, "import", str(path), "--write")


def test_import_of_a_wrong_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT + WRONG)
    assert run(["rules", "import", str(path), "--jobs", "1", "--write"]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 rules accepted" in captured.out
    assert "refused: rule mine/sub is wrong" in captured.out
    assert "np.testing.assert_allclose(left, right)" in captured.out
    assert captured.err.startswith("error: rule mine/sub is wrong: x: float32[")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "mine.certificates.json").exists()


def test_import_of_two_rules_of_one_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The verdict on a right rule must not pass a wrong one of the same name."""
    path = tmp_path / "mine.py"
    path.write_text(RIGHT + WRONG.replace("mine/sub", "mine/abs"))
    assert "defines rule 'mine/abs' twice; rename one" in error_of(capsys, "import", str(path))
    path.write_text(RIGHT.replace("mine/abs", "matmul/assoc"))
    error = error_of(capsys, "import", str(path))
    assert "rule 'matmul/assoc' is in the book already; rename yours" in error


def test_import_of_equations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text("relu(input_7)==relu(input_7)")
    assert run(["rules", "import", str(path), "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "tensat/1: relu(input_7) == relu(input_7)" in text
    assert "1 rules: 1 derived" in text
    path.write_text("relu(input_7)==transpose(input_7)relu(input_7)==smul(input_7,input_20)")
    assert "1 of 2 rules of" in error_of(capsys, "import", str(path), "--jobs", "1")
    assert "--write keeps certificates" in error_of(capsys, "import", str(path), "--write")
    assert "--level is for .py" in error_of(capsys, "import", str(path), "--level", "2")


def test_import_of_what_is_no_rulebook(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "rules.text"
    text.write_text("x + y = y + x")
    assert "neither a rulebook (.py) nor" in error_of(capsys, "import", str(text))
    assert "no equation of TENSAT at character 2" in error_of(
        capsys, "import", str(text), "--format", "tensat"
    )
    assert "there is no format 'tensor'" in error_of(
        capsys, "import", str(text), "--format", "tensor"
    )
    python = tmp_path / "rules.py"
    python.write_text("x + y = = y + x")
    assert "is not Python: line 1" in error_of(capsys, "import", str(python))
    python.write_text("raise SystemExit(3)")
    assert "cannot be loaded: line 1: SystemExit: 3" in error_of(capsys, "import", str(python))
    python.write_bytes(b"x = 0\x00")
    assert "is not Python: source code" in error_of(capsys, "import", str(python))
    python.write_text(RIGHT.replace("ops.Abs(ops", "ops.Absolute(ops"))
    assert "unknown operator 'Absolute'" in error_of(capsys, "import", str(python))
    assert "no rule file" in error_of(capsys, "import", str(tmp_path / "absent.py"))
    damaged = tmp_path / "rules.pb"
    damaged.write_bytes(b"\x0a\xff\xff\xff")
    assert "rules.pb" in error_of(capsys, "import", str(damaged))
    assert "leave it out" in error_of(capsys, "import", str(damaged), "--write")
