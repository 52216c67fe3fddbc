"""Outcomes for models of other projects: imported, optimised, checked and raced, a line for each.

Models may crash a process, so each is examined in a process of its own. Outcomes are kept in a
file, from which the next call continues.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.isolated import attempt
from benchmarks.own_error import tolerated_error
from benchmarks.rows import geometric_mean
from eqsat_opt import api
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.save import save_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.coverage import coverage_of
from eqsat_opt.ir.sizes.sizes import other_sizes, size_sets
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.reading import import_graph
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.source import Feeds

__all__ = ["Outcome", "Settings", "covered", "examine", "gather", "line_of", "summary_lines"]

_WRONG, _WRONG_IN_HALF = 1e-3, 2e-2
"""Largest differences that count as rounding, relative to the maximum of an output: in general, and
for models with float16 tensors."""

_TOLERATED, _TOLERATED_S = 1.2, 1.0
"""Factor and seconds by which a budget may be exceeded."""

_START_S = 60.0
"""Seconds for imports and for runs of the original, besides the budget and the race."""

_MODULES = ("eqsat_opt.api", "eqsat_opt.pipeline.optimise", "benchmarks.outcomes")


@dataclass(frozen=True)
class Settings:
    """Settings of an examination of models.

    Attributes:
        coverage_only: whether only operators that pass through are counted.
        effort: effort of the optimiser.
        budget_s: budget in seconds; ``None`` for that of the effort.
        race_s: seconds of a race with all installed peers; 0 for no race.
        threads: threads of each session.
        fixed: whether sizes of the interface are made literal first, for all peers.
    """

    coverage_only: bool = False
    effort: str = "quick"
    budget_s: float | None = None
    race_s: float = 0.0
    threads: int = 1
    fixed: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome for one model.

    Attributes:
        failures: kind and reason of each failure; empty if there was none.
        inside: number of operators in the e-graph.
        passing: operators that pass through unchanged, with their numbers.
        known: operators among `passing` that the importer reads in other places.
        error: largest difference of the result, relative to the maximum of an output.
        seconds: seconds that the optimiser took.
        before, after: number of operators in the file of the model and of the result.
        ratios: name of an entrant to its time, relative to onnxruntime running the original.
        absent: name of a peer that took no part in the race to the reason.
        skipped: why the model is not judged: the error of onnxruntime, which does not run it.
    """

    failures: Sequence[tuple[str, str]] = ()
    inside: int = 0
    passing: Mapping[str, int] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)
    error: float | None = None
    seconds: float | None = None
    before: int | None = None
    after: int | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""


def covered(path: str) -> Outcome:
    """Count the operators of a model that the e-graph holds."""
    try:
        coverage = coverage_of(import_graph(load_model(path), request_of(Options()), Faults())[1])
    except EqsatError as error:
        return Outcome((("refused", str(error)),))
    failures = []
    if coverage.known:
        names = ", ".join(f"{name} ×{count}" for name, count in coverage.known.items())
        failures.append(("known operators pass through", names))
    return Outcome(tuple(failures), coverage.inside, coverage.passing, coverage.known)


