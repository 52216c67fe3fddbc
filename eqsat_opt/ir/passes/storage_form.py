"""A graph in the form that a file holds: sums of products as Gemm, and no weight twice.

Constants are folded when the graph is normalised and when a selection is written. If folding makes
another copy of a weight, for example of an embedding that is also the matrix of the last product,
the file has a node that computes the copy. A runtime folds such a node when a session is made, so
that it costs no time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.graph.handles import Expression, held_bytes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.gemms import with_gemms
from eqsat_opt.ir.passes.protocol import Pass, run_passes, since
from eqsat_opt.ir.values.types import ValueType

__all__ = ["SMALLEST_FORM", "STORAGE_FORM", "as_stored", "unfolded"]

_WORTH_BYTES = 1 << 10
"""Size below which constants are stored as they are: a node takes about as much of a file."""


def as_stored(graph: Graph, *, exact: bool, least: bool) -> Graph:
    """Return the graph to be written for a graph that was found.

    Args:
        graph: a graph of operators of the registry.
        exact: whether every bit counts; the rounding of a sum within a product is not specified.
        least: whether to minimise the bytes of weights, and not only to remove copies.
    """
    numerics = Numerics.BITEXACT if exact else Numerics.REASSOCIATE
    return run_passes(SMALLEST_FORM if least else STORAGE_FORM, graph, numerics)


def unfolded(graph: Graph, *, least: bool) -> Graph:
    """Return the graph with nodes for constants that were folded from smaller ones.

    1. One that only moves the elements of another constant of the graph is computed from that.
    2. With ``least``, one that takes more bytes than its operands is computed from them.

    Args:
        graph: any graph.
        least: whether to minimise the bytes of constants, and not only to remove copies.
    """
    return _Unfolding(graph, least).run()


_GEMMS = Pass("gemms", with_gemms, since(Numerics.REASSOCIATE))

STORAGE_FORM: tuple[Pass, ...] = (_GEMMS, Pass("unfolding", partial(unfolded, least=False)))
"""The passes of the form that a file holds, in the order in which they run."""

SMALLEST_FORM: tuple[Pass, ...] = (_GEMMS, Pass("unfolding", partial(unfolded, least=True)))
"""The same if the bytes of weights are minimised."""


class _Unfolding:
    """One walk over the constants of a graph."""

    def __init__(self, graph: Graph, least: bool) -> None:
        self.graph = graph
        self.least = least
        self.read = {name for node in graph.live_nodes() for name in node.reads}
        self.kept = set(graph.outputs)
        self.constants = dict(graph.constants)
        self.types: dict[str, ValueType] = dict(graph.types)
        self.nodes: list[Node] = []
        used = self.read | self.kept
        self.places = {one.digest: name for name, one in graph.constants.items() if name in used}

    def run(self) -> Graph:
        # A constant that others are computed from stays, so the smaller ones are examined first.
        held = [(name, one) for name, one in self.graph.constants.items() if name in self.read]
        needed: set[str] = set()
        for name, constant in sorted(held, key=lambda item: held_bytes([item[1]])):
            if name in self.kept or name in needed or not self.gains(constant):
                continue
            needed.update(self.unfold(name, constant))
        if not self.nodes:
            return self.graph
        nodes = (*self.nodes, *self.graph.nodes)
        return replace(self.graph, nodes=nodes, constants=self.constants, types=self.types)

    def gains(self, constant: Constant) -> bool:
        """Return whether the file is smaller with the operands that a constant was folded from."""
        bytes_, made = held_bytes([constant]), constant.source
        if bytes_ < _WORTH_BYTES or not _is_made_of_others(constant):
            return False
        if not self.least:
            is_moved = len(made.operands) == 1 and get_op(made.op).keeps_elements
            return is_moved and made.operands[0].digest in self.places
        return held_bytes(one for one in self.bases(constant) if not self.is_held(one)) < bytes_

    def is_held(self, constant: Constant) -> bool:
        return constant.digest in self.places

    def bases(self, constant: Constant) -> list[Constant]:
        """Return the constants that one is computed from in the end, or that the graph holds."""
        found: dict[str, Constant] = {}
        pending = list(constant.source.operands)
        while pending:
            one = pending.pop()
            if _is_made_of_others(one) and not self.is_held(one):
                pending += one.source.operands
            else:
                found[one.digest] = one
        return list(found.values())

    def unfold(self, name: str, constant: Constant) -> list[str]:
        """Add the nodes that compute a constant; return the names of their operands."""
        del self.constants[name]
        self.places.pop(constant.digest, None)
        made: Expression = constant.source
        operands = [self.named(one, f"{name}_{i}") for i, one in enumerate(made.operands)]
        self.nodes.append(Node(made.op, tuple(operands), (name,), made.attrs))
        return operands

    def named(self, constant: Constant, wanted: str) -> str:
        """Return the name of a constant that a node reads; another node may compute it as well."""
        if constant.digest in self.places:
            return self.places[constant.digest]
        name = wanted
        while name in self.types:
            name += "_"
        self.types[name] = constant.type
        self.places[constant.digest] = name
        self.constants[name] = constant
        if _is_made_of_others(constant):
            self.unfold(name, constant)
            self.places[constant.digest] = name
        return name


def _is_made_of_others(constant: Constant) -> bool:
    """Return whether a node can compute a constant.

    An expression without operands has no operator in ONNX.
    """
    return isinstance(constant.source, Expression) and bool(constant.source.operands)
