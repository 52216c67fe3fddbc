"""The pass that writes products of two matrices, with an added bias, as ONNX does: as Gemm.

The e-graph has products, transposes and sums. A runtime fuses the three into one kernel if it can
infer the types in between, which it cannot always; a Gemm in the file needs no inference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from eqsat_opt.ir.graph.graph import Attrs, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import Expression
from eqsat_opt.ir.onnx.exporter import GEMM
from eqsat_opt.ir.onnx.types import opset_of
from eqsat_opt.ir.values.dims import Dim

__all__ = ["with_gemms"]

_BROADCASTS, _BIAS_IS_OPTIONAL, _BFLOAT16 = 7, 11, 13
"""First operator sets in which Gemm broadcasts as Add does, needs no C, supports bfloat16."""

_SINCE = {
    "float16": _BROADCASTS, "float32": _BROADCASTS, "float64": _BROADCASTS, "bfloat16": _BFLOAT16
}  # fmt: skip
_FLIP = attributes(perm=(1, 0))


def with_gemms(graph: Graph) -> Graph:
    """Return the graph with products of matrices as Gemm.

    1. A product to which its only reader adds something that broadcasts is a Gemm with a bias.
    2. A product of a transpose that has no other reader is a Gemm of what is transposed.
    3. A product with a transposed weight is a Gemm of the original weight, if the weight was
       transposed for products only, or if the graph holds the original as well.
    """
    return _Joining(graph, opset_of(graph)).run()


class _Joining:
    """One walk over the nodes of a graph."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph = graph
        self.opset = opset
        self.nodes = {name: node for node in graph.nodes for name in node.outputs if name}
        self.uses = Counter(name for node in graph.nodes for name in node.reads)
        self.uses.update(graph.outputs)
        self.uses.update(graph.pinned)
        self.constants = dict(graph.constants)
        self.types = dict(graph.types)
        self.named = {one.digest: name for name, one in graph.constants.items() if self.uses[name]}
        self.as_right: Counter[str] = Counter()

    def run(self) -> Graph:
        made: dict[str, Node] = {}
        inside: set[str] = set()
        for node in self.graph.nodes:
            product = self.summed(node)
            if product is not None:
                inside.add(product.output)
                made[node.output] = self.joined(node, product)
        if self.opset >= _BIAS_IS_OPTIONAL:
            for node in self.graph.nodes:
                if node.op == "MatMul" and node.output not in inside and self.is_plain(node):
                    made[node.output] = node
        self.as_right.update(node.inputs[1] for node in made.values())
        made = {name: self.unflipped(node, inside) for name, node in made.items()}
        nodes = (made.get(node.outputs[0], node) for node in self.graph.nodes)
        kept = tuple(node for node in nodes if node.outputs[0] not in inside)
        return replace(self.graph, nodes=kept, constants=self.constants, types=self.types)

    def is_plain(self, product: Node) -> bool:
        """Return whether a product multiplies float matrices of a type that Gemm supports."""
        types = [self.graph.tensor_type(name) for name in product.inputs]
        return all(
            type_ is not None and type_.rank == 2 and self.opset >= _SINCE.get(type_.dtype, 1 << 30)
            for type_ in types
        )

    def summed(self, node: Node) -> Node | None:
        """Return the product to which a node adds a bias that Gemm can add.

        The product has no other reader; the result is ``None`` if there is no such product.
        """
        if node.op != "Add":
            return None
        found = [
            product
            for name, other in (node.inputs, node.inputs[::-1])
            if (product := self.nodes.get(name)) is not None
            and product.op == "MatMul"
            and self.uses[name] == 1
            and self.is_plain(product)
            and self.is_bias(other, product.output)
            and self.graph.types[node.output] == self.graph.types[product.output]
        ]
        # Among two products, prefer the one that came with the sum in the model.
        return min(found, key=lambda one: one.sources != node.sources, default=None)

    def is_bias(self, name: str, product: str) -> bool:
        bias, result = self.graph.tensor_type(name), self.graph.tensor_type(product)
        if bias is None or result is None or bias.dtype != result.dtype or bias.rank > 2:
            return False
        pairs = zip(reversed(bias.shape), reversed(result.shape), strict=False)
        return all(_is_one(dim) or dim == whole for dim, whole in pairs)

    def joined(self, node: Node, product: Node) -> Node:
        (bias,) = (name for name in node.inputs if name != product.output)
        return Node(
            GEMM,
            (*product.inputs, bias),
            node.outputs,
            name=node.name or product.name,
            sources=tuple(dict.fromkeys((*product.sources, *node.sources))),
            rules=tuple(dict.fromkeys((*product.rules, *node.rules))),
        )

    def unflipped(self, node: Node, inside: set[str]) -> Node:
        """Rewrite a product to read the original of an operand that was transposed."""
        left, right = self.flipped(node.inputs[0]), self.flipped(node.inputs[1])
        stored = right or self.stored_flipped(node.inputs[1])
        if not (left or stored):
            return replace(node, attrs=_sides(0, 0)) if node.op == GEMM else node
        inside.update(name for name, flip in zip(node.inputs, (left, right), strict=False) if flip)
        inputs = (left or node.inputs[0], stored or node.inputs[1], *node.inputs[2:])
        return replace(node, op=GEMM, inputs=inputs, attrs=_sides(bool(left), bool(stored)))

    def flipped(self, name: str) -> str:
        """Return the value whose transpose an operand is, "" if there is none or others read it."""
        node = self.nodes.get(name)
        is_flip = node is not None and node.op == "Transpose" and node.attrs == _FLIP
        return node.inputs[0] if node is not None and is_flip and self.uses[name] == 1 else ""

    def stored_flipped(self, name: str) -> str:
        """Return the constant whose transpose another one is, "" if it cannot replace the other."""
        whole = _flipped_from(self.constants.get(name))
        if whole is None:
            return ""
        known = self.named.get(whole.digest)
        if known is None and self.uses[name] != self.as_right[name]:
            return ""
        return known or self.defined(whole, name)

    def defined(self, constant: Constant, instead: str) -> str:
        """Define a constant; return its name: its tensor's, or one derived from its transpose."""
        name = getattr(constant.source, "name", None) or f"{instead}_flipped"
        while name in self.types or name in self.constants:
            name += "_"
        self.constants[name] = constant
        self.types[name] = constant.type
        self.named[constant.digest] = name
        return name


def _flipped_from(constant: Constant | None) -> Constant | None:
    """Return the constant whose transpose another one is, ``None`` if there is none."""
    made = None if constant is None else constant.source
    is_flip = isinstance(made, Expression) and made.op == "Transpose" and made.attrs == _FLIP
    return made.operands[0] if isinstance(made, Expression) and is_flip else None


def _is_one(dim: Dim) -> bool:
    return isinstance(dim, int) and dim == 1


def _sides(left: bool | int, right: bool | int) -> Attrs:
    return attributes(transA=int(left), transB=int(right))
