"""Candidates with their prices as JSON and back: a stored problem can be extracted from again."""

from __future__ import annotations

import math
from typing import Any

from eqsat_opt.cost.pricing import Price
from eqsat_opt.documents import Document, Entry
from eqsat_opt.egraph import EClasses
from eqsat_opt.egraph.eclasses_json import eclasses_from_json, eclasses_to_json
from eqsat_opt.errors import StageError
from eqsat_opt.ir.kernel import Kernel, Step
from eqsat_opt.ir.values_json import TYPING_FAILURES, operator_from_json, operator_to_json
from eqsat_opt.select.candidates import Candidate, Candidates, OperandRef
from eqsat_opt.select.pricing import PricedCandidates
from eqsat_opt.select.quoted import QuotedCandidates

__all__ = [
    "FORMAT",
    "candidate_from_json",
    "candidate_to_json",
    "candidates_from_json",
    "candidates_to_json",
    "sizes_from_json",
]

FORMAT = "eqsat-opt candidates 1"

_MANY = 1 << 62
_FIELDS = (
    "class", "kind", "nodes", "reads", "operands", "steps", "outputs", "index", "price",
)  # fmt: skip


# ** writing **


def candidates_to_json(quoted: QuotedCandidates) -> Document:
    """The document of candidates; :func:`candidates_from_json` gives back an equal value.

    It holds the document of the e-classes that were tiled.
    """
    priced = quoted.priced
    items = zip(priced.candidates.items, priced.kernels, strict=True)
    return {
        "format": FORMAT,
        "eclasses": eclasses_to_json(quoted.named),
        "n_classes": priced.candidates.n_classes,
        "roots": list(priced.roots),
        "sizes": dict(sorted(priced.sizes.items())),
        "max_constant_bytes": priced.max_constant_bytes,
        "refused": sorted(priced.refused),
        "candidates": [
            candidate_to_json(item, None if kernel is None else quoted.prices[kernel])
            for item, kernel in items
        ],
    }


def candidate_to_json(item: Candidate, price: Price | None) -> dict[str, Any]:
    """One candidate and what its kernel costs; what is empty is left out."""
    value: dict[str, Any] = {"class": item.cls, "kind": item.kind, "nodes": list(item.nodes)}
    if item.reads:
        value["reads"] = list(item.reads)
    if item.operands:
        value["operands"] = [
            ref.cls if ref.shape is None else {"class": ref.cls, "shape": list(ref.shape)}
            for ref in item.operands
        ]
    if item.steps:
        value["steps"] = [
            {**operator_to_json(step.op, step.attrs), "operands": list(step.operands)}
            for step in item.steps
        ]
    if item.outputs:
        value["outputs"] = list(item.outputs)
    if item.index:
        value["index"] = item.index
    if price is not None:
        source = "measured" if price.measured else "bound"
        value["price"] = {"time_us": price.time_us, "source": source}
    return value


# ** reading **


def candidates_from_json(document: Any) -> QuotedCandidates:
    """The candidates of a document.

    Raises:
        StageError: the document is of another kind or version, a field is missing or foreign, a
            number is out of range, an operator or attribute is unknown, a candidate computes
            another class than its own, or the prices do not fit the kernels.
    """
    entry = Entry(document, "the document")
    entry.require_format(FORMAT)
    entry.require_all(
        "format", "eclasses", "n_classes", "roots", "sizes", "max_constant_bytes", "refused",
        "candidates",
    )  # fmt: skip
    named = eclasses_from_json(entry.get("eclasses"))
    eclasses = named.eclasses
    n_classes = entry.whole("n_classes", _MANY, begin=eclasses.n_classes)
    items: list[Candidate] = []
    quotes: list[Price | None] = []
    for one in entry.entries("candidates", "candidate"):
        one.require_fields(*_FIELDS)
        item, price = candidate_from_json(one, n_classes, eclasses.n_classes, eclasses.n_nodes)
        _require_own_class(one, item, eclasses)
        if items and item.cls < items[-1].cls:
            raise StageError(f"{one.where} is not in the order of the classes")
        items.append(item)
        quotes.append(price)
    priced = PricedCandidates(
        Candidates(eclasses, tuple(items), n_classes),
        sizes_from_json(entry),
        entry.wholes("roots", n_classes),
        entry.whole("max_constant_bytes", _MANY, begin=-1),
        frozenset(entry.wholes("refused", n_classes)),
    )
    return QuotedCandidates(priced, _prices(priced, quotes), named.legend)


def sizes_from_json(entry: Entry) -> dict[str, int]:
    """Symbol to size, of the field ``sizes``."""
    sizes = entry.mapping("sizes")
    return {name: sizes.whole(name, _MANY) for name in sizes.value}


