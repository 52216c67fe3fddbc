"""What an extraction minimises: sums, a critical path, products and ratios, under limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ExtractionError

__all__ = ["CRITICAL_PATH", "AnyObjective", "Objective", "Product", "Ratio", "without_limits"]

_ROUNDING = 1e-9
"""Relative: sums in another order differ by less."""

CRITICAL_PATH = "critical_path"
"""Name of the critical path among limits and reported metrics."""


class _Limited:
    """What may not be exceeded, whatever is minimised; the dataclasses below hold the fields.

    Attributes:
        limits: metric name (or `CRITICAL_PATH`) to the largest total allowed.
        path: weights of the metrics that make the length of a chain, for the critical path.
        caps: metric name to the largest value that one chosen implementation may have, for instance
            workspace, which one kernel frees before the next one runs.
    """

    limits: Mapping[str, float]
    path: Mapping[str, float]
    caps: Mapping[str, float]

    def _freeze_limits(self) -> None:
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

    def _settle_path(self, default: Mapping[str, float], used: bool) -> None:
        """Chains are measured in what is minimised unless said otherwise (AutoGraph, eq. 1)."""
        path = (self.path or default) if used else {}
        object.__setattr__(self, "path", dict(path))
        if used and not any(path.values()):
            raise ExtractionError("the critical path has no length; give `path` a positive weight")

    def _names(self) -> tuple[str, ...]:
        totals = (name for name in self.limits if name != CRITICAL_PATH)
        return (*totals, *self.path, *self.caps)

    def _check_names(self, names: Sequence[str], metrics: Sequence[str]) -> None:
        for name in names:
            if name not in metrics:
                raise ExtractionError(
                    f"the objective names the metric {name}; the problem has {', '.join(metrics)}"
                )

    @property
    def _minimised(self) -> tuple[str, ...]:
        """Metrics that the value depends on."""
        raise NotImplementedError

    def weighs(self, metric: str) -> bool:
        """Whether the value depends on a metric."""
        return metric in self._minimised

    def bounds(self, metric: str) -> bool:
        """Whether a limit or a cap depends on a metric."""
        path = _positive(self.path) if CRITICAL_PATH in self.limits else ()
        return metric in (*self.totals_limited, *self.caps, *path)

    def uses(self, metric: str) -> bool:
        """Whether the value, a limit or a cap depends on a metric."""
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

    def path_vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Weights of a chain in the order of the given metrics, `[n_metrics]`."""
        self._check_names(tuple(self.path), metrics)
        return _vector(self.path, metrics)

    def broken_limit(self, metrics: Mapping[str, float]) -> str | None:
        """One sentence about a limit that the metrics exceed, None if there is none."""
        for name, limit in self.limits.items():
            if metrics[name] > limit * (1 + _ROUNDING):
                return f"{name} is {metrics[name]}, above its limit {limit}"
        return None


