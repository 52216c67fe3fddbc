"""Sweeps: cells of model, method, seed and device, each stored whole and never computed twice.

A sweep is a file of settings and a folder of cells. A cell depends on nothing but its settings, so
any worker may compute it, and one that is lost leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from eqsat_opt import __version__
from eqsat_opt.common.codecs import (
    Entry,
    number_from_json,
    number_to_json,
    read_document,
    write_document,
)
from eqsat_opt.errors import (
    EqsatError,
    OptionError,
    RuntimeFailed,
    StageError,
    or_nearest,
    printable,
    reason,
)
from eqsat_opt.lab.comparison import (
    LOCAL,
    CompareSettings,
    Comparison,
    FailedRun,
    gathered,
    parse_budget,
)
from eqsat_opt.lab.experiments.gathering import claimed, gathered_parts, model_digest
from eqsat_opt.lab.experiments.worker import MethodTask, Reply, end_running, run_apart
from eqsat_opt.pipeline.options import Options

__all__ = ["Cell", "Sweep", "read_sweep", "run_cell", "run_sweep"]

_SWEEP, _CELL = "eqsat-opt sweep 1", "eqsat-opt cell 1"
_SETTINGS = "sweep.json"

_OWN = ("objective", "level", "nodes", "measure", "energy_model")
_LISTS = ("limits", "backends")
_OPTIONS = ("rules", "numerics", "check", "threads", "shapes", "store", "custom_ops")
_CELLS = ("models", "methods", "devices", "seeds", "seed", "budget", "set")
_KEYS = (*_CELLS, *_LISTS, *_OWN, *_OPTIONS)
"""Names that a file may hold; ``set`` holds a table for each search."""

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("seeds", "seed", "nodes", "check", "threads"), ((int,), "a whole number")),
    **dict.fromkeys(
        ("objective", "level", "energy_model", "rules", "numerics"), ((str,), "a text")
    ),
    **dict.fromkeys(_LISTS, ((list,), "a list of texts")),
    "measure": ((bool,), "true or false"),
    "budget": ((int, str, dict), "graphs, a text, or a table as { cpu = 60 }"),
    "set": ((dict,), "a table for each search, as set.metaflow.alpha = 1.1"),
}
"""Types of values that no later reader checks, and their names in messages."""

Told = Callable[["Cell", Reply, int, int], None]


@dataclass(frozen=True, order=True)
class Cell:
    """One run, after which its file is named."""

    model: str
    device: str
    method: str
    seed: int

    @property
    def file(self) -> str:
        """Name of the cell's file: readable, and different for different cells."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:10]
        parts = (self.model, self.device, self.method, str(self.seed))
        words = "-".join(re.sub(r"[^\w@=.]+", "_", part)[-40:] for part in parts)
        return f"{words}-{digest}.cell.json"


@dataclass(frozen=True)
class Sweep:
    """A sweep over models, devices, methods and seeds.

    Attributes:
        models: names as they were given.
        paths: name to ``zoo:NAME`` or an absolute path.
        settings: settings by device, with all methods and seeds.
        options: options of all cells.
        digests: name to a digest of the contents, for a model that is a file.
    """

    models: tuple[str, ...]
    paths: Mapping[str, str]
    settings: Mapping[str, CompareSettings]
    options: Options
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, seed by seed, so that every method has a result early."""
        first = next(iter(self.settings.values()))
        return tuple(
            Cell(model, device, method, seed)
            for seed in range(first.seed, first.seed + first.seeds)
            for model in self.models
            for device in self.settings
            for method in first.methods
        )

    @property
    def fixed(self) -> dict[str, Any]:
        """Everything besides its own four names that all cells depend on, as JSON."""
        first = next(iter(self.settings.values()))
        common = first.to_json()
        for name in ("device", "methods", "parameters", "seed", "seeds"):
            del common[name]
        if first.energy_model and first.profile is not None:
            common["energy_model"] = repr(first.profile.energy)  # its figures, not its file
        given = {name: _plain(getattr(self.options, name)) for name in _OPTIONS if name != "store"}
        return {"version": __version__, **common, **given}

    def task(self, cell: Cell) -> MethodTask:
        """Return the task of a cell, which a worker gets."""
        settings = self.settings[cell.device]
        return MethodTask.of(
            settings,
            self.options,
            model=self.paths[cell.model],
            name=cell.model,
            method=cell.method,
            seed=cell.seed,
        )

    def belongings(self, cell: Cell) -> dict[str, Any]:
        """Return the digest of the cell's model and the parameters of its search."""
        parameters = self.settings[cell.device].to_json()["parameters"].get(cell.method, {})
        return {"digest": self.digests.get(cell.model, ""), "parameters": parameters}


