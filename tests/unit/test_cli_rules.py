"""`eqsat-opt rules`: tables, JSON, exit codes, and one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat_opt.cli.app import run
from eqsat_opt.rules import families
from eqsat_opt.rules.library import standings

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


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "conv/enlarge-kernel"]) == 0
    text = capsys.readouterr().out
    for part in ("when c == (a + 1)", "level ", "instances", "float16", "probability at most 2^-"):
        assert part in text
    assert run(["rules", "show", "lrn", "--json", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rules"]) == len(families()["lrn"])


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no family 'recurrence'; families: " in error_of(capsys, "list", "--family", "recurrence")
    assert "no rule or family 'conv/fly'" in error_of(capsys, "show", "conv/fly")
    assert "no rule or family 'conv/fly'" in error_of(capsys, "verify", "conv/fly")
    assert "--level 4 does not exist" in error_of(capsys, "verify", "--level", "4")
    assert "--jobs -1 is negative" in error_of(capsys, "verify", "--jobs", "-1")


def test_verify_one_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, target = "transpose/compose-2d", tmp_path / "found.json"
    command = ["rules", "verify", name, "--level", "1", "--jobs", "1", "--json", str(target)]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "1 rules in" in text
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
    assert "1 of 1 rules accepted" in text
    assert (tmp_path / "mine.certificates.json").is_file()


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


def test_import_of_what_is_no_rulebook(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "rules.txt"
    text.write_text("x + y = y + x")
    assert "neither a rulebook (.py) nor" in error_of(capsys, "import", str(text))
    python = tmp_path / "rules.py"
    python.write_text("x + y = = y + x")
    assert "is no Python: line 1" in error_of(capsys, "import", str(python))
    python.write_text(RIGHT.replace("ops.Abs(ops", "ops.Absolute(ops"))
    assert "unknown operator 'Absolute'" in error_of(capsys, "import", str(python))
    assert "no rule file" in error_of(capsys, "import", str(tmp_path / "absent.py"))
    damaged = tmp_path / "rules.pb"
    damaged.write_bytes(b"\x0a\xff\xff\xff")
    assert "rules.pb" in error_of(capsys, "import", str(damaged))
    assert "leave it out" in error_of(capsys, "import", str(damaged), "--write")
