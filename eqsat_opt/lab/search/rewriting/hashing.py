"""Keys by which a search recognises a graph that it has seen.

The canonical key differs for any two graphs. TASO's hash (``Graph::hash`` in its source) adds up
one number per node, which depends on the node's operator and on those of its producers; nodes of
equal attributes and operand types share one operator. So two graphs collide where one rewrites a
block and the other an equal block elsewhere, and the search loses one of them. The hash is here to
reproduce published results.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from eqsat_opt.lab.search.rewriting.terms import INPUT, WEIGHT, Term, TermGraph

__all__ = ["TasoHash"]

_MODULUS = 1 << 64


class TasoHash:
    """TASO's hash of graphs over one set of terms."""

    def __init__(self, known: Mapping[bytes, Term]) -> None:
        self._known = known
        self._parts: dict[bytes, int] = {}

    def __call__(self, graph: TermGraph, new: Mapping[bytes, Term]) -> int:
        """Return the hash of a graph; ``new`` has its terms that are not among the known ones."""
        total = 0
        for key in graph.order:
            part = self._parts.get(key)
            if part is None:
                part = self._part(key, new)
                if key in self._known:
                    self._parts[key] = part
            total += part
        return total % _MODULUS

    def _part(self, key: bytes, new: Mapping[bytes, Term]) -> int:
        term = self._term(key, new)
        operands = [self._term(c, new) for c in term.operands]
        parts = b"|".join([self._instance(one, new) for one in (term, *operands)])
        return int.from_bytes(blake2b(parts, digest_size=8).digest(), "little")

    def _term(self, key: bytes, new: Mapping[bytes, Term]) -> Term:
        return self._known.get(key) or new[key]

    def _instance(self, term: Term, new: Mapping[bytes, Term]) -> bytes:
        """Return the parts that identify an operator in TASO.

        They are name, attributes and operand types, or the type of a leaf.
        """
        if term.op in (INPUT, WEIGHT):
            return f"{term.op}{term.type}".encode()
        types = ",".join(str(self._term(c, new).type) for c in term.operands)
        return term.operator + types.encode()
