"""The price of operators one by one: the cost model that all methods of a comparison share.

Every operator that depends on the model's inputs is one kernel of its own; what is known at compile
time is free. So the cost of a graph is a sum over its nodes, and a rewrite changes few of them.
An output of an operator that has several is a node, and counts as if it were computed by itself.
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
"""Operators on the way to a normalisation that ONNX says by several others: no result holds one."""


def analytic_price(kernel: Kernel) -> Quote:
    """The roofline's lower bound and one launch: the same on every machine."""
    return Quote({TIME: DEFAULT_ROOFLINE.bound_us(kernel) + LAUNCH_US}, "bound")


def operator_kernel(
    op: str, attrs: Attrs, operands: Sequence[tuple[TensorType, bool]], pattern: Sequence[int]
) -> Kernel:
    """The kernel of one operator.

    `pattern` has for each operand of the operator its number among the distinct ones.
    """
    return Kernel(
        tuple(Operand(type_, const) for type_, const in operands),
        (Step(op, attrs, tuple(pattern)),),
        (len(operands),),
    )


@dataclass
class OperatorCost:
    """Prices operators and remembers the answers.

    Attributes:
        price: gives the price of a kernel with literal sizes.
        sizes: size of each symbolic dimension.
    """

    price: Callable[[Kernel], Quote] = analytic_price
    sizes: Mapping[str, int] = field(default_factory=dict)
    _known: dict[object, float] = field(default_factory=dict, repr=False)

    def time_us(
        self, op: str, attrs: Attrs, operands: Sequence[tuple[ValueType, bool, object]]
    ) -> float:
        """Time of an operator; 0 if all operands are constants, a launch if its work is unknown."""
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
    """The cost of a graph: the sum over the operators that some output needs."""
    constant = set(graph.constants)
    for node in graph.nodes:
        if node.op != OPAQUE and all(name in constant for name in node.reads):
            constant.update(node.outputs)
    # The exact sum, so that the order of the nodes does not matter.
    return math.fsum(
        cost.time_us(node.op, node.attrs, [(graph.types[n], n in constant, n) for n in node.reads])
        for node in graph.live_nodes()
        if node.op == OPAQUE or node.output not in constant
    )
