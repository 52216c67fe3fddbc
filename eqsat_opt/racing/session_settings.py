"""The settings of onnxruntime that are worth a place in the race, by a few runs of the whole model.

A race of all settings would take too long. Those that seem to gain here enter the race, which
decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.runtime import WITHOUT
from eqsat_opt.runtime.backends.registry import load_runtime
from eqsat_opt.runtime.measure import (
    SYSTEM_CLOCK,
    Clock,
    clock_kind,
    runs_per_sample,
    settle,
    take_sample,
)
from eqsat_opt.runtime.source import Feeds, ModelSource, Setting

__all__ = ["promising_settings"]

_GAIN = 0.98
_ROUNDS = 5
_STEPS = 4
"""Number of session builds to try one setting, including that of the optimised model."""


def promising_settings(
    model: ModelSource,
    threads: int,
    custom_ops: tuple[str, ...],
    feeds: Feeds,
    *,
    build_s: float,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Setting, ...]:
    """Return the setting that seems fastest, and one without all fusions that seem to cost time.

    Each is compared with the default side by side, so that only two sessions take memory.

    Args:
        model: a portable model.
        threads: threads to use.
        custom_ops: libraries of operators.
        feeds: inputs of the model.
        build_s: seconds to load the model and run it for the first time.
        deadline: settings for which no time is left are left out.
        clock: source of times.

    Raises:
        RuntimeFailed: onnxruntime refuses the model.
    """
    if deadline.left_s < _STEPS * build_s:
        return ()
    runtime = load_runtime(ORT)

    def opened(setting: Setting) -> Callable[[], object]:
        return runtime.open(model, threads, setting, custom_ops).bind(feeds)

    settings = runtime.settings(model, custom_ops)
    if not settings:
        return ()
    default = opened({})
    default()
    runs = runs_per_sample(default, clock)
    run_us = take_sample(default, runs, clock).wall_us
    kind = clock_kind(threads, run_us * runs, clock)
    ratios: list[float] = []
    for setting in settings:
        if deadline.left_s < build_s:
            break
        start = time.perf_counter()
        calls = (default, opened(setting))
        calls[1]()
        best = [math.inf, math.inf]
        for turn in range(_ROUNDS):
            if turn and deadline.expired:
                break
            for i in (0, 1) if turn % 2 else (1, 0):
                settle(calls[i], run_us, threads, clock)
                best[i] = min(best[i], take_sample(calls[i], runs, clock).time_us(kind))
        ratios.append(best[1] / best[0])
        build_s = time.perf_counter() - start
    return _chosen(settings, ratios)


def _chosen(settings: Sequence[Setting], ratios: Sequence[float]) -> tuple[Setting, ...]:
    """Return at most two settings that gain, by the times of all relative to the default."""
    gains = [i for i, ratio in enumerate(ratios) if ratio < _GAIN]
    if not gains:
        return ()
    best = settings[min(gains, key=ratios.__getitem__)]
    names = [name for i in gains for name in settings[i].get(WITHOUT, ())]
    return (best, {WITHOUT: names}) if len(names) > 1 else (best,)
