"""`eqsat-opt explain --stage`: one stage of a search as text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from eqsat_opt.cli.session import output_console, print_rule_notes, stage_progress, write_text
from eqsat_opt.documents import document_text
from eqsat_opt.errors import OptionError
from eqsat_opt.options import Options

__all__ = ["explain_stage"]

_LINES = 40
"""Rows that fit on a screen, more or less."""

_HEAD = 2
"""Lines above the rows: the counts and the names of the columns."""


def explain_stage(
    model: str, stage: str, options: Options, *, lines: int | None, json: str | None, quiet: bool
) -> None:
    """Search as far as needed, print the first rows of a stage, and write all of it.

    Prints all where `lines` is 0, and a screen full of shortened ones where it is None.

    Raises:
        OptionError: there is no such stage, or the number of lines is negative.
    """
    from eqsat_opt import api

    api.require_stage(stage)
    if lines is not None and lines < 0:
        raise OptionError(f"{lines} lines cannot be printed; give a number, or 0 for all")
    with stage_progress(quiet) as progress:
        value = api.stage(model, stage, options, progress=progress)
    if json is not None:
        write_text(document_text(api.stage_document(value)), json)
    is_shown = not quiet and json != "-"
    if is_shown:
        console = output_console()
        for line in _cut(value.lines(short=lines is None), _LINES if lines is None else lines):
            # A row stays a row; the terminal wraps it if it has to.
            console.print(line, soft_wrap=True)
    print_rule_notes(tables=is_shown)


def _cut(text: Iterator[str], most: int) -> Iterator[str]:
    """The first rows, and how many there are besides; all where ``most`` is 0."""
    if not most:
        yield from text
        return
    yield from islice(text, _HEAD + most)
    more = sum(1 for _ in text)
    if more:
        noun = "row" if more == 1 else "rows"
        yield f"… {more} more {noun}: --lines 0 prints all, --json FILE writes them"
