"""The command `eqsat-opt`: one module for each of its commands, which import the rest lazily."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 if it is done, 1 after an error, 2 if outputs differ from the original's.
    """
    from eqsat_opt.cli.app import run

    return run(arguments)
