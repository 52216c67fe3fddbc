"""Objectives of an extraction: sums, a critical path, products and ratios, under limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ExtractionError

__all__ = [
    "CRITICAL_PATH",
    "AnyObjective",
    "Limited",
    "Objective",
    "Product",
    "Ratio",
    "without_limits",
]

_ROUNDING = 1e-9
"""Relative error up to which sums in another order may differ."""

CRITICAL_PATH = "critical_path"
"""Name of the critical path among limits and reported metrics."""


@dataclass(frozen=True, kw_only=True)
class Limited:
    """Limits of an objective, whatever is minimised.

    Attributes:
        limits: metric name (or `CRITICAL_PATH`) to the largest total allowed.
        path: weights of the metrics that make the length of a chain, for the critical path.
        caps: metric name to the largest value that one chosen implementation may have, for instance
            workspace, which one kernel frees before the next one runs.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    path: Mapping[str, float] = field(default_factory=dict)
    caps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._freeze("limit", "limits")
        self._freeze("weight", "path")
        self._freeze("cap", "caps")

    def _freeze(self, kind: str, name: str) -> None:
        numbers = {k: float(v) for k, v in getattr(self, name).items()}
        object.__setattr__(self, name, numbers)
        for metric, value in numbers.items():
            if not math.isfinite(value) or value < 0:
                raise ExtractionError(
                    f"the {kind} of {metric} is {value}; give a finite number that is not negative"
                )

    def _settle_path(self, default: Mapping[str, float]) -> None:
        """Set the weights of chains, by default those of what is minimised (AutoGraph, eq. 1)."""
        path = (self.path or default) if self.needs_path else {}
        object.__setattr__(self, "path", dict(path))
        if self.needs_path and not any(path.values()):
            raise ExtractionError("the critical path has no length; give `path` a positive weight")

    def _check_names(self, names: Iterable[str], metrics: Sequence[str]) -> None:
        for name in names:
            if name not in metrics:
                raise ExtractionError(
                    f"the objective names the metric {name}; the problem has {', '.join(metrics)}"
                )

    @property
    def _sums(self) -> tuple[Mapping[str, float], ...]:
        """The weights of everything that the value depends on, first those of `vector`."""
        raise NotImplementedError

    def weighs(self, metric: str) -> bool:
        """Return whether the value depends on a metric."""
        return any(weights.get(metric) for weights in self._sums)

    def bounds(self, metric: str) -> bool:
        """Return whether a limit or a cap depends on a metric."""
        in_path = CRITICAL_PATH in self.limits and bool(self.path.get(metric))
        return in_path or metric in self.totals_limited or metric in self.caps

    def uses(self, metric: str) -> bool:
        """Return whether the value, a limit or a cap depends on a metric."""
        return self.weighs(metric) or self.bounds(metric)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit or a cap."""
        return bool(self.limits or self.caps)

    @property
    def totals_limited(self) -> dict[str, float]:
        """The limits on totals, without the one on the critical path."""
        return {name: x for name, x in self.limits.items() if name != CRITICAL_PATH}

    @property
    def path_limit(self) -> float:
        """Largest critical path allowed, infinite if there is no limit."""
        return self.limits.get(CRITICAL_PATH, math.inf)

    @property
    def needs_path(self) -> bool:
        """Whether the critical path matters."""
        return CRITICAL_PATH in self.limits

    def vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights in the order of the given metrics, `[n_metrics]`.

        They are those of a sum, or of the numerator of a quotient; each metric of a product has 1.

        Raises:
            ExtractionError: a weight, limit or cap names a metric that does not exist.
        """
        self._check_names(chain(*self._sums, self.totals_limited, self.path, self.caps), metrics)
        return _vector(self._sums[0], metrics)

    def path_vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights of a chain in the order of the given metrics, `[n_metrics]`."""
        self._check_names(self.path, metrics)
        return _vector(self.path, metrics)

    def weighted(self, weights: Mapping[str, float]) -> Objective:
        """Return a weighted sum under the same limits."""
        return Objective(weights, limits=self.limits, path=self.path, caps=self.caps)

    def broken_limit(self, metrics: Mapping[str, float]) -> str | None:
        """Return a sentence about a limit that the metrics exceed, None if there is none."""
        for name, limit in self.limits.items():
            if metrics[name] > limit * (1 + _ROUNDING):
                return f"{name} is {metrics[name]}, above its limit {limit}"
        return None


@dataclass(frozen=True)
class Objective(Limited):
    """An objective to minimise Σ weight·metric over chosen implementations, each class paid once.

    Attributes:
        weights: metric name to non-negative weight; metrics that are not named have no weight.
        critical_path: weight of the longest dependent chain in addition to the total: the mixed
            critical path of AutoGraph (Zheng et al., 2023, eq. 1), as when kernels run on several
            streams.
        limits: metric name (or `critical_path`) to the largest total allowed.
        path: weights of the metrics along a chain; those of the linear part when not given.
        caps: metric name to the largest value of one chosen implementation.

    Raises:
        ExtractionError: a number is negative or not finite, or no metric has a weight.
    """

    weights: Mapping[str, float]
    critical_path: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._freeze("weight", "weights")
        if not math.isfinite(self.critical_path) or self.critical_path < 0:
            raise ExtractionError(
                f"critical_path is {self.critical_path}; give a finite number that is not negative"
            )
        if not any(self.weights.values()) and not self.critical_path:
            raise ExtractionError("the objective weighs nothing; give a metric a positive weight")
        self._settle_path(self.weights)

    @property
    def _sums(self) -> tuple[Mapping[str, float], ...]:
        return (self.weights, self.path) if self.critical_path else (self.weights,)

    @property
    def needs_path(self) -> bool:
        """Whether the critical path matters, as part of the value or as a limit."""
        return self.critical_path > 0 or CRITICAL_PATH in self.limits

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the objective of a solution with these metrics and, if needed, `critical_path`."""
        linear = _sum(self.weights, metrics)
        return (
            linear + self.critical_path * metrics[CRITICAL_PATH] if self.critical_path else linear
        )