def examine(path: str, settings: Settings) -> Outcome:
    """Optimise a model, and compare and race the result."""
    if settings.coverage_only and not settings.fixed:
        return covered(path)
    try:
        original = OrtSession(path, OrtOptions(settings.threads, level="disabled"))
        feeds = _feeds(path, original)
    except (EqsatError, RecursionError) as error:
        return Outcome(skipped=str(error))
    if settings.fixed:
        with tempfile.TemporaryDirectory() as folder:
            literal = Path(folder, "fixed.onnx")
            shapes = {name: array.shape for name, array in feeds.items() if hasattr(array, "shape")}
            save_model(fixed_model(load_model(path), shapes), literal)
            return examine(str(literal), replace(settings, fixed=False))
    counted = covered(path)
    failures = [one for one in counted.failures if one[0] != "refused"]
    chosen: dict[str, Any] = {"effort": settings.effort, "threads": settings.threads}
    if settings.budget_s is not None:
        chosen["budget_s"] = settings.budget_s
    options = Options(**chosen, race=False)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.onnx")
        start = time.perf_counter()
        try:
            report = api.run(path, options, output=output).report
        except EqsatError as error:
            return Outcome((("refused", str(error)), *failures))
        seconds = time.perf_counter() - start
        failures += _told(report.warnings, report.notes)
        if seconds > _TOLERATED * options.budget_s + _TOLERATED_S:
            failures.append(("over budget", f"{seconds:.1f} s of {options.budget_s:g} s"))
        distance, wrong = _compared(output, original, feeds, path)
        failures += [("wrong", wrong)] if wrong else []
        ratios, absent = dict[str, float](), dict[str, str]()
        if settings.race_s:
            ratios, absent = _raced(path, Path(folder), feeds, settings)
    return Outcome(
        tuple(failures),
        counted.inside,
        counted.passing,
        counted.known,
        error=distance,
        seconds=round(seconds, 2),
        before=sum(report.operators_before.values()),
        after=sum(report.operators_after.values()),
        ratios=ratios,
        absent=absent,
    )


def _feeds(path: str, original: OrtSession) -> Feeds:
    """Return random inputs on which the original runs.

    Raises:
        EqsatError: the original runs at none of the sizes that are tried.
    """
    (sizes,) = size_sets(import_model(load_model(path)), ({},))
    failure: RuntimeFailed | None = None
    for one in (sizes, *other_sizes(sizes)):
        specs = input_specs(path, one.derived)
        feeds = random_inputs(specs, 1, sizes_for(specs, one.inputs))
        try:
            original.run(feeds)
        except RuntimeFailed as error:
            failure = failure or error
        else:
            return feeds
    assert failure is not None
    raise failure


_TOLD = {
    "internal error": "internal error",
    "failed:": "internal error",
    "is dropped": "dropped",
    "; dropped": "dropped",
    "nothing was tried": "given up",
    "does not run in onnxruntime": "given up",
    "no time to search": "given up",
}
"""Parts of warnings and notes, and the kind of failure that each of them indicates."""


