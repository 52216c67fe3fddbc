"""Boards that measure outcomes on this processor: in an onnxruntime session, or on streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx

from eqsat_opt.errors import OptionError, PlanError, RuntimeFailed
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.comparison.operators import fold_constants
from eqsat_opt.lab.search import PricedGraph, Reading
from eqsat_opt.lab.search.pricing.plans import planned
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.hosted import hosted
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.measure import Measurement, measure
from eqsat_opt.runtime.plan.constants import Tensors

__all__ = ["OrtBoard", "ThreadedBoard"]

_LEAST_NOISE = 0.02
"""Least relative noise: repeated measurements may differ by this much
(`eqsat_opt.runtime.measure`)."""


@dataclass(frozen=True)
class OrtBoard:
    """A board that runs a graph in a session of onnxruntime on this machine.

    The session fuses, orders and places kernels by itself.

    Attributes:
        threads: threads of the session.
        sizes: sizes of symbolic dimensions.
        budget_s: seconds for one measurement.
    """

    tells_backends: ClassVar[bool] = False

    threads: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    budget_s: float = 0.3

    def measure(self, outcome: PricedGraph) -> Reading:
        """Return the time of the fastest of many runs.

        The noise is twice the relative distance of the 20th percentile from it, and at least 2%.

        Raises:
            RuntimeFailed: onnxruntime refuses the graph.
        """
        model = _model(outcome)
        session = OrtSession(model, OrtOptions(self.threads))
        call = session.bind(_feeds(model, self.sizes))
        found = measure(call, threads=self.threads, budget_s=self.budget_s)
        return _reading(found)


@dataclass(frozen=True)
class ThreadedBoard:
    """A board that runs a plan on this machine, each kernel on the stream that the outcome names.

    Attributes:
        tensors: the tensors that the model stores.
        sizes: sizes of symbolic dimensions.
        budget_s: seconds for one measurement.
    """

    tells_backends: ClassVar[bool] = True

    tensors: Tensors
    sizes: Mapping[str, int] = field(default_factory=dict)
    budget_s: float = 0.3

    def measure(self, outcome: PricedGraph) -> Reading:
        """Return the time of the fastest of many runs.

        The noise is twice the relative distance of the 20th percentile from it, and at least 2%.

        Raises:
            RuntimeFailed: the outcome has no plan, or a backend refuses a kernel.
        """
        try:
            plan = planned(outcome, self.tensors, sizes=self.sizes)
            runner = hosted(plan, self.tensors)
        except (OptionError, PlanError) as error:
            raise RuntimeFailed(f"the graph has no plan: {error}") from error
        call = runner.bind(_feeds(_model(outcome), self.sizes))
        return _reading(measure(call, threads=plan.streams, budget_s=self.budget_s))


def _model(outcome: PricedGraph) -> onnx.ModelProto:
    return model_proto(export_model(fold_constants(outcome.graph)))


def _feeds(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    specs = input_specs(model)
    return random_inputs(specs, 0, sizes_for(specs, sizes))


def _reading(found: Measurement) -> Reading:
    return Reading(found.time_us, max(_LEAST_NOISE, 2 * (found.p20_us / found.time_us - 1)))
