"""Options of data: inputs of check and race, how they are drawn, and those of calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from eqsat_opt.errors import OptionError

__all__ = ["Calibration", "Input", "InputData", "Quality", "parse_inputs"]

InputData = Annotated[
    str | None,
    typer.Option(
        "--input-data",
        metavar="FILE.npz|FOLDER",
        help="Your own inputs for check, race and sizes: arrays by the names of inputs, or a "
        "folder of such files, of which the first are taken, as many as --check says.",
        show_default=False,
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE.npz|FOLDER|random",
        help="Inputs on which errors of low precision are measured (--numerics approximate): "
        "arrays by the names of inputs with one axis more, a folder of files, or random ones.",
        show_default=False,
    ),
]
Quality = Annotated[
    str | None,
    typer.Option(
        "--quality",
        metavar="GOAL",
        help="Goal for the outputs of low precision, in place of --max-error: top1>=0.99, the "
        "share of rows whose largest element stays at its place, or cosine>=0.999.",
        show_default=False,
    ),
]
Input = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=HOW",
        help="How an input is drawn: int(0,30522), uniform(0,1), normal(0,1), constant(1), mask, "
        "image(0,1) or audio; repeatable. Others are drawn by what their names and uses tell.",
        show_default=False,
    ),
]


def parse_inputs(texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--input`, in which each name may occur once.

    Raises:
        OptionError: a text has another form, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, how = text.partition("=")
        if not (name and equals and how):
            raise OptionError(f"--input {text!r} is not NAME=HOW; write for instance ids=int(0,9)")
        if name in found:
            raise OptionError(f"--input gives {name!r} twice; keep one")
        found[name] = how
    return found
