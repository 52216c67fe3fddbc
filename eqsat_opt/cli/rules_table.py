"""What `eqsat-opt rules` prints and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eqsat_opt.cli.session import output_console

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.certification import Outcome
    from eqsat_opt.rules.library import Standing
    from eqsat_opt.rules.rule import Rule

__all__ = [
    "outcomes_json",
    "print_imported",
    "print_outcomes",
    "print_standings",
    "standing_json",
]

_LEVELS = ("sampled", "exact at instances", "proven for all sizes", "derived from proven rules")
_LEAST_EQUATION = 30
"""Columns that an equation gets on a narrow terminal."""


def print_standings(shown: Sequence[Standing]) -> None:
    """A table of rules, what is certified in total, and what is left out."""
    console = output_console()
    console.print(_table(shown, console.width))
    console.print()
    console.print(_summary(shown), markup=False)
    for one in shown:
        if one.obstacle:
            console.print(f"{one.rule.name} is left out: {one.obstacle}", style="yellow")


def _summary(shown: Sequence[Standing]) -> str:
    from eqsat_opt.rules.rulebooks import installed_rulebooks

    good = [one.certificate for one in shown if not one.obstacle and one.certificate is not None]
    counts = [sum(one.level == level for one in good) for level in range(4)]
    parts = [f"{count} {text}" for count, text in zip(counts, _LEVELS, strict=True) if count]
    books = installed_rulebooks()
    more = f"; installed rulebooks: {', '.join(books)}" if books else ""
    return f"{len(shown)} rules: {', '.join(parts) or 'none certified'}{more}"


def _table(shown: Sequence[Standing], width: int) -> Table:
    from rich.table import Table

    titles = ("rule", "equation", "numerics", "level", "instances", "float32", "float16")
    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    names = max((len(one.rule.name) for one in shown), default=0)
    table.columns[1].max_width = max(_LEAST_EQUATION, width - names - 56)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[3:]:
        column.justify = "right"
    for one in shown:
        certificate = one.certificate
        known = (
            ("-",) * 4
            if certificate is None
            else (
                str(certificate.level), str(certificate.instances),
                f"{certificate.float32:.0e}", f"{certificate.float16:.0e}",
            )
        )  # fmt: skip
        style = "yellow" if one.obstacle else None
        table.add_row(
            one.rule.name, _equation(one.rule), one.rule.numerics.name.lower(), *known, style=style
        )
    return table


def _equation(rule: Rule) -> str:
    from rich.markup import escape

    from eqsat_opt.rules.describe import equation

    return escape(equation(rule).replace("\n", "; "))


def standing_json(one: Standing) -> dict[str, Any]:
    """Rule, certificate and obstacle as plain values."""
    rule = one.rule
    return {
        "name": rule.name,
        "family": rule.family,
        "equation": str(rule),
        "numerics": rule.numerics.name.lower(),
        "phase": str(rule.phase),
        "doc": rule.doc,
        "certificate": asdict(one.certificate) if one.certificate else None,
        "obstacle": one.obstacle,
    }


def outcomes_json(
    outcomes: Sequence[Outcome], taken: float, written: Sequence[str]
) -> dict[str, Any]:
    """What verification found, as plain values."""
    return {
        "rules": [
            {
                "name": one.rule.name,
                "passed": one.passed,
                "certificate": asdict(one.certificate) if one.certificate else None,
                "error": str(one.error) if one.error else None,
                "counterexample": _code(one),
                "notes": list(one.notes),
                "time_s": round(one.time_s, 3),
            }
            for one in outcomes
        ],
        "time_s": round(taken, 3),
        "written": list(written),
    }


def _code(one: Outcome) -> str | None:
    code = getattr(getattr(one.error, "refutation", None), "code", None)
    return code or None


def print_outcomes(outcomes: Sequence[Outcome], taken: float, written: Sequence[str]) -> None:
    """A table of what each rule earned, and the counterexamples of those refused."""
    from rich.table import Table

    console = output_console()
    titles = ("rule", "level", "how", "instances", "float32", "float16", "seconds")
    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    for column in (*table.columns[1:2], *table.columns[3:]):
        column.justify = "right"
    for one in outcomes:
        c = one.certificate
        if c is None:
            table.add_row(
                one.rule.name, "-", "refused", "", "", "", f"{one.time_s:.1f}", style="red"
            )
            continue
        how = c.scope or "; ".join(c.methods)
        table.add_row(
            one.rule.name, str(c.level), how, str(c.instances), f"{c.float32:.0e}",
            f"{c.float16:.0e}", f"{one.time_s:.1f}", style=None if one.passed else "yellow",
        )  # fmt: skip
    console.print(table)
    console.print()
    _print_refused(outcomes)
    for note in dict.fromkeys(note for one in outcomes for note in one.notes):
        console.print(f"note: {note}", markup=False)
    counts = {
        level: sum(one.certificate is not None and one.certificate.level == level
                   for one in outcomes)
        for level in range(4)
    }  # fmt: skip
    levels = ", ".join(f"{n} at level {level}" for level, n in counts.items() if n)
    console.print(f"{len(outcomes)} rules in {taken:.1f} s: {levels}", markup=False)
    for path in written:
        console.print(f"written to {path}", markup=False)


def _print_refused(outcomes: Sequence[Outcome]) -> None:
    console = output_console()
    for one in outcomes:
        if one.error is None:
            continue
        refutation = getattr(one.error, "refutation", None)
        console.print(f"{one.rule.name}: {one.rule}", markup=False, style="red")
        console.print(str(refutation or one.error), markup=False)
        code = _code(one)
        if code:
            console.print()
            console.print(code, markup=False, soft_wrap=True)


def print_imported(outcomes: Sequence[Outcome]) -> None:
    """Each rule with the verdict of the gate."""
    console = output_console()
    for one in outcomes:
        console.print(f"{one.rule.name}: {one.rule}", markup=False)
        if one.passed and one.certificate is not None:
            verdict = (
                f"accepted: level {one.certificate.level}, {'; '.join(one.certificate.methods)}"
            )
            console.print(f"  {verdict}, {one.certificate.instances} instances", markup=False)
        else:
            why = str(one.error) if one.error else "only floating point accepts it"
            console.print(f"  refused: {why}", markup=False, style="red")
            code = _code(one)
            if code:
                console.print(code, markup=False, soft_wrap=True)
    accepted = sum(one.passed for one in outcomes)
    console.print(f"{accepted} of {len(outcomes)} rules accepted", markup=False)
