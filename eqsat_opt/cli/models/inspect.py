"""`eqsat-opt inspect`: what is in a model, and what could gain.

It imports neither runtimes nor solvers, so that it answers at once.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.models.given import files_of, given
from eqsat_opt.cli.session import check_writable, output_console, write_json
from eqsat_opt.common.garbage import without_collection

__all__ = ["inspect_model"]


def inspect_model(
    model: a.Model,
    input_shape: a.InputShape = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show operators, shapes and work of a model, what passes through, and what could gain."""
    with without_collection():
        from eqsat_opt.pipeline.viewing.inspection import inspect_model

        check_writable(json, files_of(model), noun="a file of the model")
        shapes = a.parse_shapes(input_shape or ())
        found = replace(inspect_model(given(model), shapes), model=model)
        if json is not None:
            write_json(found.to_json(), json)
        if json != "-":
            output_console().print(found)
