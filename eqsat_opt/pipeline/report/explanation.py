"""The explanation of a search: its rules, choices and prices, as tables and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.text import count_text, plain_table, time_text
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.tables import search_grid

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

    from eqsat_opt.rules.near_misses import NearMiss
    from eqsat_opt.select.proposal import Proposal
    from eqsat_opt.select.why import KernelUse, Rewrite, RuleFate

__all__ = ["Explanation"]

_MOST_MISSES = 20
"""Most rows of near misses that a terminal shows."""

_MOST_NODES = 3
"""Most nodes of a rewrite that a terminal shows."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The result of :func:`eqsat_opt.explain`.

    Attributes:
        report: all numbers of the search; nothing was raced or checked.
        proposal: the e-graph, candidates and choices, for a closer look.
        rules: outcome of every rule that matched or made e-nodes, chosen rules first.
        misses: near misses, in the model and in the result: places where a left side matched and a
            condition kept its rule from applying.
        rewrites: the nodes of the result that rules made.
        kernels: kernels of original and result with their prices, the most expensive first.
    """

    report: Report
    proposal: Proposal
    rules: tuple[RuleFate, ...]
    misses: tuple[NearMiss, ...]
    rewrites: tuple[Rewrite, ...]
    kernels: tuple[KernelUse, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable keys."""
        return {
            "report": self.report.to_json(),
            "rules": [asdict(rule) for rule in self.rules],
            "near_misses": [_miss_json(miss) for miss in self.misses],
            "rewrites": [asdict(rewrite) for rewrite in self.rewrites],
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the search, its rules, near misses and rewrites; :meth:`kernel_table` is extra."""
        from rich.text import Text

        yield Text(self.report.model, style="bold")
        yield ""
        yield search_grid(self.report)
        yield ""
        yield self.rule_table()
        yield ""
        if self.misses:
            yield self.miss_table()
            yield ""
        yield self.rewrite_table() if self.rewrites else "no rewrite was chosen"

    def rule_table(self) -> Table:
        """Return a table of rules that matched or made e-nodes, and why they were not chosen."""
        table = plain_table("rule", "matches", "e-nodes", "chosen", "why not", right=slice(1, 4))
        for rule in self.rules:
            style = "green" if rule.chosen else ""
            numbers = (rule.matches, rule.made, rule.chosen)
            counts = (count_text(number) if number else "" for number in numbers)
            _add(table, rule.rule, *counts, rule.reason, style=style)
        if not self.rules:
            _add(table, "(none matched)")
        return table

    def miss_table(self) -> Table:
        """Return a table of near misses: why rules did not apply where their left sides matched."""
        titles = ("not applied", "times", "at", "because this does not hold")
        table = plain_table(*titles, right=slice(1, 2))
        for miss in self.misses[:_MOST_MISSES]:
            more = ", …" if miss.count > len(miss.places) else ""
            places = f"{', '.join(place.node for place in miss.places)}{more}"
            _add(table, miss.rule, count_text(miss.count), places, str(miss))
        if len(self.misses) > _MOST_MISSES:
            _add(table, f"(and {len(self.misses) - _MOST_MISSES} more: --json lists them)")
        return table

    def rewrite_table(self) -> Table:
        """Return a table of the nodes of the result that rules made, a row for all that are alike.

        Nodes are alike if they have the same operator and the same rules made them.
        """
        alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for rewrite in self.rewrites:
            alike.setdefault((rewrite.op, tuple(rewrite.rules)), []).append(rewrite.node)
        table = plain_table("operator", "times", "by", "new nodes", right=slice(1, 2))
        for (op, rules), nodes in alike.items():
            more = ", …" if len(nodes) > _MOST_NODES else ""
            shown = f"{', '.join(nodes[:_MOST_NODES])}{more}"
            _add(table, op, count_text(len(nodes)), ", ".join(rules), shown)
        return table

    def kernel_table(self) -> Table:
        """Return a table of the kernels of original and result with their prices."""
        table = plain_table("kernel", "before", "after", "price", "", right=slice(1, 4))
        for use in self.kernels:
            _add(
                table,
                use.kernel,
                count_text(use.before),
                count_text(use.after),
                time_text(use.time_us),
                use.source,
            )
        return table


def _miss_json(miss: NearMiss) -> dict[str, Any]:
    places = [{"node": place.node, "values": dict(place.values)} for place in miss.places]
    return {**asdict(miss), "places": places}


def _add(table: Table, *cells: str, style: str = "") -> None:
    """Add a row of plain text, as names and shapes may look like markup of rich."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells), style=style)
