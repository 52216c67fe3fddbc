"""Every objective of the extractor, on a model: what is chosen, what is kept, what is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import ExtractionError, OptionError
from eqsat_opt.extract import AnyObjective, Objective, Product, Ratio
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.proposal import Proposal, SearchOptions, propose

FAST = Options(measure=False, race=False, check=1, store="", threads=1, budget_s=600.0, gap=0.0)


def narrow_then_wide() -> ModelProto:
    """The product x A B, where folding A B makes one product of 16384 FLOPs of two of 1024."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("A", (32, 2)), ("B", (2, 32)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["b"]),
        helper.make_node("MatMul", ["b", "B"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "narrow_then_wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 32])],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(objective: Any, limits: tuple[str, ...] = (), **changes: Any) -> Any:
    options = replace(FAST, objective=objective, limits=limits, **changes)
    return eqsat_opt.api.run(narrow_then_wide(), options)


# Reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limits", "objective"),
    [
        ("time", (), Objective({"time_us": 1.0})),
        ({"time": 1.0, "time_us": 2.0}, (), Objective({"time_us": 3.0})),
        ("flops", "time<=5", Objective({"flops": 1.0}, limits={"time_us": 5.0})),
        (
            "time+0.25*critical_path(time)",
            ("critical_path(time_us)=9", "max(bytes)=1e6"),
            Objective({"time_us": 1.0}, 0.25, limits={"critical_path": 9.0}, caps={"bytes": 1e6}),
        ),
        ("time*bytes", (), Product({"time_us": 1.0, "bytes": 1.0})),
        ("bytes/(time+2*time_us)", (), Ratio({"bytes": 1.0}, {"time_us": 3.0})),
        ({"flops": 1.0}, ("bytes=8",), Objective({"flops": 1.0}, limits={"bytes": 8.0})),
    ],
)
def test_metrics_are_named_as_users_name_them(
    text: Any, limits: Any, objective: AnyObjective
) -> None:
    assert request_of(replace(FAST, objective=text, limits=limits)).objective == objective


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("beauty", (), "unknown metric 'beauty'; choose from launches, "),
        ("time", ("workspace<=3",), "'workspace' has no prices: the backends of this target"),
        ("flops/beauty", (), "unknown metric 'beauty'"),
        ("critical_path(beauty)", (), "unknown metric 'beauty'"),
        ({"beauty": 1.0}, (), "unknown metric 'beauty'"),
        ({"flops": -1.0}, (), "give a finite number that is not negative"),
        ({}, (), "weighs nothing"),
        ("time", ("max(beauty)=1",), "unknown metric 'beauty'"),
        ("time", ("bytes>=3",), "which has no meaning here; write for instance"),
        ("time*flops", ("critical_path=3",), "no length"),
        ("time+peak_bytes", (), "'peak_bytes' is .* cannot be minimised together with others"),
        ("peak_bytes", ("peak_bytes<=9",), "cannot be minimised together with others"),
    ],
)
def test_an_error_says_what_to_write(text: Any, limits: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        run(text, limits)
    assert "\n" not in str(caught.value)


# Choosing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "limits", "n_products", "cost"),
    [
        # Two narrow products: 2048 FLOPs in 2 launches; one wide: 16384 in 1.
        ("flops+1e6*critical_path(launches)", (), 1, 16384 + 1e6),
        ("flops+critical_path(launches)", (), 2, 2050.0),
        ("critical_path(flops)", (), 2, 2048.0),
        ("flops*launches", (), 2, 4096.0),
        ("flops*launches^4", (), 1, 16384.0),
        ("launches/flops", (), 1, 1 / 16384),
        ("flops/bytes", (), 2, 2048 / 2688),
        ("launches", ("flops=3000",), 2, 2.0),
        ("launches", ("flops=20000",), 1, 1.0),
        ("launches", ("critical_path(flops)=3000",), 2, 2.0),
        ("launches", ("max(flops)=2000",), 2, 2.0),
        ("flops", ("launches<=1",), 1, 16384.0),
        ("flops*bytes", ("launches<=1",), 1, 16384.0 * 6144),
        ("flops/bytes", ("critical_path(launches)<=1",), 1, 16384 / 6144),
    ],
)
def test_every_objective_decides(
    objective: str, limits: tuple[str, ...], n_products: int, cost: float
) -> None:
    result = run(objective, limits)
    report = result.report
    assert len(result.model.graph.node) == n_products
    assert report.cost == pytest.approx(cost)
    assert report.lower_bound == pytest.approx(cost, rel=1e-5)
    assert report.extraction_status == "optimal"
    assert not report.warnings


def test_the_report_tells_objective_and_limits() -> None:
    report = run("flops", ("launches<=1", "critical_path(time)<=1e3")).report
    assert report.goal == "flops"
    assert report.limits == ("launches<=1", "critical_path(time_us)<=1000")
    assert report.original_breaks == "launches is 2.0, above its limit 1.0"
    assert report.metrics_after["critical_path"] < report.metrics_before["critical_path"]
    assert report.metrics_after["critical_path"] == pytest.approx(report.metrics_after["time_us"])
    assert "within the limits" in report.optimality
    value = report.to_json()
    assert (value["goal"], value["limits"]) == ("flops", list(report.limits))


def test_a_product_has_no_weights_to_report() -> None:
    report = run("time*bytes").report
    assert (report.goal, dict(report.objective)) == ("time_us*bytes", {})


