"""Files of e-graphs: one or a folder, where every file has an outcome, even if others fail."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from eqsat_opt.cli.session import stage_progress
from eqsat_opt.errors import EqsatError, ExtractionError, OptionError

if TYPE_CHECKING:
    from eqsat_opt.extract import GymFile

__all__ = [
    "FileOutcome",
    "Tell",
    "complain",
    "default_objective",
    "find_files",
    "results",
    "run_all",
]

Tell = Callable[[str], None]
"""A function that is called with the current step of solving a file."""

_MAX_NAMED = 3  # most files that the final message names


@dataclass(frozen=True)
class FileOutcome:
    """The outcome of one file.

    Attributes:
        name: name of the file.
        error: why it could not be read or solved; empty if it was.
        skipped: whether the file is not an e-graph at all.
    """

    name: str
    error: str = ""
    skipped: bool = False

    @property
    def failure(self) -> str:
        """The reason why the file has no solution; empty if it has one."""
        return self.error

    @property
    def status(self) -> str:
        """The status of the outcome, one word for the table."""
        return "error"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"status": self.status, "error": self.error}


def find_files(path: str) -> list[tuple[str, Path]]:
    """Return name and path of each file; the name is relative to the folder if one is given.

    Raises:
        OptionError: the folder has no JSON file.
    """
    top = Path(path)
    if not top.is_dir():
        return [(path, top)]
    found = sorted(file for file in top.rglob("*.json") if file.is_file())
    if not found:
        raise OptionError(f"there is no .json file in {path}; give an e-graph or a folder of them")
    return [(file.relative_to(top).as_posix(), file) for file in found]


def default_objective(file: GymFile) -> str:
    """Return the metric `cost`, or the only metric of the file.

    Raises:
        OptionError: there are several metrics without `cost`.
    """
    from eqsat_opt.extract.gym.files import METRIC

    metrics = file.problem.metrics
    if METRIC in metrics:
        return METRIC
    if len(metrics) > 1:
        raise OptionError(
            f"the e-graph has the metrics {', '.join(metrics)}; say with --objective what to "
            "minimise"
        )
    return metrics[0]


def run_all(
    files: Sequence[tuple[str, Path]],
    solve: Callable[[str, GymFile, Tell], FileOutcome],
    *,
    quiet: bool,
) -> tuple[list[FileOutcome], bool]:
    """Solve all files.

    Args:
        files: name and path of each file.
        solve: solves a file; called with its name, its e-graph and a function that shows progress.
        quiet: whether no progress is shown.

    Returns:
        An outcome for each file that was tried, and whether the user interrupted the run.

    Raises:
        EqsatError: there is one file only, and it failed.
    """
    from eqsat_opt.extract import read_json
    from eqsat_opt.extract.gym.files import NoEGraph

    outcomes: list[FileOutcome] = []
    with stage_progress(quiet) as progress, _noted_interrupts() as interrupts:
        for number, (name, path) in enumerate(files, 1):
            title = f"{number} of {len(files)}, {name}" if len(files) > 1 else name

            def tell(what: str, title: str = title) -> None:
                progress(title, what)

            tell("read")
            try:
                outcomes.append(solve(name, read_json(path), tell))
            except KeyboardInterrupt:
                return outcomes, True
            except EqsatError as error:
                if len(files) == 1:
                    raise
                outcomes.append(FileOutcome(name, str(error), isinstance(error, NoEGraph)))
            if interrupts:
                return outcomes, True
    return outcomes, False


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Record interrupts, as an extractor handles them and returns the best solution so far."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # only the main thread gets signals
        yield noted
        return
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def results(path: str, outcomes: Sequence[FileOutcome]) -> dict[str, Any]:
    """Return the JSON to write: the result, or for a folder one result per file name."""
    if Path(path).is_dir():
        return {outcome.name: outcome.to_json() for outcome in outcomes if not outcome.skipped}
    return outcomes[0].to_json()


def complain(outcomes: Sequence[FileOutcome]) -> None:
    """Raise an error if a file has no result.

    Raises:
        ExtractionError: a file has no result, or no file is an e-graph.
    """
    failed = [outcome for outcome in outcomes if outcome.failure and not outcome.skipped]
    if len(outcomes) == 1 and failed:
        raise ExtractionError(f"{failed[0].name} is {failed[0].failure}")
    if all(outcome.skipped for outcome in outcomes):
        raise ExtractionError("none of the files is an e-graph in egraph-serialize JSON")
    if failed:
        names = ", ".join(outcome.name for outcome in failed[:_MAX_NAMED])
        more = f" and {len(failed) - _MAX_NAMED} more" if len(failed) > _MAX_NAMED else ""
        raise ExtractionError(
            f"{len(failed)} of {len(outcomes)} files have no result: {names}{more}"
        )
