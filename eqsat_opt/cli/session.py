"""State and helpers of one run of the command line: consoles, progress, JSON files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import obstacle, same_file
from eqsat_opt.common.text import stage_text
from eqsat_opt.errors import OptionError, reason

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Session",
    "check_writable",
    "make_folder",
    "output_console",
    "print_advice",
    "print_notes",
    "print_rule_notes",
    "print_warnings",
    "stage_progress",
    "write_json",
    "write_text",
]

Progress = Callable[[str, str], None]

_PIPE_WIDTH = 140
"""Columns where the output is not a terminal: a file or a pipe has no edge to wrap at."""

_REFRESH_HZ = 4  # the line shares the machine with what is being measured


@dataclass
class Session:
    """One run of the command line.

    Attributes:
        debug: whether errors come with a traceback.
        written: the file that is complete already, if any.
        signal: the number of the signal that ended it, if one did.
        command: as it was given.
    """

    debug: bool = False
    written: str = ""
    signal: int = 0
    command: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """What an interrupted run leaves behind, for the message."""
        return f"{self.written} is complete" if self.written else "nothing was written"


def output_console(*, stderr: bool = False) -> Console:
    """The console of standard output, or of standard error where the output is taken."""
    from eqsat_opt.cli.console import SafeConsole

    console = SafeConsole(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def print_warnings(warnings: Sequence[str]) -> None:
    """Print important warnings, on standard error where there are no tables."""
    from eqsat_opt.cli.console import SafeConsole

    console = SafeConsole(stderr=True)
    for warning in warnings:
        console.print(f"warning: {warning}", style="bold red", markup=False, soft_wrap=True)


def print_advice(advice: str) -> None:
    """Print what a session option gains, on standard error where there are no tables."""
    from eqsat_opt.cli.console import SafeConsole

    if advice:
        console = SafeConsole(stderr=True)
        console.print(advice, markup=False, soft_wrap=True)


def print_rule_notes(*, tables: bool) -> None:
    """Print which rules lack a valid certificate, on standard error if there are no tables."""
    from eqsat_opt.api import rule_notes

    print_notes(rule_notes(), tables=tables)


def print_notes(notes: Iterable[str], *, tables: bool) -> None:
    """Print what the user should know, on standard error if there are no tables."""
    from eqsat_opt.cli.console import SafeConsole

    for note in notes:
        console = output_console() if tables else SafeConsole(stderr=True)
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=not tables)


@contextmanager
def stage_progress(quiet: bool = False) -> Iterator[Progress]:
    """A line on standard error that names the running stage, where that is a terminal."""
    from eqsat_opt.cli.console import SafeConsole

    console = SafeConsole(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _stage, _detail: None
        return
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=console, transient=True, refresh_per_second=_REFRESH_HZ) as bar:
        task = bar.add_task("start")

        def show(stage: str, detail: str) -> None:
            name = stage_text(stage)
            bar.update(task, description=f"{name}: {detail}" if detail else name)

        yield show


def check_writable(
    path: str | None, files: Iterable[str | os.PathLike[str]] = (), *, noun: str = "what is read"
) -> None:
    """Fail before the work if a file cannot be written.

    Args:
        path: as given; `-`, which is standard output, and ``None`` always pass.
        files: what the command reads, or writes something else to.
        noun: what these are.

    Raises:
        OptionError: the path is an option or a folder, lies in none that may be written to, or is
            one of those files.
    """
    if path is None or path == "-":
        return
    if path.startswith("-"):
        raise OptionError(f"{path} is where a file name belongs; a file of that name is ./{path}")
    if why := obstacle(path):
        raise OptionError(why)
    if any(same_file(path, one) for one in files):
        raise OptionError(f"{path} is {noun}; give another name")


def make_folder(path: str) -> None:
    """Make a folder before the work, unless it is there.

    Raises:
        OptionError: it cannot be made.
    """
    if path.startswith("-"):
        raise OptionError(f"{path} is where a folder belongs; one of that name is ./{path}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"cannot make the folder {path}: {reason(error)}; choose another place"
        ) from error


def write_json(value: dict[str, Any], path: str) -> None:
    """Write JSON to a file, or to standard output for `-`.

    Raises:
        OptionError: the file cannot be written; nothing is left behind.
    """
    write_text(
        json.dumps(_finite(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n", path
    )


def write_text(text: str, path: str) -> None:
    """Write a text to a file, whole or not at all, or to standard output for `-`.

    Raises:
        OptionError: the file cannot be written; nothing is left behind.
    """
    if path == "-":
        import typer

        typer.echo(text, nl=False)
    else:
        write_whole(path, text, OptionError)


def _finite(value: Any) -> Any:
    """JSON has no infinities: they become null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
