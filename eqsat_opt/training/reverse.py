"""Reverse accumulation: gradients of a value with respect to others, node by node from the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import eqsat_opt.training.derivatives  # noqa: F401  (fills the tables)
from eqsat_opt.ir.graph.graph import OPAQUE, Node
from eqsat_opt.ir.values.types import FLOATS, TensorType
from eqsat_opt.training.derivatives.table import (
    DEFINITIONS,
    DERIVATIVES,
    TapeApplication,
    is_constant,
    no_derivative,
)
from eqsat_opt.training.tape import Tape, TapeValue

__all__ = ["accumulate", "by_definition", "depends_on"]


def depends_on(nodes: Iterable[Node], wanted: Collection[str]) -> frozenset[str]:
    """Return the values that depend on ``wanted`` differentiably, these included.

    Args:
        nodes: nodes in topological order.
        wanted: names of values.
    """
    found = set(wanted)
    for node in nodes:
        if not is_constant(node) and not found.isdisjoint(node.reads):
            found.update(filter(None, node.outputs))
    return frozenset(found)


def accumulate(
    tape: Tape, nodes: Sequence[Node], seeds: Mapping[str, TapeValue], wanted: Collection[str]
) -> dict[str, TapeValue]:
    """Return the gradients of ``wanted``, by name; a value that no seed depends on has none.

    Args:
        tape: the tape that holds the nodes; the gradients are written at its end.
        nodes: nodes in topological order.
        seeds: the gradient of each result.
        wanted: names of values.

    Raises:
        ModelError: an operator on the way has no derivative.
    """
    needed = depends_on(nodes, wanted)
    found = dict(seeds)
    for node in reversed(nodes):
        gradient = next((found[name] for name in node.outputs if name in found), None)
        if gradient is None or needed.isdisjoint(node.reads) or is_constant(node):
            continue
        for name, part in _parts(tape, node, gradient, needed):
            found[name] = found[name] + part if name in found else part
    return {name: found[name] for name in wanted if name in found}


def _parts(
    tape: Tape, node: Node, gradient: TapeValue, needed: Collection[str]
) -> Iterable[tuple[str, TapeValue]]:
    """Yield the operands of a node that are needed, with what this node adds to their gradients."""
    if node.op == OPAQUE:
        kind = node.payload.op_type if node.payload is not None else node.op
        raise no_derivative(node, f"the operator {kind} is not known")
    wanted = frozenset(
        number
        for number, name in enumerate(node.inputs)
        if name in needed and _is_float(tape, name)
    )
    if not wanted:
        return
    operands = tuple(tape.value(name) for name in node.inputs)
    one = TapeApplication(node, operands, tape.value(node.output), gradient, wanted=wanted)
    if node.op in DERIVATIVES:
        parts = DERIVATIVES[node.op](one)
    elif node.op in DEFINITIONS:
        parts = by_definition(one)
    else:
        raise no_derivative(node, "its derivative is not known")
    for number, part in enumerate(parts):
        if number in wanted and part is not None:
            shape = operands[number].shape
            yield node.inputs[number], part if part.shape == shape else part.summed_to(shape)


def _is_float(tape: Tape, name: str) -> bool:
    return isinstance(tape.value(name).type, TensorType) and tape.value(name).dtype in FLOATS


def by_definition(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return the gradients of an operator from those of its definition."""
    result = DEFINITIONS[one.node.op](one.operands, one.attrs)
    names = [value.name for value in one.operands]
    wanted = {names[number] for number in one.wanted}
    nodes = result.tape.part(result, frozenset(names))
    found = accumulate(result.tape, nodes, {result.name: one.gradient}, wanted)
    # An operand that is given twice has its whole gradient at its first place.
    return [found.pop(name, None) for name in names]
