"""`eqsat-opt rules generate`: rules that a machine finds, as a rulebook with certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, stage_progress, write_json
from eqsat_opt.errors import OptionError

__all__ = ["generate_rules"]

_MOST_SIZE = 4


def generate_rules(
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE.py", help="The rulebook to write.", show_default=False
        ),
    ],
    ops: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Operators, separated by commas."),
    ] = "add,mul,matmul,transpose,concat,slice,relu,conv",
    size: Annotated[int, typer.Option(metavar="1|2|3|4", help="Operators of a side at most.")] = 3,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the values at which terms are compared.")
    ] = 0,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Enumerate terms, and write the equations between them that are proven and independent."""
    from eqsat_opt.common.files import write_whole
    from eqsat_opt.lab.generation.generate import generate
    from eqsat_opt.proving.certificates.certificate import certificates_beside, write_certificates

    path = Path(output)
    if path.suffix != ".py":
        raise OptionError(f"-o {output} is no rulebook; give a name that ends in .py")
    if not 1 <= size <= _MOST_SIZE:
        raise OptionError(f"--size {size} is not supported; give 1 to {_MOST_SIZE}")
    beside = certificates_beside(path)
    check_writable(output)
    check_writable(str(beside))
    check_writable(json, (output, str(beside)))
    names = [name.strip() for name in ops.split(",") if name.strip()]
    with stage_progress(quiet or json == "-") as show:
        found = generate(
            names, size, seed, lambda done, of, what: show(f"{done} of {of}", f"candidates: {what}")
        )
    command = f"eqsat-opt rules generate --ops {','.join(names)} --size {size} --seed {seed}"
    about = f"Rules that were found by enumeration.\n\n{command}\n"
    write_whole(path, found.source(about).encode())
    write_certificates(beside, [one.certificate for one in found.kept])
    if json is not None:
        write_json(found.to_json(), json)
    if not quiet and json != "-":
        console = output_console()
        for one in found.kept:
            console.print(f"{one.rule.name}: {one.rule}", markup=False, soft_wrap=True)
        console.print(found.summary, markup=False, soft_wrap=True)
        console.print(f"written to {path} and {beside}", markup=False, soft_wrap=True)
