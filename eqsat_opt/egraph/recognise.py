"""Recognition: the rules of phase ``recognise`` on cut-out windows, and what they found as seeds.

The windows saturate alone, in an e-graph of their own and under a limit of their own. Only fused
operators over values of the model leave it, so that the later phases start from a few more e-nodes
and from nothing of the normal form that it took to find them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NoReturn

from eqsat_opt.egraph.fragments import Fragment, fragments
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.lowering import LEAF, Lowered, TermNode
from eqsat_opt.ir.graph import Attrs, Constant, Graph, attributes
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.types import TensorType

__all__ = ["FUSED", "Found", "Recognition", "Tree", "found_in", "joined", "recognise"]

_PREFERRED = (
    "Attention", "MaskedAttention", "LayerNormalization", "RMSNormalization", "Gelu", "HardSwish",
    "Swish", "Softmax",
)  # fmt: skip
FUSED = frozenset(_PREFERRED)
"""Operators that recognition is for."""
_SCALED = ("Attention", "MaskedAttention")
"""Operators with a factor of their own, so that their first two operands need none."""
_STEPS = 3
"""How far the last step of a spelling may be from one that is recognised by itself."""
_AROUND = frozenset({"Scale", "Shift", "Transpose", "Reshape"})
"""Operators that may stand around a fused one where the model spells it so."""
_SPELLABLE = frozenset(
    {
        "Scale",
        "Shift",
        "Transpose",
        "Reshape",
        "Fill",
        "Add",
        "Mul",
        "Reciprocal",
        "Square",
        "Repeat",
    }
)
"""Operators of which operands are made that the model has not."""
_DEPTH = 4
_DTYPE = "float32"


@dataclass(frozen=True)
class Tree:
    """A term over terms of a fragment.

    Attributes:
        op, attrs: as for terms; unused where ``term`` is given.
        children: operands.
        term: number of a term that stands for itself.
        rule: the rule that made it.
    """

    op: str = ""
    attrs: Attrs = ()
    children: tuple[Tree, ...] = ()
    term: int = -1
    rule: str = ""


@dataclass(frozen=True)
class Found:
    """A term of the model and what it equals."""

    term: int
    tree: Tree


@dataclass(frozen=True)
class Recognition:
    """Terms to load beside the model's own.

    Attributes:
        terms: numbered after the terms that were there before.
        equal: pairs of equal terms.
        constant: numbers of new terms that are known at compile time.
        rules: for each new term the rule that made it.
        fragments: how many distinct windows were searched.
        enodes: e-nodes that the search of the windows ended with.
        time_s: seconds.
    """

    terms: tuple[TermNode, ...] = ()
    equal: tuple[tuple[int, int], ...] = ()
    constant: frozenset[int] = frozenset()
    rules: tuple[str, ...] = ()
    fragments: int = 0
    enodes: int = 0
    time_s: float = 0.0


def _unread() -> NoReturn:
    raise AssertionError("recognition asked for a weight")


def joined(pieces: Sequence[Fragment]) -> tuple[Lowered, list[int]]:
    """All fragments side by side as one set of terms, and where each starts."""
    terms: list[TermNode] = []
    names: list[str] = []
    constants: dict[str, Constant] = {}
    starts: list[int] = []
    for piece in pieces:
        start = len(terms)
        starts.append(start)
        for local, term in enumerate(piece.terms):
            if term.op == LEAF:
                name = f"leaf{len(names)}"
                names.append(name)
                term = replace(term, attrs=attributes(index=len(names) - 1))
                if local in piece.constant:
                    assert isinstance(term.type, TensorType)
                    constants[name] = Constant(term.type, name, _unread)
            terms.append(replace(term, children=tuple(start + c for c in term.children)))
    empty: Graph = Graph((), (), (), {}, {})
    lowered = Lowered(empty, tuple(terms), {}, tuple(names), MappingProxyType(constants), ())
    return lowered, starts


# Reading out -------------------------------------------------------------------------------------


class _Reader:
    """Expresses classes of the searched e-graph over terms that the model has."""

    def __init__(self, eclasses: EClasses, known: Iterable[int]) -> None:
        self.eclasses = eclasses
        self.own: dict[int, int] = {}
        self.all: dict[int, list[int]] = {}
        for term in known:
            self.own.setdefault(int(eclasses.term_class[term]), term)
            self.all.setdefault(int(eclasses.term_class[term]), []).append(term)
        self.memo: dict[int, Tree | None] = {}

    def node(self, node: int, depth: int) -> Tree | None:
        """An e-node over expressed operands."""
        children = [self.tree(c, depth) for c in self.eclasses.children(node)]
        kept = tuple(c for c in children if c is not None)
        if len(kept) < len(children):
            return None
        rule = self.eclasses.rule_of(node) or ""
        return Tree(self.eclasses.op[node], self.eclasses.attrs[node], kept, rule=rule)

    def is_scaled(self, cls: int) -> bool:
        """Whether a class is some other times a factor."""
        return any(self.eclasses.op[node] == "Scale" for node in self.eclasses.nodes_of[cls])

    def tree(self, cls: int, depth: int) -> Tree | None:
        """A class as a term of the model if it is one, else over few spellable operators."""
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


def found_in(eclasses: EClasses, known: Sequence[int]) -> Iterator[Found]:
    """Every term among ``known`` that equals a fused operator which a rule made.

    A class may hold several, such as attention with a scale of 1 over queries that were scaled;
    the one that covers most of the window stands for all.
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
            # A factor of 1 unites what only the last operator of a spelling computes in the model.
            yield from (Found(term, tree) for term in reader.all[cls])
            continue
        for parent in eclasses.parents[cls]:
            above = int(eclasses.class_of[parent])
            if eclasses.op[parent] in _AROUND and above in reader.own and above not in best:
                rule = eclasses.rule_of(parent) or tree.rule
                outer = Tree(eclasses.op[parent], eclasses.attrs[parent], (tree,), rule=rule)
                yield from (Found(term, outer) for term in reader.all[above])
                break


