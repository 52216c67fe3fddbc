"""Which settings of onnxruntime are worth a place in the race: a few runs of the whole model each.

A race of all of them would take too long. What seems to gain here races; who wins is decided there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from eqsat_opt.deadline import Deadline
from eqsat_opt.runtime.backends.ort.runtime import WITHOUT
from eqsat_opt.runtime.backends.runtimes import ORT, load_runtime
from eqsat_opt.runtime.measure import SYSTEM_CLOCK, Clock, clock_kind, runs_per_sample, take_sample
from eqsat_opt.runtime.source import Feeds, ModelSource, Setting

__all__ = ["promising_settings"]

_GAIN = 0.98
_ROUNDS = 5
_RUNS = 3
"""Of each setting at least, the one that warms up included."""


def promising_settings(
    model: ModelSource,
    threads: int,
    custom_ops: tuple[str, ...],
    feeds: Feeds,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Setting, ...]:
    """The setting that seems fastest, and all fusions left out together that seem to cost time.

    Args:
        model: a portable model.
        threads: to use.
        custom_ops: libraries of operators.
        feeds: inputs.
        deadline: settings that there is no time for are left out.
        clock: source of times.

    Raises:
        RuntimeFailed: onnxruntime refuses the model.
    """
    runtime = load_runtime(ORT)
    calls: list[tuple[Setting, Callable[[], object]]] = []
    needed_s = 0.0
    for setting in ({}, *runtime.settings(model, custom_ops)):
        if deadline.left_s < needed_s * (len(calls) + 1):
            break
        start = time.perf_counter()
        call = runtime.open(model, threads, setting, custom_ops).bind(feeds)
        for _ in range(_RUNS):
            call()
        needed_s = time.perf_counter() - start
        calls.append((setting, call))
    if len(calls) < 2:
        return ()
    runs = runs_per_sample(calls[0][1], clock)
    kind = clock_kind(threads, take_sample(calls[0][1], runs, clock).wall_us * runs, clock)
    times = [math.inf] * len(calls)
    for turn in range(_ROUNDS):
        if turn and deadline.expired:
            break
        order = range(len(calls))
        for i in order if turn % 2 else reversed(order):
            times[i] = min(times[i], take_sample(calls[i][1], runs, clock).time_us(kind))
    return _chosen([setting for setting, _ in calls], times)


def _chosen(settings: list[Setting], times: list[float]) -> tuple[Setting, ...]:
    """Of settings, the first of which is the default, those that gain; at most two."""
    gains = [i for i in range(1, len(times)) if times[i] < _GAIN * times[0]]
    if not gains:
        return ()
    best = settings[min(gains, key=times.__getitem__)]
    names = [name for i in gains for name in settings[i].get(WITHOUT, ())]
    return (best, {WITHOUT: names}) if len(names) > 1 else (best,)
