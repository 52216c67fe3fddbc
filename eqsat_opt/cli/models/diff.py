"""`eqsat-opt diff`: where two models differ as graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.models.given import files_of, given
from eqsat_opt.cli.session import check_writable, output_console, write_json

__all__ = ["diff_models"]


def diff_models(
    model: a.Model,
    other: Annotated[
        str,
        typer.Argument(metavar="OTHER", help="The model to compare it with.", show_default=False),
    ],
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show the nodes that are in one of two models only, or changed; names do not count."""
    from eqsat_opt.pipeline.viewing.difference import compare_graphs

    check_writable(json, files_of(model, other), noun="a file of a model")
    found = replace(compare_graphs(given(model), given(other)), first=model, second=other)
    if json is not None:
        write_json(found.to_json(), json)
    if json != "-":
        output_console().print(found)