def _outermost(lowered: Lowered, found: Sequence[Found]) -> list[Found]:
    """Those that are no mere step of another: a layer normalisation before its scale is one."""
    readers: list[set[int]] = [set() for _ in lowered.terms]
    for number, term in enumerate(lowered.terms):
        for child in term.children:
            readers[child].add(number)
    group = {one.term: _family(one.tree) for one in found}

    def is_step(one: Found) -> bool:
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
    """What two steps of one spelling share: the kind of operator and what it is applied to."""
    while tree.op in _AROUND:
        (tree,) = tree.children
    return ("Normalization" if tree.op.endswith("Normalization") else tree.op), tree.children[0]


# Seeding -----------------------------------------------------------------------------------------


@dataclass
class _Planter:
    """Makes terms of trees, beside the model's own and those that follow them."""

    lowered: Lowered
    first: int
    terms: list[TermNode] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    constant: set[int] = field(default_factory=set)
    index: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, term in enumerate(self.lowered.terms):
            self.index[(term.op, term.attrs, term.children)] = number

    def node(self, number: int) -> TermNode:
        own = len(self.lowered.terms)
        return self.lowered.terms[number] if number < own else self.terms[number - self.first]

    def is_constant(self, number: int) -> bool:
        if number >= len(self.lowered.terms):
            return number in self.constant
        term = self.lowered.terms[number]
        return term.op == "Scalar" or self.lowered.constant(number) is not None

    def add(self, op: str, children: Sequence[int], rule: str, **attrs: Any) -> int:
        key = (op, attributes(**attrs), tuple(children))
        if key not in self.index:
            operands = [self.node(c).type for c in children]
            type_ = get_op(op).type_fn(operands, attrs)  # type: ignore[arg-type]
            self.index[key] = self.first + len(self.terms)
            if all(self.is_constant(c) for c in children):
                self.constant.add(self.index[key])
            self.terms.append(TermNode(op, key[1], key[2], type_))
            self.rules.append(rule)
        return self.index[key]

    def plant(self, tree: Tree, own: Callable[[int], int]) -> int:
        """The term of ``tree``, where ``own`` gives the model's terms."""
        if tree.term >= 0:
            return own(tree.term)
        children = [self.plant(child, own) for child in tree.children]
        attrs: dict[str, Any] = dict(tree.attrs)
        if tree.op in ("Scale", "Shift"):
            ((_, value),) = tree.attrs
            literal = self.add("Scalar", (), tree.rule, value=float(str(value)), dtype=_DTYPE)
            op = "Mul" if tree.op == "Scale" else "Add"
            return self.add(op, [children[0], literal], tree.rule)
        if tree.op == "Square":
            return self.add("Mul", children * 2, tree.rule)
        if tree.op == "Reshape":
            base = self._base(children[0], attrs["shape"])
            if base is not None:
                return base
        return self.add(tree.op, children, tree.rule, **attrs)

    def _base(self, number: int, shape: tuple[object, ...]) -> int | None:
        """The model's own constant, where lowering had only given it leading axes."""
        if number >= len(self.lowered.terms) or self.lowered.constant(number) is None:
            return None
        term = self.lowered.terms[number]
        view = self.lowered.leaf_names[int(str(term.attrs[0][1]))]
        base = self.lowered.value.get(self.lowered.view_of.get(view, ""))
        if base is None:
            return None
        type_ = self.lowered.terms[base].type
        return base if isinstance(type_, TensorType) and type_.shape == shape else None


def recognise(lowered: Lowered, first: int, search: Callable[[Lowered], EClasses]) -> Recognition:
    """Fused operators that terms of a model equal.

    Args:
        lowered: the model.
        first: number of the first new term.
        search: saturates terms under the rules of recognition and reads the e-graph out.
    """
    start = time.perf_counter()
    pieces = fragments(lowered)
    if not pieces:
        return Recognition()
    together, starts = joined(pieces)
    eclasses = search(together)
    ends = [*starts[1:], len(together.terms)]
    known = [
        begin + local
        for begin, piece in zip(starts, pieces, strict=True)
        for local, origin in enumerate(piece.occurrences[0])
        if origin >= 0 and piece.terms[local].op != "Scalar"
    ]
    planter = _Planter(lowered, first)
    equal: dict[tuple[int, int], None] = {}
    for found in _outermost(together, list(found_in(eclasses, known))):
        at = next(i for i, end in enumerate(ends) if found.term < end)
        for occurrence in pieces[at].occurrences:

            def own(term: int, row: tuple[int, ...] = occurrence, base: int = starts[at]) -> int:
                return row[term - base]

            try:
                planted = planter.plant(found.tree, own)
            except IllTyped:
                continue
            target = own(found.term)
            if planted != target:
                equal[(target, planted)] = None
    return Recognition(
        tuple(planter.terms), tuple(equal), frozenset(planter.constant), tuple(planter.rules),
        len(pieces), eclasses.n_nodes, time.perf_counter() - start,
    )  # fmt: skip
