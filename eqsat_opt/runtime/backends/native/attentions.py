"""Attentions that onnxruntime's own operator can take over, with the product before them.

``com.microsoft.Attention`` computes queries, keys and values with one product that writes them by
heads, and softmax by rows while the rows are in the cache. The operator has one spelling, while
models have many. So the origin of each element is traced through the nodes that move it, by running
these nodes on the numbers of the elements.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from eqsat_opt.runtime.backends.native.sites import CONTRIBUTED, Site, SiteWay, reads

__all__ = ["ATTENTION", "attentions"]

ATTENTION = "attention"
"""Name of the algorithm that uses onnxruntime's attention operator."""

_BATCHES = 2, 3
"""Batch sizes at which movements are traced: if none mixes samples at both, none does at any."""

_LONGEST = 4_096
"""Longest sequence, in rows, whose elements are worth tracing."""

_PRODUCTS = frozenset({"MatMul", "FusedMatMul"})
_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Moved:
    """A value as moved elements of another value.

    Attributes:
        source: the name of the other value.
        steps: the nodes that move the elements, in order, each with the output that is read.
        factor: the factor by which the elements are multiplied on the way.
    """

    source: str
    steps: tuple[tuple[onnx.NodeProto, int], ...]
    factor: float

    @property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """Nodes that move the elements."""
        return tuple(node for node, _ in self.steps)


@dataclass(frozen=True)
class _Linear:
    """A product with constant weights and a constant bias.

    Attributes:
        x: the name of the value that is multiplied.
        weights, bias: a matrix, and one number for each of its columns.
        nodes: the nodes that compute the product.
    """

    x: str
    weights: _Array
    bias: _Array
    nodes: tuple[onnx.NodeProto, ...]


@dataclass(frozen=True)
class _Placed:
    """Layout of the heads of queries, keys and values.

    Attributes:
        length: the length of the sequence.
        heads: the number of heads.
        size: the size of each head.
        columns: the first column of queries, of keys and of values, in the product that computes
            each.
    """

    length: int
    heads: int
    size: int
    columns: tuple[int, ...]


def attentions(model: onnx.ModelProto, others: Iterable[Site] = ()) -> Iterator[Site]:
    """Yield the self-attentions that can be replaced, in float32 and of a fixed length.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        others: sites of single nodes; those inside an attention become further ways of its site.
    """
    graph = _Graph(model)
    by_node = {site.nodes[0]: site for site in others if len(site.nodes) == 1}
    for node in model.graph.node:
        if node.op_type == "Softmax":
            found = graph.site(node)
            if found is not None:
                yield _with_others(found, graph, by_node)


def _with_others(site: Site, graph: _Graph, others: Mapping[str, Site]) -> Site:
    """Add the ways that keep the attention's nodes but replace the products inside it."""
    inside = [others[name] for name in site.nodes if name in others]
    names = dict.fromkeys(way.name for one in inside for way in one.ways)
    ways = list(site.ways)
    for name in names:
        instead = {o.nodes[0]: way for o in inside for way in o.ways if way.name == name}
        nodes = tuple(
            made
            for one in site.nodes
            for made in (instead[one].nodes if one in instead else (graph.by_name[one],))
        )
        constants = tuple(c for way in instead.values() for c in way.constants)
        roughness = max(way.roughness for way in instead.values())
        ways.append(SiteWay(name, nodes, roughness, constants))
    return Site(site.nodes, tuple(ways))


