"""`eqsat-opt certify`: whether a result follows from a model by the steps of its certificate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json
from eqsat_opt.common.text import counted

if TYPE_CHECKING:
    from eqsat_opt.pipeline.certificates.confirming import CertifiedBound

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
    from eqsat_opt.cli.models.given import files_of, given
    from eqsat_opt.pipeline.certificates.confirming import certify

    check_writable(json, (*files_of(model, result), certificate))
    found = certify(given(model), given(result), certificate)
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
    if found.bound is not None:
        console.print(_bound_text(found.bound), markup=False, soft_wrap=True)
    console.print(
        f"compared on numbers only: {counted(found.compared, 'pair')} of terms\n"
        f"trusted: the import, the normal form and the export of models{_prices(found.bound)}; "
        f"eqsat-opt bench {model} {result} compares their outputs",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _bound_text(bound: CertifiedBound) -> str:
    from eqsat_opt.pipeline.report.report import is_below

    less = (
        f"; the cheapest that was found makes {bound.cheapest:.5g}"
        if is_below(bound.cheapest, bound.cost)
        else ""
    )
    return (
        f"the result makes {bound.cost:.5g} {bound.goal} as predicted{less}\n"
        f"no choice among {counted(bound.options, 'option')} makes less than "
        f"{bound.lower_bound:.5g}: a gap of {bound.gap:.2%}, where the solver claims "
        f"{bound.claimed_gap:.2%}"
    )


def _prices(bound: CertifiedBound | None) -> str:
    return "" if bound is None else ", and the options with their prices"
