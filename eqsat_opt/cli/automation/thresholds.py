"""`--min-speedup`: a threshold on the gain that a race has to show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.errors import OptionError, TooSlow
from eqsat_opt.pipeline.options import Options

if TYPE_CHECKING:
    from eqsat_opt.pipeline.report.report import Report

__all__ = ["MinSpeedup", "require_race", "require_speedup"]

MinSpeedup = Annotated[
    float | None,
    typer.Option(
        "--min-speedup",
        metavar="X",
        help="Exit with 3 unless the race shows the result, or with --tuned the better of both "
        "forms, to be X times as fast as the original.",
        show_default=False,
    ),
]


def require_race(least: float | None, options: Options) -> None:
    """Refuse a threshold that has no meaning, or that no race of this run can show.

    Raises:
        OptionError: the threshold is not a positive number, or nothing is raced.
    """
    if least is None:
        return
    if not 0 < least < math.inf:
        raise OptionError(f"--min-speedup is {least:g}; give a factor such as 1.05")
    if not options.is_here:
        raise OptionError(
            f"--min-speedup is about a race, and nothing runs on {options.target} here; leave one "
            "of them out"
        )
    if not options.race:
        raise OptionError(
            "--min-speedup is about a race; leave out --no-race, or add --race to a replay"
        )


def require_speedup(report: Report, least: float | None) -> None:
    """Compare the gain of a run with the threshold.

    Raises:
        TooSlow: the gain is below the threshold.
    """
    if least is None or (found := report.best_speedup) >= least:
        return
    where = f"; {report.output} is written" if report.output else ""
    raise TooSlow(
        f"the result is {found:.3f}x as fast as the original, and --min-speedup asks for "
        f"{least:g}x{where}"
    )
