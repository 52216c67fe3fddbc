"""`eqsat-opt certify`: whether a result follows from a model by the steps of its certificate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json
from eqsat_opt.common.text import counted

__all__ = ["certify_result"]


def certify_result(
    model: a.Model,
    result: Annotated[
        str,
        typer.Argument(metavar="FAST", help="The result of optimize.", show_default=False),
    ],
    certificate: Annotated[
        str,
        typer.Argument(
            metavar="CERT", help="What optimize --certificate wrote.", show_default=False
        ),
    ],
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Confirm a result by its certificate, without an e-graph, prices or a solver."""
    from eqsat_opt.pipeline.certificates.confirming import certify

    check_writable(json, (model, result, certificate))
    found = certify(model, result, certificate)
    if json is not None:
        write_json(asdict(found), json)
    if json == "-":
        return
    console = output_console()
    steps = sum(found.rules.values())
    console.print(
        f"confirmed: {result} follows from {model} by {counted(steps, 'application')} of "
        f"{counted(len(found.rules), 'rule')}, in the class {found.numerics}",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    for name, count in found.rules.items():
        console.print(f"  {count} x {name}", markup=False)
    console.print(
        f"compared on numbers only: {counted(found.compared, 'pair')} of terms\n"
        "trusted: the import, the normal form and the export of models; "
        f"eqsat-opt bench {model} {result} compares their outputs",
        markup=False, soft_wrap=True,
    )  # fmt: skip
