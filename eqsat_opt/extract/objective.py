"""What an extraction minimises: a weighting of metrics, under limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ExtractionError

__all__ = ["Objective"]


@dataclass(frozen=True)
class Objective:
    """Minimise Σ weight·metric over the chosen implementations, each class paid once.

    Attributes:
        weights: metric name to non-negative weight; metrics not named weigh nothing.
        critical_path: weight of the longest dependent chain beside the total (AutoGraph's mixed
            objective). Only 0 is supported by `extract` so far; the field fixes the interface.
        limits: metric name to the largest total allowed.
    """

    weights: Mapping[str, float]
    critical_path: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", {k: float(v) for k, v in self.weights.items()})
        object.__setattr__(self, "limits", {k: float(v) for k, v in self.limits.items()})
        for kind, numbers in (("weight", self.weights), ("limit", self.limits)):
            for name, value in numbers.items():
                if not math.isfinite(value) or value < 0:
                    raise ExtractionError(
                        f"the {kind} of {name} is {value}; give a finite number that is not "
                        "negative"
                    )
        if not math.isfinite(self.critical_path) or self.critical_path < 0:
            raise ExtractionError(
                f"critical_path is {self.critical_path}; give a finite number that is not negative"
            )
        if not any(self.weights.values()) and not self.critical_path:
            raise ExtractionError("the objective weighs nothing; give a metric a positive weight")

    def vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Weights in the order of the given metrics, `[n_metrics]`.

        Raises:
            ExtractionError: a weight or limit names a metric that is not there.
        """
        for name in (*self.weights, *self.limits):
            if name not in metrics:
                raise ExtractionError(
                    f"the objective names the metric {name}; the problem has {', '.join(metrics)}"
                )
        return np.array([self.weights.get(name, 0.0) for name in metrics], dtype=np.float64)
