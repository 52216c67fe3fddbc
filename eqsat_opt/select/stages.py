"""The stages of a search by name: each is printed, written and read in the same way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from eqsat_opt.common.codecs import Document, read_document, write_document
from eqsat_opt.common.paths import shown
from eqsat_opt.egraph import eclasses_json
from eqsat_opt.egraph.legend import NamedEClasses, legend_of
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.ir.graph import listed_graph
from eqsat_opt.ir.graph.listed_graph import ListedGraph
from eqsat_opt.select.choosing import candidates_json, named_problem
from eqsat_opt.select.choosing.named_problem import NamedProblem
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding import selection_json
from eqsat_opt.select.rebuilding.priced_selection import PricedSelection, priced_selection

__all__ = [
    "STAGES",
    "StageValue",
    "read_stage",
    "require_stage",
    "stage_document",
    "stage_of",
    "write_stage",
]

StageValue = ListedGraph | NamedEClasses | QuotedCandidates | NamedProblem | PricedSelection
"""Results that a stage hands to the next; each prints itself, in full by ``str`` or line by
line."""


@dataclass(frozen=True)
class _Kind:
    """Functions that take a stage from a search, write it and read it."""

    format: str
    of: Callable[[Proposal], Any]
    to_json: Callable[[Any], Document]
    from_json: Callable[[Any], Any]
    type: type[Any]


def _eclasses(proposal: Proposal) -> NamedEClasses:
    eclasses = proposal.saturation.eclasses
    return NamedEClasses(eclasses, legend_of(proposal.saturation.lowered, eclasses))


def _candidates(proposal: Proposal) -> QuotedCandidates:
    priced, prices = proposal.choice.priced, proposal.choice.prices
    own = dict.fromkeys(priced.all_offers)
    return QuotedCandidates(
        priced, {offer: prices[offer] for offer in own}, _eclasses(proposal).legend
    )


def _problem(proposal: Proposal) -> NamedProblem:
    return named_problem.named_problem(_candidates(proposal))


def _selection(proposal: Proposal) -> PricedSelection:
    choice = proposal.choice
    return priced_selection(choice.best, _candidates(proposal), choice.extraction, choice.placed[0])


_KINDS: Mapping[str, _Kind] = {
    "graph": _Kind(
        format=listed_graph.FORMAT,
        of=lambda proposal: ListedGraph(proposal.saturation.lowered.graph),
        to_json=listed_graph.graph_to_json,
        from_json=listed_graph.graph_from_json,
        type=ListedGraph,
    ),
    "eclasses": _Kind(
        format=eclasses_json.FORMAT,
        of=_eclasses,
        to_json=eclasses_json.eclasses_to_json,
        from_json=eclasses_json.eclasses_from_json,
        type=NamedEClasses,
    ),
    "candidates": _Kind(
        format=candidates_json.FORMAT,
        of=_candidates,
        to_json=candidates_json.candidates_to_json,
        from_json=candidates_json.candidates_from_json,
        type=QuotedCandidates,
    ),
    "problem": _Kind(
        format=named_problem.FORMAT,
        of=_problem,
        to_json=named_problem.problem_to_json,
        from_json=named_problem.problem_from_json,
        type=NamedProblem,
    ),
    "selection": _Kind(
        format=selection_json.FORMAT,
        of=_selection,
        to_json=selection_json.selection_to_json,
        from_json=selection_json.selection_from_json,
        type=PricedSelection,
    ),
}

STAGES = tuple(_KINDS)
"""Names of the stages, in the order in which they follow each other."""


def require_stage(name: str) -> None:
    """Raise an error if there is no stage of this name.

    Raises:
        OptionError: there is no stage of this name.
    """
    if name not in _KINDS:
        near = get_close_matches(name, STAGES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionError(f"unknown stage {name!r}; {hint}choose from {', '.join(STAGES)}")


def stage_of(proposal: Proposal, name: str) -> StageValue:
    """Return the value of one stage of a search.

    Raises:
        OptionError: there is no stage of this name.
    """
    require_stage(name)
    value: StageValue = _KINDS[name].of(proposal)
    return value


def stage_document(value: StageValue) -> Document:
    """Return the document of a stage, as it is written."""
    kind = next(kind for kind in _KINDS.values() if isinstance(value, kind.type))
    return kind.to_json(value)


def write_stage(value: StageValue, path: str | os.PathLike[str]) -> None:
    """Write a stage completely or not at all; :func:`read_stage` restores an equal value.

    Raises:
        StageError: the file cannot be written; nothing is left behind.
    """
    write_document(path, stage_document(value))


def read_stage(path: str | os.PathLike[str]) -> StageValue:
    """Read a stage of any kind from a file.

    Raises:
        StageError: the file cannot be read, is no stage, was written by another version, or is
            damaged; the message describes the problem.
    """
    document = read_document(path)
    found = document.get("format")
    name = shown(os.fspath(path))
    for kind in _KINDS.values():
        if found == kind.format:
            try:
                value: StageValue = kind.from_json(document)
            except StageError as error:
                raise StageError(f"{name}: {error}; write it again") from error
            return value
    formats = ", ".join(repr(kind.format) for kind in _KINDS.values())
    what = "no format" if found is None else f"the format {found!r:.60}"
    raise StageError(f"{name} has {what}; this version reads {formats}")
