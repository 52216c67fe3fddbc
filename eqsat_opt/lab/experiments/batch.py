"""Many models, each optimised in a process of its own, stored whole, and never optimised twice.

Every model has a file of its own beside its result, with its report. So a batch that was killed
goes on where it was: what has such a file is done.
"""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from typing import Any

from eqsat_opt import __version__
from eqsat_opt.common.child_processes import Child, answer_requests, ending_text
from eqsat_opt.common.codecs import Document, Entry, read_document, write_document
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import EqsatError, OptionError, RuntimeFailed, StageError, printable
from eqsat_opt.lab.experiments.gathering import claimed, gathered_parts, model_digest
from eqsat_opt.lab.experiments.worker import plain
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.pipeline.run import run_request
from eqsat_opt.pipeline.stages import Stages

__all__ = ["BatchModel", "BatchResult", "models_in", "optimise_one", "run_batch", "serve"]

_FORMAT = "eqsat-opt batch 1"
_ENDING = ".onnx"

_START_UP_S = 300.0
_LIMIT_FACTOR, _LIMIT_S = 10.0, 600.0
"""Limit of a run: a multiple of its budget and a number of seconds; a longer run counts as hung."""

Told = Callable[["BatchResult", int, int], None]


@dataclass(frozen=True)
class BatchModel:
    """One model of a batch.

    Attributes:
        name: its path below the folder that was given, or its file name.
        path: its absolute path.
    """

    name: str
    path: str

    def output(self, folder: str) -> str:
        """Return the file of its result."""
        return os.path.join(folder, self.name)

    def record(self, folder: str) -> str:
        """Return the file that says that it is done."""
        return f"{self.output(folder)}.json"


@dataclass(frozen=True)
class BatchResult:
    """The outcome for one model.

    Attributes:
        name: name of the model in the batch.
        report: its report as JSON; empty where it failed.
        error: why it failed, as one line; empty where it did not.
    """

    name: str
    report: Mapping[str, Any]
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "report": dict(self.report) or None, "error": self.error}


def models_in(given: Sequence[str]) -> tuple[BatchModel, ...]:
    """Return the models that files, folders and patterns name, by order of their names.

    Args:
        given: ONNX files; folders, in which all ONNX files count, at any depth; patterns of files,
            such as ``models/*.onnx``. Results (``.opt.onnx``) in folders do not count.

    Raises:
        OptionError: there is no such file, none in a folder, or two of the same name.
    """
    found: dict[str, BatchModel] = {}
    for text in given:
        for name, path in _named(text):
            one = BatchModel(name, os.path.abspath(path))
            if found.setdefault(name, one).path != one.path:
                raise OptionError(
                    f"{path} and {found[name].path} would have one result, as both are called "
                    f"{name}; give the folder above them"
                )
    return tuple(found[name] for name in sorted(found))


def _named(text: str) -> list[tuple[str, str]]:
    """Return the names and paths of the models that one argument means."""
    if os.path.isdir(text):
        below = glob.glob(f"**/*{_ENDING}", root_dir=text, recursive=True)
        names = sorted(name for name in below if not name.endswith(f".opt{_ENDING}"))
        if not names:
            raise OptionError(f"the folder {text} holds no {_ENDING} file")
        return [(name, os.path.join(text, name)) for name in names]
    paths = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
    if not paths:
        raise OptionError(f"{text} is no file, and no file is like it")
    return [(os.path.basename(path), path) for path in paths]


# ** one model **


def optimise_one(task: Mapping[str, Any]) -> dict[str, Any]:
    """Optimise the model of a task in a process of its own; every worker calls this.

    Args:
        task: ``model`` and ``output``, paths, and ``options`` as JSON.

    Returns:
        ``report`` as JSON, or ``error``, an error that would occur again.

    Raises:
        RuntimeFailed: no process can be started, or it ended by itself.
    """
    child = Child(__name__, "to optimise a model in")
    _running.add(child)
    try:
        if not child.is_ready(_START_UP_S):
            raise child.not_ready()
        limit_s = _LIMIT_FACTOR * task["options"]["budget_s"] + _LIMIT_S
        start = time.monotonic()
        reply = child.ask(dict(task), (), min(limit_s, threading.TIMEOUT_MAX))
        if reply is None:
            code = child.end(1.0)
            spent_s = time.monotonic() - start
            raise RuntimeFailed(f"its process {ending_text(code, spent_s, limit_s)}")
    finally:
        _running.discard(child)
        child.end()
    return reply[0]


_running: set[Child] = set()
"""The processes that optimise models for all threads."""


