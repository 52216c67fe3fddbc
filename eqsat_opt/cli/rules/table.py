"""The tables and plain values of `eqsat-opt rules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eqsat_opt.cli.session import output_console
from eqsat_opt.common.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.lab.certification import RuleOutcome
    from eqsat_opt.proving.certificates.certificate import Certificate
    from eqsat_opt.proving.selection import Standing

__all__ = [
    "level_of",
    "outcomes_json",
    "print_imported",
    "print_outcomes",
    "print_standings",
    "standing_json",
]

_LEVELS = ("sampled", "exact at instances", "proven for all sizes", "derived from proven rules")
_WIDE = 110
"""Least width of a terminal, in columns, that shows the numbers of a certificate as well."""
_LEAST = 12
"""Least width of the last cell of a row, in columns."""
_CERTIFIED = ("instances", "float32", "float16")
_NUMBERS = ("level", "seconds", *_CERTIFIED)


def print_standings(shown: Sequence[Standing]) -> None:
    """Print a table of rules, the counts of each family, and the rules that are left out."""
    console = output_console()
    console.print(_standings_table(shown, console.width))
    console.print()
    if len({one.rule.family for one in shown}) > 1:
        console.print(_families(shown))
        console.print()
    console.print(_summary(shown), markup=False)
    left_out: dict[str, list[str]] = {}
    for one in shown:
        if one.obstacle:
            left_out.setdefault(one.obstacle, []).append(one.rule.name)
    for obstacle, names in left_out.items():
        text = f"left out: {', '.join(names)}: {obstacle}"
        console.print(text, style="yellow", markup=False, soft_wrap=True)


def level_of(one: Standing) -> int | None:
    """Return the certified level of a rule; None without a valid certificate."""
    return None if one.obstacle or one.certificate is None else one.certificate.level


def _summary(shown: Sequence[Standing]) -> str:
    from eqsat_opt.rules.rulebooks import installed_rulebooks

    levels = [level_of(one) for one in shown]
    counts = [levels.count(level) for level in range(4)]
    parts = [f"{count} {text}" for count, text in zip(counts, _LEVELS, strict=True) if count]
    books = installed_rulebooks()
    more = f"; installed rulebooks: {', '.join(books)}" if books else ""
    return f"{counted(len(shown), 'rule')}: {', '.join(parts) or 'none certified'}{more}"


def _last_cut(titles: Sequence[str], rows: Sequence[tuple[Sequence[str], str | None]], width: int
              ) -> Table:  # fmt: skip
    """Return a table of styled rows, cut to a width in the last column that has room.

    Columns without room are left out.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    longest = [
        max(map(len, column)) for column in zip(titles, *(row for row, _ in rows), strict=True)
    ]
    starts = [sum(longest[:i]) + 2 * i for i in range(len(titles))]
    fits = [start + min(_LEAST, size) <= width for start, size in zip(starts, longest, strict=True)]
    shown = max(1, sum(fits))
    for title in titles[:shown]:
        table.add_column(title, no_wrap=True, justify="right" if title in _NUMBERS else "left")
    table.columns[-1].max_width = max(1, width - starts[shown - 1])
    for row, style in rows:
        table.add_row(*map(escape, row[:shown]), style=style)
    return table


def _known(certificate: Certificate | None, *, wide: bool) -> tuple[str, ...]:
    """Return the cells for instances and measured errors, if there is room for them."""
    if not wide:
        return ()
    if certificate is None:
        return ("-", "-", "-")
    errors = (certificate.float32, certificate.float16)
    return (str(certificate.instances), *(f"{error:.0e}" for error in errors))


def _standings_table(shown: Sequence[Standing], width: int) -> Table:
    from eqsat_opt.proving.describe import equation

    wide = width >= _WIDE
    rows = []
    for one in shown:
        level = level_of(one)
        cells = (
            one.rule.name,
            "-" if level is None else str(level),
            one.rule.numerics.name.lower(),
            *_known(one.certificate, wide=wide),
            equation(one.rule).replace("\n", "; "),
        )
        rows.append((cells, "yellow" if one.obstacle else None))
    numbers = _CERTIFIED if wide else ()
    return _last_cut(("rule", "level", "numerics", *numbers, "equation"), rows, width)


