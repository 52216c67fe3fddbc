"""`eqsat-opt compare`: equality saturation beside published searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import (
    check_writable,
    output_console,
    print_rule_notes,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import CheckFailed, OptionError
from eqsat_opt.options import Options

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.comparison import Comparison, MethodResult
    from eqsat_opt.search import Level

__all__ = ["compare_methods"]

_LIMITS = {
    "algebra": "limit of reordering rounds",
    "graphs": "limit of graphs",
    "iterations": "limit of rounds",
    "nodes": "limit of e-nodes",
    "cpu": "limit of CPU time",
    "length": "limit of length",
    "substitutions": "limit of substitutions",
    "time": "limit of time",
}
"""What ended a method, where its name alone says too little."""

_KERNELS: Mapping[str, str] = {
    "operators": "one kernel per operator",
    "kernels": "fused kernels",
    "streams": "fused kernels on streams",
}
"""What each level counts."""


def compare_methods(
    context: typer.Context,
    model: a.Model,
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Methods to run, separated by commas: eqsat, metaflow or an installed search.",
        ),
    ] = "eqsat,metaflow",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SEARCH.NAME=VALUE",
            help="A parameter of a search, such as metaflow.alpha=1.1 or metaflow.hash=taso; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    spend: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="N|NAME=VALUE",
            help="What a search may spend: graphs that it visits (1000), substitutions, cpu (s, "
            "which saturation and extraction keep to each), length (substitutions in a row); "
            "repeatable; 0 is no limit.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Price kernels by the profile of a device, v100 for instance, instead of this "
            "processor's roofline.",
            show_default=False,
        ),
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="What a graph costs: operators, each a kernel of its own; kernels, fused as the "
            "device can; or streams, on which these run side by side.",
        ),
    ] = "operators",
    objective: a.Objective = "time",
    limit: a.Limit = None,
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
    check: a.Check = None,
    seed: a.Seed = Options.seed,
    store: a.Store = None,
    custom_ops: a.CustomOps = None,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Run several optimisers with the same rules and prices; the exit code is 2 if outputs differ.

    Every operator is priced as a kernel of its own, without fusion, so that costs compare. The time
    is until a method ends; "as cheap after" says when it had a graph as cheap as what the others
    end with. The bound is for the graphs in the e-graph, where associativity and commutativity run
    for two rounds.
    """
    options = a.make_options(context)
    from eqsat_opt import api
    from eqsat_opt.comparison import CompareSettings, parse_budget

    check_writable(json, api.files_of(model), noun="a file of the model")
    settings = CompareSettings(
        tuple(name.strip() for name in methods.split(",") if name.strip()),
        _parameters(set_ or ()),
        budget=parse_budget(spend or ()),
        nodes=nodes,
        seed=seed,
        device=device,
        objective=objective,
        level=cast("Level", level),
        limits=tuple(limit or ()),
        measure=measure,
        repeat=repeat,
    )
    with stage_progress(quiet) as progress:
        found = api.compare(model, options, settings, progress=progress)
    if json is not None:
        write_json(found.to_json(), json)
    tables = not quiet and json != "-"
    if tables:
        console = output_console()
        console.print(_heading(found))
        console.print(_table(found))
        if found.assumed_sizes:
            console.print(_assumption(found), style="yellow", markup=False)
    print_rule_notes(tables=tables)
    wrong = next((result for result in found.results if result.why), None)
    if wrong is not None:
        raise CheckFailed(
            f"the result of {wrong.method} computes something else than {model}: {wrong.why}; "
            "please report this model"
        )


def _parameters(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Search to parameter to value; the search says what they mean.

    Raises:
        OptionError: a text has another form, or a parameter is given twice.
    """
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        search, dot, name = path.strip().partition(".")
        if not (search and dot and name and equals):
            raise OptionError(
                f"--set {text!r} is not SEARCH.NAME=VALUE; write for instance metaflow.alpha=1.1"
            )
        if name in found.setdefault(search, {}):
            raise OptionError(f"--set gives {search}.{name} twice; keep one")
        found[search][name] = value.strip()
    return found


def _heading(found: Comparison) -> str:
    from eqsat_opt.wording import counted

    kernels = _KERNELS[found.settings.level]

    return (
        f"{found.model}: {counted(found.operators, 'operator')}, {counted(found.n_rules, 'rule')}, "
        f"{found.prices} prices, {kernels}\n"
    )


def _assumption(found: Comparison) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in found.assumed_sizes.items())
    first = next(iter(found.assumed_sizes))
    return f"note: priced at the assumed sizes {sizes}; give others with --input-shape {first}:SIZE"


def _table(found: Comparison) -> Table:
    """One column per method, so that any terminal is wide enough."""
    from eqsat_opt.wording import count_text, plain_table, time_text

    def counts(values: Iterable[int | None]) -> list[str]:
        return ["" if value is None else count_text(value) for value in values]

    original, results = found.original_cost, found.results

    def shown(cost: float) -> str:
        if math.isinf(cost):
            return "above a limit"
        return time_text(cost) if found.settings.is_time else f"{cost:.4g}"

    bounds = [_bound(result, shown) for result in results]
    rows = (
        ("cost", shown(original), [shown(r.cost) for r in results]),
        ("of original", "1.000", [_share(r.cost, original) for r in results]),
        ("bound", "", [bound for bound, _ in bounds]),
        ("gap", "", [gap for _, gap in bounds]),
        ("operators", str(found.operators), [str(r.operators) for r in results]),
        ("graphs visited", "", counts(r.graphs for r in results)),
        ("substitutions tried", "", counts(r.tried for r in results)),
        ("left sides compared", "", counts(r.compared for r in results)),
        ("e-nodes", "", counts(r.enodes for r in results)),
        ("time", "", [f"{r.time_s:.2f} s" for r in results]),
        ("best after", "", [f"{r.best_after_s:.2f} s" for r in results]),
        ("as cheap after", "", [_seconds(found.as_cheap_after_s(r)) for r in results]),
        ("ended", "", [_ended(r) for r in results]),
        ("outputs", "", [_verdict(r) for r in results]),
    )  # fmt: skip
    methods = (result.method for result in results)
    table = plain_table("", "original", *methods, right=slice(1, None))
    for name, before, cells in rows:
        if before or any(cells):
            table.add_row(name, before, *cells)
    return table


def _share(cost: float, original: float) -> str:
    return f"{cost / original:.3f}" if original and math.isfinite(cost) else ""


def _bound(result: MethodResult, shown: Callable[[float], str]) -> tuple[str, str]:
    bound = result.lower_bound
    if bound is None:
        return "none", ""
    if math.isinf(bound):
        return "no graph", ""
    return shown(bound), f"{1 - bound / result.cost:.1%}" if result.cost else "0.0%"


def _ended(result: MethodResult) -> str:
    ended = _LIMITS.get(result.stopped_by, result.stopped_by)
    if result.extraction is None:
        return ended
    # A proof is about what the e-graph holds; a limit may have kept graphs out of it.
    partly = result.extraction == "optimal" and result.stopped_by != "saturated"
    return f"{ended}, {result.extraction}{' in what it holds' * partly}"


def _seconds(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s:.2f} s"


def _verdict(result: MethodResult) -> str:
    if result.max_error is None:
        return "not checked"
    return result.why or "agree"
