"""One run of one method, in a process of its own that is warm before it begins.

So no method pays for loading libraries or has the caches of another one, its peak memory can be
measured, and a crash is a row of the table and does not end the comparison.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import onnx
import onnx_ir

from eqsat_opt import errors
from eqsat_opt.common.child_processes import Child, answer_requests, ending_text, peak_memory_bytes
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison import (
    CompareSettings,
    FailedRun,
    MethodResult,
    Original,
    Subject,
    checked,
    priced_sources,
    run_method,
    warm_up,
)
from eqsat_opt.lab.experiments.saved import save_found, save_plan
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.prices import open_pricer
from eqsat_opt.pipeline.reading import settled
from eqsat_opt.pipeline.report import rule_notes, store_warning
from eqsat_opt.pipeline.request import Request, request_of
from eqsat_opt.proving.selection import costs_only, load_rules
from eqsat_opt.runtime.backends.tuned_file import require_portable
from eqsat_opt.runtime.staging import Staging

__all__ = ["MethodTask", "Reply", "Run", "end_running", "plain", "run_apart", "run_here", "serve"]

_START_UP_S = 300.0
"""Limit on the start of Python and the loading of all libraries, on a busy machine."""

_LIMIT_FACTOR, _LIMIT_S = 10.0, 600.0
"""Limit of a run: a multiple of its CPU budget and a number of seconds; longer runs are hung."""


_RECORDED = ("rules", "numerics", "shapes", "threads")
"""Options that costs depend on."""


@dataclass(frozen=True, kw_only=True)
class MethodTask:
    """One run of one method, as plain values: it can go to another process or machine.

    Attributes:
        model: a path or ``zoo:NAME``; empty where the bytes of the model go with it.
        name: name of the model, for people.
        method: a method of the settings.
        seed: seed of the run.
        settings: settings of the comparison, as JSON.
        options: options, as JSON.
        save: file for the model that is found; empty for none.
    """

    model: str
    name: str
    method: str
    seed: int
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    save: str = ""

    @classmethod
    def of(cls, settings: CompareSettings, options: Options, **named: Any) -> MethodTask:
        """Build a task from settings and options; ``named`` are the other fields."""
        given = {one.name: getattr(options, one.name) for one in fields(options)}
        if options.numerics == Options.numerics:
            given["numerics"] = Numerics.FINITE.name.lower()
        return cls(settings=settings.to_json(), options=plain(given), **named)

    @property
    def record(self) -> dict[str, Any]:
        """The record in a saved model of how it was found."""
        options = {name: self.options[name] for name in _RECORDED}
        return {"model": self.name, "settings": dict(self.settings), **options}


@dataclass(frozen=True)
class Reply:
    """The reply to a task.

    Attributes:
        original: the original model; ``None`` where the method did not get far enough to price it.
        found: the result, or the failure with its reason.
        notes: further notes for the user.
    """

    original: Original | None
    found: MethodResult | FailedRun
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        kind = "failure" if isinstance(self.found, FailedRun) else "result"
        found = asdict(self.found) if isinstance(self.found, FailedRun) else self.found.to_json()
        original = None if self.original is None else self.original.to_json()
        return {"original": original, kind: found, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reply:
        """Build a reply from the result of `to_json`."""
        original = None if value["original"] is None else Original.from_json(value["original"])
        if "failure" in value:
            found: MethodResult | FailedRun = FailedRun(**value["failure"])
        else:
            found = MethodResult.from_json(value["result"])
        return cls(original, found, tuple(value["notes"]))


Run = Callable[[MethodTask, Sequence[bytes]], Reply]


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON has them: lists for tuples, dictionaries for other mappings."""
    found: dict[str, Any] = json.loads(json.dumps(value, default=dict))
    return found


def run_apart(task: MethodTask, blobs: Sequence[bytes] = ()) -> Reply:
    """Run a task in a process of its own.

    Raises:
        ModelError, OptionError, RuleError: no method could be run on the model or with the options.
        RuntimeFailed: no process can be started.
    """
    child = Child(__name__, "to run a method in")
    _running.add(child)
    try:
        if not child.is_ready(_START_UP_S):
            raise child.not_ready()
        cpu_s = task.settings["budget"]["cpu_s"]
        limit_s = _LIMIT_FACTOR * cpu_s + _LIMIT_S if cpu_s else threading.TIMEOUT_MAX
        start = time.monotonic()
        reply = child.ask(asdict(task), blobs, limit_s)
        if reply is None:
            code = child.end(1.0)
            why = f"it {ending_text(code, time.monotonic() - start, limit_s)}"
            return Reply(None, FailedRun(task.method, task.seed, why))
    finally:
        _running.discard(child)
        child.end()
    value = reply[0]
    if "refused" in value:
        raise getattr(errors, value["kind"], EqsatError)(value["refused"])
    return Reply.from_json(value)