@dataclass(frozen=True)
class Product(Limited):
    """An objective to minimise a product of metric totals to positive powers, as E^w·T^(1−w).

    Attributes:
        exponents: two metric names, each with a positive exponent.
        limits, path, caps: those of `Objective`; `path` is needed to limit the critical path.

    Raises:
        ExtractionError: there are not two metrics, or a number is invalid.
    """

    exponents: Mapping[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._freeze("exponent", "exponents")
        if len(self.exponents) != 2 or not all(self.exponents.values()):
            raise ExtractionError("a product needs two metrics, each with a positive exponent")
        self._settle_path({})

    @property
    def _sums(self) -> tuple[Mapping[str, float], ...]:
        return (dict.fromkeys(self.exponents, 1.0),)

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the product for a solution with these metrics."""
        return math.prod(math.pow(metrics[name], x) for name, x in self.exponents.items())


@dataclass(frozen=True)
class Ratio(Limited):
    """An objective to minimise the quotient of two weighted sums, as the mean power E/T.

    Attributes:
        numerator, denominator: metric name to non-negative weight.
        limits, path, caps: those of `Objective`; `path` is needed to limit the critical path.

    Raises:
        ExtractionError: the numerator or the denominator has no weight, or a number is invalid.
    """

    numerator: Mapping[str, float]
    denominator: Mapping[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("numerator", "denominator"):
            self._freeze("weight", name)
            if not any(getattr(self, name).values()):
                raise ExtractionError(f"the {name} weighs nothing; give a metric a positive weight")
        self._settle_path({})

    @property
    def _sums(self) -> tuple[Mapping[str, float], ...]:
        return self.numerator, self.denominator

    def divisor(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights of the denominator, `[n_metrics]`."""
        return _vector(self.denominator, metrics)

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the quotient at these metrics of a solution; infinite if the denominator is 0."""
        below = _sum(self.denominator, metrics)
        return _sum(self.numerator, metrics) / below if below > 0 else math.inf


AnyObjective = Objective | Product | Ratio


def without_limits(objective: AnyObjective) -> AnyObjective:
    """Return an objective with the same value to minimise, but without limits and caps."""
    return replace(objective, limits={}, caps={})


def _sum(weights: Mapping[str, float], metrics: Mapping[str, float]) -> float:
    return math.fsum(weight * metrics[name] for name, weight in weights.items())


def _vector(weights: Mapping[str, float], metrics: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.array([weights.get(name, 0.0) for name in metrics], dtype=np.float64)