class _Graph:
    """A model with the maker and the readers of each value."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.by_name = {node.name: node for node in graph.node}
        self.order = {node.name: i for i, node in enumerate(graph.node)}
        self.maker = {name: node for node in graph.node for name in node.output if name}
        self.readers = Counter(name for node in graph.node for name in reads(node))
        self.readers.update(value.name for value in graph.output)
        self.read_by: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.read_by.setdefault(name, []).append(node)
        given = {value.name for value in graph.input}
        self.constants = {t.name: t for t in graph.initializer if t.name not in given}

    def constant(self, name: str) -> _Array | None:
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def scalar(self, name: str) -> float | None:
        array = self.constant(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        return self.read_by[name][0] if self.readers[name] == 1 and name in self.read_by else None

    # The parts of an attention ------------------------------------------------------------------

    def site(self, softmax: onnx.NodeProto) -> Site | None:
        """Return the site of the attention around a softmax along the last of four axes."""
        if _attrs(softmax).get("axis") not in (-1, 3):
            return None
        weighted = self.only_reader(softmax.output[0])
        if weighted is None or weighted.op_type != "MatMul" or weighted.domain not in _OWN:
            return None
        if weighted.input[0] != softmax.output[0]:
            return None
        last = self.only_reader(weighted.output[0])
        if last is None or last.op_type != "Transpose" or _attrs(last).get("perm") != [0, 2, 1, 3]:
            return None
        scores, added, between = self._scores(softmax.input[0])
        if scores is None:
            return None
        attrs = _attrs(scores)
        if any(attrs.get(n, 0) for n in ("transA", "transBatchA", "transBatchB")):
            return None
        moved = [self.moved(n) for n in (*scores.input, weighted.input[1])]
        linears = [None if one is None else self.linear(one.source) for one in moved]
        parts = [
            (m, n) for m, n in zip(moved, linears, strict=True) if m is not None and n is not None
        ]
        if len(parts) < 3 or len({linear.x for _, linear in parts}) > 1:
            return None
        placed = _placed(self, parts, bool(attrs.get("transB", 0)))
        if placed is None:
            return None
        bias = None if added is None else _biases(added, placed)
        if (added is None) != (bias is None):
            return None
        factor = float(attrs.get("alpha", 1.0)) * parts[0][0].factor * parts[1][0].factor
        if parts[2][0].factor != 1.0 or factor <= 0 or not math.isfinite(factor):
            return None
        inside = {node.name: node for node in (*between, scores, softmax, weighted, last)}
        for one, linear in parts:
            inside.update({node.name: node for node in (*one.nodes, *linear.nodes)})
        names = sorted(inside, key=self.order.__getitem__)
        if names[-1] != last.name or not self._is_closed(inside.values(), last.output[0]):
            return None
        way = _way(last, [linear for _, linear in parts], placed, factor=factor, bias=bias)
        return Site(tuple(names), (way,))

    def _scores(
        self, name: str
    ) -> tuple[onnx.NodeProto | None, _Array | None, tuple[onnx.NodeProto, ...]]:
        """Return the product that a softmax reads, a constant added to it, and the adding nodes."""
        node = self.maker.get(name)
        if node is None or self.readers[name] != 1:
            return None, None, ()
        if node.op_type == "Add":
            for product, added in (tuple(node.input), tuple(node.input)[::-1]):
                array, made = self.constant(added), self.maker.get(product)
                if array is not None and made is not None and made.op_type in _PRODUCTS:
                    return (made, array, (node,)) if self.readers[product] == 1 else _NOTHING
            return _NOTHING
        return (node, None, ()) if node.op_type in _PRODUCTS else _NOTHING

    def _is_closed(self, nodes: Iterable[onnx.NodeProto], result: str) -> bool:
        """Return whether no other node reads the values of these nodes, except their result."""
        own = Counter(name for node in nodes for name in node.input)
        made = {name for node in nodes for name in node.output if name and name != result}
        return all(self.readers[name] == own[name] for name in made)

    def moved(self, name: str) -> _Moved | None:
        """Trace the elements of a value back to their source; ``None`` if that is impossible."""
        steps: list[tuple[onnx.NodeProto, int]] = []
        factor = 1.0
        while (node := self.maker.get(name)) is not None:
            output = list(node.output).index(name)
            if node.op_type in _MOVES and node.domain in _OWN:
                if any(self.constant(one) is None for one in node.input[1:] if one):
                    return None
                name = node.input[0]
            elif node.op_type in ("Mul", "Div") and node.domain in _OWN:
                scalars = [self.scalar(one) for one in node.input]
                if scalars[1] is not None:
                    name, by = node.input[0], scalars[1]
                elif scalars[0] is not None and node.op_type == "Mul":
                    name, by = node.input[1], scalars[0]
                else:
                    break
                factor = factor * by if node.op_type == "Mul" else factor / by
            else:
                break
            steps.append((node, output))
        return _Moved(name, tuple(reversed(steps)), factor)

    def linear(self, name: str) -> _Linear | None:
        """Return the product that computes a value, if its weights and bias are constants."""
        node = self.maker.get(name)
        if node is None or node.domain not in _OWN:
            return None
        attrs = _attrs(node)
        if node.op_type == "Gemm" and len(node.input) == 3:
            weights, bias = self.constant(node.input[1]), self.constant(node.input[2])
            is_plain = (attrs.get("alpha", 1.0), attrs.get("beta", 1.0), attrs.get("transA", 0))
            if weights is None or bias is None or is_plain != (1.0, 1.0, 0):
                return None
            weights = weights.T if attrs.get("transB", 0) else weights
            return _linear(node.input[0], weights, bias, (node,))
        if node.op_type != "Add":
            return None
        for product, added in (tuple(node.input), tuple(node.input)[::-1]):
            made, array = self.maker.get(product), self.constant(added)
            if array is None or made is None or made.op_type != "MatMul":
                continue
            matrix = self.constant(made.input[1])
            if matrix is not None and made.domain in _OWN:
                return _linear(made.input[0], matrix, array, (made, node))
        return None


_OWN = frozenset({"", "ai.onnx"})
_NOTHING: tuple[None, None, tuple[onnx.NodeProto, ...]] = (None, None, ())


def _attrs(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _linear(
    x: str, weights: _Array, bias: _Array, nodes: tuple[onnx.NodeProto, ...]
) -> _Linear | None:
    if weights.ndim != 2 or weights.dtype != np.float32 or bias.size != weights.shape[1]:
        return None
    return _Linear(x, weights, bias.reshape(-1), nodes)


def _biases(added: _Array, placed: _Placed) -> _Array | None:
    """Return the constant added to scores in the operator's four axes, if all samples share it."""
    if added.ndim > 4 or added.dtype != np.float32:
        return None
    whole = added.reshape((1,) * (4 - added.ndim) + added.shape)
    if whole.shape[0] != 1 or whole.shape[1] not in (1, placed.heads):
        return None
    scores = (placed.length, placed.length)
    return np.ascontiguousarray(np.broadcast_to(whole, (1, whole.shape[1], *scores)))