_running: set[Child] = set()
"""The processes that run methods for all threads."""


def end_running() -> None:
    """End all processes that run methods, for threads that nobody waits for any more."""
    for child in list(_running):
        child.process.kill()


def serve() -> None:
    """Answer requests to run one method, as the child process."""

    def answer(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[Any]]:
        try:
            return run_here(MethodTask(**header), blobs).to_json(), []
        except EqsatError as error:
            return {"refused": str(error), "kind": type(error).__name__}, []

    answer_requests(answer)


@dataclass
class _Loaded:
    """A model, and everything else that a method needs."""

    request: Request
    settings: CompareSettings
    subject: Subject
    model: onnx_ir.Model
    given: str | onnx.ModelProto
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()
    closing: ExitStack = field(default_factory=ExitStack)


def _loaded(task: MethodTask, blobs: Sequence[bytes]) -> _Loaded:
    request = request_of(Options(**task.options), searches=False)
    settings = CompareSettings.from_json(task.settings)
    given: str | onnx.ModelProto = task.model
    if blobs:
        given = onnx.load_model_from_string(blobs[0])
    elif task.model.startswith("zoo:"):
        given = zoo.build_named(task.model.removeprefix("zoo:"))
    loaded = load_model(given)
    require_portable(loaded.metadata_props, task.name)
    imported = import_model(loaded, exact=request.exact)
    sizes = size_sets(imported, request.shape_sets)[0]
    clean = normalise(imported, numerics=request.numerics)
    request, notes = settled(request, clean)
    rules = load_rules(request.selection, request.numerics, for_costs=True)
    closing = ExitStack()
    pricer, threads = None, request.threads
    if settings.measure:
        # A stream is a thread, so on several streams each kernel runs on one.
        measured = replace(request, threads=1) if settings.runs_streams else request
        sources = priced_sources(settings, measured.threads)
        pricer = closing.enter_context(open_pricer(measured, *sources))
    return _Loaded(
        request=request,
        settings=settings,
        subject=Subject(
            clean,
            rules,
            sizes.given,
            pricer=pricer,
            threads=threads,
            tensors=stored_tensors(given)
            if settings.runs_streams or settings.measures_plans
            else {},
        ),
        model=loaded,
        given=given,
        sizes=sizes.inputs,
        notes=notes,
        closing=closing,
    )


def run_here(task: MethodTask, blobs: Sequence[bytes] = ()) -> Reply:
    """Run a task in this process; a failure of the method itself is part of the reply.

    Raises:
        ModelError, OptionError, RuleError: no method could be run on the model or with the options.
    """
    work = _loaded(task, blobs)
    original: Original | None = None
    with work.closing:
        try:
            warm_up(task.method, work.subject, work.settings, task.seed)
            original, found = run_method(task.method, work.subject, work.settings, task.seed)
            found = replace(found, peak_bytes=peak_memory_bytes())
            if work.request.check and not costs_only(work.request.selection):
                found = _checked(found, work)
            notes: tuple[str, ...] = ()
            if task.save:
                found = save_found(found, original, task.save, task.record)
                found, notes = save_plan(found, work.given, work.subject, work.settings)
        except MemoryError:
            return Reply(original, FailedRun(task.method, task.seed, "there is not enough memory"))
        except Exception as error:
            why = (
                str(error) if isinstance(error, EqsatError) else f"{type(error).__name__}: {error}"
            )
            return Reply(original, FailedRun(task.method, task.seed, why), _notes(work))
        return Reply(original, found, (*_notes(work), *found.notes, *notes))


def _notes(work: _Loaded) -> tuple[str, ...]:
    return (*store_warning(work.subject.pricer), *rule_notes(), *work.notes)


def _checked(found: MethodResult, work: _Loaded) -> MethodResult:
    with Staging(work.model, work.given) as staging:
        return checked(
            found,
            staging,
            numerics=work.request.numerics,
            seeds=work.request.seeds,
            sizes=work.sizes,
            session=work.request.session,
        )
