"""`eqsat-opt rules`: list rules and their certificates, verify them, and admit new ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.rules.check import check_evidence
from eqsat_opt.cli.rules.foreign import import_foreign
from eqsat_opt.cli.rules.generate import generate_rules
from eqsat_opt.cli.rules.operators import show_operators
from eqsat_opt.cli.rules.table import (
    level_of,
    outcomes_json,
    print_imported,
    print_outcomes,
    print_standings,
    standing_json,
)
from eqsat_opt.cli.rules.trial import try_rules
from eqsat_opt.cli.rules.workers import checked_jobs, workers
from eqsat_opt.cli.session import (
    check_writable,
    make_folder,
    output_console,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import OptionError, RuleError, or_nearest

if TYPE_CHECKING:
    from eqsat_opt.lab.certification import RuleOutcome
    from eqsat_opt.proving.evidence.files import Emission
    from eqsat_opt.rules.rule import Rule

__all__ = ["app"]

app = typer.Typer(help="List, show, verify or import rewrite rules.", no_args_is_help=False)


app.callback(invoke_without_command=True)(a.show_help)


# list and show ----------------------------------------------------------------------------------


app.command("try")(try_rules)
app.command("operators")(show_operators)
app.command("check")(check_evidence)
app.command("generate")(generate_rules)


@app.command("list")
def _list(
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this family.", show_default=False),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            metavar="0|1|2|3",
            help="Only rules certified at this level; 0 for those left out.",
            show_default=False,
        ),
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only this phase, such as recognise.", show_default=False
        ),
    ] = None,
    numerics: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Only this class of numerics.", show_default=False),
    ] = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """List the rules of the book with their certificates; all given filters apply."""
    from eqsat_opt.lab.certification import LEVELS
    from eqsat_opt.proving.selection import standings
    from eqsat_opt.rules.library import FAMILIES
    from eqsat_opt.rules.rule import Numerics, Phase

    _one_of(family, FAMILIES, "family")
    _one_of(phase, [str(one) for one in Phase], "phase")
    _one_of(numerics, [one.name.lower() for one in Numerics], "class of numerics")
    if level is not None and level not in (0, *LEVELS):
        raise OptionError(f"--level {level} does not exist; give 0, 1, 2 or 3")
    check_writable(json)
    shown = [
        one
        for one in standings().values()
        if family in (None, one.rule.family)
        and level in (None, level_of(one) or 0)
        and phase in (None, one.rule.phase)
        and numerics in (None, one.rule.numerics.name.lower())
    ]
    if json is not None:
        write_json({"rules": [standing_json(one) for one in shown]}, json)
    if json == "-":
        return
    print_standings(shown)


def _one_of(given: str | None, known: Iterable[str], what: str) -> None:
    if given is not None and given not in known:
        raise RuleError(f"there is no {what} {given!r}; {or_nearest(given, known)}")


@app.command("show")
def _show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A rule or a family.", show_default=False)
    ],
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show the equation, conditions, certificate and numerics of a rule."""
    from eqsat_opt.proving.describe import certificate_text, describe
    from eqsat_opt.proving.selection import standings
    from eqsat_opt.rules.library import named_rules

    check_writable(json)
    shown = [standings()[rule.name] for rule in named_rules(name)]
    if json is not None:
        write_json({"rules": [standing_json(one) for one in shown]}, json)
    if json == "-":
        return
    texts = []
    for one in shown:
        text = f"{describe(one.rule)}\n{certificate_text(one.certificate, one.obstacle)}"
        if one.obstacle:
            text += f"\n  eqsat-opt rules verify {one.rule.name} --write certifies it"
        texts.append(text)
    console = output_console()
    for line in "\n\n".join(texts).splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines = wrap(line, console.width, subsequent_indent=indent, break_on_hyphens=False)
        console.print("\n".join(lines), markup=False, soft_wrap=True)


# verify -----------------------------------------------------------------------------------------


def _chosen(names: Sequence[str]) -> list[Rule]:
    from eqsat_opt.rules.library import FAMILIES, named_rules

    chosen = [rule for name in names or FAMILIES for rule in named_rules(name)]
    return list({rule.name: rule for rule in chosen}.values())


def _run(
    rules: Sequence[Rule],
    level: int,
    jobs: int,
    quiet: bool,
    *,
    emission: Emission | None = None,
) -> list[RuleOutcome]:
    from eqsat_opt.lab.certification import verify
    from eqsat_opt.proving.selection import book_certificates
    from eqsat_opt.rules.library import FAMILIES, families

    known = {
        name: one for f in FAMILIES for name, one in book_certificates(f, strict=False).items()
    }
    # Derivations rest on rules that need not be verified now.
    proven = [
        rule
        for family in families().values()
        for rule in family
        if rule.name in known and known[rule.name].level == 2
    ]
    jobs = min(checked_jobs(jobs), len(rules))
    chosen = {rule.name for rule in rules}
    axioms = None if len(chosen) >= len(proven) else proven
    with stage_progress(quiet) as show, workers(jobs) as executor:
        return verify(
            rules, level=level, executor=executor, known=known, axioms=axioms, emission=emission,
            progress=lambda done, of, what: show(f"{done} of {of}", what),
        )  # fmt: skip


