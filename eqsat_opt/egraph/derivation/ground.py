"""Ground terms: the sides of a rule over the inputs of one instance, as the e-graph holds them."""

from __future__ import annotations

from typing import Any, NoReturn

from eqsat_opt.egraph.terms import LEAF, Lowered, TermNode
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph import Attrs, Constant, attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, operator, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["GroundTerms"]


def _no_bytes() -> NoReturn:
    raise AssertionError("a derivation asked for a weight")


class GroundTerms:
    """Collects terms; equal ones become one."""

    def __init__(self, goal: Rule, bindings: Bindings) -> None:
        self.kinds = dict(goal.kinds)
        self.bindings = bindings
        self.nodes: list[TermNode] = []
        self.index: dict[tuple[Any, ...], int] = {}
        self.leaves: list[str] = []

    def add(self, term: Term) -> int:
        """The number of a term.

        Raises:
            RuleError: it does not type in the instance.
        """
        try:
            type_ = type_of(term, self.bindings)
        except (IllTyped, Undefined) as error:
            raise RuleError(f"{term} has no type in a derivation: {error}") from error
        if isinstance(term, Var):
            if term.name not in self.leaves:
                self.leaves.append(term.name)
            return self.node(LEAF, attributes(index=self.leaves.index(term.name)), (), type_)
        assert isinstance(term, Apply)
        children = [self.add(arg) for arg in term.args]
        op, values = operator(term, self.bindings)
        attrs = attributes(**values)
        if op != "Concat":
            return self.node(op, attrs, tuple(children), type_)
        # The e-graph holds binary concatenations, nested to the left.
        number = children[0]
        for i, child in enumerate(children[1:], start=2):
            nested = type_of(Apply("Concat", term.args[:i], term.attrs), self.bindings)
            number = self.node(op, attrs, (number, child), nested)
        return number

    def node(self, op: str, attrs: Attrs, children: tuple[int, ...], type_: TensorType) -> int:
        key = (op, attrs, children)
        if key not in self.index:
            self.index[key] = len(self.nodes)
            self.nodes.append(TermNode(op, attrs, children, type_))
        return self.index[key]

    def lowered(self) -> Lowered:
        constants = {
            name: Constant(self.bindings.types[name], f"variable {name}", _no_bytes)
            for name in self.leaves
            if self.kinds.get(name) == "Weight"
        }
        return Lowered.of_terms(self.nodes, self.leaves, constants)
