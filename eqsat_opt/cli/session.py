"""State and helpers of one run of the command line: consoles, progress, JSON files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.codecs import report_text
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
"""Width in columns of a file or a pipe, which has no edge to wrap at."""

_REFRESH_HZ = 4  # low, as drawing disturbs measurements


@dataclass
class Session:
    """One run of the command line.

    Attributes:
        debug: whether errors come with a traceback.
        written: the file that is already complete; empty if there is none.
        signal: number of the signal that ended the run; 0 if none did.
        command: the program and its arguments, as given.
        started_s: when the command started, on the monotonic clock.
    """

    debug: bool = False
    written: str = ""
    signal: int = 0
    command: tuple[str, ...] = ()
    started_s: float = field(default_factory=time.monotonic)

    @property
    def outcome(self) -> str:
        """The state of the files after an interruption, for the message."""
        return f"{self.written} is complete" if self.written else "nothing was written"


def output_console(*, stderr: bool = False) -> Console:
    """Return the console of standard output, or of standard error if a result is written to it."""
    from eqsat_opt.cli.console import SafeConsole

    console = SafeConsole(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings on standard error, for commands that print no tables."""
    from eqsat_opt.cli.console import SafeConsole

    console = SafeConsole(stderr=True)
    for warning in warnings:
        console.print(f"warning: {warning}", style="bold red", markup=False, soft_wrap=True)


def print_advice(advice: str) -> None:
    """Print advice on a session option on standard error, for commands that print no tables."""
    from eqsat_opt.cli.console import SafeConsole

    if advice:
        console = SafeConsole(stderr=True)
        console.print(advice, markup=False, soft_wrap=True)


def print_rule_notes(*, tables: bool) -> None:
    """Print notes on uncertified rules, on standard error if there are no tables."""
    from eqsat_opt.api import rule_notes

    print_notes(rule_notes(), tables=tables)


def print_notes(notes: Iterable[str], *, tables: bool) -> None:
    """Print notes for the user, on standard error if there are no tables."""
    from eqsat_opt.cli.console import SafeConsole

    for note in notes:
        console = output_console() if tables else SafeConsole(stderr=True)
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=not tables)


@contextmanager
def stage_progress(quiet: bool = False) -> Iterator[Progress]:
    """Show the running stage in a line on standard error, if that is a terminal."""
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
    """Check before any work that a file can be written.

    Args:
        path: path as given; `-`, which is standard output, and ``None`` always pass.
        files: files that the command reads, or to which it writes something else.
        noun: noun for these files in the message.

    Raises:
        OptionError: the path is an option or a folder, is in no writable folder, or is among
            ``files``.
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
    """Make a folder before any work, unless it exists.

    Raises:
        OptionError: the folder cannot be made.
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
    write_text(report_text(value), path)


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
