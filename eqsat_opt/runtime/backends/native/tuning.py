"""Choice of the fastest way for each site of a model on this machine, with bounded errors.

Times of a kernel alone mislead by up to a factor of two, since its weights are then in the caches.
So every way is timed inside the whole model.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.generated import NAME as GENERATED
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.native.attentions import attentions
from eqsat_opt.runtime.backends.native.convolutions import convolutions
from eqsat_opt.runtime.backends.native.depthwise import depthwise_convolutions
from eqsat_opt.runtime.backends.native.groups import grouped_convolutions
from eqsat_opt.runtime.backends.native.library import with_kernels
from eqsat_opt.runtime.backends.native.normalizations import normalizations
from eqsat_opt.runtime.backends.native.products import products
from eqsat_opt.runtime.backends.native.recurrences import recurrences
from eqsat_opt.runtime.backends.native.region_library import with_regions
from eqsat_opt.runtime.backends.native.regions import region_sites
from eqsat_opt.runtime.backends.native.sequences import sequence_convolutions
from eqsat_opt.runtime.backends.native.sites import Site, SiteWay, with_names, with_ways
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.profiling import node_times_us
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.measure import settle
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = [
    "NotTuned",
    "SiteChoice",
    "Tuning",
    "output_error",
    "paying_choices",
    "sites",
    "time_ratio",
    "tune",
    "tuned_by",
    "within_error",
]

_GAIN = 0.97
"""Share of a site's time below which another way replaces it."""

_SEEN = 0.5
"""Share of the bound that errors may reach on the measured inputs. On twenty other inputs errors
were up to 1.6 times as large: `python -m benchmarks.native errors`."""

_SMALL_US, _TICK_US = 20.0, 2.0
"""A site of less time is judged by the whole model, unless it seems to lose by more than a tick.
The profiler counts whole microseconds, and makes nodes slower."""

_PASS_S = 0.5
"""Seconds of runs for one pass, within the limits of `_RUNS`."""

_RUNS = 4, 12
"""Least and largest number of runs for one pass; the first run warms up."""

_TRIAL_S = 1.0
"""Seconds for the comparison of a model with and without replaced small sites."""

_ROUNDS = 20
"""Rounds of such a comparison; both models run in each round."""

_COMPILER_SHARE = 0.7
"""Share of the remaining time that the compiler may use."""


_PASSES_LEFT = 2
"""Passes that must fit into the remaining time before a pass begins: the pass itself, and the last
one, which measures onnxruntime's own ways again."""


class NotTuned(Exception):
    """Error for a model that is not tuned; the message is a sentence without a period."""


@dataclass(frozen=True)
class Tuning:
    """Result of tuning the sites of a model.

    Attributes:
        model: the graph that onnxruntime runs, with sites replaced; for this machine only.
        algorithms: the number of sites that each algorithm computes, by its name.
        n_sites: the number of sites that could have been replaced.
        withdrawn: the number of sites that were faster in a way whose errors were too large.
        error: the largest difference from the original's outputs, relative to the maximum of each.
        note: the reason why some ways could not be tried, as a sentence without a period; empty
            otherwise.
        ways: the name of the way of each of `sites`; empty for a site that is not replaced.
    """

    model: onnx.ModelProto
    algorithms: Mapping[str, int]
    n_sites: int
    withdrawn: int
    error: float
    note: str = ""
    ways: tuple[str, ...] = ()


@dataclass(frozen=True)
class SiteChoice:
    """A site, its times by the name of a way, and the way in use; ``None`` is its own way."""

    site: Site
    own_us: float
    times_us: Mapping[str, float]
    way: SiteWay | None = None

    @property
    def gain_us(self) -> float:
        return self.own_us - (self.own_us if self.way is None else self.times_us[self.way.name])

    @property
    def is_small(self) -> bool:
        return self.site.is_small or self.own_us < _SMALL_US

    @property
    def roughness(self) -> int:
        return 0 if self.way is None else self.way.roughness

    def tried(self) -> SiteChoice:
        """Choose the fastest way.

        The times of a small site are uncertain, so it takes its fastest way unless that clearly
        loses.
        """
        if not self.is_small or not self.times_us:
            return self.fastest(math.inf)
        known = (way for way in self.site.ways if way.name in self.times_us)
        best = min(known, key=lambda way: self.times_us[way.name])
        may_gain = self.site.is_small or self.times_us[best.name] <= self.own_us + _TICK_US
        return replace(self, way=best if may_gain else None)

    def fastest(self, below: float) -> SiteChoice:
        """Choose the fastest way of roughness under `below`, or the site's own if none gains."""
        known = (w for w in self.site.ways if w.name in self.times_us and w.roughness < below)
        best = min(known, key=lambda way: self.times_us[way.name], default=None)
        gains = best is not None and self.times_us[best.name] < _GAIN * self.own_us
        return replace(self, way=best if gains else None)


