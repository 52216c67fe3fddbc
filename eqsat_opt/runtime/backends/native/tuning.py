"""How each convolution of a model is computed fastest here, with errors that stay in a bound.

Times of a kernel alone mislead by up to a factor of two, since its weights lie in the caches then;
so every algorithm is timed inside the whole model.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from eqsat_opt.deadline import Deadline
from eqsat_opt.runtime.backends.native.convolutions import (
    Algorithm,
    Convolution,
    convolutions,
    with_algorithms,
    with_names,
)
from eqsat_opt.runtime.backends.native.library import with_kernels
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.profiling import node_times_us
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["NotTuned", "Tuning", "output_error", "tune"]

_GAIN = 0.97
"""A node is replaced where that takes less than this share of its time."""

_PASS_S = 0.5
"""Seconds of runs for one algorithm, as far as `_RUNS` allow."""

_RUNS = 4, 12
"""Runs for one algorithm, at least and at most; the first of them warms up."""


class NotTuned(Exception):
    """With the reason, as a sentence without a period."""


@dataclass(frozen=True)
class Tuning:
    """What became of the convolutions of a model.

    Attributes:
        model: the graph that onnxruntime runs, with nodes replaced; for this machine only.
        algorithms: name of an algorithm to how many convolutions it computes.
        n_convolutions: how many could have been replaced.
        withdrawn: how many were faster by an algorithm whose errors were too large.
        error: largest difference from the original's outputs, relative to the maximum of each.
    """

    model: onnx.ModelProto
    algorithms: Mapping[str, int]
    n_convolutions: int
    withdrawn: int
    error: float


@dataclass(frozen=True)
class _Choice:
    """One convolution: its times by algorithm, and the algorithm in use; ``None`` is its own."""

    name: str
    times_us: Mapping[Algorithm | None, float]
    algorithm: Algorithm | None

    @property
    def gain_us(self) -> float:
        return self.times_us[None] - self.times_us[self.algorithm]

    def milder(self) -> _Choice:
        """The fastest way whose errors are smaller: smaller tiles, or onnxruntime's own."""
        assert self.algorithm is not None
        most = self.algorithm.outputs
        milder = {a: t for a, t in self.times_us.items() if a is None or a.outputs < most}
        return replace(self, algorithm=_fastest(milder))


def _fastest(times_us: Mapping[Algorithm | None, float]) -> Algorithm | None:
    best = min(times_us, key=times_us.__getitem__)
    return best if times_us[best] < _GAIN * times_us[None] else None


def tune(
    model: ModelSource,
    options: OrtOptions,
    trials: Sequence[tuple[Feeds, Sequence[Any]]],
    *,
    max_error: float,
    deadline: Deadline,
) -> Tuning:
    """Choose an algorithm for each convolution.

    Args:
        model: a portable model.
        options: how it is run.
        trials: inputs, the first of which are those that are timed, with the outputs that the
            original has there.
        max_error: bound on `output_error`.
        deadline: what is not measured by then keeps its own kernel.

    Raises:
        NotTuned: there is nothing to gain, or no time.
        RuntimeFailed: onnxruntime refuses the model, or there are no kernels.
    """
    if max_error <= 0:
        raise NotTuned("no error is allowed, and every other algorithm rounds otherwise")
    block = nchwc_block()
    as_is = replace(with_kernels(options), data_folder="")
    optimized = with_names(ort_optimized(model, options))
    found = tuple(convolutions(optimized, block))
    if not found:
        raise NotTuned("no convolution of the model has another algorithm here")
    choices = _measured(optimized, found, block, as_is, feeds=trials[0][0], deadline=deadline)

    def built(choices: Sequence[_Choice]) -> onnx.ModelProto:
        chosen = {c.name: c.algorithm for c in choices if c.algorithm is not None}
        return with_algorithms(optimized, chosen, block)

    def error_of(choices: Sequence[_Choice]) -> float:
        session = OrtSession(built(choices), as_is)
        return max(output_error(session.run(feeds), outputs) for feeds, outputs in trials)

    kept, error = _within(choices, error_of, max_error)
    return Tuning(
        model=built(kept),
        algorithms=Counter(str(c.algorithm) for c in kept if c.algorithm is not None),
        n_convolutions=len(found),
        withdrawn=sum(
            one.algorithm != other.algorithm for one, other in zip(choices, kept, strict=True)
        ),
        error=error,
    )


