"""`eqsat-opt schema`: JSON Schemas of what the command writes as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from eqsat_opt.cli.session import check_writable, write_text

__all__ = ["print_schema"]


def print_schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="report")] = "report",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = "-",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print the JSON Schema of what optimize --json writes."""
    from eqsat_opt.pipeline.report.schema import schema_text

    check_writable(output)
    write_text(schema_text(name), output)