def sites(model: onnx.ModelProto, options: OrtOptions) -> tuple[Site, ...]:
    """Return all sites of a graph, which are disjoint.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        options: the options that run the graph unchanged.
    """
    block = nchwc_block()
    tiled = tuple(convolutions(model, block))
    followers = {name for site in tiled for name in site.nodes}
    planes = (
        *tiled,
        *grouped_convolutions(model, block),
        *depthwise_convolutions(model, block, followers),
    )
    rows = (*sequence_convolutions(model), *normalizations(model), *recurrences(model))
    factors = tuple(products(model))
    whole = tuple(attentions(model, factors))
    inside = {name for site in whole for name in site.nodes}
    alone = (one for one in factors if inside.isdisjoint(one.nodes))
    own = (*planes, *rows, *whole, *alone)
    taken = {name for site in own for name in site.nodes}
    regions = (one for one in region_sites(model, options) if taken.isdisjoint(one.nodes))
    return (*own, *regions)


def tune(
    model: ModelSource,
    options: OrtOptions,
    trials: Sequence[tuple[Feeds, Sequence[Any]]],
    *,
    max_error: float,
    deadline: Deadline,
) -> Tuning:
    """Choose a way for each site.

    Args:
        model: a portable model.
        options: the options that run it.
        trials: inputs with the outputs of the original model; the first of them are timed.
        max_error: the bound on `output_error`; 0 allows only ways that compute every bit as
            onnxruntime does.
        deadline: the end of measuring; a site that is not measured by then keeps its own kernel.

    Raises:
        NotTuned: there is nothing to gain, or not enough time.
        RuntimeFailed: onnxruntime refuses the model, or there are no kernels.
    """
    as_is = replace(with_kernels(options), data_folder="")
    optimized = with_names(ort_optimized(model, options))
    found, note = sites(optimized, as_is), compiler_missing()
    if not found:
        raise NotTuned(_with_note("no part of the model has another way to be computed here", note))
    allowed = found if max_error > 0 else _exact(found)
    made = (node for site in allowed for way in site.ways for node in way.nodes)
    try:
        as_is = with_regions(as_is, made, deadline.left_s * _COMPILER_SHARE)
    except RuntimeFailed as failed:
        note = str(failed)
        allowed = tuple(site for site in allowed if not site.is_small)
        if not allowed:
            raise NotTuned(note) from failed
    try:
        choices = _measured(optimized, allowed, as_is, feeds=trials[0][0], deadline=deadline)
        choices = paying_choices(optimized, choices, as_is, feeds=trials[0][0], deadline=deadline)
    except NotTuned as nothing:
        raise NotTuned(_with_note(str(nothing), note)) from nothing

    def error_of(choices: Sequence[SiteChoice]) -> float:
        session = OrtSession(_built(optimized, choices), as_is)
        return max(output_error(session.run(feeds), outputs) for feeds, outputs in trials)

    kept, error = within_error(choices, error_of, _SEEN * max_error, deadline)
    used = {one.site.nodes: one.way.name for one in kept if one.way is not None}
    return Tuning(
        model=_built(optimized, kept),
        algorithms=Counter(one.way.name for one in kept if one.way is not None),
        n_sites=len(found),
        withdrawn=sum(one.way is not other.way for one, other in zip(choices, kept, strict=True)),
        error=error,
        note=note,
        ways=tuple(used.get(site.nodes, "") for site in found),
    )


