"""Results as tables of Markdown, for docs and README."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.energy_fit import FittedEnergy, energy_of, plan_uj
from benchmarks.gpu.results import Found
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["tables"]

_MOST_FAULTS = 20


def tables(found: Found, base: DeviceProfile, profile: DeviceProfile) -> str:
    """All that was found, a section for each step that was run."""
    lines = [f"# {profile.title}, {found.written_at[:10]}", ""]
    if not found.is_real:
        lines += ["**A rehearsal on a processor: all times are invented.**", ""]
    for section in (
        _units,
        _figures,
        _probed,
        _support,
        _correctness,
        _prices,
        _plans,
        _peers,
        _energy,
    ):
        made = list(section(found, base, profile))
        if made:
            lines += [*made, ""]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table whose first column is text and whose others are numbers."""
    if rows:
        yield f"| {' | '.join(heads)} |"
        yield f"|---|{'--:|' * (len(heads) - 1)}"
        for row in rows:
            yield f"| {' | '.join(one.replace('|', chr(92) + '|') for one in row)} |"


def _units(found: Found, *_: Any) -> Iterator[str]:
    names = ("done", "failed", "crashed", "stopped")
    rows = []
    for step, units in found.steps.items():
        counts = Counter(str(entry["state"]) for entry in units.values())
        rows.append([step, *(str(counts[name]) for name in names)])
    yield from _table(["step", *names], rows)


def _figures(found: Found, base: DeviceProfile, profile: DeviceProfile) -> Iterator[str]:
    known = {name: one.value for name, one in base.figures()}
    rows = [
        [name, f"{known[name]:g}", f"{one.value:.4g}"]
        for name, one in profile.figures()
        if name in known and one.source != dict(base.figures())[name].source
    ]
    yield from _table(["figure", "profile", "found"], rows)


def _probed(found: Found, *_: Any) -> Iterator[str]:
    results = dict(found.done("probe"))
    if "gelu" in results:
        form = results["gelu"]["gelu"] or "neither form of Gelu"
        yield f"Behind a product cuBLASLt computes Gelu as: {form}."
    if "ticks" in results:
        one = results["ticks"]
        yield f"The energy counter moves each {one['tick_ms']:.3g} ms by {one['step_uj']:.3g} µJ."


def _support(found: Found, *_: Any) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for _name, result in found.done("probe"):
        counts.update({key: result[key] for key in _SUPPORT if "answers" in result})
    if counts["asked"]:
        yield from _table(list(_SUPPORT.values()), [[str(counts[key]) for key in _SUPPORT]])


_SUPPORT = {
    "asked": "convolutions asked", "recorded": "recorded", "equal": "equal",
    "same_set": "the same set",
}  # fmt: skip


def _correctness(found: Found, *_: Any) -> Iterator[str]:
    good: dict[str, list[bool]] = defaultdict(list)
    worst: dict[str, float] = defaultdict(float)
    stable: Counter[str] = Counter()
    faults = []
    for name, entry in found.steps.get("correctness", {}).items():
        result = entry.get("result", {})
        kind = str(result.get("backend", "plans" if "launches" in result else "not run"))
        is_good = bool(result.get("is_good")) and result.get("is_eager_equal", True)
        good[kind].append(is_good)
        if isinstance(error := result.get("error"), float | int):
            worst[kind] = max(worst[kind], float(error))
        stable[kind] += bool(result.get("equal_runs"))
        if not is_good:
            faults.append(f"- {name}: {entry.get('why') or f'error {error}'}")
    rows = [
        [kind, str(len(one)), str(sum(one)), str(stable[kind]), f"{worst[kind]:.1e}"]
        for kind, one in sorted(good.items())
    ]
    yield from _table(["run by", "units", "right", "bits repeat", "worst error"], rows)
    if faults:
        yield ""
        yield from faults[:_MOST_FAULTS]
        if len(faults) > _MOST_FAULTS:
            yield f"- and {len(faults) - _MOST_FAULTS} more"


