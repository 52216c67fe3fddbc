"""`eqsat-opt compare`: equality saturation beside published searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, stage_progress, write_json
from eqsat_opt.errors import CheckFailed
from eqsat_opt.options import Options

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.comparison import Comparison, MethodResult

__all__ = ["compare_methods"]


def compare_methods(
    model: a.Model,
    methods: Annotated[
        str,
        typer.Option(metavar="LIST", help="Methods to run: eqsat, metaflow; separated by commas."),
    ] = "eqsat,metaflow",
    alpha: Annotated[
        float,
        typer.Option(
            metavar="FACTOR",
            help="How much dearer than the best a graph may be for MetaFlow to follow it.",
        ),
    ] = 1.05,
    budget: Annotated[
        int, typer.Option(metavar="N", help="Graphs that a search visits; 0 is no limit.")
    ] = 1_000,
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="For each search, and each stage of the e-graph; 0 is no limit for searches.",
        ),
    ] = 0.0,
    hash: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How MetaFlow knows a graph again: canonical, or taso, which takes some "
            "different graphs for one.",
        ),
    ] = "canonical",
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure every operator instead of using its bound."),
    ] = False,
    repeat: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Turns of each method, of which the quickest counts; a long one is not repeated.",
        ),
    ] = 1,
    rules: a.Rules = Options.rules,
    numerics: a.Numerics = Options.numerics,
    input_shape: a.InputShape = None,
    threads: a.Threads = Options.threads,
    nodes: a.Nodes = Options.nodes,
    check: a.Check = Options.check,
    seed: a.Seed = Options.seed,
    store: a.Store = None,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Run several optimisers with the same rules and prices; the exit code is 2 if outputs differ.

    Every operator is priced as a kernel of its own, without fusion, so that costs compare. The time
    is until a method ends; "as cheap after" says when it had a graph as cheap as what the others
    end with.
    """
    options = a.make_options(
        input_shape,
        rules=rules,
        numerics=numerics,
        threads=threads,
        nodes=nodes,
        check=check,
        seed=seed,
        store=store,
    )
    if json not in (None, "-"):
        check_writable(json)
    from eqsat_opt import api

    settings = api.CompareSettings(
        tuple(name.strip() for name in methods.split(",") if name.strip()),
        alpha=alpha,
        hash=hash,
        graphs=budget,
        time_s=time_limit,
        nodes=nodes,
        seed=seed,
        measure=measure,
        repeat=repeat,
    )
    with stage_progress(quiet) as progress:
        found = api.compare(model, options, settings, progress=progress)
    if json is not None:
        write_json(found.to_json(), json)
    if not quiet and json != "-":
        console = output_console()
        console.print(_heading(found))
        console.print(_table(found))
    wrong = next((result for result in found.results if result.why), None)
    if wrong is not None:
        raise CheckFailed(
            f"the result of {wrong.method} computes something else than {model}: {wrong.why}; "
            "please report this model"
        )


def _heading(found: Comparison) -> str:
    return (
        f"{found.model}: {found.operators} operators, {found.n_rules} rules, "
        f"{found.prices} prices, one kernel per operator\n"
    )


def _table(found: Comparison) -> Table:
    from rich.table import Table

    from eqsat_opt.report import count_text, time_text

    titles = (
        "method", "cost", "of original", "bound", "gap", "operators", "graphs", "substitutions",
        "e-nodes", "time", "best after", "as cheap after", "ended", "outputs",
    )  # fmt: skip
    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:12]:
        column.justify = "right"
    blank = ("",) * 8
    cost = time_text(found.original_cost_us)
    table.add_row("original", cost, "1.000", "", "", str(found.operators), *blank)
    for result in found.results:
        counts = (result.graphs, result.tried, result.enodes)
        bound, gap = _bound(result)
        table.add_row(
            result.method,
            time_text(result.cost_us),
            f"{result.cost_us / found.original_cost_us:.3f}" if found.original_cost_us else "",
            bound,
            gap,
            str(result.operators),
            *("" if count is None else count_text(count) for count in counts),
            f"{result.time_s:.2f} s",
            f"{result.best_after_s:.2f} s",
            _seconds(found.as_cheap_after_s(result)),
            result.status,
            _verdict(result),
        )
    return table


def _bound(result: MethodResult) -> tuple[str, str]:
    from eqsat_opt.report import time_text

    bound = result.lower_bound_us
    if bound is None:
        return "none", ""
    return time_text(bound), f"{1 - bound / result.cost_us:.1%}" if result.cost_us else "0.0%"


def _seconds(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s:.2f} s"


def _verdict(result: MethodResult) -> str:
    if result.max_error is None:
        return "not checked"
    return result.why or "agree"
