"""Reading of a searched e-graph: the terms of the model that equal fused operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.terms import Lowered
from eqsat_opt.ir.graph.graph import Attrs

__all__ = ["FUSED", "RecognisedTerm", "Tree", "found_in", "outermost"]

_PREFERRED = (
    "Attention", "MaskedAttention", "LayerNormalization", "RMSNormalization", "Gelu", "HardSwish",
    "Swish", "Softmax",
)  # fmt: skip
FUSED = frozenset(_PREFERRED)
"""Operators that recognition searches for."""
_SCALED = ("Attention", "MaskedAttention")
"""Operators with a factor of their own, so that their first two operands need none."""
_STEPS = 3
"""Greatest number of operators from a step that is recognised by itself to the last of a
spelling."""
_AROUND = frozenset({"Scale", "Shift", "Transpose", "Reshape"})
"""Operators that a spelling of the model may have around a fused one."""
_SPELLABLE = frozenset(
    {"Scale", "Shift", "Transpose", "Reshape", "Fill", "Add", "Mul", "Reciprocal", "Square",
     "Repeat"}
)  # fmt: skip
"""Operators that may compute an operand of a fused one, where the model itself has no such
value."""
_DEPTH = 4
"""Greatest number of such operators above each other."""


@dataclass(frozen=True)
class Tree:
    """A term over terms of a fragment.

    Attributes:
        op, attrs: the same as of terms; unused where ``term`` is given.
        children: operands.
        term: number of an existing term that is the whole tree; -1 if there is none.
        rule: the rule that made it.
    """

    op: str = ""
    attrs: Attrs = ()
    children: tuple[Tree, ...] = ()
    term: int = -1
    rule: str = ""


@dataclass(frozen=True)
class RecognisedTerm:
    """A term of the model and the tree that it equals."""

    term: int
    tree: Tree


class _Reader:
    """Reader that expresses classes of the searched e-graph over terms of the model."""

    def __init__(self, eclasses: EClasses, known: Iterable[int]) -> None:
        self.eclasses = eclasses
        self.own: dict[int, int] = {}
        self.all: dict[int, list[int]] = {}
        for term in known:
            self.own.setdefault(int(eclasses.term_class[term]), term)
            self.all.setdefault(int(eclasses.term_class[term]), []).append(term)
        self.memo: dict[int, Tree | None] = {}

    def node(self, node: int, depth: int) -> Tree | None:
        """Return an e-node over expressed operands; ``None`` if an operand cannot be expressed."""
        children = [self.tree(c, depth) for c in self.eclasses.children(node)]
        kept = tuple(c for c in children if c is not None)
        if len(kept) < len(children):
            return None
        rule = self.eclasses.rule_of(node) or ""
        return Tree(self.eclasses.op[node], self.eclasses.attrs[node], kept, rule=rule)

    def is_scaled(self, cls: int) -> bool:
        """Return whether a class equals another one times a factor."""
        return any(self.eclasses.op[node] == "Scale" for node in self.eclasses.nodes_of[cls])

    def tree(self, cls: int, depth: int) -> Tree | None:
        """Return a class as a term of the model if it is one, else over few spellable operators."""
        if cls in self.own:
            return Tree(term=self.own[cls])
        if depth == 0:
            return None
        if cls not in self.memo:
            self.memo[cls] = None  # No operand is computed from itself.
            found = (
                self.node(node, depth - 1)
                for node in self.eclasses.nodes_of[cls]
                if self.eclasses.op[node] in _SPELLABLE
            )
            made = [tree for tree in found if tree is not None]
            best = min(made, key=_size, default=None)
            if best is None:
                del self.memo[cls]
                return None
            self.memo[cls] = best
        return self.memo[cls]


def _size(tree: Tree) -> int:
    return (tree.term < 0) + sum(map(_size, tree.children))


def found_in(eclasses: EClasses, known: Sequence[int]) -> Iterator[RecognisedTerm]:
    """Yield every term among ``known`` that equals a fused operator which a rule made.

    A class may hold several, such as attention with a scale of 1 over queries that were scaled; the
    one that covers most of the window is used.
    """
    reader = _Reader(eclasses, known)
    best: dict[int, tuple[object, Tree]] = {}
    for node, op in enumerate(eclasses.op):
        if op not in FUSED or not eclasses.origin[node]:
            continue
        tree = reader.node(node, _DEPTH)
        if tree is None:
            continue
        cls = int(eclasses.class_of[node])
        scaled = op in _SCALED and sum(map(reader.is_scaled, eclasses.children(node)[:2]))
        deep = sum(child.term for child in tree.children)
        rank = (_PREFERRED.index(op), scaled, _size(tree), deep)
        if cls not in best or rank < best[cls][0]:  # type: ignore[operator]
            best[cls] = (rank, tree)
    for cls, (_, tree) in best.items():
        if cls in reader.own:
            # A factor of 1 unites the last operator of a spelling with earlier ones, so all terms
            # count.
            yield from (RecognisedTerm(term, tree) for term in reader.all[cls])
            continue
        for parent in eclasses.parents[cls]:
            above = int(eclasses.class_of[parent])
            if eclasses.op[parent] in _AROUND and above in reader.own and above not in best:
                rule = eclasses.rule_of(parent) or tree.rule
                outer = Tree(eclasses.op[parent], eclasses.attrs[parent], (tree,), rule=rule)
                yield from (RecognisedTerm(term, outer) for term in reader.all[above])
                break


def outermost(lowered: Lowered, found: Sequence[RecognisedTerm]) -> list[RecognisedTerm]:
    """Return the terms that are no intermediate step of others in ``found``.

    An example of a step is a layer normalisation before its scale.
    """
    readers: list[set[int]] = [set() for _ in lowered.terms]
    for number, term in enumerate(lowered.terms):
        for child in term.children:
            readers[child].add(number)
    group = {one.term: _family(one.tree) for one in found}

    def is_step(one: RecognisedTerm) -> bool:
        term = one.term
        for _ in range(_STEPS):
            if len(readers[term]) != 1:
                return False
            (term,) = readers[term]
            if group.get(term) == group[one.term]:
                return True
        return False

    return [one for one in found if not is_step(one)]


def _family(tree: Tree) -> tuple[str, Tree]:
    """Return the key that two steps of one spelling share: the kind of operator and its operand."""
    while tree.op in _AROUND:
        (tree,) = tree.children
    return ("Normalization" if tree.op.endswith("Normalization") else tree.op), tree.children[0]