def candidate_from_json(
    entry: Entry, n_classes: int, n_eclasses: int, n_nodes: int
) -> tuple[Candidate, Price | None]:
    """One candidate and its price.

    Args:
        entry: the object.
        n_classes: classes and pseudo-classes.
        n_eclasses: classes that are no pseudo-classes.
        n_nodes: e-nodes.

    Raises:
        StageError: see :func:`candidates_from_json`.
    """
    reads = entry.wholes("reads", n_classes)
    operands = tuple(_operand(item, entry, n_eclasses) for item in entry.items("operands"))
    if not {ref.cls for ref in operands} <= {*reads}:
        raise StageError(f"{entry.where} has an operand that is not among what it reads")
    steps: list[Step] = []
    for one in entry.entries("steps", "step"):
        one.require_fields("op", "attrs", "operands")
        refs = one.wholes("operands", len(operands) + len(steps))
        op, attrs = operator_from_json(one, len(refs), {})
        steps.append(Step(op, attrs, refs))
    item = Candidate(
        entry.whole("class", n_classes),
        entry.text("kind"),
        entry.wholes("nodes", n_nodes),
        reads,
        operands,
        tuple(steps),
        entry.wholes("outputs", len(operands) + len(steps)),
        entry.whole("index", _MANY) if "index" in entry.value else 0,
    )
    _require_form(entry, item)
    if "price" not in entry.value:
        return item, None
    price = Entry(entry.get("price"), entry.place("price"))
    price.require_fields("time_us", "source")
    time_us, source = price.number("time_us"), price.text("source")
    if not (math.isfinite(time_us) and time_us >= 0):
        raise StageError(f"{price.where} is {time_us} µs; prices are finite and not negative")
    if source not in ("measured", "bound"):
        raise StageError(f"{price.where} has the source {source!r}; it is measured or bound")
    return item, Price(time_us, source == "measured")


def _operand(value: Any, entry: Entry, n_eclasses: int) -> OperandRef:
    where = f"an operand of {entry.where}"
    if not isinstance(value, dict):
        return OperandRef(Entry({"class": value}, where).whole("class", n_eclasses))
    one = Entry(value, where)
    one.require_fields("class", "shape")
    one.get("shape")
    return OperandRef(one.whole("class", n_eclasses), one.wholes("shape", _MANY))


def _require_form(entry: Entry, item: Candidate) -> None:
    """What every candidate of a kind has."""
    if not item.nodes:
        raise StageError(f"{entry.where} covers no e-node")
    expected = {"leaf": 0, "const": 0, "out": 1, "part": 1}.get(item.kind)
    if expected is not None and len(item.reads) != expected:
        raise StageError(f"{entry.where} is a {item.kind} that reads {len(item.reads)} classes")
    runs = expected is None and item.kind != "opaque"
    if runs != bool(item.steps) or runs != bool(item.outputs):
        what = "lacks steps or outputs" if runs else "has steps or outputs"
        raise StageError(f"{entry.where} is of the kind {item.kind!r} and {what}")


def _require_own_class(entry: Entry, item: Candidate, eclasses: EClasses) -> None:
    if item.kind == "split":
        is_own = item.cls >= eclasses.n_classes
    else:
        is_own = int(eclasses.class_of[item.nodes[-1]]) == item.cls
    if not is_own:
        raise StageError(f"{entry.where} computes another class than {item.cls}")


def _prices(priced: PricedCandidates, quotes: list[Price | None]) -> dict[Kernel, Price]:
    """Kernel to price: each kernel has one, and what has no kernel has none."""
    prices: dict[Kernel, Price] = {}
    for number, (kernel, price) in enumerate(zip(_kernels(priced), quotes, strict=True)):
        if (kernel is None) != (price is None):
            what = "lacks a price" if price is None else "has a price, but no kernel"
            raise StageError(f"candidate {number} {what}")
        if kernel is not None and price is not None and prices.setdefault(kernel, price) != price:
            raise StageError(f"candidate {number} has another price than one of the same kernel")
    return prices


def _kernels(priced: PricedCandidates) -> tuple[Kernel | None, ...]:
    """The kernels, after each of them was typed."""
    try:
        kernels = priced.kernels
        for kernel in kernels:
            if kernel is not None:
                _ = kernel.types
    except KeyError as error:
        raise StageError(f"the symbol {error} has no size among sizes") from error
    except TYPING_FAILURES as error:
        raise StageError(f"a candidate has a kernel that is ill-typed: {error}") from error
    return kernels
