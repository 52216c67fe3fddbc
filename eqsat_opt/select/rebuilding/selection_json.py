"""A selection as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from eqsat_opt.common.codecs import Document, Entry, number_to_json
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.errors import StageError
from eqsat_opt.extract.extraction import Status
from eqsat_opt.ir.graph.values_json import type_from_json, type_to_json
from eqsat_opt.runtime.backends.protocol import DEFAULT
from eqsat_opt.select.choosing.candidates_json import (
    candidate_from_json,
    candidate_to_json,
    form_from_json,
    offer_from_json,
    offer_to_json,
    sizes_from_json,
)
from eqsat_opt.select.choosing.forms import ConvertedValue
from eqsat_opt.select.rebuilding.priced_selection import Chosen, PricedSelection

__all__ = ["FORMAT", "selection_from_json", "selection_to_json"]

FORMAT = "eqsat-opt selection 2"

_MANY = 1 << 62


# ** writing **


def selection_to_json(priced: PricedSelection) -> Document:
    """Return the document of a selection; :func:`selection_from_json` restores an equal value.

    E-nodes and classes are numbered as in the e-graph that it was chosen from, which is not part of
    the document.
    """
    converted = [
        {
            "class": one.cls,
            "made": str(one.made),
            "read": str(one.form),
            "offer": offer_to_json(one.backend, one.implementation, price),
        }
        for one, price in priced.converted
    ]
    return {
        "format": FORMAT,
        "status": priced.status,
        "cost": number_to_json(priced.cost),
        "lower_bound": number_to_json(priced.lower_bound),
        "objective": _numbers_to_json(priced.objective),
        "metrics": _numbers_to_json(priced.metrics),
        "sizes": dict(sorted(priced.sizes.items())),
        "outputs": [{"name": name, "class": cls} for name, cls in priced.outputs],
        "chosen": [_chosen_to_json(chosen) for chosen in priced.items],
        **({"converted": converted} if converted else {}),
    }


def _numbers_to_json(numbers: Mapping[str, float]) -> dict[str, Any]:
    return {name: number_to_json(value) for name, value in sorted(numbers.items())}


def _chosen_to_json(chosen: Chosen) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if chosen.type is not None:
        value["type"] = type_to_json(chosen.type)
    if chosen.name:
        value["name"] = chosen.name
    if chosen.opaque:
        value["opaque"] = chosen.opaque
    if chosen.rules:
        value["rules"] = list(chosen.rules)
    run = [] if chosen.price is None else [(chosen.backend, chosen.implementation, chosen.price)]
    value["candidate"] = candidate_to_json(chosen.candidate, run)
    return value


# ** reading **


def selection_from_json(document: Any) -> PricedSelection:
    """Read the selection of a document.

    Raises:
        StageError: the document is of another kind or version, a field is missing or foreign, an
            operator or attribute is unknown, a class is chosen twice or read before it is computed.
    """
    entry = Entry(document, "the selection")
    entry.require_format(FORMAT)
    needed = (
        "format", "status", "cost", "lower_bound", "objective", "metrics", "sizes", "outputs",
        "chosen",
    )  # fmt: skip
    entry.require_fields(*needed, "converted")
    for name in needed:
        entry.get(name)
    status: Any = entry.text("status")
    if status not in get_args(Status):
        raise StageError(f"{entry.place('status')} is {status!r}, which is not known")
    items: list[Chosen] = []
    computed: set[int] = set()
    for one in entry.entries("chosen", "choice"):
        items.append(_chosen(one, computed))
        computed.add(items[-1].candidate.cls)
    outputs = []
    for one in entry.entries("outputs", "output"):
        one.require_fields("name", "class")
        outputs.append((one.text("name"), one.whole("class", _MANY)))
        _require_computed(one, (outputs[-1][1],), computed)
    return PricedSelection(
        items=tuple(items),
        outputs=tuple(outputs),
        sizes=sizes_from_json(entry),
        objective=_numbers(entry.mapping("objective")),
        metrics=_numbers(entry.mapping("metrics")),
        cost=entry.number("cost"),
        lower_bound=entry.number("lower_bound"),
        status=status,
        converted=tuple(
            _converted(one, computed) for one in entry.entries("converted", "conversion")
        ),
    )


def _converted(entry: Entry, computed: set[int]) -> tuple[ConvertedValue, Quote]:
    entry.require_all("class", "made", "read", "offer")
    cls = entry.whole("class", _MANY)
    _require_computed(entry, (cls,), computed)
    offer = Entry(entry.get("offer"), entry.place("offer"))
    backend, how, price = offer_from_json(offer, 1, 1)
    made, read = form_from_json(entry, "made"), form_from_json(entry, "read")
    return ConvertedValue(cls, made, read, backend=backend, implementation=how), price


def _numbers(entry: Entry) -> dict[str, float]:
    return {name: entry.number(name) for name in entry.value}


def _chosen(entry: Entry, computed: set[int]) -> Chosen:
    entry.require_fields("type", "name", "opaque", "rules", "candidate")
    inner = Entry(entry.get("candidate"), entry.place("candidate"))
    item, offers = candidate_from_json(inner, _MANY, _MANY, _MANY)
    if len(offers) > 1:
        raise StageError(f"{inner.where} has {len(offers)} offers; one is chosen")
    backend, implementation, price = offers[0] if offers else ("", DEFAULT, None)
    if item.cls in computed:
        raise StageError(f"{entry.where} computes class {item.cls}, which is computed already")
    _require_computed(entry, item.reads, computed)
    has_type = "type" in entry.value
    return Chosen(
        candidate=item,
        type=type_from_json(entry.get("type"), entry.place("type")) if has_type else None,
        backend=backend,
        implementation=implementation,
        price=price,
        name=entry.text("name") if "name" in entry.value else "",
        opaque=entry.text("opaque") if "opaque" in entry.value else "",
        rules=entry.texts("rules"),
    )


def _require_computed(entry: Entry, classes: tuple[int, ...], computed: set[int]) -> None:
    for cls in classes:
        if cls not in computed:
            raise StageError(f"{entry.where} reads class {cls}, which is not computed before it")
