"""The extraction problem under the names of its search, and as egraph-serialize JSON.

Its files are those of the public extraction-gym, with the costs of several metrics and of every
implementation, so `eqsat-opt extract` reads them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eqsat_opt.columns import aligned
from eqsat_opt.documents import Document, Entry
from eqsat_opt.errors import ExtractionError, StageError
from eqsat_opt.extract.gym.files import GymFile, from_document, to_document
from eqsat_opt.select.body import FREE
from eqsat_opt.select.quoted import QuotedCandidates

__all__ = ["FORMAT", "NamedProblem", "named_problem", "problem_from_json", "problem_to_json"]

FORMAT = "eqsat-opt problem 1"


@dataclass(frozen=True)
class NamedProblem:
    """The problem that extraction solves.

    Attributes:
        file: the problem; a class is called as in the other stages, an e-node by its class and the
            number of its candidate.
    """

    file: GymFile

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """A line of counts, a header, and one line per implementation of an e-node.

        Args:
            short: whether what costs nothing has no line.
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
    """The problem of candidates at their prices, without what reads a class that nothing computes.

    Raises:
        ExtractionError: a root has no candidate.
    """
    priced = quoted.problem()
    items, offers = quoted.priced.candidates.items, quoted.priced.offers
    names = {number: f"#{items[number].cls}.{number}" for number in priced.index}
    first = {items[number].cls: names[number] for number in reversed(names)}
    while stranded := [n for n in names if any(cls not in first for cls in items[n].reads)]:
        for number in stranded:
            del names[number]
        first = {items[number].cls: names[number] for number in reversed(names)}
    problem, nodes = priced.problem, {}
    for number, name in names.items():
        node, item = priced.node_of[number], items[number]
        begin, end = int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])
        labels = [offer.by for offer in offers[number]] or ["0"]
        nodes[name] = {
            "op": _operator(quoted, number),
            "children": [first[cls] for cls in item.reads],
            "eclass": f"#{item.cls}",
            "implementations": [
                {"name": by, "costs": dict(zip(problem.metrics, row, strict=True))}
                for by, row in zip(
                    _distinct(labels), problem.impl_cost[begin:end].tolist(), strict=True
                )
            ],
        }
    roots = [f"#{root}" for root in problem.roots]
    document = {"nodes": nodes, "root_eclasses": roots, "peaks": list(problem.peaks)}
    return NamedProblem(from_document(document))


def _operator(quoted: QuotedCandidates, number: int) -> str:
    """What a candidate runs, or is where it runs nothing."""
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
    """The document of a problem; :func:`problem_from_json` gives back an equal value."""
    return {"format": FORMAT, **to_document(named.file)}


def problem_from_json(document: Any) -> NamedProblem:
    """The problem of a document.

    Raises:
        StageError: the document is of another kind or version, or holds no e-graph with costs.
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
