"""The terms of a search in the form in which patterns of kernels are matched."""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.values.types import TensorType, ValueType
from eqsat_opt.lab.search.rewriting.terms import Term, Terms
from eqsat_opt.rules.patterns import literal

__all__ = ["TermClasses"]


class TermClasses:
    """The terms of a search as classes of one e-node each, numbered in order of first use."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.key: list[bytes] = []
        self.op: list[str] = []
        self.attrs: list[Attrs] = []
        self.types: list[ValueType] = []
        self.is_const: list[bool] = []
        self.nodes_of: list[tuple[int, ...]] = []
        self.class_of: list[int] = []
        self._children: list[tuple[int, ...]] = []
        self._number: dict[bytes, int] = {}

    def number(self, term: Term) -> int:
        """Return the number of a term, and number all terms below it."""
        known = self._number.get(term.key)
        if known is not None:
            return known
        stack = [term]
        while stack:
            one = stack[-1]
            missing = [c for c in one.operands if c not in self._number]
            if missing:
                stack += [self._terms.known[c] for c in missing]
                continue
            stack.pop()
            if one.key not in self._number:
                self._add(one)
        return self._number[term.key]

    def _add(self, term: Term) -> None:
        number = self._number[term.key] = len(self.key)
        op, attrs, value = term.op, term.attrs, self._terms.scalar(term)
        if value is not None and isinstance(term.type, TensorType):
            enode = literal(number, value, term.type.dtype)
            op, attrs = enode.op, enode.attrs
        self.key.append(term.key)
        self.op.append(op)
        self.attrs.append(attrs)
        self.types.append(term.type)
        self.is_const.append(term.const)
        self.nodes_of.append((number,))
        self.class_of.append(number)
        self._children.append(tuple(self._number[c] for c in term.operands))

    def children(self, node: int) -> tuple[int, ...]:
        """Return the operands of a term."""
        return self._children[node]

    def scalar(self, cls: int) -> float | None:
        """Return the value of a uniform constant; ``None`` for other terms."""
        return self._terms.scalar(self._terms.known[self.key[cls]])