@app.command("verify")
def _verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Rules or families; all without.", show_default=False
        ),
    ] = None,
    level: Annotated[
        int,
        typer.Option(metavar="1|2|3", help="Exact at instances, proven, or derived as well."),
    ] = 3,
    write: Annotated[
        bool, typer.Option("--write", help="Write the certificates beside the books.")
    ] = False,
    emit: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write what each proof rests on into this folder, for `rules check`: a trace and "
            "the claims in SMT-LIB.",
            show_default=False,
        ),
    ] = None,
    lean: Annotated[
        bool, typer.Option("--lean", help="With --emit: the statements in Lean 4 as well.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes; 0 is one per usable core.")
    ] = 0,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Verify rules of the book again, and report what is wrong with each that fails."""
    from time import perf_counter

    from eqsat_opt.lab.certification import LEVELS, write_book
    from eqsat_opt.proving.evidence.files import Emission, write_contents

    if level not in LEVELS:
        raise OptionError(f"--level {level} does not exist; give 1, 2 or 3")
    if lean and emit is None:
        raise OptionError("--lean writes statements beside other evidence; give --emit DIR too")
    if emit is not None and level == 1:
        raise OptionError("--emit writes what proofs rest on; leave out --level 1")
    check_writable(json)
    rules = _chosen(names or ())
    emission = None
    if emit is not None:
        make_folder(emit)
        emission = Emission(emit, lean)
    start = perf_counter()
    outcomes = _run(rules, level, jobs, quiet or json == "-", emission=emission)
    taken = perf_counter() - start
    if emit is not None:
        proven = [o.rule.name for o in outcomes if o.certificate and o.certificate.level == 2]
        write_contents(proven, emit)
    written = write_book(outcomes) if write else []
    if json is not None:
        write_json(outcomes_json(outcomes, taken, written), json)
    if not quiet and json != "-":
        print_outcomes(outcomes, taken, written)
    _fail_if_refused(outcomes)


def _fail_if_refused(outcomes: Sequence[RuleOutcome]) -> None:
    refused = [one for one in outcomes if not one.passed]
    if not refused:
        return
    first = refused[0]
    if first.error is not None:
        more = f" ({len(refused)} rules were refused)" if len(refused) > 1 else ""
        raise type(first.error)(f"{first.error}{more}", first.error.refutation)
    raise RuleError(
        f"rule {first.rule.name} holds in floating point, but no exact method confirms it; "
        "it stays out of the default set"
    )


# import -----------------------------------------------------------------------------------------


@app.command("import")
def _import(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A rulebook (.py), TASO's rules (.pb), or rules of another system.",
            show_default=False,
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="rulebook, taso, tensat or tensorright, where the name of the file does not tell.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            metavar="1|2",
            help="Exact at instances (the default for .py), or proven for all sizes where it can.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Keep the certificates of a .py rulebook beside it."),
    ] = False,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes; 0 is one per usable core.")
    ] = 0,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Print each rule of a file with the verdict of the gate; exit code 1 if it refuses one."""
    from eqsat_opt.lab.imports.formats import format_of
    from eqsat_opt.proving.admission import check_claims, claims_beside
    from eqsat_opt.proving.certificates.cache import keep
    from eqsat_opt.proving.certificates.certificate import certificates_beside, write_certificates
    from eqsat_opt.rules.library import read_users_rules

    if level not in (None, 1, 2):
        raise OptionError(f"--level {level} does not exist; give 1 or 2")
    check_writable(json, (file, certificates_beside(Path(file))))
    path = Path(file)
    kind = format_of(path, format_name)
    if kind != "rulebook":
        if write:
            raise OptionError("--write keeps certificates of .py rulebooks only; leave it out")
        if level is not None:
            raise OptionError(
                "--level is for .py rulebooks; rules of other systems are derived or proven where "
                "they can be; leave it out"
            )
        if kind == "taso":
            _classify(path, json, quiet)
        else:
            import_foreign(path, kind, jobs, json=json, quiet=quiet)
        return
    rules = read_users_rules(file)
    beside = certificates_beside(path)
    if write:
        check_writable(str(beside))
    # With --write the file of certificates is replaced. Otherwise they are claims, compared below.
    claims = {} if write else claims_beside(beside, rules)
    claimed = max((one.level for one in claims.values()), default=1)
    outcomes = _run(rules, min(max(level or 1, claimed), 2), jobs, quiet or json == "-")
    earned = [o.certificate for o in outcomes if o.passed and o.certificate is not None]
    for outcome in outcomes:
        if outcome.passed and outcome.certificate is not None:
            keep(outcome.rule, outcome.certificate)
    all_passed = len(earned) == len(outcomes)
    written = [str(beside)] if write and all_passed else []
    if written:
        write_certificates(beside, earned)
    if json is not None:
        write_json(outcomes_json(outcomes, sum(o.time_s for o in outcomes), written), json)
    if not quiet and json != "-":
        print_imported(outcomes)
        for name in written:
            typer.echo(f"certificates written to {name}")
    _fail_if_refused(outcomes)
    note = "" if write else check_claims(beside, claims, rules, earned)
    if note:
        output_console(stderr=True).print(f"note: {note}", style="yellow", markup=False)


def _classify(path: Path, json: str | None, quiet: bool) -> None:
    """Derive TASO's rules from ours or refute them, and show each with its status.

    Raises:
        RuleError: a rule is not derived.
    """
    from eqsat_opt.lab.conformance import classify

    with stage_progress(quiet or json == "-") as show:
        found = classify(path, progress=lambda done, of, what: show(f"{done} of {of}", what))
    if json is not None:
        write_json(found.to_json(), json)
    if not quiet and json != "-":
        output_console().print(str(found), markup=False, soft_wrap=True)
    refused = [verdict for verdict in found.verdicts if verdict.status != "derived"]
    if refused:
        first = refused[0]
        where = f" at {first.refutation.line}" if first.refutation is not None else ""
        raise RuleError(
            f"{len(refused)} of {len(found.verdicts)} rules of {path} are refused, the first is "
            f"{first.rule.name}, {first.status}{where}; nothing was imported"
        )
