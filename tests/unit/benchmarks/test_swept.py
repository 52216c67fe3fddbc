"""`python -m benchmarks.swept`: the e-graph beside the best search of a sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import swept


def cell(
    folder: Path, method: str, cost: float | None, device: str = "v100", **more: float
) -> None:
    result = {"method": method, "cost": cost, "kernels": 2, "cpu_s": 1.0, "lower_bound": None}
    reply = {"failure": {}} if cost is None else {"result": {**result, **more}}
    value = {"cell": {"model": "zoo:a", "device": device, "method": method}, "reply": reply}
    (folder / f"{device}-{method}.cell.json").write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("cost", "said"),
    [(8.0, "11.11% cheaper"), (9.0, "equal"), (9.0005, "equal"), (10.0, "11.11% dearer")],
)
def test_the_best_and_quickest_search_stands_beside(cost: float, said: str, tmp_path: Path) -> None:
    cell(tmp_path, "eqsat", cost, lower_bound=cost)
    cell(tmp_path, "metaflow", 9.0)
    cell(tmp_path, "taso", 9.0, cpu_s=0.5)
    cell(tmp_path, "sampling", 9.5, cpu_s=0.1)
    (row,) = swept.rows_of(tmp_path)
    assert row.cells[5:7] == ("taso", said)
    assert "proven in 1" in swept.counts_of([row])


def test_rows_wait_for_all_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tmp_path / "cells"
    cells.mkdir()
    monkeypatch.setattr(sys, "argv", ["swept", str(cells)])
    with pytest.raises(SystemExit, match="has no model with all methods"):
        swept.main()
    cell(cells, "eqsat", 1.0)
    cell(cells, "metaflow", 2.0)
    cell(cells, "taso", None)  # a search that failed is no reason to wait
    cell(cells, "eqsat", 1.0, "local")
    (row,) = swept.rows_of(cells)
    assert row.device == "v100"
    pytest.importorskip("matplotlib")
    files = [tmp_path / "table.json", tmp_path / "plot.svg"]
    arguments = ["swept", str(cells), "--results", str(files[0]), "--plot", str(files[1])]
    monkeypatch.setattr(sys, "argv", arguments)
    swept.main()
    assert "cheaper in 1 (on 1 models)" in capsys.readouterr().out
    (told,) = json.loads(files[0].read_text())["rows"]
    assert told == list(row.cells)
    assert files[1].read_text().startswith("<?xml")
