"""Recognition of fused operators: rules of phase ``recognise`` on windows, with seeds as results.

The windows saturate alone, in a separate e-graph with a separate limit. Only fused operators over
values of the model are taken from it, so that the later phases start from a few more e-nodes, but
without the normal form that was needed to find them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NoReturn

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.recognition.fragments import Fragment, fragments
from eqsat_opt.egraph.recognition.readout import Tree, found_in, outermost
from eqsat_opt.egraph.terms import LEAF, Lowered, TermNode
from eqsat_opt.ir.graph.graph import Constant, attributes
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.values.types import StaticType, TensorType

__all__ = ["Recognition", "joined", "recognise"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """Terms to load in addition to the model's own.

    Attributes:
        terms: new terms, numbered after the existing ones.
        equal: pairs of equal terms.
        constant: numbers of new terms that are known at compile time.
        rules: for each new term the rule that made it.
        fragments: number of distinct windows that were searched.
        enodes: number of e-nodes at the end of the search of the windows.
        time_s: time, s.
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
    """Return all fragments side by side as one set of terms, and the start of each."""
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
                    assert isinstance(term.type, StaticType)  # the only constants of fragments
                    constants[name] = Constant(term.type, name, _unread)
            terms.append(replace(term, children=tuple(start + c for c in term.children)))
    return Lowered.of_terms(terms, names, MappingProxyType(constants)), starts


# Seeding -----------------------------------------------------------------------------------------


@dataclass
class _Planter:
    """Builder of terms from trees, numbered after the model's terms and those that follow them."""

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
            is_constant = all(self.is_constant(c) for c in children)
            if is_constant and not isinstance(type_, StaticType):
                raise IllTyped(f"a constant of open size {type_}")
            if op == "Repeat" and not isinstance(type_.shape[attrs["axis"]], int):
                raise IllTyped(f"indices of an open number for {type_}")
            self.index[key] = self.first + len(self.terms)
            if is_constant:
                self.constant.add(self.index[key])
            self.terms.append(TermNode(op, key[1], key[2], type_))
            self.rules.append(rule)
        return self.index[key]

    def plant(self, tree: Tree, own: Callable[[int], int]) -> int:
        """Add the term of ``tree`` and return its number; ``own`` gives the model's terms."""
        if tree.term >= 0:
            return own(tree.term)
        children = [self.plant(child, own) for child in tree.children]
        attrs: dict[str, Any] = dict(tree.attrs)
        if tree.op in ("Scale", "Shift"):
            (value,) = attrs.values()
            type_ = self.node(children[0]).type
            assert isinstance(type_, TensorType)
            literal = self.add("Scalar", (), tree.rule, value=value, dtype=type_.dtype)
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
        """Return the model's own constant of ``shape``, if lowering only added axes to it."""
        if number >= len(self.lowered.terms) or self.lowered.constant(number) is None:
            return None
        term = self.lowered.terms[number]
        view = self.lowered.leaf_names[term.index]
        base = self.lowered.value.get(self.lowered.view_of.get(view, ""))
        if base is None:
            return None
        type_ = self.lowered.terms[base].type
        return base if isinstance(type_, TensorType) and type_.shape == shape else None


def _within(pieces: Sequence[Fragment], terms: int) -> list[Fragment]:
    """Return the fragments that occur most often, with at most ``terms`` terms in all."""
    kept: list[Fragment] = []
    for piece in sorted(pieces, key=lambda one: -len(one.occurrences)):
        terms -= len(piece.terms)
        if terms < 0:
            _log.warning(
                "fused operators are looked for in %d of %d distinct windows; "
                "allow more e-nodes for recognition",
                len(kept),
                len(pieces),
            )
            break
        kept.append(piece)
    return kept


def recognise(
    lowered: Lowered,
    first: int,
    search: Callable[[Lowered], EClasses],
    *,
    max_terms: int = 5_000,
) -> Recognition:
    """Find the fused operators that terms of a model equal, as terms to be loaded beside them.

    New terms are numbered from `first`. `search` saturates terms under the rules of recognition and
    reads the e-graph out. If all distinct windows have more than `max_terms` terms, the rarest are
    not searched.
    """
    start = time.perf_counter()
    pieces = _within(fragments(lowered), max_terms)
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
    for found in outermost(together, list(found_in(eclasses, known))):
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
        terms=tuple(planter.terms), equal=tuple(equal), constant=frozenset(planter.constant),
        rules=tuple(planter.rules), fragments=len(pieces), enodes=eclasses.n_nodes,
        time_s=time.perf_counter() - start,
    )  # fmt: skip
