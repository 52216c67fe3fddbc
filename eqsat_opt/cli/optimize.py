"""`eqsat-opt optimize`: the main job."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.automation.data import Calibration, Input, InputData, Quality
from eqsat_opt.cli.automation.decisions import CertificateFile, Race, Replay, SaveDecisions
from eqsat_opt.cli.automation.many import Cluster, Resume, Workers, is_many, optimize_many
from eqsat_opt.cli.automation.thresholds import MinSpeedup, require_race, require_speedup
from eqsat_opt.cli.pages import check_page, write_result_page
from eqsat_opt.cli.session import (
    Session,
    check_writable,
    output_console,
    print_advice,
    print_rule_notes,
    print_warnings,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort import NAME as ORT

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat_opt.pipeline.report.report import Report

__all__ = ["optimize_model"]


def optimize_model(
    context: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="An ONNX file, zoo:NAME or zoo:NAME@tiny; or several files, a folder or a "
            "pattern, of which each model gets a line.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write; by default NAME.opt.onnx beside the model. "
            "- is standard output, and tables go to standard error.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the output replace the model itself.")
    ] = False,
    target: a.Target = Options.target,
    precision: a.Precision = Options.precision,
    objective: a.Objective = "time",
    limit: a.Limit = None,
    energy_model: a.EnergyModel = None,
    rules: a.Rules = Options.rules,
    numerics: a.Numerics = Options.numerics,
    effort: a.Effort = Options.effort,
    budget: a.Budget = None,
    input_shape: a.InputShape = None,
    fix_shape: a.FixShape = None,
    input_data: InputData = None,
    input_: Input = None,
    threads: a.Threads = Options.threads,
    nodes: a.Nodes = Options.nodes,
    check: a.Check = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 2 and write nothing if a candidate fails the check, instead of "
            "dropping it with a warning.",
        ),
    ] = False,
    race: Race = None,
    no_measure: a.NoMeasure = False,
    alternatives: a.Alternatives = None,
    deadline: a.Deadline = Options.deadline_s,
    seed: a.Seed = Options.seed,
    store: a.Store = None,
    custom_ops: a.CustomOps = None,
    backends: a.Backends = ORT,
    tuned: Annotated[
        str | None,
        typer.Option(
            "--tuned",
            metavar="FILE",
            help="Also write the form that runs fastest on this machine: with kernels of our own, "
            "a setting of onnxruntime, or by another runtime.",
            show_default=False,
        ),
    ] = None,
    runtimes: Annotated[
        str | None,
        typer.Option(
            "--runtimes",
            metavar="LIST",
            help="What may run the tuned form: ort and others that are installed (openvino), with "
            "commas; by default all of them.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Also write a plan of the result: who runs which kernel, in which memory and "
            "order; eqsat-opt run runs it.",
            show_default=False,
        ),
    ] = None,
    max_error: Annotated[
        float,
        typer.Option(
            "--max-error",
            metavar="SHARE",
            help="How far outputs of the tuned form, or of low precision, may be from the "
            "original's, as a share of the maximum of each; 0 allows no kernel that rounds "
            "otherwise.",
        ),
    ] = Options.max_error,
    quality: Quality = None,
    calibration: Calibration = None,
    streams: a.Streams = Options.streams,
    save_decisions: SaveDecisions = None,
    replay: Replay = None,
    certificate: CertificateFile = None,
    min_speedup: MinSpeedup = None,
    resume: Resume = False,
    workers: Workers = 1,
    cluster: Cluster = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Do everything but write the result; reports are written."),
    ] = False,
    json: a.Json = None,
    html: a.Html = None,
    quiet: a.Quiet = False,
    verbose: a.Verbose = False,
    debug: a.Debug = False,
) -> None:
    """Optimise a model; the original is written where nothing faster is found."""
    options = a.make_options(context)
    from eqsat_opt import api

    require_race(min_speedup, options)
    if is_many(models):
        optimize_many(
            context,
            models,
            options,
            output=output,
            resume=resume,
            workers=workers,
            cluster=cluster,
            min_speedup=min_speedup,
            json=json,
            quiet=quiet,
        )
        return
    if resume or cluster or workers != 1:
        raise OptionError("--resume, --workers and --cluster are for many models; give a folder")
    (model,) = models
    if dry_run:
        _check_dry(tuned, plan, save_decisions, certificate)
    file = api.default_output(model) if output is None else output
    is_stream = file == "-" and not dry_run
    if is_stream:
        _check_stream(json)
    written = tuple(
        one for one in (file, tuned, plan, save_decisions, certificate) if one is not None
    )
    check_writable(json, chain(written, api.files_of(model)), noun="a file of the model")
    a.keep_inputs((json, html, *written), target, energy_model, replay, input_data, calibration)
    check_page(html, (*written, json), model)
    if save_decisions is not None:
        a.require_file("--save-decisions", save_decisions, file, tuned, plan, html, json)
    if certificate is not None:
        others = (file, tuned, plan, html, json, save_decisions)
        a.require_file("--certificate", certificate, *others)
    place = typer.get_binary_stream("stdout") if is_stream else file
    where = "standard output" if is_stream else file
    session = context.ensure_object(Session)
    with stage_progress(quiet) as shown:

        def progress(stage: str, detail: str) -> None:
            if stage in (api.TUNING, api.PLANNING):  # the portable result is written already
                session.written = where
            shown(stage, detail)

        result = api.run(
            model,
            options,
            output=None if dry_run else place,
            progress=progress,
            started_s=session.started_s,
        )
    report = result.report
    session.written = "" if dry_run else where
    if json is not None:
        write_json(report.to_json(), json)
    write_result_page(result, html)
    if not quiet and json != "-":
        console = output_console(stderr=is_stream)
        _print_report(console, report, verbose=verbose)
        for hint in report.hints[:1] if json is None else ():
            _print_row(console, "next", hint.text(session.command))
        _print_row(console, "written", _done_text(report, where, dry_run=dry_run))
    else:
        print_warnings(report.warnings)
        print_advice(report.advice)
        print_rule_notes(tables=False)
    require_speedup(report, min_speedup)


def _print_report(console: Console, report: Report, *, verbose: bool) -> None:
    from eqsat_opt.pipeline.report.summary import summary
    from eqsat_opt.pipeline.report.tables import tables

    for part in summary(report):
        console.print(part)
    if verbose:
        for part in ("", *tables(report)):
            console.print(part)
    for warning in report.warnings:
        console.print(f"warning: {warning}", style="bold red")
    for note in (*report.notes, *(report.details if verbose else ())):
        console.print(f"note: {note}", style="yellow")


def _print_row(console: Console, title: str, text: str) -> None:
    """Print a row that can be copied: only the terminal breaks it."""
    from rich.text import Text

    from eqsat_opt.pipeline.report.summary import TITLE_WIDTH

    console.print(Text.assemble((f"{title:{TITLE_WIDTH}}", "dim"), f"  {text}"), soft_wrap=True)


def _done_text(report: Report, where: str, *, dry_run: bool) -> str:
    """Return what became of the output, for the last line."""
    what = " (the original)" if report.winner == "original" else ""
    if dry_run:
        return f"nothing, as --dry-run asks; the result is for {where}{what}"
    return f"nothing: {where} is left as it was" if report.is_in_place else f"{where}{what}"


def _check_dry(
    tuned: str | None, plan: str | None, decisions: str | None, certificate: str | None
) -> None:
    """Check that no file is asked for but that of the JSON.

    Raises:
        OptionError: a form of the result is made only by writing it.
    """
    asked = {
        "--tuned": tuned,
        "--plan": plan,
        "--save-decisions": decisions,
        "--certificate": certificate,
    }
    for option, file in asked.items():
        if file is not None:
            raise OptionError(
                f"--dry-run writes nothing, and {option} {file} asks for a file; "
                "leave one of them out"
            )


def _check_stream(json: str | None) -> None:
    """Check that standard output is no terminal and takes the model and nothing else.

    Raises:
        OptionError: it takes the JSON too, or is a terminal.
    """
    if json == "-":
        raise OptionError("-o - and --json - both mean standard output; give one of them a file")
    if sys.stdout.isatty():
        raise OptionError("-o - would write the model to the terminal; redirect it or name a file")