def tuned_by(model: ModelSource, options: OrtOptions, ways: Sequence[str]) -> onnx.ModelProto:
    """Return the graph of an earlier `Tuning`, without measurements.

    Args:
        model: the portable model that was tuned.
        options: the options that run it.
        ways: the ways of its sites, as `Tuning.ways` says.

    Raises:
        NotTuned: the sites are others here, or have no such ways.
        RuntimeFailed: onnxruntime refuses the model, or there are no kernels.
    """
    as_is = replace(with_kernels(options), data_folder="")
    optimized = with_names(ort_optimized(model, options))
    found = sites(optimized, as_is)
    if len(found) != len(ways):
        raise NotTuned(f"the model has {len(found)} sites here, and {len(ways)} were tuned")
    chosen = []
    for site, name in zip(found, ways, strict=True):
        if name:
            way = next((one for one in site.ways if one.name == name), None)
            if way is None:
                raise NotTuned(f"no kernel {name!r} computes {', '.join(site.nodes)} here")
            chosen.append((site, way))
    return with_ways(optimized, chosen)


def _with_note(why: str, note: str) -> str:
    return f"{why} ({note})" if note else why


def _exact(found: Sequence[Site]) -> tuple[Site, ...]:
    """Return the sites with only those ways that compute every bit as onnxruntime does."""
    exact = (replace(s, ways=tuple(way for way in s.ways if not way.roughness)) for s in found)
    kept = tuple(site for site in exact if site.ways)
    if not kept:
        raise NotTuned("no error is allowed, and every other algorithm rounds otherwise")
    return kept


def _built(model: onnx.ModelProto, choices: Sequence[SiteChoice]) -> onnx.ModelProto:
    return with_ways(model, [(one.site, one.way) for one in choices if one.way is not None])


def _measured(
    optimized: onnx.ModelProto,
    found: Sequence[Site],
    options: OrtOptions,
    feeds: Feeds,
    deadline: Deadline,
) -> tuple[SiteChoice, ...]:
    """Choose the fastest way of each site; in each pass, every site runs its next way."""
    start = time.perf_counter()
    own = node_times_us(optimized, options, feeds, runs=_RUNS[0], deadline=deadline)
    run_s, spent_s = max(sum(own.values()) / 1e6, 1e-6), time.perf_counter() - start
    n_ways = max(len(site.ways) for site in found)
    open_s = max(0.0, spent_s - _RUNS[0] * run_s)
    fitting = (deadline.left_s / (n_ways + _PASSES_LEFT) - open_s) / run_s
    runs = int(min(max(min(_PASS_S / run_s, fitting), _RUNS[0]), _RUNS[1]))
    pass_s = open_s + runs * run_s
    times: list[dict[str, float]] = [{} for _ in found]
    for i in range(n_ways):
        if deadline.left_s < _PASSES_LEFT * pass_s:
            break
        tried = [(site, site.ways[i]) for site in found if i < len(site.ways)]
        spent = node_times_us(
            with_ways(optimized, tried), options, feeds, runs=runs, deadline=deadline
        )
        for site, known in zip(found, times, strict=True):
            if i < len(site.ways):
                way = site.ways[i]
                known[way.name] = sum(spent[node.name] for node in way.nodes)
    if not any(times):
        raise NotTuned("there was no time to measure; allow more with --budget")
    again = node_times_us(optimized, options, feeds, runs=runs, deadline=deadline)
    choices = tuple(
        SiteChoice(site, sum(min(own[n], again[n]) for n in site.nodes), known).tried()
        for site, known in zip(found, times, strict=True)
    )
    if all(choice.way is None for choice in choices):
        raise NotTuned("no algorithm is faster than onnxruntime's own here")
    return choices


