"""The tables of the README and of docs/results.md are those of benchmarks/results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import tables


def test_the_pages_are_as_the_results_say() -> None:
    assert tables.outdated() == []


def test_another_figure_makes_both_pages_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tables._RESULTS, tmp_path / "results")
    path = folder / "tuned.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    (row,) = (row for row in document["rows"] if row[0] == "alexnet")
    row[document["columns"].index(">tuned")] = "0.10"
    path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr(tables, "_RESULTS", folder)
    assert [found.name for found in tables.outdated()] == ["results.md", "README.md"]
    row.pop()
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ValueError, match="alexnet"):
        tables.outdated()
