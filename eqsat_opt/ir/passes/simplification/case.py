"""Cases of the simplification: functions that look at one node, as rows of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Constant, Node
from eqsat_opt.ir.passes.protocol import ALL_CLASSES
from eqsat_opt.ir.passes.simplification.draft import Draft

__all__ = ["Found", "SimplificationCase"]

Found = str | Sequence[Constant | None] | Node | None
"""The name of a value that the only output equals; constants that the outputs equal, in their
order; another node with the same outputs, which the next cases look at; or nothing."""


@dataclass(frozen=True)
class SimplificationCase:
    """A row of the list of cases.

    Attributes:
        name: a name in kebab-case.
        find: the case. It changes no name and no node of the draft; the operands of the node that
            it looks at have their present names.
        ops: the operators of nodes that it looks at.
        classes: the numerics classes in which it holds.
    """

    name: str
    find: Callable[[Node, Draft], Found]
    ops: AbstractSet[str]
    classes: frozenset[Numerics] = ALL_CLASSES