def _prices(found: Found, *_: Any) -> Iterator[str]:
    times: dict[str, list[float]] = defaultdict(list)
    gains: dict[str, list[float]] = defaultdict(list)
    for _name, result in found.done("measure"):
        ways = [
            float(way["measurement"]["time_us"])
            for way in result["ways"].values()
            if "measurement" in way
        ]
        if ways:
            times[result["backend"]].append(min(ways))
            gains[result["backend"]].append(ways[0] / min(ways))
    rows = [
        [
            name, str(len(one)), f"{statistics.median(one):.1f}", f"{sum(one):.0f}",
            f"{statistics.fmean(gains[name]):.2f}",
        ]
        for name, one in sorted(times.items())
    ]  # fmt: skip
    heads = ["run by", "kernels", "median, µs", "sum, µs", "first way / best, mean"]
    yield from _table(heads, rows)


def _plans(found: Found, *_: Any) -> Iterator[str]:
    rows = []
    for _name, result in found.done("compare"):
        for title, one in result.get("plans", {}).items():
            if "measurement" not in one:
                continue
            time_us, predicted_us = one["measurement"]["time_us"], one["predicted_us"]
            rows.append(
                [
                    f"{result['model']}, {title}", str(one["launches"]), f"{predicted_us:.0f}",
                    f"{time_us:.0f}", f"{one['mad_us']:.1f}", f"{predicted_us / time_us - 1:+.0%}",
                ]
            )  # fmt: skip
    heads = ["plan", "launches", "predicted, µs", "measured, µs", "deviation", "error"]
    yield from _table(heads, rows)


def _peers(found: Found, *_: Any) -> Iterator[str]:
    """The best plan of each model against each other runtime."""
    best: dict[str, float] = {}
    peers: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for _name, result in found.done("compare"):
        if "plans" in result:
            times = [
                float(one["measurement"]["time_us"])
                for one in result["plans"].values()
                if "measurement" in one
            ]
            best[result["model"]] = min(times, default=float("inf"))
        elif "peer" in result:
            peers[result["model"]][result["peer"]] = result
    rows = [
        [f"{model}, {peer}", f"{time_us:.0f}", f"{time_us / best[model]:.2f}"]
        for model, several in peers.items()
        for peer, one in several.items()
        if model in best and "measurement" in one
        for time_us in (float(one["measurement"]["time_us"]),)
    ]
    yield from _table(["peer", "µs", "peer / best plan"], rows)
    lacking = Counter(
        f"- {name.partition(': ')[2]}: {entry['why']}"
        for name, entry in found.steps.get("compare", {}).items()
        if entry["state"] != "done"
    )
    if lacking:
        yield ""
        yield from (f"{line} ({count}×)" for line, count in lacking.most_common(_MOST_FAULTS))


def _energy(found: Found, *_: Any) -> Iterator[str]:
    """Plans beside the fastest of their model; what is within the noise saves nothing."""
    results = dict(found.done("energy"))
    fitted = energy_of(results, found.source("kernels by NVML"))
    rows = []
    for result in results.values():
        loads = {one["load"]: one for one in result.get("loads", ())}
        base = loads.get(result.get("least_time", ""))
        for title, one in loads.items():
            if base is None or title not in result["work"] or not one["windows"]:
                continue
            energy_uj = float(one["energy_uj"])
            noise = float(result["noise"])
            saved = 1 - energy_uj / float(base["energy_uj"])
            is_tie = not abs(saved) > noise
            error = "" if fitted is None else _error(fitted, one, result["work"][title])
            rows.append(
                [
                    f"{result['model']}, {title}", f"{one['time_us']:.0f}",
                    f"{one['power_w']:.0f}", f"{energy_uj / 1e3:.2f}",
                    "tie" if is_tie else f"{saved:+.1%}", f"{noise:.1%}", error,
                ]
            )  # fmt: skip
    heads = ["plan", "µs", "W", "mJ", "saved", "noise", "model"]
    yield from _table(heads, rows)


def _error(fitted: FittedEnergy, one: Mapping[str, Any], work: Mapping[str, Any]) -> str:
    """How far the model that was made of kernels is from a whole plan."""
    said = plan_uj(fitted.model, float(one["time_us"]), work)
    return f"{said / float(one['energy_uj']) - 1:+.0%}"
