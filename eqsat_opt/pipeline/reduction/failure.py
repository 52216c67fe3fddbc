"""How a command fails on a model: its exit code and the kind of its error.

Commands run as processes of their own, so that one that crashes or hangs does no harm.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from eqsat_opt.errors import OptionError, reason

__all__ = ["DEFAULT_COMMAND", "PLACE", "Failure", "command_text", "failure_of"]

PLACE = "{}"
"""Part of a command that is replaced by the path of a model."""

DEFAULT_COMMAND = (
    sys.executable, "-m", "eqsat_opt", "optimize", PLACE, "--strict", "--no-race", "--quiet",
    "--effort", "quick", "--check", "3", "--budget", "30", "--store", "",
)  # fmt: skip
"""The command that is meant where the user gives none: a search without a race that is strict."""

_HANGS = 124
"""Exit code of a command that does not end, the same as that of `timeout`."""

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|[\w.:/\\-]*[/\\][\w.:/\\-]*|0x[\da-f]+|\d[\d.,e+-]*")
"""Parts of a message that differ from model to model: names, paths and numbers."""


@dataclass(frozen=True)
class Failure:
    """A failure of a command; two are of one kind if they are equal.

    Attributes:
        code: its exit code; negative for a signal, 124 if it did not end in time.
        kind: its last line on standard error up to the first clause, without names and numbers.
    """

    code: int
    kind: str

    def __str__(self) -> str:
        if self.code == _HANGS:
            return "it does not end"
        if self.code < 0:
            with suppress(ValueError):
                return f"it ends by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}{f': {self.kind}' if self.kind else ''}"


def command_text(command: Sequence[str]) -> str:
    """Return a command as a shell takes it, this package's own by its name."""
    own = (sys.executable, "-m", "eqsat_opt")
    is_own = tuple(command[: len(own)]) == own
    parts = ["eqsat-opt", *command[len(own) :]] if is_own else command
    return shlex.join(parts).replace(shlex.quote(PLACE), PLACE)


def failure_of(command: Sequence[str], path: str, *, timeout_s: float) -> Failure | None:
    """Run a command on a model; return how it fails, or ``None`` if it ends with 0.

    Args:
        command: the program and its arguments, in which `{}` is the path of the model.
        path: the model.
        timeout_s: time after which the command and all that it started are ended.

    Raises:
        OptionError: the program cannot be started.
    """
    line = [part.replace(PLACE, path) for part in command]
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise OptionError(f"cannot run {line[0]}: {reason(error)}") from error
    try:
        _, told = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Failure(_HANGS, "")
    finally:
        _end(process)
    if process.returncode == 0:
        return None
    lines = told.decode(errors="replace").strip().splitlines()
    return Failure(process.returncode, _kind(lines[-1] if lines else ""))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and what it started."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def _kind(line: str) -> str:
    return " ".join(_VARYING.sub("…", re.split(r"; |: ", line + "; ")[0] + _rest(line)).split())


def _rest(line: str) -> str:
    """Return the clause behind a leading `error:`, which says more than that word."""
    parts = re.split(r"; |: ", line)
    return f": {parts[1]}" if len(parts) > 1 and parts[0].lower().endswith("error") else ""
