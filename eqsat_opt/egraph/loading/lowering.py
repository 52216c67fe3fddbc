"""Lowering of a graph to the terms that the e-graph represents.

Constructs without a representation of their own are decomposed here: a convolution's bias becomes
an addition, an n-ary concatenation nests to the left, broadcast operands are brought to the rank of
their partner, and uniform constants become scalar literals, so that one equation matches every
spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from eqsat_opt.egraph.terms import LEAF, OUT, Lowered, TermNode
from eqsat_opt.errors import SaturationError
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import reshaped, uniform_value
from eqsat_opt.ir.ops import get_op, with_trait
from eqsat_opt.ir.ops._base import IllTyped
from eqsat_opt.ir.values.dims import Dim, literal
from eqsat_opt.ir.values.types import FLOATS, OtherType, StaticType, TensorType, ValueType

__all__ = ["lower"]

_BROADCASTING = with_trait("broadcasting") - with_trait("truth") - with_trait("moving")

_COMPARING = with_trait("broadcasting") & with_trait("truth")
"""Comparisons, whose uniform constants are scalar literals too where they compare floats."""


@dataclass
class _Lowering:
    graph: Graph
    terms: list[TermNode] = field(default_factory=list)
    index: dict[tuple[Any, ...], int] = field(default_factory=dict)
    value: dict[str, int] = field(default_factory=dict)
    leaf_names: list[str] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    opaque: list[Node] = field(default_factory=list)
    views: dict[tuple[int, tuple[Dim, ...]], int] = field(default_factory=dict)
    view_of: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        op: str,
        attrs: Attrs,
        children: Sequence[int],
        type_: ValueType,
        sources: tuple[str, ...] = (),
    ) -> int:
        key = (op, attrs, tuple(children))
        if key not in self.index:
            self.index[key] = len(self.terms)
            self.terms.append(
                TermNode(op, attrs=attrs, children=tuple(children), type=type_, sources=sources)
            )
        return self.index[key]

    def apply(
        self, op: str, children: Sequence[int], sources: tuple[str, ...] = (), **attrs: Any
    ) -> int:
        types = [self.terms[c].type for c in children]
        result = get_op(op).type_fn(types, attrs)  # type: ignore[arg-type]
        return self.add(op, attributes(**attrs), children, result, sources=sources)

    def leaf(self, name: str, type_: ValueType) -> int:
        self.leaf_names.append(name)
        return self.add(LEAF, attributes(index=len(self.leaf_names) - 1), (), type_)

    def constant(self, name: str, handle: Constant) -> int:
        self.constants[name] = handle
        return self.leaf(name, handle.type)

    # Operands of broadcasting operators -----------------------------------------------------------

    def scalar_of(self, term: int) -> float | None:
        """Return the value of a small uniform constant; ``None`` for any other term."""
        handle = self.lowered_constant(term)
        return None if handle is None else uniform_value(handle)

    def is_float(self, term: int) -> bool:
        """Return whether a term is a tensor of floats."""
        type_ = self.terms[term].type
        return isinstance(type_, TensorType) and type_.dtype in FLOATS

    def reshaped(self, term: int, shape: tuple[Dim, ...]) -> int:
        """Return the operand with leading axes of size 1; a constant gives another constant."""
        type_ = self.terms[term].type
        assert isinstance(type_, TensorType)
        if type_.shape == shape:
            return term
        handle = self.lowered_constant(term)
        if handle is None:
            return self.apply("Reshape", [term], shape=shape)
        if (term, shape) in self.views:
            return self.views[(term, shape)]
        base = self.leaf_names[self.terms[term].index]
        name = f"{base}:{'x'.join(map(str, shape))}"
        while name in self.graph.types or name in self.constants:
            name += "_"
        self.view_of[name] = self.view_of.get(base, base)
        static = tuple(literal(d) for d in shape)
        view = reshaped(handle, StaticType(type_.dtype, static), f"{handle.digest}:{static}")
        self.views[(term, shape)] = self.constant(name, view)
        return self.views[(term, shape)]

    def lowered_constant(self, term: int) -> Constant | None:
        node = self.terms[term]
        if node.op != LEAF:
            return None
        return self.constants.get(self.leaf_names[node.index])

    def broadcast_operands(self, node: Node, children: list[int]) -> list[int]:
        result = self.graph.tensor_type(node.output)
        assert result is not None
        ranks = [t.rank for c in children if isinstance(t := self.terms[c].type, TensorType)]
        aligned = []
        for i, child in enumerate(children):
            value, type_ = self.scalar_of(child), self.terms[child].type
            assert isinstance(type_, TensorType)
            other = self.terms[children[1 - i]].type
            assert isinstance(other, TensorType)
            if (
                value is not None
                and other.shape == result.shape
                and self.scalar_of(children[1 - i]) is None
            ):
                # The scalar has the operand's own type: a power of integers may have a float
                # exponent.
                aligned.append(self.apply("Scalar", [], value=value, dtype=type_.dtype))
                continue
            missing = max(ranks) - type_.rank
            if missing and type_.rank and self.lowered_constant(child) is not None:
                child = self.reshaped(child, (1,) * missing + type_.shape)
            aligned.append(child)
        return aligned

    def with_literals(self, node: Node, children: list[int]) -> list[int]:
        """Return operands of ``Where``; uniform constants become scalars if the type is kept."""
        for i in (1, 2):
            type_, value = self.terms[children[i]].type, self.scalar_of(children[i])
            if value is None or not isinstance(type_, TensorType):
                continue
            types = [self.terms[c].type for c in children]
            types[i] = TensorType(type_.dtype, ())
            if get_op("Where").type_fn(types, {}) == self.graph.types[node.output]:  # type: ignore[arg-type]
                scalar = self.apply("Scalar", [], value=value, dtype=type_.dtype)
                children = [*children[:i], scalar, *children[i + 1 :]]
        return children

    # Nodes ----------------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        children = [self.value[name] for name in node.reads]
        sources = node.sources or ((node.name,) if node.name else ())
        if node.op == OPAQUE:
            self.opaque.append(node)
            bundle = self.add(
                OPAQUE,
                attributes(index=len(self.opaque) - 1),
                children,
                OtherType("outputs"),
                sources=sources,
            )
            for i, name in enumerate(node.outputs):
                if name:
                    self.value[name] = self.add(
                        OUT, attributes(index=i), [bundle], self.graph.types[name]
                    )
            return
        attrs = dict(node.attrs)
        if node.op == "Conv" and len(children) == 3:
            result = self.graph.tensor_type(node.output)
            assert result is not None
            conv = self.add("Conv", node.attrs, children[:2], result, sources=sources)
            channels = result.shape[1]
            bias = self.reshaped(children[2], (1, channels, *(1,) * (result.rank - 2)))
            term = self.add("Add", (), [conv, bias], result, sources=sources)
        elif node.op == "Concat":
            term = children[0]
            for child in children[1:]:
                term = self.apply("Concat", [term, child], sources, **attrs)
        elif node.op in _BROADCASTING or (node.op in _COMPARING and self.is_float(children[0])):
            term = self.add(
                node.op,
                node.attrs,
                self.broadcast_operands(node, children),
                self.graph.types[node.output],
                sources=sources,
            )
        else:
            if node.op == "Where":
                children = self.with_literals(node, children)
            term = self.add(
                node.op, node.attrs, children, self.graph.types[node.output], sources=sources
            )
        self.value[node.output] = term


def lower(graph: Graph, *, exact: bool = False) -> Lowered:
    """Decompose ``graph`` into terms; equal terms become one.

    Raises:
        SaturationError: a node is ill-typed.
    """
    state = _Lowering(graph)
    for name in graph.inputs:
        state.value[name] = state.leaf(name, graph.types[name])
    digests: dict[str, int] = {}
    for name, handle in graph.constants.items():
        key = f"{handle.type}:{handle.digest}"
        if key not in digests:
            digests[key] = state.constant(name, handle)
        state.value[name] = digests[key]
    for node in graph.nodes:
        try:
            state.node(node)
        except IllTyped as error:
            raise SaturationError(
                f"{node.op} {node.name!r} cannot be loaded: {error}; please report this model"
            ) from error
    return Lowered(
        graph=graph, terms=tuple(state.terms), value=MappingProxyType(state.value),
        leaf_names=tuple(state.leaf_names), constants=MappingProxyType(state.constants),
        opaque=tuple(state.opaque), view_of=MappingProxyType(state.view_of), exact=exact,
    )  # fmt: skip
