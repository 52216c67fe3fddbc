"""`--save-decisions`, `--replay`, `--certificate`: the result of a run, made or confirmed again."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["CertificateFile", "Race", "Replay", "SaveDecisions"]

SaveDecisions = Annotated[
    str | None,
    typer.Option(
        "--save-decisions",
        metavar="FILE",
        help="Also write how the result is made of the model, as JSON without weights, for "
        "--replay.",
        show_default=False,
    ),
]
CertificateFile = Annotated[
    str | None,
    typer.Option(
        "--certificate",
        metavar="FILE",
        help="Also write by which rules the result is made of the model, for eqsat-opt certify.",
        show_default=False,
    ),
]
Replay = Annotated[
    str | None,
    typer.Option(
        "--replay",
        metavar="FILE",
        help="Make the result again by such a file, without search, measurement, check and race; "
        "--check N and --race ask for these.",
        show_default=False,
    ),
]
Race = Annotated[
    bool | None,
    typer.Option(
        "--race/--no-race",
        help="Whether original and candidates run against each other; by default they do, except "
        "in a replay.",
        show_default=False,
    ),
]
