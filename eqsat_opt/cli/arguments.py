"""Arguments that several commands share, and their conversion to `Options`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Annotated

import typer

from eqsat_opt.cli.automation.data import parse_inputs
from eqsat_opt.common.paths import same_file
from eqsat_opt.cost.metrics import metric_names
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.options import Options

__all__ = [
    "Alternatives",
    "Backends",
    "Budget",
    "Check",
    "CustomOps",
    "Deadline",
    "Debug",
    "Effort",
    "EnergyModel",
    "FixShape",
    "Html",
    "InputShape",
    "Json",
    "Limit",
    "Model",
    "NoMeasure",
    "Nodes",
    "Numerics",
    "Objective",
    "Precision",
    "Quiet",
    "Rules",
    "Seed",
    "Store",
    "Streams",
    "Target",
    "Threads",
    "Verbose",
    "keep_inputs",
    "make_options",
    "parse_fixed",
    "parse_shapes",
    "require_file",
    "show_help",
]

_FIELDS = {
    "limit": "limits",
    "budget": "budget_s",
    "deadline": "deadline_s",
    "save_decisions": "decisions",
}
"""Fields of `Options` by the name of the command-line option, where the names differ."""

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="An ONNX file, or zoo:NAME or zoo:NAME@tiny.", show_default=False
    ),
]
OBJECTIVES = (
    f"What to minimise: {', '.join(metric_names())}, time+1e-6*flops, "
    "time+0.25*critical_path(time), time*bytes or bytes/flops"
)
Objective = Annotated[str, typer.Option(metavar="TEXT", help=f"{OBJECTIVES}.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LIMIT",
        help="Largest total (bytes=1e9), longest chain (critical_path(time)=2) or largest value "
        "of one kernel (max(bytes)=1e6), as predicted; repeatable.",
        show_default=False,
    ),
]
Rules = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="default, none, families or rules, -NAME to leave one out, a published set (metaflow, "
        "taso, ocggs), a rulebook file or an installed rulebook; separated by commas.",
    ),
]
Numerics = Annotated[
    str,
    typer.Option(
        metavar="CLASS",
        help="How far results may move: bitexact, reassociate (the default for this processor), "
        "finite (for other devices), refactor or relaxed, and after a "
        "comma approximate, which permits low precision within --max-error; "
        "rules and rulebooks that --rules names run whatever their class.",
    ),
]
Effort = Annotated[
    str,
    typer.Option(
        metavar="LEVEL",
        help="quick (2 s, measures nothing), normal (30 s) or max (300 s, for proofs): the default "
        "of --budget, --check, --alternatives, measuring and racing.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Seconds for everything from loading to writing; by default the effort's.",
        show_default=False,
    ),
]
InputShape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:SIZES",
        help="Shape of an input (x:1,3,224,224) or size of a symbolic dimension (N:8); repeatable. "
        "A name given again starts the next set of sizes (N:1 N:8), and a win must hold on each.",
        show_default=False,
    ),
]
FixShape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:SIZES",
        help="Size of a symbolic dimension (N:1) or shape of an input that becomes a literal of "
        "the written model, which is folded for it; repeatable.",
        show_default=False,
    ),
]
Threads = Annotated[
    int, typer.Option(metavar="N", help="Threads per session; 0 is one per usable core.")
]
Nodes = Annotated[int, typer.Option(metavar="N", help="Limit on e-nodes.")]
Check = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Random inputs on which outputs are compared; 0 trusts the rules.",
        show_default=False,
    ),
]
NoMeasure = Annotated[
    bool, typer.Option("--no-measure", help="Price kernels by their analytic bound only.")
]
Alternatives = Annotated[
    int | None,
    typer.Option(metavar="K", help="Further candidates that join the race.", show_default=False),
]
Deadline = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Hard limit on saturation, kept by a child process; 0 is none."
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of inputs, search and running order.")]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Profile store instead of the user's own; an empty string keeps nothing.",
        show_default=False,
    ),
]
StoreShown = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE", help="The store, if not the user's own.", show_default=False
    ),
]
Target = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="cpu, or the profile of a device that need not be here: its prices are analytic, and "
        "nothing is raced.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of a GPU that is the target: strict-fp32, tf32 (libraries may round factors) or fp16 "
        "(what can be is computed in float16).",
    ),
]
EnergyModel = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A model of energy, JSON: static_w, pj_per_flop by precision, pj_per_byte and source, "
        "and of_algorithm for what some need of both; it prices energy in place of a meter.",
        show_default=False,
    ),
]
Streams = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Streams on which kernels could run side by side: with several, the report tells the "
        "longest chain of kernels and the end of a schedule.",
    ),
]
Backends = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Whose kernels may be chosen: ort and others that are installed, with commas.",
    ),
]
CustomOps = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LIBRARY",
        help="A library of operators of your own, built for onnxruntime; repeatable.",
        show_default=False,
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write all numbers to a file; - is standard output, without tables.",
        show_default=False,
    ),
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write a page for a browser, which loads nothing: times, both graphs, kernels, "
        "rules.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also print all numbers below the report."),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show log messages, and the traceback of an error.")
]


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands that is called without a command; it is no error."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def keep_inputs(written: Iterable[str | None], *read: str | None) -> None:
    """Refuse to overwrite files that are read.

    Args:
        written: files to write; ``None`` and ``-`` are no files.
        read: values that may be names of files to read, such as a target.

    Raises:
        OptionError: a file is both read and written.
    """
    files = [one for one in read if one and os.path.exists(one)]
    for path in written:
        if path not in (None, "-") and any(same_file(path, one) for one in files):
            raise OptionError(f"{path} is what is read; give another name")


def require_file(option: str, path: str, *others: str | None) -> None:
    """Refuse standard output, or a file that is written already, where a file of its own belongs.

    Args:
        option: option that names the file.
        path: the file.
        others: other files to write; ``None`` and ``-`` are no files.

    Raises:
        OptionError: the path is no file of its own.
    """
    if path == "-":
        raise OptionError(f"{option} needs a file; give it a name")
    if any(same_file(path, one) for one in others if one not in (None, "-")):
        raise OptionError(f"{path} is written already; give {option} another name")


def make_options(context: typer.Context) -> Options:
    """Return options from the values of a command line; options that it lacks keep their defaults.

    Raises:
        OptionError: a value has no meaning.
    """
    given = {_FIELDS.get(name, name): value for name, value in context.params.items()}
    for name in ("limits", "custom_ops"):
        given[name] = given.get(name) or ()
    for negated, name in (("no_measure", "measure"), ("no_race", "race")):
        given.setdefault(name, False if given.get(negated) else None)
    given["shapes"] = parse_shapes(given.pop("input_shape", None) or ())
    given["fixed"] = parse_fixed(given.pop("fix_shape", None) or ())
    given["inputs"] = parse_inputs(given.pop("input_", None) or ())
    for name in ("backends", "runtimes"):
        if given.get(name) is not None:
            given[name] = [one.strip() for one in given[name].split(",")]
    return Options(**{one.name: given[one.name] for one in fields(Options) if one.name in given})


def parse_fixed(texts: Sequence[str]) -> dict[str, tuple[int, ...] | int]:
    """Parse the values of `--fix-shape`, in which each name may occur once.

    Raises:
        OptionError: a text has another form, or a name is given twice.
    """
    first, *others = parse_shapes(texts, "--fix-shape")
    if others:
        raise OptionError(
            f"--fix-shape gives {next(iter(others[0]))!r} twice; a fixed size is one for good, and "
            "--input-shape takes several sets"
        )
    return first


def parse_shapes(
    texts: Sequence[str], option: str = "--input-shape"
) -> list[dict[str, tuple[int, ...] | int]]:
    """Parse shapes and sizes into sets: `x:1,3,224,224` is a shape, `N:8` a size.

    `x:8,` is the shape of a vector. A name that the current set already has starts the next set.

    Raises:
        OptionError: a text has another form, or the sets have different names.
    """
    sets: list[dict[str, tuple[int, ...] | int]] = [{}]
    for text in texts:
        name, colon, sizes = text.rpartition(":")  # names of inputs may hold colons
        parts = sizes.removesuffix(",").split(",")
        if not (name and colon and all(part.strip().isdecimal() for part in parts)):
            raise OptionError(
                f"{option} {text!r} is not NAME:SIZES; write for instance x:1,3,224,224 or N:8"
            )
        if name in sets[-1]:
            sets.append({})
        numbers = tuple(int(part) for part in parts)
        sets[-1][name] = numbers if "," in sizes else numbers[0]
    for number, one in enumerate(sets[1:], start=2):
        if odd := sorted(one.keys() ^ sets[0].keys()):
            raise OptionError(
                f"--input-shape gives {odd[0]!r} in some sets of sizes only (see set {number}); a "
                "name given again starts the next set, and each set names the same"
            )
    return sets
