"""Measures whole outcomes in a session of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from eqsat_opt.comparison.operators import fold_constants
from eqsat_opt.ir.onnx_export import export_model, model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.measure import measure
from eqsat_opt.search import Outcome, Reading

__all__ = ["OrtBoard"]

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
        model = model_proto(export_model(fold_constants(outcome.graph)))
        session = OrtSession(model, OrtOptions(self.threads))
        specs = input_specs(model)
        feeds = random_inputs(specs, 0, sizes_for(specs, self.sizes))
        call = session.bind(feeds)
        found = measure(call, threads=self.threads, budget_s=self.budget_s)
        return Reading(found.time_us, max(_LEAST_NOISE, 2 * (found.p20_us / found.time_us - 1)))
