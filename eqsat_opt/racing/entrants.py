"""The graphs of a proposal that are worth a race: equal ones once, never the original again."""

from __future__ import annotations

import onnx_ir

from eqsat_opt.cost.metrics import METRICS, PEAK, WEIGHT_BYTES
from eqsat_opt.extract import AnyObjective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.content import constant_bytes, operator_counts
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.select.peak_memory import keeps_peak
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.raising import rules_used

__all__ = [
    "ALTERNATIVE",
    "BEST",
    "CLEAN",
    "ORIGINAL",
    "entrants_of",
    "has_other_bodies",
    "is_simpler",
    "is_worth_writing",
    "metrics_of",
    "structure",
]

ORIGINAL = "original"
BEST = "best"
CLEAN = "clean"
ALTERNATIVE = "alternative-"

_TIE = 1e-9
"""Relative difference up to which costs count as equal."""


def entrants_of(
    proposal: Proposal,
    clean: Graph,
    imported: Graph,
    objective: AnyObjective,
    *,
    by_cost: bool = False,
) -> dict[str, Graph]:
    """Return the graphs that enter a race by name, the cheapest first.

    ``best`` is the extracted graph, ``clean`` the original after normalisation only, which takes
    the place of an extracted graph that is no other, ``alternative-k`` the runners-up. All of them
    keep the limits, as predicted.

    Args:
        proposal: the result of the search.
        clean: the normalised graph, which was searched.
        imported: the graph as imported.
        objective: the objective that was minimised.
        by_cost: whether the predicted cost alone decides; graphs that cost more than the original
            are left out then, and :func:`is_worth_writing` decides about the rest.
    """
    named = {CLEAN: clean, BEST: proposal.best}
    for i, other in enumerate(proposal.alternatives, start=1):
        named[f"{ALTERNATIVE}{i}"] = other
    metrics = {name: metrics_of(proposal, name) for name in named}
    cost = {name: objective.value(one) for name, one in metrics.items()}
    breaks_limit = bool(proposal.choice.original_breaks)
    is_cleaner = is_simpler(clean, imported)
    counts = clean.operator_counts()
    # Written by kernels, the same operators come in another order.
    same = {structure(proposal.original): structure(clean)}
    if proposal.original.operator_counts() != counts:
        same = {}
    seen: set[str] = set()
    kept = {}
    for name, graph in named.items():
        text = structure(graph)
        text = same.get(text, text)
        # A rule that only removes nodes leaves its name on none; neither do kernels of backends.
        is_rewritten = bool(rules_used(graph)) or graph.operator_counts() != counts
        # Where memory counts, so does the order.
        is_rewritten = is_rewritten or objective.uses(PEAK)
        is_worth_it = not by_cost or breaks_limit or cost[name] <= cost[CLEAN]
        if (name == CLEAN and breaks_limit) or not keeps_peak(objective, metrics[name]):
            continue
        if text not in seen and (is_cleaner or is_rewritten) and is_worth_it:
            kept[name] = graph
        seen.add(text)
    return dict(sorted(kept.items(), key=lambda item: (cost[item[0]], item[0] == CLEAN)))


def is_simpler(clean: Graph, imported: Graph) -> bool:
    """Return whether normalisation left less to do, rather than the graph as it was imported."""
    return (
        clean.operator_counts() != imported.operator_counts()
        or _has_new_constants(clean, imported)
        or has_other_bodies(clean)
        # The import has already folded the nodes that compute shapes.
        or (imported.model is not None and len(clean.nodes) < _running(imported.model))
    )


def is_worth_writing(
    proposal: Proposal,
    name: str,
    objective: AnyObjective,
    *,
    model: onnx_ir.Model,
    before: onnx_ir.Model,
) -> bool:
    """Return whether an entrant may be written where the predicted cost alone decides.

    It has to cost less than the original, or as much with fewer operators. Metrics of a file, such
    as the size of its weights, are taken from both files, as a search knows the original only after
    constant folding.

    Args:
        proposal: the result of the search.
        name: name of the entrant.
        objective: the objective that was minimised.
        model: the entrant, as it would be written.
        before: the model as given.
    """
    if proposal.choice.original_breaks:
        return True
    cost, original = (
        objective.value({**metrics_of(proposal, one), **_told_by(file)})
        for one, file in ((name, model), (ORIGINAL, before))
    )
    if cost > original * (1 + _TIE):
        return False
    if cost < original * (1 - _TIE):
        return True
    # Names of nodes take bytes too, which a user who minimises those of weights does not want.
    is_larger = objective.uses(WEIGHT_BYTES) and _file_bytes(model) > _file_bytes(before)
    return _has_fewer(model, before) and not is_larger


_COUNTED_BYTES = 1 << 30
"""Most bytes of weights with which a file is made only to count its bytes."""


def _file_bytes(model: onnx_ir.Model) -> int:
    return int(model_proto(model).ByteSize()) if constant_bytes(model) < _COUNTED_BYTES else 0


def _told_by(model: onnx_ir.Model) -> dict[str, float]:
    """Return the metrics that follow from a file."""
    return {
        name: metric.of_file(model)
        for name, metric in METRICS.items()
        if metric.of_file is not None
    }


def _has_fewer(model: onnx_ir.Model, before: onnx_ir.Model) -> bool:
    """Return whether a model has fewer nodes than before.

    Nodes are counted with and without Identity nodes. One count has to shrink, and none may grow.
    """
    pairs = [
        (count(model), count(before)) for count in (_running, lambda one: _running(one, "Identity"))
    ]
    return all(now <= then for now, then in pairs) and any(now < then for now, then in pairs)


def _running(model: onnx_ir.Model, *free: str) -> int:
    """Count the nodes that run in a model, except those of ``free`` operators."""
    counts = operator_counts(model)
    return counts.total() - sum(counts[op] for op in ("Constant", *free))


def metrics_of(proposal: Proposal, name: str) -> dict[str, float]:
    """Return the predicted totals of an entrant or the original; empty for any other graph."""
    choice = proposal.choice
    if name == BEST:
        return dict(choice.metrics)
    if name.startswith(ALTERNATIVE):
        return dict(choice.alternative_metrics[int(name.removeprefix(ALTERNATIVE)) - 1])
    return dict(choice.original_metrics) if name in (ORIGINAL, CLEAN) else {}


def _has_new_constants(clean: Graph, imported: Graph) -> bool:
    digests = {constant.digest for constant in imported.constants.values()}
    return any(constant.digest not in digests for constant in clean.constants.values())


def has_other_bodies(graph: Graph) -> bool:
    """Return whether a node of the model that has bodies, such as an If, is not in the graph.

    Either a branch that is known to be taken entered the graph, or the bodies are new.
    """
    if graph.model is None:
        return False
    kept = {id(node.payload) for node in graph.nodes}
    return any(
        id(node) not in kept and any(True for _ in inner_graphs(node)) for node in graph.model.graph
    )


def structure(graph: Graph) -> str:
    """Return a text that is equal for graphs that compute in the same way, whatever their names."""
    number = {name: f"i{i}" for i, name in enumerate(graph.inputs)}
    number.update({name: f"c{constant.digest}" for name, constant in graph.constants.items()})
    lines = []
    for i, node in enumerate(graph.nodes):
        identity = node.name if node.payload is not None else ""
        lines.append(f"{node.op}{node.attrs}{[number.get(n, n) for n in node.inputs]}{identity}")
        number.update({name: f"n{i}.{j}" for j, name in enumerate(node.outputs)})
    return "\n".join([*lines, *(number[name] for name in graph.outputs)])
