"""One walk over the nodes of a graph, operands first, and the list of cases it looks for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.ops import OPS, with_trait
from eqsat_opt.ir.passes.protocol import since, up_to
from eqsat_opt.ir.passes.simplification.branches import chosen_branch, expanded_branch
from eqsat_opt.ir.passes.simplification.case import SimplificationCase
from eqsat_opt.ir.passes.simplification.draft import Draft
from eqsat_opt.ir.passes.simplification.expansions import without_expansions
from eqsat_opt.ir.passes.simplification.folding import ROUNDING, folded, folded_opaque
from eqsat_opt.ir.passes.simplification.no_effect import (
    WITH_NEUTRAL_ELEMENT,
    WITHOUT_EFFECT,
    beside_neutral,
    beside_neutral_or_zero,
    identical,
    unchanged,
)
from eqsat_opt.ir.passes.simplification.sharing import computed_before

__all__ = ["CASES", "simplify"]

_OPAQUE, _KNOWN = frozenset({OPAQUE}), frozenset(OPS)
_WHERE = frozenset({"Where"})

CASES: tuple[SimplificationCase, ...] = (
    SimplificationCase("expansion", without_expansions, with_trait("broadcasting")),
    SimplificationCase("identity", identical, _OPAQUE),
    SimplificationCase("no-effect", unchanged, WITHOUT_EFFECT),
    SimplificationCase(
        "neutral-element", beside_neutral, WITH_NEUTRAL_ELEMENT, up_to(Numerics.REFACTOR)
    ),
    SimplificationCase(
        "zero", beside_neutral_or_zero, WITH_NEUTRAL_ELEMENT, since(Numerics.RELAXED)
    ),
    SimplificationCase("chosen-branch", chosen_branch, _WHERE),
    SimplificationCase("expanded-branch", expanded_branch, _WHERE),
    SimplificationCase("constant", folded, _KNOWN - ROUNDING),
    SimplificationCase("rounded-constant", folded, ROUNDING, since(Numerics.REASSOCIATE)),
    SimplificationCase("opaque-constant", folded_opaque, _OPAQUE, since(Numerics.REASSOCIATE)),
    SimplificationCase("common-subexpression", computed_before, _KNOWN),
)
"""The cases in their order for each node; it ends with the first that finds its value."""


def simplify(graph: Graph, numerics: Numerics) -> Graph:
    """Drop nodes without effect, fold those on constants, merge equal ones, remove dead ones.

    1. Equal constants are one.
    2. An expansion before an operator that broadcasts anyway is skipped.
    3. An Identity, and an operator that does not change its operand, is its operand.
    4. An operand beside a neutral element is the result.
    5. A Where whose condition is constant is the branch that it takes.
    6. An operator on constants is a constant.
    7. An opaque standard operator on constants is a constant, unless it belongs to quantised
       arithmetic.
    8. Nodes with equal operands and attributes are one.

    Args:
        graph: the graph.
        numerics: the class of allowed differences, which decides on cases 4, 6 and 7.
    """
    draft = Draft(graph)
    for node in graph.live_nodes():
        _enter(draft.present(node), draft, _cases(node.op, numerics))
    return draft.graph()


@cache
def _cases(op: str, numerics: Numerics) -> tuple[SimplificationCase, ...]:
    return tuple(one for one in CASES if op in one.ops and numerics in one.classes)


def _enter(node: Node, draft: Draft, cases: Iterable[SimplificationCase]) -> None:
    for case in cases:
        match case.find(node, draft):
            case None:
                continue
            case Node() as other:
                node = other
            case str() as value:
                draft.alias(node, value)
                return
            case constants:
                draft.define(node, constants)
                return
    draft.append(node)
