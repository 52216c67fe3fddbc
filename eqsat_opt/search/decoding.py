"""From terms back to a graph: values keep the names of the original where they can."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.ir.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.import_context import identity_node
from eqsat_opt.ir.types import ValueType
from eqsat_opt.search.terms import INPUT, OUTPUT, WEIGHT, Term, TermGraph, Terms

__all__ = ["decode"]


def decode(terms: Terms, graph: TermGraph) -> Graph:
    """The graph that ``graph`` stands for, with the interface of the original."""
    return _Decoder(terms, graph).graph()


class _Decoder:
    """Gives every term of one graph a name and writes it as a node."""

    def __init__(self, terms: Terms, graph: TermGraph) -> None:
        self.terms = terms
        self.original = terms.original
        self.outputs = graph.outputs
        self.order = [terms.known[key] for key in graph.order]
        self.name_of: dict[bytes, str] = {}
        self.taken = {*self.original.inputs, *self.original.constants}
        self.nodes: list[Node] = []
        self.types: dict[str, ValueType] = {n: self.original.types[n] for n in self.original.inputs}
        self.constants: set[str] = set()
        self.kept: set[str] = set()

    def _claim(self, key: bytes, name: str) -> None:
        if key not in self.name_of and name not in self.taken:
            self.name_of[key] = name
            self.taken.add(name)

    def _name(self, term: Term) -> str:
        if term.key not in self.name_of:
            base = term.label or f"{term.op.lower()}_new"
            name, number = base, 0
            while name in self.taken:
                number += 1
                name = f"{base}_{number}"
            self._claim(term.key, name)
        return self.name_of[term.key]

    def graph(self) -> Graph:
        """Write everything down."""
        for term in self.order:
            if term.op in (INPUT, WEIGHT):
                self.name_of[term.key] = self.terms.leaf_name(term)
            elif term.op == OPAQUE:
                self.taken.update(self.terms.opaque_node(term).outputs)
        # What others know by name: captured values, then outputs, then whatever kept its place.
        for term in self.order:
            if term.op == OPAQUE:
                self._claim_captured(term)
            elif term.op == OUTPUT:
                bundle = self.terms.known[term.operands[0]]
                index = int(term.attrs[0][1])  # type: ignore[arg-type]
                self.name_of[term.key] = self.terms.opaque_node(bundle).outputs[index]
        for key, name in zip(self.outputs, self.original.outputs, strict=True):
            self._claim(key, name)
        self.taken.update(self.original.outputs)
        for term in self.order:
            if term.op == WEIGHT:
                self._write_constant(self.name_of[term.key])
            elif term.op == OPAQUE:
                self._write_opaque(term)
            elif term.op not in (INPUT, OUTPUT):
                name = self._name(term)
                self.types[name] = term.type
                inputs = tuple(self.name_of[key] for key in term.operands)
                own = term.sources[0] if term.sources and not term.rules else ""
                self.nodes.append(
                    Node(term.op, inputs, (name,), term.attrs, own, term.sources, term.rules)
                )
        outputs = tuple(
            name if name in self.kept else self.name_of[key]
            for key, name in zip(self.outputs, self.original.outputs, strict=True)
        )
        listed = {n: c for n, c in self.original.constants.items() if n in self.constants}
        return Graph(
            self.original.inputs, outputs, tuple(self.nodes), listed, self.types,
            self.original.model,
        )  # fmt: skip

    def _write_constant(self, name: str) -> None:
        self.constants.add(name)
        self.types[name] = self.original.types[name]

    def _captured(self, term: Term) -> list[tuple[str, bytes]]:
        captures = [name for name in self.terms.opaque_node(term).captures if name]
        count = len(term.operands) - len(captures)
        return list(zip(captures, term.operands[count:], strict=True))

    def _claim_captured(self, term: Term) -> None:
        for name, key in self._captured(term):
            self._claim(key, name)
            self.taken.add(name)

    def _write_opaque(self, term: Term) -> None:
        node = self.terms.opaque_node(term)
        operands = iter(term.operands)
        inputs = tuple(self.name_of[next(operands)] if name else "" for name in node.inputs)
        for name, key in self._captured(term):
            if self.name_of[key] != name and name not in self.types:
                if name in self.original.constants:
                    self._write_constant(name)
                else:
                    self.types[name] = self.original.types[name]
                    self.nodes.append(identity_node(self.name_of[key], name))
                    self.kept.add(name)
        for name in node.outputs:
            if name:
                self.types[name] = self.original.types[name]
        self.nodes.append(replace(node, inputs=inputs))
