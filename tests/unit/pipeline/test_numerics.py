"""The class of numerics of a run: that of its target by default, stricter for some models."""

from __future__ import annotations

import onnx
import pytest

from eqsat_opt import api
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import OptionError
from eqsat_opt.lab.comparison import CompareSettings
from eqsat_opt.lab.experiments.worker import MethodTask
from eqsat_opt.pipeline.options import Options

_FINITE = Options(target="v100", effort="quick", store="", threads=1)


def test_the_default_is_that_of_the_target() -> None:
    assert Options().numerics_class is Numerics.REASSOCIATE
    assert Options(target="v100").numerics_class is Numerics.FINITE
    assert Options(target="v100", numerics="reassociate").numerics_class is Numerics.REASSOCIATE
    with pytest.raises(OptionError, match="bitexact, reassociate, finite, refactor, relaxed"):
        Options(numerics="infinite")


def test_comparisons_are_of_finite_models() -> None:
    def task(options: Options) -> str:
        made = MethodTask.of(
            CompareSettings(), options, model="m", name="m", method="eqsat", seed=0
        )
        assert made.record["numerics"] == made.options["numerics"]
        return str(made.options["numerics"])

    assert task(Options()) == "finite"
    assert task(Options(numerics="relaxed")) == "relaxed"


def _model(nodes: str) -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["": 17]> g (float[4,8] x) => (float[4,8] y) {{{nodes}}}'
    return onnx.parser.parse_model(text)


def test_a_model_with_infinities_of_its_own_is_searched_in_the_stricter_class() -> None:
    model = _model("l = Log(x) y = Relu(l)")
    report = api.run(model, _FINITE).report
    assert [note for note in report.notes if "numerics are reassociate, not finite: Log" in note]
    finite = api.run(_model("l = Exp(x) y = Relu(l)"), _FINITE).report
    assert not [note for note in finite.notes if "numerics" in note]