def _end_running() -> None:
    for child in list(_running):
        child.process.kill()


def serve() -> None:
    """Answer requests to optimise one model, as the child process."""

    def answer(task: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], list[Any]]:
        try:
            options = Options(**task["options"])
            model, stages = task["model"], Stages(lambda _stage, _detail: None)
            deadline = Deadline.after(options.budget_s)
            with stages("rules"):
                request = request_of(options)
            result = run_request(
                request, model, model, task["output"], stages=stages, deadline=deadline
            )
            return {"report": result.report.to_json(), "error": ""}, []
        except EqsatError as error:
            return {"report": {}, "error": printable(str(error))}, []

    answer_requests(answer)


# ** all models **


def run_batch(
    models: Sequence[BatchModel],
    folder: str,
    options: Options,
    executor: Executor,
    *,
    resume: bool = False,
    told: Told | None = None,
) -> tuple[BatchResult, ...]:
    """Optimise the models that are not done, and return the results of all.

    Args:
        models: the models.
        folder: folder of results; each has the name of its model, and a report ``NAME.json`` beside
            it.
        options: options of all runs.
        executor: runs them; any executor of `concurrent.futures`, or of a cluster that has the same
            files. Several at a time on one machine disturb each other's races.
        resume: whether the folder may hold results of this batch.
        told: called with each result, old ones first, its number and the number of all.

    Raises:
        OptionError: the folder holds other results, or another batch works in it.
        StageError: a file of the folder is damaged, or cannot be written.
        RuntimeFailed: some models did not come back; the others are done.
    """
    results: dict[str, BatchResult] = {}

    def took(one: BatchResult) -> None:
        results[one.name] = one
        if told is not None:
            told(one, len(results), len(models))

    def take(model: BatchModel, value: dict[str, Any]) -> None:
        one = BatchResult(model.name, value["report"], value["error"])
        write_document(model.record(folder), _document(one, belongings[model.name]))
        took(one)

    with claimed(folder, "batch"):
        belongings = {one.name: _belongings(one, options) for one in models}
        for model in models:
            if (done := _done(model, folder, belongings[model.name], resume=resume)) is not None:
                took(done)
        left = [one for one in models if one.name not in results]
        for model in left:
            os.makedirs(os.path.dirname(model.output(folder)), exist_ok=True)
        lost = gathered_parts(
            left,
            lambda model: executor.submit(optimise_one, _task(model, folder, options)),
            take,
            _end_running,
        )
    if lost:
        model, why = lost[0]
        raise RuntimeFailed(
            f"{len(lost)} of {len(models)} models did not come back, {model.name} first "
            f"({printable(why)}); run again with --resume"
        )
    return tuple(results[one.name] for one in models)


def _plain_options(options: Options) -> dict[str, Any]:
    return plain({one.name: getattr(options, one.name) for one in fields(options)})


def _task(model: BatchModel, folder: str, options: Options) -> dict[str, Any]:
    return {
        "model": model.path,
        "output": os.path.abspath(model.output(folder)),
        "options": _plain_options(options),
    }


def _belongings(model: BatchModel, options: Options) -> Document:
    """Return all that a result depends on."""
    given = {name: value for name, value in _plain_options(options).items() if name != "store"}
    return {"version": __version__, "digest": model_digest(model.path), "options": given}


def _document(one: BatchResult, belongings: Document) -> Document:
    return {"format": _FORMAT, **belongings, **one.to_json()}


def _done(
    model: BatchModel, folder: str, belongings: Document, *, resume: bool
) -> BatchResult | None:
    """Return the stored result of a model; ``None`` if it has none.

    Raises:
        OptionError: there is a result, and the batch is not to be resumed; or it is another one.
        StageError: the file is damaged.
    """
    path = model.record(folder)
    if not os.path.exists(path):
        return None
    if not resume:
        raise OptionError(
            f"{folder} holds results, such as {path}; add --resume to go on with them, or give "
            "another folder with -o"
        )
    try:
        entry = Entry(read_document(path, "a result of a batch"), path)
        entry.require_format(_FORMAT)
        for name, value in belongings.items():
            if entry.get(name) != value:
                what = {"digest": "the model", "version": "this package"}.get(name, "an option")
                raise OptionError(
                    f"{what} changed since {path} was written; remove it to optimise "
                    f"{model.name} again, or give another folder with -o"
                )
        report = entry.get("report")
        found = BatchResult(model.name, report or {}, entry.text("error"))
    except StageError as error:
        raise StageError(f"{error}; remove it to optimise {model.name} again") from error
    is_whole = found.error or os.path.exists(model.output(folder))
    return found if is_whole else None