@pytest.mark.parametrize(
    ("objective", "limits", "message"),
    [
        ("flops", ("launches=0.5",), r"keeps the limits \(of the original, launches is 2"),
        ("flops", ("max(flops)=100",), "loosen them"),
        ("flops*bytes", ("launches=0.5",), "keeps the limits"),
        ("flops/bytes", ("launches=0.5",), "keeps the limits"),
        ("time", ("critical_path(launches)=0",), "keeps the limits"),
    ],
)
def test_limits_that_nothing_keeps_are_an_error(
    objective: str, limits: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    target = tmp_path / "out.onnx"
    options = replace(FAST, objective=objective, limits=limits)
    with pytest.raises(ExtractionError, match=message):
        eqsat_opt.api.run(narrow_then_wide(), options, output=target)
    assert not target.exists()


def test_a_division_by_zero_is_an_error() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ExtractionError, match="divides by 0"):
        eqsat_opt.api.run(model, replace(FAST, objective="flops/weight_bytes"))


def test_no_time_for_a_graph_within_the_limits_is_an_error() -> None:
    with pytest.raises(ExtractionError, match=r"found in time \(of the original.*--budget"):
        proposal_of(
            Pricer(None, 1), Objective({"flops": 1.0}, limits={"launches": 1.0}), left_s=-1.0
        )


# Racing ------------------------------------------------------------------------------------------


def test_an_original_that_breaks_a_limit_does_not_stay_for_its_speed() -> None:
    result = run("time", ("launches<=1",), race=True)
    assert len(result.model.graph.node) == 1
    assert result.report.status == "improved"
    assert "within the limits" in result.report.headline


def test_an_earlier_result_does_not_race_under_limits(tmp_path: Path) -> None:
    target = str(tmp_path / "out.onnx")
    options = replace(FAST, race=True)
    eqsat_opt.api.run(narrow_then_wide(), options, output=target)
    limited = replace(options, limits=("flops<=3000",))
    report = eqsat_opt.api.run(narrow_then_wide(), limited, output=target).report
    assert report.winner == "original"
    assert len(onnx.load(target).graph.node) == 2


def test_explain_takes_every_objective() -> None:
    options = replace(FAST, objective="flops*launches", limits=("launches<=2",))
    explained = eqsat_opt.explain(narrow_then_wide(), options)
    (fate,) = (fate for fate in explained.rules if fate.rule == "matmul/assoc")
    assert fate.increase == pytest.approx(3.0)
    limited = eqsat_opt.explain(narrow_then_wide(), replace(options, limits=("flops<=3000",)))
    (fate,) = (fate for fate in limited.rules if fate.rule == "matmul/assoc")
    assert fate.reason == "no graph within the limits can use it"


# Prices that are lower bounds at first -----------------------------------------------------------


class Scripted(Pricer):
    """Kernels seem to take a microsecond; measured they take what the test says."""

    def __init__(self, measured_us: Callable[[float], float]) -> None:
        super().__init__(None, 1)
        self.measured_us = measured_us
        self.seen: dict[str, Quote] = {}

    def price(self, offer: Offer) -> Quote:
        return self.seen.get(offer.kernel.signature, Quote({TIME: 1.0}, "bound"))

    def is_known(self, offer: Offer) -> bool:
        return offer.kernel.signature in self.seen

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        for offer in offers:
            time_us = self.measured_us(literal(offer.kernel.flops))
            self.seen[offer.kernel.signature] = Quote({TIME: time_us}, "measured")


def proposal_of(pricer: Pricer, objective: AnyObjective, left_s: float = 600.0) -> Proposal:
    graph = normalise(import_model(load_model(narrow_then_wide())))
    search = SearchOptions(objective, Budget(), {}, deadline=Deadline.after(left_s))
    return propose(graph, default_rules(), pricer, search)


def wide_is_slow(flops: float) -> float:
    return 100.0 if flops > 10_000 else 2.0


@pytest.mark.parametrize(
    ("objective", "launches"),
    [
        (Objective({"launches": 1.0}), 1.0),
        (Objective({"launches": 1.0}, limits={"time_us": 50.0}), 2.0),
        (Objective({"launches": 1.0}, limits={"critical_path": 50.0}, path={"time_us": 1.0}), 2.0),
        (Objective({"launches": 1.0}, caps={"time_us": 50.0}), 2.0),
        (Objective({}, 1.0, path={"time_us": 1.0}), 2.0),
        (Product({"time_us": 1.0, "launches": 1.0}), 2.0),
        (Ratio({"time_us": 1.0}, {"launches": 1.0}), 2.0),
    ],
)
def test_what_is_chosen_holds_at_measured_prices(objective: AnyObjective, launches: float) -> None:
    choice = proposal_of(Scripted(wide_is_slow), objective).choice
    assert choice.metrics["launches"] == launches
    assert (choice.unmeasured == 0) == objective.uses("time_us")
    assert objective.broken_limit(choice.metrics) is None


def test_limits_that_only_bounds_kept_are_an_error() -> None:
    objective = Objective({"launches": 1.0}, limits={"time_us": 3.0})
    with pytest.raises(ExtractionError, match="keeps the limits"):
        proposal_of(Scripted(wide_is_slow), objective)


def test_what_the_bounds_do_not_prove_is_noted() -> None:
    divided = run("launches/time").report
    assert any("divides by time" in note for note in divided.notes)
    limited = run("launches", ("time<=100",)).report
    assert any("some are lower bounds" in note for note in limited.notes)
    assert not run("time/launches").report.notes
