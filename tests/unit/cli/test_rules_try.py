"""`rules try`: where rules of a file apply, where nearly, and what a search makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat_opt.cli import main

BOOK = '''
from eqsat_opt.rules import Numerics, Sides, Tensor, rule


@rule("mine/assoc", bidirectional=True, numerics=Numerics.REASSOCIATE)
def assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(xy)z = x(yz)."""
    return (x @ y) @ z, x @ (y @ z), x.rank == {rank}, y.rank == {rank}, z.rank == {rank}
'''


def book(folder: Path, rank: int) -> str:
    path = folder / "mine.py"
    path.write_text(BOOK.format(rank=rank))
    return str(path)


def test_where_a_rule_applies_and_what_it_is_good_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["rules", "try", book(tmp_path, 2), "zoo:weight_chain@tiny", "--budget", "60"]
    assert main(line) == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert ["mine/assoc", "1", "matmul_2", "←", "matmul_1"] in rows
    assert main([*line, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    (place,) = found["applications"]
    assert place["nodes"] == ["matmul_2", "matmul_1"]
    assert {one["rule"] for one in found["search"]} == {"mine/assoc", "mine/assoc-reversed"}
    assert 0 < found["cost"] <= found["original_cost"]


def test_where_a_rule_nearly_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["rules", "try", book(tmp_path, 3), "zoo:weight_chain@tiny", "--no-search"]
    assert main(line) == 0
    output = capsys.readouterr().out
    assert "nowhere in the model as it is written" in output
    assert "x.rank == 3 (x.rank = 2)" in output
    assert "in a search" not in output


def test_a_file_that_is_watched_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(book(tmp_path, 3))
    writes = iter(["def half(:", path.read_text().replace("== 3", "== 2")])

    def edit(_seconds: float) -> None:
        if (text := next(writes, None)) is None:
            raise KeyboardInterrupt
        path.write_text(text)

    monkeypatch.setattr("eqsat_opt.cli.rules.trial.time.sleep", edit)
    line = ["rules", "try", str(path), "zoo:weight_chain@tiny", "--no-search", "--watch"]
    assert main(line) == 1
    output, errors = capsys.readouterr()
    assert output.index("nowhere in the model") < output.index("matmul_2 ← matmul_1")
    assert errors.splitlines()[0].startswith("error: ")
    assert "is not Python" in errors
    assert "interrupted" in errors.splitlines()[-1]


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["rules", "try", str(tmp_path / "none.py"), "zoo:sru@tiny"],
        ["rules", "try", book(tmp_path, 2), str(tmp_path / "none.onnx")],
    ):
        assert main(line) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