# ** the file of settings **


def read_sweep(path: str) -> Sweep:
    """Read a sweep from a TOML file, relative to which model files are found.

    Raises:
        OptionError: the file cannot be read, or a setting has no meaning.
        ModelError: a model is not there.
    """
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {reason(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is not TOML: {printable(str(error))}") from error
    for name in given:
        if name not in _KEYS:
            raise OptionError(f"{path} says {name!r}; {or_nearest(name, _KEYS)}")
        _check_kind(path, name, given[name])
    models = _names(path, given, "models")
    methods, devices = (
        _names(path, {name: default, **given}, name)
        for name, default in (("methods", ["eqsat", "metaflow"]), ("devices", [LOCAL]))
    )
    budget = given.get("budget", "1000")
    if isinstance(budget, Mapping):
        budget = ",".join(f"{name}={value}" for name, value in budget.items())
    try:
        options = Options(**{name: given[name] for name in _OPTIONS if name in given})
        common = {
            **{name: given[name] for name in _OWN if name in given},
            "energy_model": _beside(path, given.get("energy_model", "")),
            **{name: tuple(given.get(name, ())) for name in _LISTS},
            "seed": given.get("seed", 0),
            "seeds": given.get("seeds", 1),
            "budget": parse_budget([str(budget)]),
            "parameters": given.get("set", {}),
        }
        settings = {device: CompareSettings(methods, device=device, **common) for device in devices}
    except (TypeError, ValueError, AttributeError) as error:
        raise OptionError(f"{path} has a value of a wrong kind: {error}") from error
    paths, digests = {}, {}
    for name in models:
        paths[name] = name
        if not name.startswith("zoo:"):
            paths[name] = _beside(path, name)
            digests[name] = model_digest(paths[name])
    return Sweep(models, paths, settings=settings, options=options, digests=digests)


def _check_kind(path: str, name: str, value: Any) -> None:
    kinds, words = _KINDS.get(name, ((object,), ""))
    fits = type(value) in kinds or object in kinds  # isinstance takes a flag for a number
    if name in _LISTS and fits:
        fits = all(isinstance(one, str) for one in value)
    if name == "set" and fits:
        fits = all(isinstance(one, dict) for one in value.values())
    if not fits:
        raise OptionError(f"{path} has {name} = {printable(repr(value))}; give {words}")


def _names(path: str, given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = given.get(name)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or not found:
        raise OptionError(f'{path} has no list of {name}; write for instance {name} = ["…"]')
    if len(set(found)) < len(found):
        raise OptionError(f"{path} names one of the {name} twice; keep one")
    return tuple(found)


def _beside(path: str, name: str) -> str:
    """Return the path of a file that another one names, relative to it; empty for an empty name."""
    return os.path.abspath(os.path.join(os.path.dirname(path), name)) if name else ""


# ** cells as files **


def _plain(value: Any) -> Any:
    """Return a value as JSON; infinities are objects."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return number_to_json(value) if isinstance(value, float) else value


def _read(value: Any) -> Any:
    """Build a value from the result of `_plain`."""
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return number_from_json(value, "a number of the cell")
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value


def _store(folder: str, cell: Cell, sweep: Sweep, reply: Reply) -> None:
    document = {
        "format": _CELL,
        "cell": asdict(cell),
        **_plain(sweep.belongings(cell)),
        "reply": _plain(reply.to_json()),
    }
    write_document(os.path.join(folder, cell.file), document)


def _stored(folder: str, cell: Cell, sweep: Sweep) -> Reply | None:
    """Return the stored reply of a cell; ``None`` if it has not been computed.

    Raises:
        StageError: the file is no cell.
        OptionError: the cell is of another model or other parameters.
    """
    path = os.path.join(folder, cell.file)
    if not os.path.exists(path):
        return None
    try:
        document = read_document(path)
    except StageError as error:
        raise StageError(f"{error}; remove it to compute it again") from error
    entry = Entry(document, path)
    entry.require_format(_CELL)
    entry.require_all("format", "cell", "digest", "parameters", "reply")
    for name, value in _plain(sweep.belongings(cell)).items():
        if document[name] != value:
            what = f"parameters of {cell.method}" if name == "parameters" else f"model {cell.model}"
            raise OptionError(
                f"the {what} changed since {path} was computed; give another folder with --save"
            )
    try:
        return Reply.from_json(_read(document["reply"]))
    except (KeyError, TypeError) as error:
        raise StageError(f"{path} lacks what a cell has: {error}; remove it") from error


def _open_folder(sweep: Sweep, folder: str, *, resume: bool) -> None:
    """Refuse a folder with other cells, and record the settings that this sweep's cells share."""
    path, fixed = os.path.join(folder, _SETTINGS), _plain(sweep.fixed)
    if not os.path.exists(path):
        write_document(path, {"format": _SWEEP, "settings": fixed})
        return
    if not resume:
        raise OptionError(
            f"{folder} holds cells of a sweep; add --resume to go on with it, or give another "
            "folder with --save"
        )
    entry = Entry(read_document(path), path)
    entry.require_format(_SWEEP)
    before = entry.mapping("settings").value
    for name in sorted(before.keys() | fixed.keys()):
        if before.get(name) != fixed.get(name):
            raise OptionError(
                f"{folder} was begun with {name} {before.get(name)!r}, which is now "
                f"{fixed.get(name)!r}; give another folder with --save, or the same settings"
            )


# ** computing **


def run_cell(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task in a process of its own; every worker calls this.

    Raises:
        RuntimeFailed: no process can be started.
    """
    given = MethodTask(**task)
    try:
        return run_apart(given).to_json()
    except RuntimeFailed:
        raise
    except EqsatError as error:  # an error that would occur again the next time
        return Reply(None, FailedRun(given.method, given.seed, str(error))).to_json()


def run_sweep(
    sweep: Sweep, folder: str, executor: Executor, *, resume: bool = False, told: Told | None = None
) -> tuple[Comparison, ...]:
    """Compute the missing cells, and gather all into a comparison for each model and device.

    Args:
        sweep: the sweep.
        folder: folder of its cells.
        executor: computes the cells; any executor of `concurrent.futures`, or of a cluster. If it
            loses a worker it may compute a cell again: a cell is stored once, by this process.
        resume: whether the folder may hold cells of this sweep.
        told: called with each new cell, its reply, the number of cells known and of all cells.

    Raises:
        OptionError: the folder holds other cells, or another sweep works in it.
        StageError: a file of the folder is damaged, or cannot be written.
        RuntimeFailed: some cells did not come back; those that did are stored.
    """
    with claimed(folder, "sweep"):
        _open_folder(sweep, folder, resume=resume)
        cells = sweep.cells
        replies = {
            cell: reply for cell in cells if (reply := _stored(folder, cell, sweep)) is not None
        }
        lost = _computed(sweep, folder, executor, replies, told=told)
    if lost:
        cell, why = lost[0]
        raise RuntimeFailed(
            f"{len(lost)} of {len(cells)} cells did not come back, {cell.method} on {cell.model} "
            f"first ({why}); run again with --resume"
        )
    return tuple(
        _comparison(sweep, model, device, replies)
        for model in sweep.models
        for device in sweep.settings
    )


def _computed(
    sweep: Sweep,
    folder: str,
    executor: Executor,
    replies: dict[Cell, Reply],
    *,
    told: Told | None,
) -> Sequence[tuple[Cell, str]]:
    """Compute the cells that ``replies`` lacks, and add them; return the lost cells, and why."""
    cells = sweep.cells

    def take(cell: Cell, value: dict[str, Any]) -> None:
        reply = Reply.from_json(value)
        _store(folder, cell, sweep, reply)
        replies[cell] = reply
        if told is not None:
            told(cell, reply, len(replies), len(cells))

    return gathered_parts(
        [cell for cell in cells if cell not in replies],
        lambda cell: executor.submit(run_cell, _sent(sweep.task(cell))),
        take,
        end_running,
    )


def _sent(task: MethodTask) -> dict[str, Any]:
    return {one.name: getattr(task, one.name) for one in fields(task)}


def _comparison(sweep: Sweep, model: str, device: str, replies: Mapping[Cell, Reply]) -> Comparison:
    own = [reply for cell, reply in replies.items() if (cell.model, cell.device) == (model, device)]
    notes = [note for reply in own for note in reply.notes]
    pairs = [(reply.original, reply.found) for reply in own]
    return gathered(model, sweep.settings[device], pairs, notes)
