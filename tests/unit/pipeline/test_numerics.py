"""The class of numerics of a run: that of its target by default, stricter for some models."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

from eqsat_opt import api
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.comparison import CompareSettings
from eqsat_opt.lab.experiments.worker import MethodTask
from eqsat_opt.lab.testing.graphs import GraphMaker
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


def _convolutions(channels: int, extent: int, *sizes: int) -> onnx.ModelProto:
    """Convolutions of one value, with square kernels of these sizes."""
    g = GraphMaker()
    x = g.input("x", 1, channels, extent, extent)
    return model_proto(
        export_model(
            g.graph(*(g.conv(x, g.weight(channels, channels, k, k), pad=k // 2) for k in sizes))
        )
    )


@pytest.mark.parametrize(
    ("sizes", "of_original"),
    [((3, 1), 0.77), ((3, 3, 3), 0.52)],
    ids=["OCGGS, Figure 1", "three siblings"],
)
def test_siblings_merge_by_default_on_other_devices(
    sizes: tuple[int, ...], of_original: float
) -> None:
    """As far as `refactor` goes; a 3 x 3 kernel alone takes 0.760 of the first pair."""
    options = replace(_FINITE, check=0, effort="normal", budget_s=600.0)
    model = _convolutions(256, 7, *sizes)
    reports = [
        api.run(model, replace(options, numerics=name)).report for name in ("default", "refactor")
    ]
    found, weaker = (one.result_cost for one in reports)
    assert found is not None
    assert reports[0].original_cost is not None
    assert found <= of_original * reports[0].original_cost
    assert found == pytest.approx(weaker)
