"""The command `eqsat-opt`: a module for each subcommand, which imports the package lazily."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main"]

_ALLOCATIONS = 100_000
"""Objects that are allocated between two collections. The usual 700 cost a sixth of the time in
which the package is imported, since modules, classes and rules are never garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 after success, 1 after an error, 2 if outputs differ from the original's.
    """
    if arguments is None:  # the process is this command's own
        gc.set_threshold(_ALLOCATIONS)
    try:
        from eqsat_opt.cli.app import run
    except KeyboardInterrupt:  # there is no session yet that would tell it
        sys.stderr.write("error: interrupted; nothing was written\n")
        return 1
    return run(arguments)
