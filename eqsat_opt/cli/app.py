"""The application: its commands, and the report of errors.

An error is one line on standard error and an exit code. Usage errors exit with 1 instead of the
customary 2, which means that a check failed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from eqsat_opt import __version__
from eqsat_opt.cli.session import Session
from eqsat_opt.cli.signals import ended_by, ending_signals
from eqsat_opt.cli.streams import leave_pipe, prepare_streams
from eqsat_opt.errors import EqsatError, printable

__all__ = ["application", "run"]

_NAME = "eqsat-opt"
_COMPLETION = "_EQSAT_OPT_COMPLETE"
# typer exports only some of the usage errors, so their common base is taken from one.
_USAGE_ERROR = typer.BadParameter.__bases__[0]

_COMMANDS = {
    "optimize": "optimize:optimize_model",
    "explain": "explain:explain_model",
    "bench": "bench:bench_models",
    "inspect": "models.inspect:inspect_model",
    "diff": "models.diff:diff_models",
    "certify": "models.certify:certify_result",
    "reduce": "models.reduce:reduce_model",
    "train-graph": "models.training:write_training_graph",
    "compare": "compare.compare:compare_methods",
    "extract": "extract.extract:extract_egraphs",
    "run": "run:run_plan",
    "schema": "automation.schema:print_schema",
    "doctor": "doctor:diagnose",
    "table": "automation.markdown:print_table",
}
"""Name of a command to its function, as `module:function` in this folder."""

_GROUPS = {
    "devices": "devices:app",
    "plan": "plan:app",
    "profile": "profile:app",
    "rules": "rules.rules:app",
    "zoo": "zoo:app",
}
"""Name of a group of commands to its application."""


def application(name: str | None = None) -> typer.Typer:
    """Return the application with one command or group, or with all if no such name is given.

    To import and inspect all commands takes a tenth of a second, which is long for some of them.
    """
    made = typer.Typer(
        name=_NAME,
        help="Equality saturation for ONNX models: faster, checked, and never slower than "
        "measured.",
        no_args_is_help=False,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    made.callback(invoke_without_command=True)(_root)
    is_known = name in _COMMANDS or name in _GROUPS
    for command, place in _COMMANDS.items():
        if command == name or not is_known:
            made.command(command)(_found(place))
    for group, place in _GROUPS.items():
        if group == name or not is_known:
            made.add_typer(_found(place), name=group)
    return made


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"eqsat_opt.cli.{module}"), name)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{_NAME} {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None = None, started_s: float | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: the arguments; ``None`` for those of the process.
        started_s: when the command started, on the monotonic clock; ``None`` means now.
    """
    owns_process = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    session = Session(debug="--debug" in arguments, command=(_NAME, *arguments))
    session.started_s = session.started_s if started_s is None else started_s
    try:
        with ending_signals(session, owns_process=owns_process):
            return _run(arguments, session)
    except KeyboardInterrupt as error:  # before or after the command
        return _failed(error, session)


def _run(arguments: Sequence[str], session: Session) -> int:
    if session.debug:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.getLogger("eqsat_opt").addHandler(logging.NullHandler())
    try:
        if _COMPLETION in os.environ:  # a shell asks what may follow
            get_command(application()).main([], prog_name=_NAME, complete_var=_COMPLETION)
        command = get_command(application(arguments[0] if arguments else None))
        with command.make_context(_NAME, list(arguments), obj=session) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # rich raises this on a closed pipe
        return end.code if isinstance(end.code, int) else 1
    except BrokenPipeError:
        return leave_pipe()
    except BaseException as error:
        return _failed(error, session)
    return 0


def _failed(error: BaseException, session: Session) -> int:
    if session.debug:
        traceback.print_exception(error)
    message, code = _verdict(error, session)
    with contextlib.suppress(OSError):  # a full disk cannot take the message either
        sys.stderr.write(f"error: {printable(message)}\n")
    return code


def _verdict(error: BaseException, session: Session) -> tuple[str, int]:
    """Return the message for an error, and the exit code."""
    if isinstance(error, EqsatError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt) and session.signal:
        return f"{ended_by(session.signal)}; {session.outcome}", 128 + session.signal
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted; {session.outcome}", 1
    if isinstance(error, MemoryError):
        return (
            f"out of memory; {session.outcome}; try a smaller model or rule, "
            "or fewer e-nodes with --nodes where a graph is searched"
        ), 1
    if isinstance(error, _USAGE_ERROR):
        return _usage_text(error), 1
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; {session.outcome}", 1
    detail = str(error) or "no details"
    return (
        f"unexpected {type(error).__name__}: {detail}; {session.outcome}; "
        "run again with --debug and report the traceback"
    ), 1


def _usage_text(error: BaseException) -> str:
    text = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _NAME
    return f"{text} See {path} --help" if text.endswith("?") else f"{text}; see {path} --help"
