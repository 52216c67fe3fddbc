"""A model of energy from measured kernels: static power, operations, bytes, multiples of engines.

``energy = static * time + m * (a * operations + b * bytes)``, where m belongs to the algorithm. All
terms are at least zero, and errors count as shares of what was measured, so that small kernels
count as much as large ones. Terms and multiples are fitted by turns, which never makes it worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import POSITIVE, Figure

__all__ = [
    "EnergySample", "FittedEnergy", "energy_of", "fit_energy", "model_to_json", "non_negative",
    "plan_uj",
]  # fmt: skip

_LEAST_SAMPLES = 4
_OF_ALGORITHM = 2
"""With fewer samples an algorithm has no multiple of its own."""

_ROUNDS = 20


@dataclass(frozen=True)
class EnergySample:
    """What a kernel took, for one launch."""

    name: str
    algorithm: str
    time_us: float
    flops: float
    size_bytes: float
    energy_uj: float


@dataclass(frozen=True)
class FittedEnergy:
    """A model, and how far it is from the samples that it was made of.

    Attributes:
        model: of energy.
        errors: by the name of a sample: predicted over measured, less 1.
    """

    model: EnergyModel
    errors: Mapping[str, float]

    @property
    def median_error(self) -> float:
        """Of the sizes of errors."""
        return float(np.median(np.abs(list(self.errors.values()))))


def non_negative(columns: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """The least squares solution with no negative number, by trying every support.

    Args:
        columns: of shape (samples, terms), with few terms.
        target: of shape (samples,).
    """
    count = columns.shape[1]
    best, least = np.zeros(count), float(target @ target)
    for size in range(1, count + 1):
        for support in map(list, combinations(range(count), size)):
            found = np.linalg.lstsq(columns[:, support], target, rcond=None)[0]
            rest = columns[:, support] @ found - target
            if (found >= 0).all() and float(rest @ rest) < least:
                best, least = np.zeros(count), float(rest @ rest)
                best[support] = found
    return best


def fit_energy(samples: Sequence[EnergySample], source: str) -> FittedEnergy:
    """The model that is closest to the samples.

    Args:
        samples: of kernels whose shares of time, operations and bytes differ.
        source: of the figures, for whatever prints an energy.

    Raises:
        OptionError: there are too few samples that make sense.
    """
    sane = [one for one in samples if 0 < one.energy_uj < np.inf and one.time_us > 0]
    if len(sane) < _LEAST_SAMPLES:
        raise OptionError(
            f"{len(sane)} kernels tell their energy; a model needs {_LEAST_SAMPLES}: give the step "
            "energy more time"
        )
    wanted = np.array([one.energy_uj for one in sane])
    rows = [(one.time_us, one.flops * 1e-6, one.size_bytes * 1e-6) for one in sane]
    terms = np.array(rows) / wanted[:, None]
    ones = np.ones(len(sane))
    names = [one.algorithm for one in sane]
    counts = sorted({*names}, key=lambda name: (-names.count(name), name))
    # The most frequent is what the others are multiples of.
    others = [name for name in counts[1:] if names.count(name) >= _OF_ALGORITHM]
    scale = ones.copy()
    shares = dict.fromkeys(others, 1.0)
    found = non_negative(terms, ones)
    for _ in range(_ROUNDS if others else 0):
        moving = terms[:, 1:] @ found[1:]
        for name in others:
            at = np.array([one == name for one in names])
            power = float(moving[at] @ moving[at])
            rest = float(moving[at] @ (ones - terms[:, 0] * found[0])[at])
            shares[name] = max(rest / power, POSITIVE) if power else 1.0
            scale[at] = shares[name]
        found = non_negative(terms * np.stack([ones, scale, scale], axis=1), ones)
    static_w, flop_pj, byte_pj = (Figure(max(float(one), POSITIVE), source) for one in found)
    model = EnergyModel(
        static_w, {"fp32": flop_pj}, byte_pj, {n: Figure(m, source) for n, m in shares.items()}
    )
    errors = {one.name: predicted_uj(model, one) / one.energy_uj - 1 for one in sane}
    return FittedEnergy(model, errors)


def energy_of(results: Mapping[str, Mapping[str, Any]], source: str) -> FittedEnergy | None:
    """The model that is closest to the kernels of the step; nothing where there are too few."""
    names = {one.name for one in fields(EnergySample)} - {"name"}
    samples = [
        EnergySample(name, **{key: result[key] for key in names})
        for name, result in results.items()
        if "kernel" in result
    ]
    try:
        return fit_energy(samples, source)
    except OptionError:
        return None


def plan_uj(model: EnergyModel, time_us: float, work: Mapping[str, Sequence[float]]) -> float:
    """What the model says of a plan, µJ.

    Args:
        model: of energy.
        time_us: of a run.
        work: operations and bytes of all launches, by algorithm.
    """
    moving = sum(
        model.energy_uj(0.0, flops, size_bytes, "fp32", algorithm=name)
        for name, (flops, size_bytes) in work.items()
    )
    return model.energy_uj(time_us, 0.0, 0.0, "fp32") + moving


def predicted_uj(model: EnergyModel, one: EnergySample) -> float:
    """What the model says of a kernel, µJ."""
    return model.energy_uj(
        one.time_us, one.flops, one.size_bytes, "fp32", algorithm=one.algorithm
    )  # fmt: skip


def model_to_json(model: EnergyModel) -> dict[str, Any]:
    """As `--energy-model` takes it."""
    return {
        "static_w": model.static_w.value,
        "pj_per_flop": {name: one.value for name, one in model.pj_per_flop.items()},
        "pj_per_byte": model.pj_per_byte.value,
        "of_algorithm": {name: one.value for name, one in model.of_algorithm.items()},
        "source": model.source,
    }
