"""Prices of single operators: the cost model that all methods of a comparison share.

Every operator that depends on the model's inputs is one kernel of its own; operators on constants
are free. The cost of a graph is therefore a sum over its nodes, and a rewrite changes few of them.
Each output of an operator with several outputs is a node, and counts as if it were computed by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_opt.cost.metrics import LAUNCH_US, TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.roofline import DEFAULT_ROOFLINE
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Graph
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["STEPS", "OperatorCost", "analytic_price", "graph_cost_us", "operator_kernel"]

STEPS = frozenset({"Center", "RmsN", "Rsqrt"})
"""Intermediate operators of a normalisation that ONNX expresses by several others; no result has
one."""


def analytic_price(kernel: Kernel) -> Quote:
    """Return the roofline's lower bound plus one launch, which are the same on every machine."""
    return Quote({TIME: DEFAULT_ROOFLINE.bound_us(kernel) + LAUNCH_US}, "bound")


def operator_kernel(
    op: str, attrs: Attrs, operands: Sequence[tuple[TensorType, bool]], pattern: Sequence[int]
) -> Kernel:
    """Return the kernel of one operator.

    `pattern` gives for each operand of the operator its index among the distinct operands.
    """
    return Kernel(
        tuple(Operand(type_, const) for type_, const in operands),
        (Step(op, attrs, tuple(pattern)),),
        (len(operands),),
    )


@dataclass
class OperatorCost:
    """Prices of operators, with a cache.

    Attributes:
        price: the function that prices a kernel with literal sizes.
        sizes: size of each symbolic dimension.
    """

    price: Callable[[Kernel], Quote] = analytic_price
    sizes: Mapping[str, int] = field(default_factory=dict)
    _known: dict[object, float] = field(default_factory=dict, repr=False)

    def time_us(
        self, op: str, attrs: Attrs, operands: Sequence[tuple[ValueType, bool, object]]
    ) -> float:
        """Return the time of an operator, µs: 0 on constants, a launch if its work is unknown."""
        if op == OPAQUE:
            return LAUNCH_US
        if all(const for _, const, _ in operands):
            return 0.0
        distinct = {identity: (type_, const) for type_, const, identity in operands}
        numbers = {identity: i for i, identity in enumerate(distinct)}
        pattern = tuple(numbers[identity] for _, _, identity in operands)
        key = (op, attrs, tuple(distinct.values()), pattern)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._price(op, attrs, tuple(distinct.values()), pattern)
        return known

    def _price(
        self,
        op: str,
        attrs: Attrs,
        operands: Sequence[tuple[ValueType, bool]],
        pattern: Sequence[int],
    ) -> float:
        tensors = [(type_, const) for type_, const in operands if isinstance(type_, TensorType)]
        if len(tensors) != len(operands):
            return LAUNCH_US
        kernel = operator_kernel(op, attrs, tensors, pattern)
        if kernel.static_types is None:
            try:
                kernel = kernel.with_sizes(dict(self.sizes))
                static = kernel.static_types
            except (IllTyped, KeyError):
                static = None
            if static is None:
                return LAUNCH_US
        return self.price(kernel).time_us


def graph_cost_us(graph: Graph, cost: OperatorCost) -> float:
    """Return the cost of a graph, µs: the sum over the operators that some output needs."""
    constant = set(graph.constants)
    for node in graph.nodes:
        if node.op != OPAQUE and all(name in constant for name in node.reads):
            constant.update(node.outputs)
    # An exact sum does not depend on the order of the nodes.
    return math.fsum(
        cost.time_us(node.op, node.attrs, [(graph.types[n], n in constant, n) for n in node.reads])
        for node in graph.live_nodes()
        if node.op == OPAQUE or node.output not in constant
    )