@dataclass(frozen=True)
class Objective(_Limited):
    """Minimise Σ weight·metric over the chosen implementations, each class paid once.

    Attributes:
        weights: metric name to non-negative weight; metrics not named weigh nothing.
        critical_path: weight of the longest dependent chain beside the total: the mixed critical
            path of AutoGraph (Zheng et al., 2023, eq. 1), as when kernels run on several streams.
        limits: metric name (or `critical_path`) to the largest total allowed.
        path: weights of the metrics along a chain; those of the linear part when not given.
        caps: metric name to the largest value of one chosen implementation.

    Raises:
        ExtractionError: a number is negative or not finite, or nothing is weighed.
    """

    weights: Mapping[str, float]
    critical_path: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)
    path: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    caps: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._freeze_limits()
        self._freeze("weight", "weights")
        if not math.isfinite(self.critical_path) or self.critical_path < 0:
            raise ExtractionError(
                f"critical_path is {self.critical_path}; give a finite number that is not negative"
            )
        if not any(self.weights.values()) and not self.critical_path:
            raise ExtractionError("the objective weighs nothing; give a metric a positive weight")
        self._settle_path(self.weights, self.needs_path)

    @property
    def _minimised(self) -> tuple[str, ...]:
        return (*_positive(self.weights), *(_positive(self.path) if self.critical_path else ()))

    @property
    def needs_path(self) -> bool:
        """Whether the critical path matters, as part of the value or as a limit."""
        return self.critical_path > 0 or CRITICAL_PATH in self.limits

    def vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Weights in the order of the given metrics, `[n_metrics]`.

        Raises:
            ExtractionError: a weight or limit names a metric that is not there.
        """
        self._check_names((*self.weights, *self._names()), metrics)
        return _vector(self.weights, metrics)

    def value(self, metrics: Mapping[str, float]) -> float:
        """The objective of a solution with these metrics (with `critical_path` if it matters)."""
        linear = math.fsum(w * metrics[name] for name, w in self.weights.items())
        return (
            linear + self.critical_path * metrics[CRITICAL_PATH] if self.critical_path else linear
        )


@dataclass(frozen=True)
class Product(_Limited):
    """Minimise the product of metric totals, each to a positive power, as E^w·T^(1−w).

    Attributes:
        exponents: two metric names, each with a positive exponent.
        limits, path, caps: as for `Objective`; `path` is needed to limit the critical path.

    Raises:
        ExtractionError: there are not two metrics, or a number has no meaning.
    """

    exponents: Mapping[str, float]
    limits: Mapping[str, float] = field(default_factory=dict)
    path: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    caps: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._freeze_limits()
        self._freeze("exponent", "exponents")
        if len(self.exponents) != 2 or not all(self.exponents.values()):
            raise ExtractionError("a product needs two metrics, each with a positive exponent")
        self._settle_path({}, self.needs_path)

    @property
    def _minimised(self) -> tuple[str, ...]:
        return tuple(self.exponents)

    def vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Which metrics matter, `[n_metrics]`.

        Raises:
            ExtractionError: a metric is not there.
        """
        self._check_names((*self.exponents, *self._names()), metrics)
        return _vector(dict.fromkeys(self.exponents, 1.0), metrics)

    def value(self, metrics: Mapping[str, float]) -> float:
        """The product for a solution with these metrics."""
        return math.prod(math.pow(metrics[name], x) for name, x in self.exponents.items())

    def weighted(self, weights: Mapping[str, float]) -> Objective:
        """A weighted sum under the same limits."""
        return Objective(weights, limits=self.limits, path=self.path, caps=self.caps)


@dataclass(frozen=True)
class Ratio(_Limited):
    """Minimise the quotient of two weighted sums, as the mean power E/T.

    Attributes:
        numerator, denominator: metric name to non-negative weight.
        limits, path, caps: as for `Objective`; `path` is needed to limit the critical path.

    Raises:
        ExtractionError: a part weighs nothing, or a number has no meaning.
    """

    numerator: Mapping[str, float]
    denominator: Mapping[str, float]
    limits: Mapping[str, float] = field(default_factory=dict)
    path: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    caps: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._freeze_limits()
        for name in ("numerator", "denominator"):
            self._freeze("weight", name)
            if not any(getattr(self, name).values()):
                raise ExtractionError(f"the {name} weighs nothing; give a metric a positive weight")
        self._settle_path({}, self.needs_path)

    @property
    def _minimised(self) -> tuple[str, ...]:
        return (*_positive(self.numerator), *_positive(self.denominator))

    def vector(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Weights of the numerator, `[n_metrics]`.

        Raises:
            ExtractionError: a metric is not there.
        """
        self._check_names((*self.numerator, *self.denominator, *self._names()), metrics)
        return _vector(self.numerator, metrics)

    def divisor(self, metrics: Sequence[str]) -> npt.NDArray[np.float64]:
        """Weights of the denominator, `[n_metrics]`."""
        return _vector(self.denominator, metrics)

    def value(self, metrics: Mapping[str, float]) -> float:
        """The quotient for a solution with these metrics; infinite where the denominator is 0."""
        below = math.fsum(w * metrics[name] for name, w in self.denominator.items())
        above = math.fsum(w * metrics[name] for name, w in self.numerator.items())
        return above / below if below > 0 else math.inf

    def weighted(self, weights: Mapping[str, float]) -> Objective:
        """A weighted sum under the same limits."""
        return Objective(weights, limits=self.limits, path=self.path, caps=self.caps)


AnyObjective = Objective | Product | Ratio


def without_limits(objective: AnyObjective) -> AnyObjective:
    """The same value to minimise, with no limit and no cap."""
    return replace(objective, limits={}, caps={})


def _positive(weights: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name, weight in weights.items() if weight)


def _vector(weights: Mapping[str, float], metrics: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.array([weights.get(name, 0.0) for name in metrics], dtype=np.float64)
