"""Graphs as sets of terms that are named by their canonical keys.

A term is one operator on operands given by key, so equal expressions are one term, in one graph and
between graphs. The cost of a graph and its matches of single-root rules depend on its terms alone;
so graphs that share most of their terms share most of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat_opt.ir.graph.canonical import (
    constant_key,
    graph_key,
    input_key,
    opaque_key,
    operator_key,
    output_key,
    term_key,
)
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Graph, Node, index_of
from eqsat_opt.ir.graph.handles import uniform_value
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.ir.values.types import OtherType, TensorType, ValueType
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow, PriceCache
from eqsat_opt.rules.patterns import Enode, is_a, literal

__all__ = ["INPUT", "OUTPUT", "WEIGHT", "Term", "TermGraph", "Terms"]

INPUT, WEIGHT, OUTPUT = "Input", "Weight", "Output"
"""Terms that are no operators: a graph input, a constant, and one result of an opaque node."""


@dataclass(frozen=True, slots=True)
class Term:
    """One operator on operands.

    Attributes:
        key: canonical key.
        op: operator of the registry, :data:`~eqsat_opt.ir.graph.graph.OPAQUE`, or one of this
            module's.
        attrs: all attributes; the number of an input, weight, opaque node or result.
        operator: key of operator and attributes.
        operands: keys of the operands.
        type: type of the value; that of an opaque node, which is a tuple, is not a tensor type.
        const: whether the value is known at compile time.
        row: price of the term as a kernel of its own.
        label: name of the value in the graph it came from, if there is one.
        sources: names of the original nodes that it replaces.
        rules: names of the rules that made it.
    """

    key: bytes
    op: str
    attrs: Attrs
    operator: bytes
    operands: tuple[bytes, ...]
    type: ValueType
    const: bool
    row: ImplementationRow
    label: str = ""
    sources: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        """The number of an input, weight, opaque node or result."""
        return index_of(self.attrs)

    @property
    def runs(self) -> bool:
        """Whether the term is an operator that runs with the model."""
        return not self.const and self.op not in (INPUT, OUTPUT)


@dataclass(frozen=True, slots=True)
class TermGraph:
    """A graph: its outputs, and all that they need.

    Attributes:
        key: canonical key; two graphs with one key are the same.
        outputs: keys in interface order.
        order: keys of all terms, operands first, in an order that depends on the graph alone.
        costs: sums over the terms, by column.
        length: length of the longest chain; 0 where the objective reads none.
        size: number of operators that run.
    """

    key: bytes
    outputs: tuple[bytes, ...]
    order: tuple[bytes, ...]
    costs: tuple[int, ...]
    length: int
    size: int


def _renames(node: Node) -> bool:
    return node.payload is not None and node.payload.op_type == "Identity"


@dataclass
class Terms:
    """All terms of one search, and the original that they go back to.

    Attributes:
        original: the original graph, with the interface, the leaves and the opaque nodes.
        prices: prices of operators.
        known: key to term.
        rank: position of each input and constant in the original.
    """

    original: Graph
    prices: PriceCache
    known: dict[bytes, Term] = field(default_factory=dict)
    rank: dict[bytes, int] = field(default_factory=dict)
    _operators: dict[tuple[str, Attrs], bytes] = field(default_factory=dict)
    _types: dict[tuple[bytes, tuple[ValueType, ...]], ValueType] = field(default_factory=dict)
    _values: dict[str, bytes] = field(default_factory=dict)
    _scalars: dict[bytes, float | None] = field(default_factory=dict)
    _enodes: dict[bytes, Enode[bytes]] = field(default_factory=dict)
    _opaque: list[Node] = field(default_factory=list)
    _leaves: list[str] = field(default_factory=list)

    # From a graph ---------------------------------------------------------------------------------

    def start(self) -> TermGraph:
        """Return the original as terms."""
        graph = self.original
        for index, name in enumerate(graph.inputs):
            self._leaf(INPUT, name, input_key(index, graph.types[name]), const=False)
        for name, handle in graph.constants.items():
            self._leaf(WEIGHT, name, constant_key(handle), const=True)
        for node in graph.nodes:
            operands = tuple(self._values[name] for name in node.reads)
            if node.op == OPAQUE:
                self._add_opaque(node, operands)
                continue
            self._note_type(node, operands)
            term = self.make(node.op, node.attrs, [self.known[key] for key in operands])
            sources = node.sources or ((node.name,) if node.name else ())
            labelled = replace(term, label=node.output, sources=sources, rules=node.rules)
            self._values[node.output] = term.key
            self.known.setdefault(term.key, labelled)
        return self.graph(tuple(self._values[name] for name in graph.outputs))

    def _note_type(self, node: Node, operands: tuple[bytes, ...]) -> None:
        """Note the type of a node, which those of its operands alone might not tell."""
        types = tuple(self.known[key].type for key in operands)
        operator = self.operator(node.op, node.attrs)
        self._types.setdefault((operator, types), self.original.types[node.output])

    def _leaf(self, op: str, name: str, key: bytes, *, const: bool) -> None:
        attrs = (("index", len(self._leaves)),)
        self._leaves.append(name)
        term = Term(
            key=key,
            op=op,
            attrs=attrs,
            operator=key,
            operands=(),
            type=self.original.types[name],
            const=const,
            row=self.prices.free,
            label=name,
        )
        self._values[name] = key
        self.rank.setdefault(key, len(self.rank))
        self.known.setdefault(key, term)

    def _add_opaque(self, node: Node, operands: tuple[bytes, ...]) -> None:
        operator = opaque_key(node)
        bundle = Term(
            key=term_key(operator, operands),
            op=OPAQUE,
            attrs=(("index", len(self._opaque)),),
            operator=operator,
            operands=operands,
            type=OtherType("results"),
            const=False,
            # An Identity node gives one value a second required name.
            row=self.prices.free if _renames(node) else self._price(OPAQUE, (), ()),
        )
        self._opaque.append(node)
        self.known[bundle.key] = bundle
        for index, name in enumerate(node.outputs):
            if name:
                key = output_key(index)
                part = Term(
                    key=term_key(key, (bundle.key,)),
                    op=OUTPUT,
                    attrs=(("index", index),),
                    operator=key,
                    operands=(bundle.key,),
                    type=self.original.types[name],
                    const=False,
                    row=self.prices.free,
                    label=name,
                )
                self._values[name] = part.key
                self.known[part.key] = part

    # New terms ------------------------------------------------------------------------------------

    def operator(self, op: str, attrs: Attrs) -> bytes:
        """Return the key of an operator of the registry."""
        known = self._operators.get((op, attrs))
        if known is None:
            known = self._operators[(op, attrs)] = operator_key(op, attrs)
        return known

    def kernel(self, term: Term) -> Kernel | None:
        """Return the kernel of one operator that runs; ``None`` for an unknown operator."""
        operands = [self.known[key] for key in term.operands]
        if not is_known(term.op):
            return None
        return self.prices.kernel(
            term.op, term.attrs, [(one.type, one.const, one.key) for one in operands]
        )

    def _price(self, op: str, attrs: Attrs, operands: Sequence[Term]) -> ImplementationRow:
        described = [(term.type, term.const, term.key) for term in operands]
        return self.prices.operator(op, attrs, described)[0]

    def make(
        self,
        op: str,
        attrs: Attrs,
        operands: Sequence[Term],
        *,
        sources: tuple[str, ...] = (),
        rules: tuple[str, ...] = (),
    ) -> Term:
        """Return the term of a registry operator: the known one, or a new one that is not added.

        Raises:
            IllTyped: the operator is not defined on these operands.
        """
        keys = tuple(term.key for term in operands)
        operator = self.operator(op, attrs)
        key = term_key(operator, keys)
        known = self.known.get(key)
        if known is not None:
            return known
        type_ = self._type(operator, op, attrs, tuple(term.type for term in operands))
        const = all(term.const for term in operands)
        row = self._price(op, attrs, operands)
        return Term(
            key=key,
            op=op,
            attrs=attrs,
            operator=operator,
            operands=keys,
            type=type_,
            const=const,
            row=row,
            sources=sources,
            rules=rules,
        )

    def _type(
        self, operator: bytes, op: str, attrs: Attrs, operands: tuple[ValueType, ...]
    ) -> ValueType:
        known = self._types.get((operator, operands))
        if known is None:
            known = get_op(op).type_fn(operands, dict(attrs))  # type: ignore[arg-type]
            self._types[(operator, operands)] = known
        return known

    def moved(self, term: Term, operands: Sequence[Term]) -> Term:
        """Return the same operator on other operands of the same types; the term is not added."""
        keys = tuple([operand.key for operand in operands])
        is_registered = term.op not in (OPAQUE, OUTPUT)
        const, row = term.const, term.row
        if is_registered:
            # Other operands of the same kind cost the same, unless two have become one.
            before = [self.known[key].const for key in term.operands]
            after = [operand.const for operand in operands]
            if before != after or len(set(keys)) != len(set(term.operands)):
                const, row = all(after), self._price(term.op, term.attrs, operands)
        return Term(
            key=term_key(term.operator, keys),
            op=term.op,
            attrs=term.attrs,
            operator=term.operator,
            operands=keys,
            type=term.type,
            const=const,
            row=row,
            label=term.label,
            sources=term.sources,
            rules=term.rules,
        )

    def graph(
        self, outputs: tuple[bytes, ...], more: Mapping[bytes, Term] | None = None
    ) -> TermGraph:
        """Return the graph that computes ``outputs``; ``more`` are terms not in the search."""
        known, new = self.known, more or {}
        order: list[bytes] = []
        done: set[bytes] = set()
        costs = [self.prices.valuation.nothing]
        size = 0
        stack = [(key, False) for key in reversed(outputs)]
        while stack:
            key, is_ready = stack.pop()
            if is_ready:
                order.append(key)
            elif key not in done:
                done.add(key)
                term = known.get(key) or new[key]
                costs.append(term.row.costs)
                size += term.runs
                if term.operands:
                    stack.append((key, True))
                    stack += [(c, False) for c in reversed(term.operands) if c not in done]
                else:
                    order.append(key)
        return TermGraph(
            key=graph_key(outputs),
            outputs=outputs,
            order=tuple(order),
            costs=tuple(map(sum, zip(*costs, strict=True))),
            length=self._length(order, new) if self.prices.valuation.needs_path else 0,
            size=size,
        )

    def _length(self, order: Iterable[bytes], more: Mapping[bytes, Term]) -> int:
        """Return the length of the longest chain."""
        until: dict[bytes, int] = {}
        for key in order:
            term = self.known.get(key) or more[key]
            until[key] = term.row.length + max((until[c] for c in term.operands), default=0)
        return max(until.values(), default=0)

    def remember(self, terms: Iterable[Term]) -> None:
        """Add terms to those of the search."""
        for term in terms:
            self.known.setdefault(term.key, term)

    def scalar(self, term: Term) -> float | None:
        """Return the value of a small constant that is uniform; ``None`` for other terms."""
        if term.op != WEIGHT:
            return None
        if term.key not in self._scalars:
            self._scalars[term.key] = uniform_value(self.original.constants[term.label])
        return self._scalars[term.key]

    # The interface of a host of patterns ----------------------------------------------------------

    def enodes(self, value: bytes, op: str) -> tuple[Enode[bytes], ...]:
        """Return the term of a key if the operator fits; a uniform constant is a literal."""
        enode = self._enodes.get(value)
        if enode is None:
            term = self.known[value]
            enode, number = Enode(value, term.op, term.attrs, term.operands), self.scalar(term)
            if number is not None and isinstance(term.type, TensorType):
                enode = literal(value, number, term.type.dtype)
            self._enodes[value] = enode
        return (enode,) if is_a(enode.op, op) else ()

    def type(self, value: bytes) -> ValueType:
        """Return the type of a value."""
        return self.known[value].type

    def is_const(self, value: bytes) -> bool:
        """Return whether a value is known at compile time."""
        return self.known[value].const

    @property
    def names(self) -> Mapping[bytes, str]:
        """Key to name of the original's values; the first of several names."""
        found: dict[bytes, str] = {}
        for name, key in self._values.items():
            found.setdefault(key, name)
        return found

    def leaf_name(self, term: Term) -> str:
        """Return the name of an input or a constant."""
        return self._leaves[term.index]

    def opaque_node(self, term: Term) -> Node:
        """Return the node of an opaque term."""
        return self._opaque[term.index]
