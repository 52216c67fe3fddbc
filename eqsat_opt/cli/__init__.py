"""The command `eqsat-opt`: a module for each subcommand, which imports the package lazily."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 after success, 1 after an error, 2 if outputs differ from the original's.
    """
    from eqsat_opt.cli.app import run

    return run(arguments)
