"""A metric is one record; objectives, limits, stages and reports know it then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.house import House

RECORD = """    Metric(
        name="read_bytes",
        alias="reads",
        title="data read",
        unit="B",
        of_kernel=lambda kernel: sum(operand.type.bytes for operand in kernel.operands),
    ),
"""
TABLE = "eqsat_opt/cost/metrics.py"
NEXT = '    Metric(name="bytes", '

MODEL = "zoo:weight_chain@tiny"
"""(x·w₁)·w₂: two products, each reading 4·16 and 16·16 numbers of 4 bytes; or one such product."""

BEFORE, AFTER = 2.0 * 1280, 1280.0
FAST = ("--no-measure", "--store", "", "--threads", "1", "--budget", "600")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    return house.with_edits({TABLE: (NEXT, RECORD + NEXT)})


def test_a_model_is_optimised_for_it(house: House, tmp_path: Path) -> None:
    aim = ("--objective", "reads+1e-3*launches", "--limit", "reads<=2000", "--no-race")
    command = ("-m", "eqsat_opt", "optimize", MODEL, "-o", "m.onnx", "--verbose", *aim, *FAST)
    done = house.run(*command, "--json", str(tmp_path / "report.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["goal"] == "read_bytes+0.001*launches"
    assert report["cost"] == AFTER + 1e-3
    assert report["metrics"]["before"]["read_bytes"] == BEFORE
    assert report["metrics"]["after"]["read_bytes"] == AFTER
    row = next(line for line in done.stdout.splitlines() if line.startswith("data read"))
    assert row.split() == ["data", "read", "2.56", "kB", "1.28", "kB", "-50.0%"]


FORBIDDEN = [
    (("--objective", "reads", "--limit", "max(read_bytes)<=1000"), "keeps the limits"),
    (("--objective", "readings"), "choose from launches, flops, reads, bytes"),
]


def test_what_it_forbids_is_told(house: House) -> None:
    done = house.commands([("optimize", MODEL, *aim, *FAST) for aim, _ in FORBIDDEN])
    for one, (_, said) in zip(done, FORBIDDEN, strict=True):
        assert (one.returncode, one.stdout) == (1, "")
        assert said in one.stderr


def explaining(stage: str) -> tuple[str, ...]:
    return ("explain", MODEL, "--objective", "reads", *FAST, "--stage", stage)


def test_stages_are_priced_by_it(house: House) -> None:
    done = house.commands([explaining("selection"), explaining("candidates")])
    assert [one.returncode for one in done] == [0, 0], done
    counts = done[0].stdout.splitlines()[0]
    assert "cost 1280 (" in counts
    assert "1 read_bytes)" in counts
    assert done[1].stdout.startswith("candidates 7, ")


def test_a_stored_problem_is_extracted_for_it(house: House, tmp_path: Path) -> None:
    file = str(tmp_path / "problem.json")
    extracting = ("extract", file, "--objective", "read_bytes", "--json", "-")
    limits = [("--limit", "read_bytes<=1280"), ("--limit", "read_bytes<=1000")]
    shown, whole, kept, broken = house.commands([
        (*explaining("problem"), "--json", file),
        extracting,
        *((*extracting, *limit) for limit in limits),
    ])  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "read_bytes" in shown.stdout.splitlines()[1].split()
    for one in (whole, kept):
        assert one.returncode == 0, one.stderr
        assert json.loads(one.stdout)["cost"] == AFTER
    assert broken.returncode == 1
