"""The verdict of the benchmark: a missed optimum, a wrong bound or a broken file is said."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "extraction_gym.py"

NODES = {
    "top": {"op": "f", "children": ["left", "right"], "eclass": "t", "cost": 1},
    "left": {"op": "a", "children": ["leaf"], "eclass": "l", "cost": 1},
    "left2": {"op": "a", "children": [], "eclass": "l", "cost": 4},
    "right": {"op": "b", "children": ["leaf"], "eclass": "r", "cost": 1},
    "right2": {"op": "b", "children": [], "eclass": "r", "cost": 4},
    "leaf": {"op": "c", "children": [], "eclass": "c", "cost": 4},
}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The script as a module; it stays in `sys.modules`, where dataclasses look for it."""
    spec = importlib.util.spec_from_file_location("extraction_gym", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["extraction_gym"] = module
    spec.loader.exec_module(module)
    return module


def run(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str
) -> int:
    monkeypatch.setattr(sys, "argv", ["extraction_gym.py", str(folder), *arguments])
    return int(benchmark.main())


@pytest.mark.parametrize(
    ("optima", "code", "expected"),
    [
        (None, 0, "0 of 0 known optima reached"),
        ({"set/e.json": 7.0}, 0, "1 of 1 known optima reached, 1 of them proven"),
        ({"set/e.json": 6.5}, 1, "misses the optimum 6.5: 7"),
        ({"set/e.json": 7.5}, 1, "one of the two is wrong"),
    ],
)
def test_verdict_and_exit_code(
    optima: dict[str, float] | None,
    code: int,
    expected: str,
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "set").mkdir()
    content = {"nodes": NODES, "root_eclasses": ["t"]}
    (tmp_path / "set" / "e.json").write_text(json.dumps(content))
    if optima is not None:
        (tmp_path / "optima.json").write_text(json.dumps(optima))
    table, numbers = tmp_path / "table.md", tmp_path / "numbers.txt"
    options = ("--markdown", str(table), "--json", str(numbers), "--time-limit", "5")
    assert run(benchmark, monkeypatch, tmp_path, *options) == code
    output = capsys.readouterr().out
    assert expected in output
    assert expected in table.read_text(encoding="utf-8")
    entry = json.loads(numbers.read_text())["files"]["set/e.json"]
    assert (entry["cost"], entry["greedy"], entry["status"]) == (7.0, 9.0, "optimal")


def test_a_broken_file_fails_and_others_are_solved(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "good.json").write_text(json.dumps({"nodes": NODES, "root_eclasses": ["t"]}))
    (tmp_path / "bad.json").write_text(json.dumps({"nodes": NODES, "root_eclasses": ["x"]}))
    assert run(benchmark, monkeypatch, tmp_path) == 1
    assert "root class x does not exist" in capsys.readouterr().out
    assert run(benchmark, monkeypatch, tmp_path, "--only", "good") == 0


def test_a_bound_above_the_optimum_is_a_fault(benchmark: ModuleType) -> None:
    entry = benchmark.Entry(1, 1, 9.0, cost=7.0, lower_bound=7.5, optimum=7.0)
    assert entry.faults == ["claims a bound above 7"]
    assert benchmark.Entry(1, 1, 9.0, cost=9.5).faults == ["is worse than greedy"]
