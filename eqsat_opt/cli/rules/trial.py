"""`eqsat-opt rules try`: where the rules of a file apply in a model, where nearly, and what for."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json
from eqsat_opt.errors import EqsatError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.pipeline.report.explanation import Explanation
    from eqsat_opt.rules.applications import Application
    from eqsat_opt.rules.near_misses import NearMiss
    from eqsat_opt.rules.rule import Rule

__all__ = ["try_rules"]

_WATCH_S = 0.2
_MOST_PLACES = 5
"""Most places of a rule that a terminal shows."""


def try_rules(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A rulebook (.py).", show_default=False)
    ],
    model: a.Model,
    search: Annotated[
        bool,
        typer.Option(
            "--search/--no-search",
            help="Verify the rules and search with them and the book, to show what they save.",
        ),
    ] = True,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="Seconds for the search.")
    ] = 10.0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Try again whenever the file changes, until Ctrl-C.")
    ] = False,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show where the rules of a file apply in a model, where nearly, and what they save."""
    from eqsat_opt import api

    check_writable(json, (file, *api.files_of(model)))
    while True:
        before = _stamp(file)
        try:
            _try_once(file, model, search=search, budget=budget, json=json)
        except EqsatError as error:
            if not watch:
                raise
            output_console(stderr=True).print(f"error: {printable(str(error))}", soft_wrap=True)
        if not watch:
            return
        while _stamp(file) == before:
            time.sleep(_WATCH_S)
        output_console().print()


def _stamp(file: str) -> tuple[int, int] | None:
    """Return what changes when a file is written; ``None`` while an editor replaces it."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _try_once(file: str, model: str, *, search: bool, budget: float, json: str | None) -> None:
    from eqsat_opt import api
    from eqsat_opt.ir.onnx.files.load import load_model
    from eqsat_opt.ir.onnx.importer import import_model
    from eqsat_opt.ir.passes.normalise import normalise
    from eqsat_opt.rules.applications import applications
    from eqsat_opt.rules.library import read_users_rules
    from eqsat_opt.rules.near_misses import near_misses

    rules = read_users_rules(file)
    graph = normalise(import_model(load_model(api.resolve(model))))
    applied = applications(graph, rules)
    misses = near_misses([graph], rules)
    explained = None
    if search:
        explained = api.explain(model, rules=f"default,{file}", measure=False, budget=budget)
    if json is not None:
        write_json(_values(rules, applied, misses, explained), json)
    if json != "-":
        console = output_console()
        for part in _tables(rules, applied, misses, explained):
            console.print(part)


def _values(
    rules: Sequence[Rule],
    applied: Sequence[Application],
    misses: Sequence[NearMiss],
    explained: Explanation | None,
) -> dict[str, Any]:
    """Return plain values with stable keys."""
    names = {rule.name for rule in rules}
    fates = () if explained is None else explained.rules
    return {
        "rules": sorted(names),
        "applications": [asdict(one) for one in applied],
        "near_misses": [asdict(one) for one in misses],
        "search": [asdict(one) for one in fates if _base(one.rule) in names],
        "cost": None if explained is None else explained.report.cost,
        "original_cost": None if explained is None else explained.report.original_cost,
    }


def _tables(
    rules: Sequence[Rule],
    applied: Sequence[Application],
    misses: Sequence[NearMiss],
    explained: Explanation | None,
) -> list[Table | str]:
    from rich.text import Text

    from eqsat_opt.common.text import count_text, plain_table

    places: dict[str, list[str]] = defaultdict(list)
    for one in applied:
        places[one.rule].append(" ← ".join(one.nodes))
    table = plain_table("rule", "applies", "at", right=slice(1, 2))
    silent = [rule.name for rule in rules if not any(_base(name) == rule.name for name in places)]
    for name, ones in places.items():
        more = [f"and {len(ones) - _MOST_PLACES} more"] * (len(ones) > _MOST_PLACES)
        text = "\n".join([*ones[:_MOST_PLACES], *more])
        table.add_row(Text(name), count_text(len(ones)), Text(text))
    for name in silent:
        table.add_row(Text(name), "0", Text("nowhere in the model as it is written", style="dim"))
    found: list[Table | str] = [table]
    if misses:
        missed = plain_table("nearly applies", "times", "at", "but not", right=slice(1, 2))
        for miss in misses:
            nodes = ", ".join(place.node for place in miss.places)
            missed.add_row(Text(miss.rule), count_text(miss.count), Text(nodes), Text(str(miss)))
        found += ["", missed]
    if explained is not None:
        found += ["", _outcome(rules, explained)]
    return found


def _outcome(rules: Sequence[Rule], explained: Explanation) -> Table:
    """Return a table of what a search with the book and these rules made of them."""
    from rich.text import Text

    from eqsat_opt.common.text import count_text, plain_table

    names = {rule.name for rule in rules}
    table = plain_table("in a search", "matches", "chosen", "", right=slice(1, 3))
    for fate in explained.rules:
        if _base(fate.rule) in names:
            numbers = (count_text(fate.matches), count_text(fate.chosen))
            table.add_row(Text(fate.rule), *numbers, Text(fate.reason or "used in the result"))
    if not table.row_count:
        table.add_row(Text("(none of these rules matched)"), "", "", "")
    return table


def _base(name: str) -> str:
    """Return the name of a rule without the direction in which it is read."""
    return name.removesuffix("-reversed")
