"""Measures whole outcomes on this processor: in a session of onnxruntime, or on streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx

from eqsat_opt.errors import OptionError, PlanError, RuntimeFailed
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.comparison.operators import fold_constants
from eqsat_opt.lab.search import Outcome, Reading
from eqsat_opt.lab.search.pricing.plans import planned
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.hosted import hosted
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.measure import Measurement, measure
from eqsat_opt.runtime.plan.constants import Tensors

__all__ = ["OrtBoard", "ThreadedBoard"]

_LEAST_NOISE = 0.02
"""Relative: closer than this two measurements need not agree (`eqsat_opt.runtime.measure`)."""


@dataclass(frozen=True)
class OrtBoard:
    """This machine: a graph runs in a session, which fuses, orders and places kernels by itself.

    Attributes:
        threads: of the session.
        sizes: of symbolic dimensions.
        budget_s: of one measurement.
    """

    tells_backends: ClassVar[bool] = False

    threads: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    budget_s: float = 0.3

    def measure(self, outcome: Outcome) -> Reading:
        """The fastest of many runs; noise is how far most of the faster ones are from it.

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
    """This machine: a plan runs each kernel on the stream that the outcome names.

    Attributes:
        tensors: that the model stores.
        sizes: of symbolic dimensions.
        budget_s: of one measurement.
    """

    tells_backends: ClassVar[bool] = True

    tensors: Tensors
    sizes: Mapping[str, int] = field(default_factory=dict)
    budget_s: float = 0.3

    def measure(self, outcome: Outcome) -> Reading:
        """The fastest of many runs; noise is how far most of the faster ones are from it.

        Raises:
            RuntimeFailed: it cannot stand in a plan, or a backend refuses a kernel.
        """
        try:
            plan = planned(outcome, self.tensors, sizes=self.sizes)
            runner = hosted(plan, self.tensors)
        except (OptionError, PlanError) as error:
            raise RuntimeFailed(f"the graph has no plan: {error}") from error
        call = runner.bind(_feeds(_model(outcome), self.sizes))
        return _reading(measure(call, threads=plan.streams, budget_s=self.budget_s))


def _model(outcome: Outcome) -> onnx.ModelProto:
    return model_proto(export_model(fold_constants(outcome.graph)))


def _feeds(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    specs = input_specs(model)
    return random_inputs(specs, 0, sizes_for(specs, sizes))


def _reading(found: Measurement) -> Reading:
    return Reading(found.time_us, max(_LEAST_NOISE, 2 * (found.p20_us / found.time_us - 1)))
