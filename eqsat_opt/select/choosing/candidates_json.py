"""Candidates and their offers as JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.cost.metrics import METRICS, TIME
from eqsat_opt.cost.quotes import SOURCES, Quote
from eqsat_opt.egraph import EClasses
from eqsat_opt.egraph.eclasses_json import eclasses_from_json, eclasses_to_json
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.ir.graph.values_json import TYPING_FAILURES, operator_from_json, operator_to_json
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import Implementation, Offer
from eqsat_opt.select.choosing.forms import Conversion
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.choosing.pricing import PricedCandidates, conversion_kernel
from eqsat_opt.select.tiling.candidates import JOINT, Candidate, Candidates, OperandRef

__all__ = [
    "FORMAT",
    "Offered",
    "candidate_from_json",
    "candidate_to_json",
    "candidates_from_json",
    "candidates_to_json",
    "form_from_json",
    "offer_from_json",
    "offer_to_json",
    "sizes_from_json",
]

FORMAT = "eqsat-opt candidates 2"

Offered = tuple[str, Implementation, Quote]
"""The name of a backend, its implementation of a kernel, and the price."""

_MANY = 1 << 62
_QUOTED = tuple(name for name, metric in METRICS.items() if metric.of_kernel is None)
_FIELDS = (
    "class", "kind", "nodes", "reads", "operands", "steps", "outputs", "index", "writes",
    "fused_by", "offers",
)  # fmt: skip


# ** writing **


def candidates_to_json(quoted: QuotedCandidates) -> Document:
    """Return the document of candidates; :func:`candidates_from_json` restores an equal value.

    It includes the document of the e-classes that were tiled.
    """
    priced = quoted.priced
    items = zip(priced.candidates.items, priced.offers, strict=True)
    forms: Document = {}
    if priced.interface != PLAIN:
        forms["interface"] = str(priced.interface)
    if priced.conversions:
        forms["conversions"] = [
            {
                "class": one.cls,
                "made": str(one.made),
                "read": str(one.read),
                "offers": [
                    offer_to_json(o.backend, o.implementation, quoted.prices[o]) for o in one.offers
                ],
            }
            for one in priced.conversions
        ]
    return {
        "format": FORMAT,
        "eclasses": eclasses_to_json(quoted.named),
        "n_classes": priced.candidates.n_classes,
        "roots": list(priced.roots),
        "sizes": dict(sorted(priced.sizes.items())),
        "max_constant_bytes": priced.max_constant_bytes,
        "refused": sorted(priced.refused),
        **forms,
        "candidates": [
            candidate_to_json(
                item, [(o.backend, o.implementation, quoted.prices[o]) for o in offers]
            )
            for item, offers in items
        ],
    }


def candidate_to_json(item: Candidate, offers: Sequence[Offered]) -> dict[str, Any]:
    """Return one candidate and its offers as a JSON object, without empty fields."""
    value: dict[str, Any] = {"class": item.cls, "kind": item.kind, "nodes": list(item.nodes)}
    if item.reads:
        value["reads"] = list(item.reads)
    if item.operands:
        value["operands"] = [_operand_to_json(ref) for ref in item.operands]
    if item.steps:
        value["steps"] = _steps_to_json(item.steps)
    if item.outputs:
        value["outputs"] = list(item.outputs)
    if item.index:
        value["index"] = item.index
    if item.writes != PLAIN:
        value["writes"] = str(item.writes)
    if item.fused_by:
        value["fused_by"] = list(item.fused_by)
    if offers:
        value["offers"] = [offer_to_json(*offered) for offered in offers]
    return value


def _operand_to_json(ref: OperandRef) -> int | dict[str, Any]:
    if ref == OperandRef(ref.cls):
        return ref.cls
    value: dict[str, Any] = {"class": ref.cls}
    if ref.shape is not None:
        value["shape"] = list(ref.shape)
    if ref.form != PLAIN:
        value["form"] = str(ref.form)
    return value


def _steps_to_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [
        {**operator_to_json(step.op, step.attrs), "operands": list(step.operands)} for step in steps
    ]


def offer_to_json(backend: str, how: Implementation, price: Quote) -> dict[str, Any]:
    """Return an offer of a backend and its price as a JSON object."""
    value: dict[str, Any] = {
        "backend": backend,
        "algorithm": how.algorithm,
        **price.metrics,
        "source": price.source,
    }
    if how.steps is not None:
        value["steps"] = _steps_to_json(how.steps)
    if how.arithmetic != 1.0:
        value["arithmetic"] = how.arithmetic
    for name, forms in (("reads", how.reads), ("writes", how.writes)):
        if forms:
            value[name] = list(map(str, forms))
    if how.workspace_bytes:
        value["workspace"] = how.workspace_bytes
    if how.strided:
        value["strided"] = True
    if how.precision:
        value["precision"] = how.precision
    return value


# ** reading **


def candidates_from_json(document: Any) -> QuotedCandidates:
    """Read the candidates of a document.

    Raises:
        StageError: the document is of another kind or version, a field is missing or foreign, a
            number is out of range, an operator or attribute is unknown, a candidate computes
            another class than its own, or the offers do not fit the kernels.
    """
    entry = Entry(document, "the document")
    entry.require_format(FORMAT)
    needed = (
        "format", "eclasses", "n_classes", "roots", "sizes", "max_constant_bytes", "refused",
        "candidates",
    )  # fmt: skip
    entry.require_fields(*needed, "interface", "conversions")
    for name in needed:
        entry.get(name)
    named = eclasses_from_json(entry.get("eclasses"))
    eclasses = named.eclasses
    n_classes = entry.whole("n_classes", _MANY, begin=eclasses.n_classes)
    items: list[Candidate] = []
    quotes: list[tuple[Offered, ...]] = []
    for one in entry.entries("candidates", "candidate"):
        one.require_fields(*_FIELDS)
        item, offers = candidate_from_json(one, n_classes, eclasses.n_classes, eclasses.n_nodes)
        _require_own_class(one, item, eclasses)
        if items and item.cls < items[-1].cls:
            raise StageError(f"{one.where} is not in the order of the classes")
        items.append(item)
        quotes.append(offers)
    priced = PricedCandidates(
        candidates=Candidates(eclasses, tuple(items), n_classes),
        sizes=sizes_from_json(entry),
        roots=entry.wholes("roots", n_classes),
        max_constant_bytes=entry.whole("max_constant_bytes", _MANY, begin=-1),
        implementations=tuple(
            tuple((backend, how) for backend, how, _ in offers) for offers in quotes
        ),
        refused=frozenset(entry.wholes("refused", n_classes)),
        interface=form_from_json(entry, "interface"),
    )
    prices = _prices(priced, quotes)
    converted = []
    for one in entry.entries("conversions", "conversion"):
        conversion, found = _conversion(one, priced)
        converted.append(conversion)
        prices.update((Offer(conversion.kernel, name, how), price) for name, how, price in found)
    priced = replace(priced, conversions=tuple(converted))
    return QuotedCandidates(priced, prices, named.legend)


def _conversion(entry: Entry, priced: PricedCandidates) -> tuple[Conversion, list[Offered]]:
    """Read one conversion and its offers."""
    entry.require_all("class", "made", "read", "offers")
    eclasses = priced.candidates.eclasses
    cls = entry.whole("class", eclasses.n_classes)
    type_ = eclasses.types[cls]
    if not isinstance(type_, TensorType):
        raise StageError(f"{entry.where} converts class {cls}, which is no tensor")
    made, read = form_from_json(entry, "made"), form_from_json(entry, "read")
    try:
        kernel = conversion_kernel(type_, made, read, priced.sizes)
    except KeyError as error:
        raise StageError(f"the symbol {error} has no size among sizes") from error
    if kernel is None:
        raise StageError(f"{entry.where} converts class {cls}, which has no such size")
    found = [offer_from_json(one, 1, 1) for one in entry.entries("offers", "offer")]
    ways = tuple((name, how) for name, how, _ in found)
    return Conversion(cls, made, read=read, kernel=kernel, implementations=ways), found


def sizes_from_json(entry: Entry) -> dict[str, int]:
    """Read the size of each symbol from the field ``sizes``."""
    sizes = entry.mapping("sizes")
    return {name: sizes.whole(name, _MANY) for name in sizes.value}


def candidate_from_json(
    entry: Entry, n_classes: int, n_eclasses: int, n_nodes: int
) -> tuple[Candidate, tuple[Offered, ...]]:
    """Read one candidate and its offers.

    Args:
        entry: the JSON object.
        n_classes: number of classes and pseudo-classes.
        n_eclasses: number of classes that are not pseudo-classes.
        n_nodes: number of e-nodes.

    Raises:
        StageError: see :func:`candidates_from_json`.
    """
    reads = entry.wholes("reads", n_classes)
    operands = tuple(_operand(item, entry, n_eclasses) for item in entry.items("operands"))
    if not {ref.cls for ref in operands} <= {*reads}:
        raise StageError(f"{entry.where} has an operand that is not among what it reads")
    steps = _steps(entry, len(operands))
    item = Candidate(
        cls=entry.whole("class", n_classes),
        kind=entry.text("kind"),
        nodes=entry.wholes("nodes", n_nodes),
        reads=reads,
        operands=operands,
        steps=steps,
        outputs=entry.wholes("outputs", len(operands) + len(steps)),
        index=entry.whole("index", _MANY) if "index" in entry.value else 0,
        writes=form_from_json(entry, "writes"),
        fused_by=entry.texts("fused_by"),
    )
    _require_parts(entry, item)
    return item, tuple(
        offer_from_json(one, len(operands), len(item.outputs))
        for one in entry.entries("offers", "offer")
    )


def offer_from_json(entry: Entry, n_operands: int, n_outputs: int) -> Offered:
    """Read an offer for a kernel with this number of operands and outputs.

    Raises:
        StageError: see :func:`candidates_from_json`.
    """
    entry.require_fields(
        "backend", "algorithm", *_QUOTED, "source", "steps", "arithmetic", "reads", "writes",
        "workspace", "strided", "precision",
    )  # fmt: skip
    quote = _quote(entry)
    steps = _steps(entry, n_operands) if "steps" in entry.value else None
    if steps is not None and len(steps) < n_outputs:
        raise StageError(f"{entry.where} has fewer steps than the candidate has outputs")
    arithmetic = entry.number("arithmetic") if "arithmetic" in entry.value else 1.0
    how = Implementation(
        entry.text("algorithm"),
        steps,
        arithmetic,
        reads=_forms(entry, "reads", n_operands),
        writes=_forms(entry, "writes", n_outputs),
        workspace_bytes=entry.whole("workspace", _MANY) if "workspace" in entry.value else 0,
        strided=entry.flag("strided") if "strided" in entry.value else False,
        precision=entry.text("precision") if "precision" in entry.value else "",
    )
    return entry.text("backend"), how, quote


def _quote(entry: Entry) -> Quote:
    metrics = {name: entry.number(name) for name in _QUOTED if name in entry.value or name == TIME}
    for name, value in metrics.items():
        if not (math.isfinite(value) and value >= 0):
            unit = METRICS[name].unit
            raise StageError(f"{entry.where} is {value} {unit}; prices are finite and not negative")
    source = entry.text("source")
    for known in SOURCES:
        if source == known:
            return Quote(metrics, known)
    raise StageError(f"{entry.where} has the source {source!r}; it is one of {', '.join(SOURCES)}")


def _steps(entry: Entry, n_operands: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    for one in entry.entries("steps", "step"):
        one.require_fields("op", "attrs", "operands")
        refs = one.wholes("operands", n_operands + len(steps))
        op, attrs = operator_from_json(one, len(refs), {})
        steps.append(Step(op, attrs, refs))
    return tuple(steps)


def form_from_json(entry: Entry, field: str) -> Form:
    """Read the form in a field; the plain form if the field is missing.

    Raises:
        StageError: the field is not a form.
    """
    return _parsed(entry.text(field), entry, field) if field in entry.value else PLAIN


def _forms(entry: Entry, field: str, count: int) -> tuple[Form, ...]:
    """Read one form for each operand or output; none if the field is missing."""
    found = tuple(_parsed(text, entry, field) for text in entry.texts(field))
    if found and len(found) != count:
        raise StageError(f"{entry.place(field)} has {len(found)} forms; it needs {count}")
    return found


def _parsed(text: str, entry: Entry, field: str) -> Form:
    try:
        return Form.parse(text)
    except ValueError:
        raise StageError(f"{entry.place(field)} is {text!r}; a form is space/layout") from None


def _operand(value: Any, entry: Entry, n_eclasses: int) -> OperandRef:
    where = f"an operand of {entry.where}"
    if not isinstance(value, dict):
        return OperandRef(Entry({"class": value}, where).whole("class", n_eclasses))
    one = Entry(value, where)
    one.require_fields("class", "shape", "form")
    shape = one.wholes("shape", _MANY) if "shape" in one.value else None
    return OperandRef(one.whole("class", n_eclasses), shape, form_from_json(one, "form"))


def _require_parts(entry: Entry, item: Candidate) -> None:
    """Raise an error if a candidate lacks what every one of its kind has."""
    if not item.nodes:
        raise StageError(f"{entry.where} covers no e-node")
    expected = {"leaf": 0, "const": 0, "out": 1, "part": 1}.get(item.kind)
    if expected is not None and len(item.reads) != expected:
        raise StageError(f"{entry.where} is a {item.kind} that reads {len(item.reads)} classes")
    runs = expected is None and item.kind not in ("opaque", "made")
    if runs != bool(item.steps) or runs != bool(item.outputs):
        what = "lacks steps or outputs" if runs else "has steps or outputs"
        raise StageError(f"{entry.where} is of the kind {item.kind!r} and {what}")


def _require_own_class(entry: Entry, item: Candidate, eclasses: EClasses) -> None:
    if item.kind in JOINT:
        is_own = item.cls >= eclasses.n_classes
    else:
        is_own = int(eclasses.class_of[item.nodes[-1]]) == item.cls
    if not is_own:
        raise StageError(f"{entry.where} computes another class than {item.cls}")


def _prices(priced: PricedCandidates, quotes: Sequence[tuple[Offered, ...]]) -> dict[Offer, Quote]:
    """Return the price of each offer; raise an error if there is an offer without a kernel."""
    prices: dict[Offer, Quote] = {}
    for number, (kernel, offers) in enumerate(zip(_kernels(priced), quotes, strict=True)):
        if kernel is None and offers:
            raise StageError(f"candidate {number} has an offer, but no kernel")
        for backend, how, price in offers:
            assert kernel is not None
            if prices.setdefault(Offer(kernel, backend, how), price) != price:
                raise StageError(
                    f"candidate {number} has another price than one of the same kernel"
                )
    return prices


def _kernels(priced: PricedCandidates) -> tuple[Kernel | None, ...]:
    """Return the kernels, after a check that each of them is well-typed."""
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