def _measured(
    optimized: onnx.ModelProto,
    found: Sequence[Convolution],
    block: int,
    options: OrtOptions,
    feeds: Feeds,
    deadline: Deadline,
) -> tuple[_Choice, ...]:
    """The fastest algorithm of each; in each pass every node tries its next one."""
    start = time.perf_counter()
    own = node_times_us(optimized, options, feeds, runs=_RUNS[0], deadline=deadline)
    run_s = sum(own.values()) / 1e6
    runs = int(min(max(_PASS_S / max(run_s, 1e-6), _RUNS[0]), _RUNS[1]))
    pass_s = (time.perf_counter() - start) * runs / _RUNS[0]
    times: dict[str, dict[Algorithm | None, float]] = {c.name: {None: own[c.name]} for c in found}
    for i in range(max(len(c.algorithms) for c in found)):
        if deadline.left_s < pass_s:
            break
        tried = {c.name: c.algorithms[i] for c in found if i < len(c.algorithms)}
        model = with_algorithms(optimized, tried, block)
        spent = node_times_us(model, options, feeds, runs=runs, deadline=deadline)
        for name, algorithm in tried.items():
            times[name][algorithm] = spent[name]
    if all(len(one) == 1 for one in times.values()):
        raise NotTuned("there was no time to measure; allow more with --budget")
    again = node_times_us(optimized, options, feeds, runs=runs, deadline=deadline)
    for name, one in times.items():
        one[None] = min(one[None], again[name])
    choices = tuple(_Choice(name, one, _fastest(one)) for name, one in times.items())
    if all(choice.algorithm is None for choice in choices):
        raise NotTuned("no algorithm is faster than onnxruntime's own here")
    return choices


def _within(
    choices: Sequence[_Choice],
    error_of: Callable[[Sequence[_Choice]], float],
    max_error: float,
) -> tuple[tuple[_Choice, ...], float]:
    """Choices whose error is within the bound: those that gain least become milder first."""
    kept, step = list(choices), 1
    while True:
        error = error_of(kept)
        if error <= max_error:
            return tuple(kept), error
        replaced = sorted(
            (i for i, one in enumerate(kept) if one.algorithm is not None),
            key=lambda i: (-_outputs(kept[i]), kept[i].gain_us),
        )
        if not replaced:
            raise NotTuned(
                f"onnxruntime's own optimised graph already differs by {error:.1e} of an output's "
                f"maximum, and {max_error:.1e} is allowed"
            )
        for i in replaced[:step]:
            kept[i] = kept[i].milder()
        if all(one.algorithm is None for one in kept):
            raise NotTuned(f"every faster algorithm differs by more than {max_error:.1e}")
        step *= 2


def _outputs(choice: _Choice) -> int:
    return choice.algorithm.outputs if choice.algorithm is not None else 0


def output_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference of any output, relative to the largest value that it should have.

    Whatever is no tensor of numbers, or no number, has to be equal; if it is not, the error is
    infinite.
    """
    if len(outputs) != len(expected):
        return float("inf")
    return max(
        (_difference(one, other) for one, other in zip(outputs, expected, strict=True)),
        default=0.0,
    )


def _difference(one: Any, other: Any) -> float:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return 0.0 if _is_same(one, other) else float("inf")
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else float("inf")
    left, right = one.astype(np.float64), other.astype(np.float64)
    odd = ~np.isfinite(left) | ~np.isfinite(right)
    if not np.array_equal(left[odd], right[odd], equal_nan=True):
        return float("inf")
    largest = np.abs(right[~odd]).max(initial=0.0)
    worst = np.abs(left[~odd] - right[~odd]).max(initial=0.0)
    if worst == 0.0:
        return 0.0
    return float(worst / largest) if largest else float("inf")


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _difference(a, b) == 0.0 for a, b in zip(one, other, strict=True)
        )
    return type(one) is type(other) and bool(one == other)
