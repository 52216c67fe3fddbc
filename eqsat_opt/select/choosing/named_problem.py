"""The extraction problem with the names of its search, and as egraph-serialize JSON.

Its files are those of the public extraction-gym, with the costs of several metrics and of every
implementation, so `eqsat-opt extract` reads them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.common.text_columns import aligned
from eqsat_opt.errors import ExtractionError, StageError
from eqsat_opt.extract.gym.files import GymFile, from_document, to_document
from eqsat_opt.select.choosing.body import FREE
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.choosing.priced_problem import PricedProblem

__all__ = ["FORMAT", "NamedProblem", "named_problem", "problem_from_json", "problem_to_json"]

FORMAT = "eqsat-opt problem 1"


@dataclass(frozen=True)
class NamedProblem:
    """The problem that extraction solves.

    Attributes:
        file: the problem; a class has its name from the other stages, an e-node is named by its
            class and the number of its candidate.
    """

    file: GymFile

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """Yield a line of counts, a header, and one line per implementation of an e-node.

        Args:
            short: whether to leave out implementations that cost nothing.
        """
        file, problem = self.file, self.file.problem
        yield (
            f"e-nodes {problem.n_nodes}, classes {problem.n_classes}, implementations "
            f"{problem.n_implementations}, roots "
            + ", ".join(file.class_names[root] for root in problem.roots)
            + ("; without what costs nothing" if short else "")
        )
        rows, costs = [], problem.impl_cost.tolist()
        for node, name in enumerate(file.node_names):
            reads = ", ".join(file.class_names[cls] for cls in problem.children(node))
            for row in range(int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])):
                if short and not any(costs[row]):
                    continue
                texts = (f"{cost:.6g}" if cost else "" for cost in costs[row])
                by = file.implementation_names[row]
                runs = f"{file.ops[node]}({reads})" if reads else file.ops[node]
                rows.append((name, "" if by == "0" else by, *texts, runs))
        header = ("e-node", "by", *problem.metrics, "runs")
        yield from aligned(header, rows, right=range(2, len(header) - 1))

    def __str__(self) -> str:
        return "\n".join(self.lines())


def named_problem(quoted: QuotedCandidates) -> NamedProblem:
    """Return the problem of candidates at their prices.

    Candidates that read a class which nothing computes are left out.

    Raises:
        ExtractionError: a root has no candidate.
    """
    priced = quoted.problem()
    problem, kept = priced.problem, list(range(len(priced.index)))
    first: dict[int, int] = {}
    while True:
        first = {int(problem.node_class[node]): node for node in reversed(kept)}
        sound = [n for n in kept if all(cls in first for cls in problem.children(n))]
        if len(sound) == len(kept):
            break
        kept = sound
    class_names = [_class_name(priced, cls) for cls in range(problem.n_classes)]
    names = {node: _node_name(priced, node, class_names) for node in kept}
    nodes = {}
    for node, name in names.items():
        begin, end = int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])
        labels = _labels(quoted, priced, node)
        nodes[name] = {
            "op": _operator(quoted, priced, node),
            "children": [names[first[cls]] for cls in problem.children(node)],
            "eclass": class_names[int(problem.node_class[node])],
            "implementations": [
                {"name": by, "costs": dict(zip(problem.metrics, row, strict=True))}
                for by, row in zip(
                    _distinct(labels), problem.impl_cost[begin:end].tolist(), strict=True
                )
            ],
        }
    roots = [class_names[root] for root in problem.roots]
    document = {"nodes": nodes, "root_eclasses": roots, "peaks": list(problem.peaks)}
    return NamedProblem(from_document(document))


def _class_name(priced: PricedProblem, number: int) -> str:
    """Return ``#7``, with forms ``#7 cuda/nhwc``; with ``read`` at its end if it is converted."""
    (cls, form), is_read = priced.value_of.get(number, ((number, None), False))
    return f"#{cls}" + (f" {form}" if form else "") + (" read" if is_read else "")


def _node_name(priced: PricedProblem, node: int, class_names: Sequence[str]) -> str:
    """Return the class with the number of the candidate, or with the form that it is read from."""
    own = class_names[int(priced.problem.node_class[node])]
    if priced.index[node] >= 0:
        picks = priced.picks.get(node)
        return f"{own}.{priced.index[node]}" + (f".{picks[0]}" if picks else "")
    (made,) = priced.problem.children(node)
    return f"{own} from {class_names[made]}"


def _labels(quoted: QuotedCandidates, priced: PricedProblem, node: int) -> list[str]:
    """Return the backend and algorithm of each implementation of a node."""
    conversion, candidate = priced.conversion_number(node), priced.index[node]
    if conversion is not None:
        return [offer.by for offer in quoted.priced.conversions[conversion].offers]
    offers = quoted.priced.offers[candidate] if candidate >= 0 else ()
    picks = priced.picks.get(node, range(len(offers)))
    return [offers[number].by for number in picks] or ["0"]


def _operator(quoted: QuotedCandidates, priced: PricedProblem, node: int) -> str:
    """Return the kernel of a candidate, or its kind or value if it runs nothing."""
    number = priced.index[node]
    if number < 0:
        return "as made" if priced.conversion_number(node) is None else "convert"
    item, kernel = quoted.priced.candidates.items[number], quoted.priced.kernels[number]
    if kernel is not None:
        return kernel.name
    own = quoted.named.node_text(item.nodes[0])
    if item.kind == "opaque":
        return own.partition("(")[0]
    return own if item.kind in FREE else item.kind


def _distinct(labels: list[str]) -> list[str]:
    return [label if labels.count(label) == 1 else f"{label} {i}" for i, label in enumerate(labels)]


def problem_to_json(named: NamedProblem) -> Document:
    """Return the document of a problem; :func:`problem_from_json` restores an equal value."""
    return {"format": FORMAT, **to_document(named.file)}


def problem_from_json(document: Any) -> NamedProblem:
    """Read the problem of a document.

    Raises:
        StageError: the document is of another kind or version, or has no e-graph with costs.
    """
    entry = Entry(document, "the problem")
    entry.require_format(FORMAT)
    entry.require_fields("format", "nodes", "root_eclasses", "peaks")
    for name in ("format", "nodes", "root_eclasses"):
        entry.get(name)
    try:
        return NamedProblem(from_document(entry.value))
    except ExtractionError as error:
        raise StageError(str(error)) from error