def paying_choices(
    optimized: onnx.ModelProto,
    choices: tuple[SiteChoice, ...],
    options: OrtOptions,
    feeds: Feeds,
    deadline: Deadline,
) -> tuple[SiteChoice, ...]:
    """Replace small sites only where that makes the whole model faster.

    The small sites of one algorithm are tried together, then the half of them that gains most
    according to the profiler, and so on. Regions come first, since the other sites are judged in
    the model that the regions leave.
    """
    families: dict[str, list[int]] = defaultdict(list)
    for i, one in enumerate(choices):
        if one.is_small and one.way is not None:
            families[one.way.name].append(i)
    kept = tuple(replace(c, way=None) if c.is_small else c for c in choices)
    for name in sorted(families, key=lambda name: (name != GENERATED, name)):
        small = sorted(families[name], key=lambda i: -choices[i].gain_us)
        while small and not deadline.expired:
            some = frozenset(small)
            tried = tuple(choices[i] if i in some else c for i, c in enumerate(kept))
            one, other = (_built(optimized, chosen) for chosen in (tried, kept))
            if time_ratio(one, other, options, feeds, deadline=deadline) < _GAIN:
                kept = tried
                break
            small = small[: len(small) // 2]
    if all(choice.way is None for choice in kept):
        raise NotTuned("what could be computed otherwise is no faster in the whole model")
    return kept


def time_ratio(
    one: onnx.ModelProto,
    other: onnx.ModelProto,
    options: OrtOptions,
    feeds: Feeds,
    deadline: Deadline,
) -> float:
    """Return the time of a model relative to another: the median over alternating runs."""
    calls = [OrtSession(model, options).bind(feeds) for model in (one, other)]
    start = time.perf_counter()
    for call in calls * 2:
        call()
    each_s = max((time.perf_counter() - start) / 4, 1e-6)
    repeats = max(1, int(min(_TRIAL_S, deadline.left_s) / _ROUNDS / 2 / each_s))
    ratios: list[float] = []
    for _ in range(_ROUNDS):
        spent = []
        for call in calls:
            settle(call, each_s * 1e6, options.threads)
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            spent.append(time.perf_counter() - start)
        ratios.append(spent[0] / spent[1])
        if deadline.expired:
            break
    return float(np.median(ratios))


def within_error(
    choices: Sequence[SiteChoice],
    error_of: Callable[[Sequence[SiteChoice]], float],
    max_error: float,
    deadline: Deadline,
) -> tuple[tuple[SiteChoice, ...], float]:
    """Return choices whose error is within the bound, and that error.

    The roughest choices become milder first, and of equally rough ones those that gain least. The
    number of steps is found by doubling, then by bisection between the last two.
    """
    ladder = _milder(choices)
    errors: dict[int, float] = {}
    longest_s = 0.0

    def is_within(rung: int) -> bool:
        nonlocal longest_s
        start = deadline.clock()
        errors[rung] = error_of(ladder[rung])
        longest_s = max(longest_s, deadline.clock() - start)
        return errors[rung] <= max_error

    low, rung, last = -1, 0, len(ladder) - 1
    while not is_within(rung):
        if rung == last:
            raise NotTuned(
                f"onnxruntime's own optimised graph already differs by {errors[rung]:.1e} of an "
                f"output's maximum, and {max_error:.1e} is allowed"
            )
        if deadline.left_s < longest_s:
            raise NotTuned("there was no time to bound the errors; allow more with --budget")
        low, rung = rung, min(2 * rung + 1, last)
    while rung - low > 1 and deadline.left_s > longest_s:
        middle = (low + rung) // 2
        low, rung = (low, middle) if is_within(middle) else (middle, rung)
    if all(one.way is None for one in ladder[rung]) and rung:
        raise NotTuned(f"every faster algorithm differs by more than {max_error:.1e}")
    return ladder[rung], errors[rung]


def _milder(choices: Sequence[SiteChoice]) -> list[tuple[SiteChoice, ...]]:
    """Return the choices after each step in which one becomes milder, until none is replaced."""
    ladder = [tuple(choices)]
    while True:
        kept = list(ladder[-1])
        replaced = (i for i, one in enumerate(kept) if one.way is not None)
        i = min(replaced, key=lambda i: (-kept[i].roughness, kept[i].gain_us), default=None)
        if i is None:
            return ladder
        kept[i] = kept[i].fastest(kept[i].roughness)
        ladder.append(tuple(kept))


def output_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference of any output, relative to its largest expected value.

    All values other than finite floating-point numbers have to be equal; otherwise the error is
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
