"""The result of an extraction: a selection with its prices and the names of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat_opt.common.text_columns import aligned
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.errors import StageError
from eqsat_opt.extract import Extraction, Objective
from eqsat_opt.extract.extraction import Status
from eqsat_opt.ir.values.types import ValueType
from eqsat_opt.runtime.backends.protocol import DEFAULT, Implementation, Offer, label
from eqsat_opt.select.choosing.body import FREE, body_text, price_texts
from eqsat_opt.select.choosing.forms import ConvertedValue, Placed
from eqsat_opt.select.choosing.ordering import execution_order
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.tiling.candidates import CONSTANT, Candidate, Candidates, Selected, Selection

__all__ = ["Chosen", "PricedSelection", "priced_selection"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The candidate that computes a class, with its implementation and price.

    Attributes:
        candidate: the chosen candidate.
        type: type of the class; ``None`` for the pseudo-class of a kernel with several outputs.
        backend: backend that runs it; empty for a candidate that runs nothing priced.
        implementation: the backend's implementation.
        price: price of the implementation; ``None`` if there is none.
        name: name of the value in the model, or the name that lowering gave to a constant of
            another shape; ``""`` where there is no such value.
        opaque: the operator of an opaque node; else ``""``.
        rules: rules that made the e-nodes that it covers.
    """

    candidate: Candidate
    type: ValueType | None
    backend: str = ""
    implementation: Implementation = DEFAULT
    price: Quote | None = None
    name: str = ""
    opaque: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PricedSelection:
    """The choice of an extraction.

    Attributes:
        items: one for every class that is computed, operands first.
        outputs: name and class of each output of the model.
        sizes: values of symbolic dimensions at which it is priced.
        objective: the minimised weights by metric.
        metrics: totals by metric.
        cost: the objective's value.
        lower_bound: no selection costs less.
        status: how far this is proven, as in :class:`~eqsat_opt.extract.Extraction`.
        converted: values that kernels read in another form than they were made in, each with the
            price of its conversion.
    """

    items: tuple[Chosen, ...]
    outputs: tuple[tuple[str, int], ...]
    sizes: Mapping[str, int]
    objective: Mapping[str, float]
    metrics: Mapping[str, float]
    cost: float
    lower_bound: float
    status: Status
    converted: tuple[tuple[ConvertedValue, Quote], ...] = ()

    @property
    def selection(self) -> Selection:
        """The implementation chosen for each class, which can be raised to a graph again."""
        return {
            one.candidate.cls: Selected(one.candidate, one.backend, one.implementation)
            for one in self.items
        }

    def require_from(self, candidates: Candidates) -> None:
        """Raise an error if the selection was not chosen from these candidates.

        Raises:
            StageError: it has a candidate that is not among them.
        """
        known = frozenset(candidates.items)
        for chosen in self.items:
            if chosen.candidate not in known:
                raise StageError(
                    f"the candidate of class {chosen.candidate.cls} is not among the candidates "
                    "that are given; store selection and candidates of one search"
                )

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """Yield a line of totals, a header, and one line per kernel in the order of execution.

        Inputs and constants have no line: they are named where they are read, constants with ``!``,
        and folded constants by their number. ``short`` changes nothing.
        """
        del short
        yield self._summary()
        names: dict[int, str] = {}
        rows = []
        for chosen in self.items:
            item = chosen.candidate
            mark = "!" if item.kind in CONSTANT else ""
            called = chosen.name if item.kind in FREE else ""
            names[item.cls] = f"{called or f'#{item.cls}'}{mark}"
            if item.kind in FREE:
                continue
            time, source = price_texts(item, chosen.price)
            rows.append(
                (
                    f"#{item.cls}",
                    "" if chosen.type is None else str(chosen.type),
                    chosen.name,
                    label(chosen.backend, chosen.implementation),
                    time,
                    source,
                    body_text(item, lambda cls: names.get(cls, f"#{cls}"), chosen.opaque)
                    + (f" by {', '.join(chosen.rules)}" if chosen.rules else ""),
                )
            )
        for one, price in self.converted:
            by = label(one.backend, one.implementation)
            called = names.get(one.cls, f"#{one.cls}")
            runs = f"{called} from {one.made} to {one.form}"
            rows.append((f"#{one.cls}", "", "", by, f"{price.time_us:.3f}", price.source, runs))
        if rows:
            yield from aligned(
                ("class", "type", "name", "by", "µs", "price", "runs"), rows, right={4}
            )

    def _summary(self) -> str:
        kinds = [chosen.candidate.kind for chosen in self.items]
        runs = sum(chosen.candidate.steps != () for chosen in self.items) + kinds.count("opaque")
        objective = " + ".join(f"{weight:g} {name}" for name, weight in self.objective.items())
        outputs = ", ".join(f"{name} #{cls}" for name, cls in self.outputs)
        return (
            f"kernels {runs}, inputs {kinds.count('leaf')}, constants {kinds.count('const')}; "
            f"cost {self.cost:.6g} ({objective}), at least {self.lower_bound:.6g}: {self.status}; "
            f"outputs {outputs or 'none'}"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())


def priced_selection(
    selection: Selection,
    quoted: QuotedCandidates,
    extraction: Extraction,
    placed: Placed = (),
) -> PricedSelection:
    """Return a selection from ``quoted`` candidates with the results of ``extraction``.

    Args:
        selection: the selection.
        quoted: the candidates that it was chosen from.
        extraction: the extraction that chose it.
        placed: the selection with conversions; none by default.
    """
    named = quoted.named
    eclasses, legend = named.eclasses, named.legend
    kernels = dict(zip(quoted.priced.candidates.items, quoted.priced.kernels, strict=True))
    items = []
    for cls in execution_order(selection):
        run = selection[cls]
        item, kernel = run.candidate, kernels[run.candidate]
        rules = (eclasses.rule_of(node) for node in item.nodes if item.kind not in CONSTANT)
        index = dict(eclasses.attrs[item.nodes[0]]).get("index")
        items.append(
            Chosen(
                candidate=item,
                type=eclasses.types[cls] if cls < eclasses.n_classes else None,
                backend=run.backend,
                implementation=run.implementation,
                price=None
                if kernel is None
                else quoted.prices[Offer(kernel, run.backend, run.implementation)],
                name=named.value_name(cls),
                opaque=legend.opaque[int(str(index))].op if item.kind == "opaque" else "",
                rules=tuple(dict.fromkeys(rule for rule in rules if rule is not None)),
            )
        )
    return PricedSelection(
        items=tuple(items),
        outputs=legend.outputs,
        sizes=quoted.priced.sizes,
        objective=objective.weights
        if isinstance(objective := extraction.objective, Objective)
        else {},
        metrics=extraction.metrics,
        cost=extraction.cost,
        lower_bound=extraction.lower_bound,
        status=extraction.status,
        converted=tuple(
            (one, quoted.prices[_offer(one, quoted)])
            for one in placed
            if isinstance(one, ConvertedValue)
        ),
    )


def _offer(value: ConvertedValue, quoted: QuotedCandidates) -> Offer:
    """Return the offer that converts a value."""
    kernel = next(
        one.kernel
        for one in quoted.priced.conversions
        if (one.cls, one.made, one.read) == (value.cls, value.made, value.form)
    )
    return Offer(kernel, value.backend, value.implementation)