def _families(shown: Sequence[Standing]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("family", "rules", "level 3", "level 2", "level 1", "left out"):
        table.add_column(title, justify="left" if title == "family" else "right")
    for family in dict.fromkeys(one.rule.family for one in shown):
        levels = [level_of(one) for one in shown if one.rule.family == family]
        counts = (len(levels), *(levels.count(n) for n in (3, 2, 1)), levels.count(None))
        table.add_row(family, *(str(count or "") for count in counts))
    return table


def standing_json(one: Standing) -> dict[str, Any]:
    """Return rule, certificate and obstacle as plain values."""
    rule = one.rule
    return {
        "name": rule.name,
        "family": rule.family,
        "equation": str(rule),
        "numerics": rule.numerics.name.lower(),
        "backward": None if rule.backward is None else rule.backward.name.lower(),
        "phase": str(rule.phase),
        "doc": rule.doc,
        "certificate": asdict(one.certificate) if one.certificate else None,
        "obstacle": one.obstacle,
    }


def outcomes_json(
    outcomes: Sequence[RuleOutcome], taken: float, written: Sequence[str]
) -> dict[str, Any]:
    """Return the outcomes of verification as plain values."""
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


def _code(one: RuleOutcome) -> str | None:
    code = getattr(getattr(one.error, "refutation", None), "code", None)
    return code or None


def print_outcomes(outcomes: Sequence[RuleOutcome], taken: float, written: Sequence[str]) -> None:
    """Print a table of the certificates that rules earned, and counterexamples of refused rules."""
    console = output_console()
    wide = console.width >= _WIDE
    rows = []
    for one in outcomes:
        c = one.certificate
        how = "refused" if c is None else c.scope or "; ".join(c.methods)
        level = "-" if c is None else str(c.level)
        known = _known(c, wide=wide)
        style = "red" if c is None else None if one.passed else "yellow"
        rows.append(((one.rule.name, level, *known, f"{one.time_s:.1f}", how), style))
    numbers = _CERTIFIED if wide else ()
    table = _last_cut(("rule", "level", *numbers, "seconds", "how"), rows, console.width)
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
    done = counted(len(outcomes), "rule")
    refused = sum(one.certificate is None for one in outcomes)
    parts = ", ".join(filter(None, (levels, f"{refused} refused" if refused else "")))
    console.print(f"{done} in {taken:.1f} s: {parts}", markup=False)
    for path in written:
        console.print(f"written to {path}", markup=False)


def _print_refused(outcomes: Sequence[RuleOutcome]) -> None:
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


def print_imported(outcomes: Sequence[RuleOutcome]) -> None:
    """Print each rule with the verdict of the gate."""
    console = output_console()
    for one in outcomes:
        console.print(f"{one.rule.name}: {one.rule}", markup=False)
        if one.passed and one.certificate is not None:
            verdict = (
                f"accepted: level {one.certificate.level}, {'; '.join(one.certificate.methods)}"
            )
            console.print(f"  {verdict}, {one.certificate.instances} instances", markup=False)
            if one.certificate.scope:
                console.print(f"  proven for {one.certificate.scope}", markup=False)
            if one.certificate.unproven:
                console.print(f"  not proven: {one.certificate.unproven}", markup=False)
        else:
            why = str(one.error) if one.error else "only floating point accepts it"
            console.print(f"  refused: {why}", markup=False, style="red")
            code = _code(one)
            if code:
                console.print(code, markup=False, soft_wrap=True)
    accepted = sum(one.passed for one in outcomes)
    console.print(f"{accepted} of {counted(len(outcomes), 'rule')} accepted", markup=False)
