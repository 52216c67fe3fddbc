"""ONNX's backend suite, optimised and then run: a fixed sample of it.

`python -m benchmarks.onnx_backend_suite` runs all.
"""

from __future__ import annotations

from collections import Counter

import onnx
import onnx_ir
import pytest

from benchmarks import onnx_backend_suite as suite
from benchmarks.onnx_backend_suite import KINDS, Case, Verdict, every_case, judge, sample
from eqsat_opt.ir.onnx.exporter import model_proto

SAMPLE, LARGE = 8, 80
"""Cases of each kind in every run, and with `--slow`."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return every_case()


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return []


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(LARGE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_before_passes_after(
    kind: str, count: int, cases: list[Case], verdicts: list[Verdict]
) -> None:
    found = [judge(case) for case in sample([c for c in cases if c.kind == kind], count)]
    verdicts += found
    failed = [f"{v.kind} {v.name}: {v.reason}" for v in found if v.outcome == "failed"]
    assert not failed, "\n".join(failed)


def test_the_sample_is_large_and_covers_every_kind(
    cases: list[Case], verdicts: list[Verdict]
) -> None:
    if not verdicts:
        pytest.skip("counts what the test before it found")
    passed = Counter(v.kind for v in verdicts if v.outcome == "passed")
    assert passed.total() >= 20
    assert passed.keys() == set(KINDS)
    assert sum(v.status == "unmeasured" for v in verdicts) > 1  # came back changed
    assert sample(cases, SAMPLE) == sample(cases, SAMPLE)
    assert sample(cases, len(cases) + 1) == cases


@pytest.mark.parametrize("name", ["test_affine_grid_2d_expanded"])
def test_a_condition_that_is_folded_leaves_a_model_that_runs(cases: list[Case], name: str) -> None:
    """The case feeds Range with vectors, which onnxruntime does not see behind an If."""
    (case,) = (one for one in cases if one.name == name)
    assert judge(case).outcome == "passed"


def test_a_wrong_graph_fails(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (case for case in cases if case.name == "test_add")
    assert judge(case).outcome == "passed"

    def subtracting(model: onnx_ir.Model) -> onnx.ModelProto:
        proto = model_proto(model)
        proto.graph.node[0].op_type = "Sub"
        return proto

    monkeypatch.setattr(suite, "model_proto", subtracting)
    verdict = judge(case)
    assert verdict.outcome == "failed"
    assert verdict.reason.startswith("chosen graph: ")


def test_a_crash_fails_and_names_itself(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(suite, "run", crash)
    (case,) = (case for case in cases if case.name == "test_add")
    assert judge(case).reason == "KeyError: 'lost'"


def test_what_onnxruntime_does_not_pass_is_not_counted(cases: list[Case]) -> None:
    (case,) = (case for case in cases if case.name == "test_add")
    wrong = [(inputs, [outputs[0] + 1]) for inputs, outputs in case.data_sets]
    broken = Case(case.name, case.kind, case.model, wrong, case.rtol, case.atol)
    assert judge(broken).outcome == "not run"
