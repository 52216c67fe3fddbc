"""Candidates with prices, from which extraction chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat_opt.common.text_columns import aligned
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph.legend import Legend, NamedEClasses
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.body import FREE, body_text, price_texts
from eqsat_opt.select.choosing.priced_problem import PricedProblem
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.tiling.candidates import CONSTANT

__all__ = ["QuotedCandidates"]


@dataclass(frozen=True)
class QuotedCandidates:
    """All candidates and the prices of their offers.

    Attributes:
        priced: the candidates, with the sizes and limits for their prices.
        prices: price of every offer for them.
        legend: names of the model.
    """

    priced: PricedCandidates
    prices: Mapping[Offer, Quote]
    legend: Legend

    @property
    def named(self) -> NamedEClasses:
        """The e-classes that were tiled."""
        return NamedEClasses(self.priced.candidates.eclasses, self.legend)

    def problem(self) -> PricedProblem:
        """Build the extraction problem under these prices.

        Raises:
            ExtractionError: a root has no candidate.
        """
        given = {name for price in self.prices.values() for name in price.metrics}
        return self.priced.problem(self.prices.__getitem__, given=tuple(given or (TIME,)))

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """Yield a line of counts, a header, and one line per candidate.

        Args:
            short: whether to leave out inputs and constants, which run nothing; they are named
                where they are read, constants with ``!``.
        """
        priced, named = self.priced, self.named
        items, eclasses = priced.candidates.items, named.eclasses
        measured = sum(price.source == "measured" for price in self.prices.values())
        yield (
            f"candidates {len(items)}, classes {len({item.cls for item in items})}, offers "
            f"{len(self.prices)} ({measured} measured), roots "
            + (", ".join(f"#{root}" for root in priced.roots) or "none")
            + (f", conversions {len(priced.conversions)}" if priced.conversions else "")
            + ("; without inputs and constants" if short else "")
        )
        rows = []
        names: dict[int, str] = {}
        for item in items:
            called = named.value_name(item.cls) if item.kind in FREE else ""
            mark = "!" if item.kind in CONSTANT else ""
            names.setdefault(item.cls, f"{called or f'#{item.cls}'}{mark}")
        for item, offers, is_offered in zip(
            items, priced.offers, priced.offered.tolist(), strict=True
        ):
            if short and item.kind in FREE:
                continue
            own = named.node_text(item.nodes[0])
            if item.kind == "opaque":
                own = own.partition("(")[0]
            type_ = str(eclasses.types[item.cls]) if item.cls < eclasses.n_classes else ""
            body = body_text(item, lambda cls: names.get(cls, f"#{cls}"), own)
            for offer in offers or (None,):
                time, source = price_texts(item, None if offer is None else self.prices[offer])
                by = "" if offer is None else offer.by
                source = source if is_offered else "not offered"
                rows.append((f"#{item.cls}", type_, item.kind, by, time, source, body))
        yield from aligned(("class", "type", "kind", "by", "µs", "price", "runs"), rows, right={4})

    def __str__(self) -> str:
        return "\n".join(self.lines())
