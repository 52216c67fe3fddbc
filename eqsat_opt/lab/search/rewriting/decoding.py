"""Conversion of terms to a graph, in which values keep the names of the original where possible."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.lab.search.rewriting.terms import INPUT, OUTPUT, WEIGHT, Term, TermGraph, Terms

__all__ = ["decode", "decoded"]


def decode(terms: Terms, graph: TermGraph) -> Graph:
    """Return the graph of some terms, with the interface of the original."""
    return decoded(terms, graph)[0]


def decoded(terms: Terms, graph: TermGraph) -> tuple[Graph, Mapping[bytes, str]]:
    """Return the graph of some terms, with the interface of the original, and the terms' names."""
    decoder = _Decoder(terms, graph)
    return decoder.graph(), decoder.name_of


class _Decoder:
    """A writer that gives every term of one graph a name and writes it as a node."""

    def __init__(self, terms: Terms, graph: TermGraph) -> None:
        self.terms = terms
        self.original = terms.original
        self.outputs = graph.outputs
        self.order = [terms.known[key] for key in graph.order]
        self.writer = GraphWriter(terms.original)
        self.name_of: dict[bytes, str] = {}
        self.claimed = {*self.original.inputs, *self.original.constants}

    def _claim(self, key: bytes, name: str) -> None:
        if key not in self.name_of and name not in self.claimed:
            self.name_of[key] = name
            self.claimed.add(name)

    def graph(self) -> Graph:
        """Name and write all terms."""
        for term in self.order:
            if term.op in (INPUT, WEIGHT):
                self.name_of[term.key] = self.terms.leaf_name(term)
            elif term.op == OPAQUE:
                self.claimed.update(self.terms.opaque_node(term).outputs)
        # Names are given first to captured values, then to outputs, then to unchanged values.
        for term in self.order:
            if term.op == OPAQUE:
                for name, key in self._captured(term):
                    self._claim(key, name)
                    self.claimed.add(name)
            elif term.op == OUTPUT:
                bundle = self.terms.known[term.operands[0]]
                self.name_of[term.key] = self.terms.opaque_node(bundle).outputs[term.index]
        for key, name in zip(self.outputs, self.original.outputs, strict=True):
            self._claim(key, name)
        self.claimed.update(self.original.outputs)
        for term in self.order:
            if term.label:
                self._claim(term.key, term.label)
        for term in self.order:
            self._write(term)
        return self.writer.graph([self.name_of[key] for key in self.outputs])

    def _captured(self, term: Term) -> list[tuple[str, bytes]]:
        captures = [name for name in self.terms.opaque_node(term).captures if name]
        count = len(term.operands) - len(captures)
        return list(zip(captures, term.operands[count:], strict=True))

    def _write(self, term: Term) -> None:
        if term.op in (INPUT, OUTPUT):
            return
        if term.op == WEIGHT:
            name = self.name_of[term.key]
            self.writer.constant(name, self.original.constants[name])
            return
        operands = [self.name_of[key] for key in term.operands]
        if term.op == OPAQUE:
            captured = [self.name_of[key] for _, key in self._captured(term)]
            own = len(operands) - len(captured)
            self.writer.opaque(self.terms.opaque_node(term), operands[:own], captured)
            return
        if term.key not in self.name_of:
            self.name_of[term.key] = self.writer.fresh(term.label or f"{term.op.lower()}_new")
        node = Node(
            op=term.op,
            inputs=tuple(operands),
            outputs=(self.name_of[term.key],),
            attrs=term.attrs,
            name=term.sources[0] if term.sources and not term.rules else "",
            sources=term.sources,
            rules=term.rules,
        )
        self.writer.node(node, term.type)
