"""The harness that seeds faults, and that its table leaves no module out."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

from benchmarks import gate_faults
from benchmarks.gate_fault_table import FAULTS, Fault
from benchmarks.gate_faults import CAUGHT, SURVIVED, source_of, tried, validated
from eqsat_opt import proving
from eqsat_opt.proving import gate


def _modules() -> set[str]:
    """The gate and the parts that it is made of."""
    parts = (proving.typing, proving.instances, proving.numbers, proving.checks,
             proving.certificates, proving.proof)  # fmt: skip
    return {
        module.name
        for part in parts
        for module in pkgutil.walk_packages(part.__path__, f"{part.__name__}.")
        if not module.ispkg
    } | {gate.__name__}


def test_every_module_of_the_gate_has_a_fault() -> None:
    assert _modules() <= {fault.module for fault in FAULTS}
    assert len(FAULTS) >= 60


def test_every_fault_can_be_made() -> None:
    assert len(validated(FAULTS)) == len(FAULTS)
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        for test in fault.tests:
            assert Path(test.split("::")[0]).is_file(), test


@pytest.mark.parametrize(
    ("old", "new", "tests", "said"),
    [
        ("no such text", "", ("a",), "0 times"),
        ("return", "pass", ("a",), "times"),
        ("def mean(", "def mean(", ("a",), "changes nothing"),
        ("def mean(", "def average(", (), "no test"),
    ],
)
def test_what_cannot_be_made_is_an_error(
    old: str, new: str, tests: tuple[str, ...], said: str
) -> None:
    fault = Fault("eqsat_opt.ir.ops.normalisation", old, new, tests)
    with pytest.raises(ValueError, match=said):
        validated([fault])


def test_a_fault_is_seen_by_the_child_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seeded.py").write_text("def double(n):\n    return n + n\n")
    (tmp_path / "test_seeded.py").write_text(
        "from seeded import double\n\ndef test_double():\n    assert double(3) == 6\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    test = (str(tmp_path / "test_seeded.py"),)
    wrong = Fault("seeded", "n + n", "n - n", test)
    right = Fault("seeded", "n + n", "2 * n", test)
    broken = Fault("seeded", "def double", "def twice", test)
    assert [tried(one, tmp_path).verdict for one in (wrong, right)] == [CAUGHT, SURVIVED]
    assert tried(broken, tmp_path).verdict == gate_faults.BROKEN
    assert source_of("seeded").count("n + n") == 1


def test_a_survivor_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = iter((CAUGHT, SURVIVED))

    def outcome(fault: Fault, folder: Path | None = None) -> gate_faults.Outcome:
        return gate_faults.Outcome(fault, next(verdicts), "", 0.0)

    monkeypatch.setattr(gate_faults, "tried", outcome)
    monkeypatch.setattr(gate_faults, "FAULTS", FAULTS[:2])
    modules = len({fault.module for fault in FAULTS[:2]})
    assert gate_faults.main(["--no-baseline", "--jobs", "1"]) == 1
    expected = f"2 faults in {modules} modules: 1 caught, 1 survived, 0 broken"
    assert expected in capsys.readouterr().out


@pytest.mark.slow
def test_every_fault_is_caught() -> None:
    assert gate_faults.main([]) == 0
