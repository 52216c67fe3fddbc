"""`eqsat-opt extract`: the extractor alone, for e-graphs of any program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.extract.files import (
    FileOutcome,
    Tell,
    complain,
    default_objective,
    find_files,
    results,
    run_all,
)
from eqsat_opt.cli.session import Session, check_writable, output_console, write_json
from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from eqsat_opt.extract import GymFile, TracePoint

__all__ = ["extract_egraphs"]


def extract_egraphs(
    context: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="An e-graph in egraph-serialize JSON, or a folder of such files.",
            show_default=False,
        ),
    ],
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What to minimise: a metric, time+0.5*energy, time+0.25*critical_path(time), "
            "energy^0.5*time^0.5 or energy/time; by default the only metric, or cost.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="Largest total (time=3.5), longest chain (critical_path(time)=2) or largest value "
            "of one implementation (max(workspace)=1e6); repeatable.",
            show_default=False,
        ),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y",
            help="The trade-off between two metrics instead of one solution.",
            show_default=False,
        ),
    ] = None,
    points: Annotated[
        int, typer.Option(metavar="N", help="Largest number of points of a trade-off.", min=2)
    ] = 16,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Limit on the search in each e-graph.", min=0)
    ] = 10.0,
    gap: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Stop at this relative gap to the bound.", min=0, max=1),
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the search.")] = 0,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, or to stop earlier or compare: tree, sharing, greedy, local, lns, exact.",
        ),
    ] = "auto",
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Equal choices from run to run; proofs take longer."),
    ] = False,
    incumbent: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A known solution that the result must not be worse than: what --json wrote.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Draw the trade-off of --pareto to a file.", show_default=False
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the results to a file; - is standard output, without tables.",
            show_default=False,
        ),
    ] = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Extract the cheapest graph from an e-graph, with a bound on what is possible.

    Each class that the roots need is paid once, however many use it,
    and the choice has no cycle.

    The input is the extraction-gym's format. Besides its cost, which is
    the metric "cost", an e-node may have others and several implementations:
    "costs": {"time": 1.0, "energy": 2.0} and
    "implementations": a list of {"name": "fast", "costs": {...}}.

    The result has choices {class id: e-node id}, implementations, cost,
    lower_bound, gap, status, metrics and stages_s; that of a trade-off has
    one such object for each of its points, and that of a folder one for each
    file, by its relative path.
    """
    files = find_files(path)
    for target in (json, plot):
        check_writable(target, [file for _, file in files])
    search = {"time_limit_s": time_limit, "gap": gap, "seed": seed, "deterministic": deterministic}
    solve: Callable[[str, GymFile, Tell], FileOutcome]
    if pareto is None:
        if plot is not None:
            raise OptionError("--plot draws the trade-off of --pareto; name two metrics there")
        solve = _extractor(method, objective, limit or (), incumbent, search=search)
    else:
        from eqsat_opt.cli.extract.pareto import trader

        for given, option in (
            (objective, "--objective"),
            (incumbent, "--incumbent"),
            (method != "auto", "--method"),
        ):
            if given:
                raise OptionError(f"{option} has no meaning for a trade-off; leave it out")
        if plot is not None and len(files) > 1:
            raise OptionError("--plot draws one e-graph; name its file instead of the folder")
        solve = trader(pareto, limit or (), points, search, plot=plot)
    outcomes, interrupted = run_all(files, solve, quiet=quiet)
    if json is not None and (outcomes or not interrupted):
        write_json(results(path, outcomes), json)
        if json != "-":
            context.ensure_object(Session).written = json
    if outcomes and not quiet and json != "-":
        if pareto is None:
            from eqsat_opt.cli.extract.table import print_solved as show
        else:
            from eqsat_opt.cli.extract.pareto import print_fronts as show
        show(output_console(), outcomes)
    if interrupted:
        raise KeyboardInterrupt
    complain(outcomes)


def _extractor(
    method: str,
    objective: str | None,
    limits: Sequence[str],
    incumbent: str | None,
    search: Mapping[str, Any],
) -> Callable[[str, GymFile, Tell], FileOutcome]:
    """Return the function that solves each file; ``search`` has further options of an extractor.

    Raises:
        OptionError: the method is unknown.
    """
    from eqsat_opt.cli.extract.table import SolvedFile
    from eqsat_opt.extract import EXTRACTORS
    from eqsat_opt.extract.extractors import best_greedy
    from eqsat_opt.extract.gym.result import read_choice, result_json
    from eqsat_opt.extract.spec import parse_objective

    if method not in EXTRACTORS:
        raise OptionError(f"unknown method {method!r}; choose from {', '.join(EXTRACTORS)}")

    def solve(name: str, file: GymFile, tell: Tell) -> FileOutcome:
        def progress(point: TracePoint) -> None:
            tell(f"{point.stage}, cost {point.cost:.7g}, bound {point.lower_bound:.7g}")

        text = default_objective(file) if objective is None else objective
        aim = parse_objective(text, limits)
        known = None if incumbent is None else read_choice(incumbent, file, aim, entry=name)
        tell("greedy")
        greedy = best_greedy(file.problem, aim)
        start_s = perf_counter()
        found = EXTRACTORS[method].run(
            file.problem,
            aim,
            incumbent=known,
            interruptible=True,
            progress=progress,
            **search,
        )
        time_s = perf_counter() - start_s
        found.check(file.problem)
        return SolvedFile(
            name=name,
            n_nodes=file.problem.n_nodes,
            n_classes=file.problem.n_classes,
            extraction=found,
            named=result_json(file, found),
            greedy_cost=greedy,
            time_s=time_s,
            aim=(text, *limits),
        )

    return solve
