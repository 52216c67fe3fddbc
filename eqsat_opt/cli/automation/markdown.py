"""`eqsat-opt table`: reports as a table in Markdown, for a comment or a summary of a build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from eqsat_opt.cli.session import check_writable, write_text
from eqsat_opt.errors import OptionError

__all__ = ["print_table"]


def print_table(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What optimize --json wrote.", show_default=False)
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = "-",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print reports as a table in Markdown."""
    check_writable(output, [file])
    if os.path.isdir(file):
        raise OptionError(f"{file} is a folder; give the file that optimize --json wrote for it")
    from eqsat_opt.common.codecs import read_document

    document = read_document(file, "a report")
    found = document.get("models", [{"name": document.get("model"), "report": document}])
    try:
        text = "\n".join(_lines(found))
    except (AttributeError, KeyError, TypeError) as error:
        raise OptionError(
            f"{file} holds no reports; give what eqsat-opt optimize --json wrote"
        ) from error
    write_text(f"{text}\n", output)


def _lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| model | speedup | status | operators | weights | check |"
    yield "|---|---:|---|---:|---:|---|"
    for one in found:
        cells = _cells(one["report"]) if one["report"] else [one["error"], "", "", "", ""]
        yield f"| {' | '.join(map(_escaped, [str(one['name']), *cells]))} |"


def _cells(report: Mapping[str, Any]) -> list[str]:
    before, after = (sum(report["operators"][side].values()) for side in ("before", "after"))
    sizes = [report["metrics"][side].get("weight_bytes", 0) / 1e6 for side in ("before", "after")]
    agree = "agrees" if report["outputs"] else "not compared"
    return [
        f"{report['speedup']:.2f}x" if report["latency_us"] else "not raced",
        report["status"].replace("_", " "),
        f"{before} → {after}" if before != after else f"{before}",
        " → ".join(dict.fromkeys(f"{size:.2f} MB" for size in sizes)),
        agree if report["winner"] != "original" else "the original",
    ]


def _escaped(text: str) -> str:
    """Return a text as one cell: names of files may hold anything."""
    for mark in "\\`*_{}[]<>|#@~$&":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