# Movements of elements, traced by numbers ---------------------------------------------------------


def _reshape(x: _Array, graph: _Graph, node: onnx.NodeProto) -> list[_Array]:
    target = graph.constant(node.input[1])
    assert target is not None
    keeps = not _attrs(node).get("allowzero", 0)
    return [x.reshape([x.shape[i] if d == 0 and keeps else d for i, d in enumerate(target)])]


def _axes(graph: _Graph, node: onnx.NodeProto) -> list[int] | None:
    if len(node.input) > 1 and node.input[1]:
        array = graph.constant(node.input[1])
        return None if array is None else [int(axis) for axis in array.reshape(-1)]
    return _attrs(node).get("axes")


def _squeeze(x: _Array, graph: _Graph, node: onnx.NodeProto) -> list[_Array]:
    axes = _axes(graph, node)
    return [np.squeeze(x, None if axes is None else tuple(axes))]


def _unsqueeze(x: _Array, graph: _Graph, node: onnx.NodeProto) -> list[_Array]:
    return [np.expand_dims(x, tuple(_axes(graph, node) or ()))]


def _transpose(x: _Array, _: _Graph, node: onnx.NodeProto) -> list[_Array]:
    return [np.transpose(x, _attrs(node).get("perm"))]


def _split(x: _Array, graph: _Graph, node: onnx.NodeProto) -> list[_Array]:
    axis = _attrs(node).get("axis", 0)
    sizes = graph.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    sizes = _attrs(node).get("split") if sizes is None else sizes
    if sizes is None:
        return np.split(x, len(node.output), axis)  # raises if the parts are not equal
    ends = [int(end) for end in np.cumsum(sizes)]
    return np.split(x, ends[:-1], axis) if ends[-1] == x.shape[axis] else []


def _gather(x: _Array, graph: _Graph, node: onnx.NodeProto) -> list[_Array]:
    indices = np.asarray(graph.constant(node.input[1]))
    return [np.take(x, indices, _attrs(node).get("axis", 0))]


