"""`eqsat-opt compare`: equality saturation compared with published searches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.compare.listing import show_listing
from eqsat_opt.cli.compare.sweep import sweep_cells
from eqsat_opt.cli.compare.table import print_comparison
from eqsat_opt.cli.plotting import check_plot
from eqsat_opt.cli.session import (
    check_writable,
    make_folder,
    output_console,
    print_notes,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import CheckFailed, OptionError, RuntimeFailed
from eqsat_opt.pipeline.options import Options

if TYPE_CHECKING:
    from eqsat_opt.lab.comparison import Comparison
    from eqsat_opt.lab.search import Level

__all__ = ["compare_methods"]


def compare_methods(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            help="An ONNX file, or zoo:NAME, zoo:NAME@tiny or zoo:NAME@n=4.",
            show_default=False,
        ),
    ] = "",
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Methods to run, separated by commas; --list names them.",
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
            help="Price kernels by the profile of a device, v100 for instance; local is this "
            "processor: its roofline, or what --measure tells.",
            show_default=False,
        ),
    ] = "",
    energy_model: a.EnergyModel = None,
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="What a graph costs: operators, each a kernel of its own; kernels, fused as the "
            "device can; or streams, on which these run side by side.",
        ),
    ] = "operators",
    objective: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help=f"{a.OBJECTIVES}; for searches also a Python function of totals, "
            "FILE.py:NAME(time, bytes).",
        ),
    ] = "time",
    limit: a.Limit = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure every operator instead of using its bound."),
    ] = False,
    placing: Annotated[
        str,
        typer.Option(
            "--backends",
            metavar="LIST",
            help="Whose fused kernels are measured with --measure: ort, native, generated, numpy, "
            "openvino, with commas, or all; by default ort, and all for collage. Most run on one "
            "thread.",
            show_default=False,
        ),
    ] = "",
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Runs of each method, with --seed and the numbers after it; medians are shown.",
        ),
    ] = 1,
    save: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the models that are found there, and all numbers.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Race the best model of each method against MODEL here, by onnxruntime; "
            "streams of local by a thread each.",
        ),
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw cost against CPU time, and the front of two metrics; needs matplotlib.",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Compute the cells (model, method, seed, device) of a TOML file, each stored.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a sweep: cells that are stored stay.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option(metavar="N", help="Cells of a sweep that are computed side by side."),
    ] = 1,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="A dask scheduler whose workers compute the cells of a sweep.",
            show_default=False,
        ),
    ] = "",
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="MODEL is one that --save wrote: price it anew, from the file alone.",
        ),
    ] = False,
    list_: Annotated[
        bool,
        typer.Option(
            "--list", help="Show methods, their parameters and sources, devices and rule sets."
        ),
    ] = False,
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
    """Run several optimisers with the same rules and prices.

    Each run has a process of its own, warmed up on a tiny model. Times are until a method ends; "as
    cheap after" is the time until it had a graph as cheap as the best of all other methods. The
    bound is for the graphs in the e-graph, where associativity and commutativity run for two
    rounds. The exit code is 1 if a method failed, and 2 if outputs differ.
    """
    if sweep is not None:
        for one in sweep_cells(
            context,
            sweep,
            resume=resume,
            save=save,
            workers=workers,
            cluster=cluster,
            json=json,
            quiet=quiet,
        ):
            _require_all(one)
        return
    if resume or cluster or workers != 1:
        raise OptionError("--resume, --workers and --cluster are for a sweep; add --sweep FILE")
    options = a.make_options(context)
    if list_:
        check_writable(json)
        show_listing(json, quiet=quiet)
        return
    if not model:
        raise OptionError("no model is given; name an ONNX file or zoo:NAME, see compare --help")
    if plot is not None:
        check_plot(plot)
    if verify:
        _verify(model)
        return
    from eqsat_opt import api
    from eqsat_opt.lab.comparison import CompareSettings, parse_budget

    if save is not None:
        make_folder(save)
    a.keep_inputs((json, plot), device, energy_model)
    for file in (json, plot):
        check_writable(file, api.files_of(model), noun="a file of the model")
    if plot is not None and json not in (None, "-"):
        check_writable(plot, [str(json)], noun="the JSON file of --json")
    settings = CompareSettings(
        _names(methods),
        _parameters(set_ or ()),
        budget=parse_budget(spend or ()),
        nodes=nodes,
        seed=seed,
        device=device,
        energy_model=energy_model or "",
        objective=objective,
        level=cast("Level", level),
        limits=tuple(limit or ()),
        measure=measure,
        backends=_names(placing),
        seeds=seeds,
    )
    # The settings hold the objective, which may be a function that no other command reads.
    options = replace(options, objective=Options.objective)
    with stage_progress(quiet) as progress:
        found = api.compare(model, options, settings, save=save, is_raced=run, progress=progress)
    if json is not None:
        write_json(found.to_json(), json)
    if plot is not None:
        from eqsat_opt.cli.compare.plot import draw_comparison

        draw_comparison(found, plot)
    tables = not quiet and json != "-"
    if tables:
        print_comparison(output_console(), found)
    print_notes(found.notes, tables=tables)
    _require_all(found)


def _names(given: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip())


def _require_all(found: Comparison) -> None:
    """Raise an error unless every run has a result that computes what the model does.

    Raises:
        CheckFailed: a result computes something else.
        RuntimeFailed: a run has no result.
    """
    wrong = next((result for result in found.results if result.why), None)
    if wrong is not None:
        raise CheckFailed(
            f"the result of {wrong.method} computes something else than {found.model}: "
            f"{wrong.why}; leave it out of --methods"
        )
    if found.failures:
        first = found.failures[0]
        raise RuntimeFailed(f"{first.method} failed on {found.model}: {first.why}")


def _verify(path: str) -> None:
    """Print the cost of a saved model, priced from the file alone.

    Raises:
        CheckFailed: the cost differs from the one in the metadata.
    """
    from eqsat_opt import api

    found = api.verify_saved(path)
    record = found.record
    what = f"{path}: {record['method']}, seed {record['seed']}, for {record['model']}"
    if not found.agrees:
        raise CheckFailed(f"{what} says a cost of {found.said:.9g}, but costs {found.found:.9g}")
    typer.echo(
        f"{what}: costs {found.found:.9g}, as it says; original {record['original_cost']:.9g}"
    )


def _parameters(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Parse the texts of `--set` into search to parameter to value; searches check the values.

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
