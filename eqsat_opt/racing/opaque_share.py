"""The share of the original's time that is spent in operators which pass through unchanged.

Nothing prices these operators, as an e-graph holds no equations about them. So a profile of a few
runs measures their share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.ir.passes.coverage import Coverage
from eqsat_opt.runtime.backends.ort.profiling import node_times_us
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.validation.compare import Reference

__all__ = ["time_share"]

_RUNS = 3
_OF_LEFT = 0.25
"""Share of the time left that the profile may take."""


def time_share(
    coverage: Coverage,
    model: onnx_ir.Model,
    original: ModelSource,
    *,
    reference: Reference,
    options: OrtOptions,
    deadline: Deadline,
) -> float | None:
    """Measure the share of nodes that pass through in the time of all nodes.

    Args:
        coverage: the nodes that pass through.
        model: the original.
        original: the original as sessions load it.
        reference: inputs of the original, and how long it takes.
        options: options of the session.
        deadline: end of the whole run.

    Returns:
        The share. It is unknown, and ``None``, if nodes that pass through have no names or share
        them, if the model does not run under the profiler, or if there is no time for that.
    """
    if not coverage.n_passing:
        return 0.0
    needed_s = reference.build_s + _RUNS * reference.run_s
    names = Counter(node.name or "" for node in model.graph)
    if needed_s > _OF_LEFT * deadline.left_s or any(names[one] != 1 for one in coverage.names):
        return None
    try:
        times = node_times_us(
            original, options, reference.feeds[0], runs=_RUNS, deadline=deadline.share(_OF_LEFT)
        )
    except RuntimeFailed:
        return None
    # The time of a node with a subgraph includes its inner nodes, which are listed once more.
    inner = {node.name or "" for node in _inner_nodes(model.graph)} - names.keys()
    outer = {name: spent for name, spent in times.items() if name not in inner}
    total = sum(outer.values())
    passing = sum(spent for name, spent in outer.items() if name in coverage.names)
    return passing / total if 0 < total < float("inf") else None


def _inner_nodes(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Node]:
    for node in graph:
        for inner in inner_graphs(node):
            yield from inner
            yield from _inner_nodes(inner)