_MOVES = {
    "Gather": _gather, "Reshape": _reshape, "Split": _split, "Squeeze": _squeeze,
    "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip


def _followed(graph: _Graph, moved: _Moved, start: _Array) -> _Array | None:
    """Apply the movements of a value to elements of its source; ``None`` if they do not fit."""
    x = start
    for node, output in moved.steps:
        if node.op_type in _MOVES:  # a factor moves nothing
            try:
                x = _MOVES[node.op_type](x, graph, node)[output]
            except (ValueError, IndexError):
                return None
    return x


def _placed(
    graph: _Graph, parts: Sequence[tuple[_Moved, _Linear]], is_flipped: bool
) -> _Placed | None:
    """Return the layout of the heads of queries, keys and values; ``None`` if it is another one."""
    for length in _lengths(graph, parts):
        found = [
            _first_column(graph, moved, linear, length, transposed=i == 1 and not is_flipped)
            for i, (moved, linear) in enumerate(parts)
        ]
        if all(found):
            sizes = {(heads, size) for heads, size, _ in filter(None, found)}
            if len(sizes) == 1:
                (heads, size), *_ = sizes
                return _Placed(length, heads, size, tuple(at for *_, at in filter(None, found)))
    return None


def _lengths(graph: _Graph, parts: Sequence[tuple[_Moved, _Linear]]) -> list[int]:
    """Return the possible lengths of the sequence, which must occur in the shape of a Reshape."""
    shapes = [
        graph.constant(node.input[1])
        for moved, _ in parts
        for node in moved.nodes
        if node.op_type == "Reshape"
    ]
    numbers = {int(d) for shape in shapes if shape is not None for d in shape}
    return sorted(d for d in numbers if 0 < d <= _LONGEST)


def _first_column(
    graph: _Graph, moved: _Moved, linear: _Linear, length: int, *, transposed: bool
) -> tuple[int, int, int] | None:
    """Return heads, their size and their first column, if all occupy adjacent columns."""
    columns = linear.weights.shape[1]
    found = set()
    for batch in _BATCHES:
        for shape in ((batch * length, columns), (batch, length, columns)):
            start = np.arange(batch * length * columns).reshape(shape)
            x = _followed(graph, moved, start)
            if x is None or x.ndim != 4:
                continue
            x = x.swapaxes(2, 3) if transposed else x
            heads, size = x.shape[1], x.shape[3]
            first = int(x.flat[0]) if x.size else -1
            rows = np.arange(batch * length).reshape(batch, 1, length, 1) * columns
            each = np.arange(heads * size).reshape(1, heads, 1, size)
            if x.shape == (batch, heads, length, size) and np.array_equal(x, rows + first + each):
                found.add((heads, size, first))
                break
        else:
            return None
    return found.pop() if len(found) == 1 else None


# Construction of the operator ---------------------------------------------------------------------


def _way(
    last: onnx.NodeProto,
    linears: Sequence[_Linear],
    placed: _Placed,
    *,
    factor: float,
    bias: _Array | None,
) -> SiteWay:
    name, first = last.name, linears[0]
    parts = [
        (linear, slice(column, column + placed.heads * placed.size))
        for linear, column in zip(linears, placed.columns, strict=True)
    ]
    arrays = {
        "weights": np.concatenate([linear.weights[:, part] for linear, part in parts], axis=1),
        "bias": np.concatenate([linear.bias[part] for linear, part in parts]),
        "rows": np.array([-1, placed.length, first.weights.shape[0]]),
        "heads": np.array([-1, placed.length, placed.heads, placed.size]),
        **({} if bias is None else {"added": bias}),
    }
    constants = tuple(
        numpy_helper.from_array(np.ascontiguousarray(array), f"{name}:{what}")
        for what, array in arrays.items()
    )
    added = [] if bias is None else ["", "", f"{name}:added"]
    operands = [f"{name}:x", f"{name}:weights", f"{name}:bias", *added]
    attention = helper.make_node(
        "Attention", operands, [f"{name}:y"], name=name, domain=CONTRIBUTED,
        num_heads=placed.heads, scale=factor,
    )  # fmt: skip
    nodes = (
        helper.make_node("Reshape", [first.x, f"{name}:rows"], [f"{name}:x"], name=f"{name}:x"),
        attention,
        helper.make_node("Reshape", [f"{name}:y", f"{name}:heads"], last.output, name=f"{name}:y"),
    )
    return SiteWay(ATTENTION, nodes, 1, constants)
