"""The command `eqsat-opt`: a module for each subcommand, which imports the package lazily."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

__all__ = ["main"]

_ALLOCATIONS = 100_000
"""Objects that are allocated between two collections. The usual 700 cost a sixth of the time in
which the package is imported, since modules, classes and rules are never garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 after success, 1 after an error, 2 if outputs differ from the original's.
    """
    started_s = time.monotonic()
    if arguments is None:  # the process is this command's own
        gc.set_threshold(_ALLOCATIONS)
    try:
        from eqsat_opt.cli.app import run
    except KeyboardInterrupt:  # there is no session yet that would tell it
        sys.stderr.write("error: interrupted; nothing was written\n")
        return 1
    code = run(arguments, started_s)
    if arguments is None and sys.getprofile() is None:
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End the process at once: freeing its objects one by one takes a third of a second.

    Everything is written by now, and what was registered for the end of the process is called.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