def _told(*texts: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    for text in (one for several in texts for one in several):
        kind = next((kind for part, kind in _TOLD.items() if part in text), None)
        if kind is not None:
            found.append((kind, text))
    return found


def _most_error(path: str) -> float:
    """Return the largest difference that rounding may cause."""
    types = import_model(load_model(path)).types.values()
    halves = any(isinstance(one, TensorType) and one.dtype == "float16" for one in types)
    return _WRONG_IN_HALF if halves else _WRONG


def _compared(
    output: Path, original: OrtSession, feeds: Feeds, path: str
) -> tuple[float | None, str]:
    """Return the error of the result on inputs outside of its check, and a fault if any."""
    try:
        outputs = OrtSession(output, original.options).run(feeds)
    except EqsatError as error:
        return None, f"the result does not run: {error}"
    expected = original.run(feeds)
    if output_error(original.run(feeds), expected):
        return None, ""  # it draws random numbers, and differs from itself
    distance = output_error(outputs, expected)
    finite = distance if math.isfinite(distance) else None
    allowed = _most_error(path)
    if distance > allowed:
        allowed = tolerated_error(path, feeds, original.options.threads, least=allowed)
    return finite, f"differs by {distance:.1e}" if distance > allowed else ""


def _raced(
    path: str, folder: Path, feeds: Feeds, settings: Settings
) -> tuple[dict[str, float], dict[str, str]]:
    """Race with peers; return the ratios of times, and why some peers have none."""
    from benchmarks.versus import hold

    budget_s = settings.budget_s or Options(effort="normal").budget_s
    held, absent = hold(
        Path(path), folder, feeds, settings.threads, budget_s=budget_s, race_s=settings.race_s
    )
    ratios = {name: entry.ratio for name, entry in held.entries.items() if not entry.note}
    notes = {name: entry.note for name, entry in held.entries.items() if entry.note}
    return ratios, {**absent, **notes}


# -------------------------------------------------------------------------------- many models


def gather(
    models: Mapping[str, Path], settings: Settings, record: Path | None, again: bool = False
) -> Iterator[tuple[str, Outcome]]:
    """Examine models one after another; yield the name and outcome of each, old ones too.

    Args:
        models: files by name.
        settings: settings; outcomes that were recorded under other settings are discarded.
        record: JSON file of outcomes; ``None`` keeps none.
        again: whether models that failed are examined again.
    """
    found = _read(record, settings)
    for name, path in models.items():
        old = found.get(name)
        if old is None or (again and old.failures):
            found[name] = _attempted(path, settings)
            if record is not None:
                entries = {key: asdict(value) for key, value in found.items()}
                document = {"settings": asdict(settings), "models": entries}
                write_whole(record, json.dumps(document, indent=1) + "\n")
        yield name, found[name]


def _attempted(path: Path, settings: Settings) -> Outcome:
    budget_s = settings.budget_s or Options(effort=settings.effort).budget_s  # type: ignore[arg-type]
    limit_s = _START_S + 4 * budget_s
    if settings.race_s:
        limit_s += 10 * _START_S + 4 * settings.race_s
    outcome = attempt(examine, str(path), settings, limit_s=limit_s, preload=_MODULES)
    if outcome.failure:
        return Outcome((("crashed", outcome.failure),))
    assert isinstance(outcome.value, Outcome)
    return outcome.value


def _read(record: Path | None, settings: Settings) -> dict[str, Outcome]:
    if record is None or not record.exists():
        return {}
    document = json.loads(record.read_text(encoding="utf-8"))
    if document["settings"] != asdict(settings):
        return {}
    return {
        name: Outcome(**{**entry, "failures": [tuple(one) for one in entry["failures"]]})
        for name, entry in document["models"].items()
    }


def line_of(name: str, outcome: Outcome) -> str:
    """Describe the outcome for a model in one line."""
    if outcome.skipped:
        return f"{name}: skipped, onnxruntime does not run it: {outcome.skipped}"
    n_passing = sum(outcome.passing.values())
    parts = [f"{outcome.inside} of {outcome.inside + n_passing} operators in the e-graph"]
    if outcome.seconds is not None:
        parts.append(f"{outcome.before} → {outcome.after} operators in {outcome.seconds:.1f} s")
    if outcome.error is not None:
        parts.append(f"error {outcome.error:.1e}")
    parts += [f"{peer} {ratio:.2f}" for peer, ratio in outcome.ratios.items()]
    parts += [f"{peer}: {why}" for peer, why in outcome.absent.items()]
    parts += [f"{kind.upper()}: {why}" for kind, why in outcome.failures]
    return f"{name}: {'; '.join(parts)}"


def summary_lines(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield counts of failures by kind and of operators that pass through, and means of races."""
    judged = {name: one for name, one in outcomes.items() if not one.skipped}
    failed = Counter(kind for one in judged.values() for kind in {kind for kind, _ in one.failures})
    clean = sum(not one.failures for one in judged.values())
    yield f"{len(judged)} models, {clean} without a failure, {len(outcomes) - len(judged)} skipped"
    for kind, count in failed.most_common():
        yield f"{kind}: {count}"
    known = Counter[str]()
    for one in judged.values():
        known.update(one.known)
    if known:
        texts = ", ".join(f"{name} ×{count}" for name, count in known.most_common())
        yield f"known operators that pass through: {known.total()}: {texts}"
    peers = dict.fromkeys(peer for one in judged.values() for peer in one.ratios)
    for peer in peers:
        ratios = [one.ratios[peer] for one in judged.values() if peer in one.ratios]
        yield f"{peer}: geometric mean {geometric_mean(ratios):.3f} over {len(ratios)} models"
