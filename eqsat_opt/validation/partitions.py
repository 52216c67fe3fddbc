"""Models cut at their quantisations, so that the parts between these can be compared.

A float that changes in its last bit may be rounded to the next step of a quantisation behind it,
and all that follows moves by such steps: outputs of equal models then differ by more than rounding
explains, and by an unpredictable amount. Between two quantisations nothing of the kind happens. So
the original runs with the operands of its quantisations as further outputs, and the other model
with their results as inputs, taken from the original's run: each part sees the same data in both,
and ordinary tolerances hold. Where every operand of every quantisation agrees, each is rounded to
the same step or, on the border between two, to its neighbour: one step of what follows, no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.quantised import ROUNDING
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure

__all__ = ["Segments", "cut_at_quantisations", "quantises"]


@dataclass(frozen=True)
class Segments:
    """The two sides of a comparison; both take the inputs of the original.

    Attributes:
        original: computes the original's outputs and the operands of its quantisations.
        other: computes the same of the other model, whose quantisations return the original's
            results.
    """

    original: Runner
    other: Runner


@dataclass(frozen=True)
class _Cut:
    """A quantisation that both models have: pairs of names, the original's first."""

    results: tuple[tuple[str, str], ...]
    operands: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Part:
    """The original, with the values that are compared.

    Attributes:
        inner: session that has at least these values as outputs or inputs.
        compared: names of values to their names in the other model.
        runs: inputs, and the values that they gave.
    """

    inner: Runner
    compared: Mapping[str, str]
    runs: list[tuple[Feeds, dict[str, Any]]] = field(default_factory=list)

    @property
    def input_names(self) -> Sequence[str]:
        return self.inner.input_names

    @property
    def output_names(self) -> Sequence[str]:
        return tuple(self.compared)

    def run(self, feeds: Feeds) -> list[Any]:
        values = self.values(feeds)
        return [values[name] for name in self.compared]

    def values(self, feeds: Feeds) -> dict[str, Any]:
        """Return the inputs and outputs of a run by name; the same inputs run once."""
        for known, values in self.runs:
            if known is feeds:
                return values
        outputs = zip(self.inner.output_names, self.inner.run(feeds), strict=True)
        values = {**feeds, **dict(outputs)}
        self.runs.append((feeds, values))
        return values


class _Fed:
    """The other model with its quantisations as inputs; it runs on the original's inputs."""

    def __init__(
        self,
        original: _Part,
        structure: onnx.ModelProto,
        results: Mapping[str, str],
        options: OrtOptions,
        open_session: OpenSession,
    ) -> None:
        self.input_names = original.input_names
        self.output_names = original.output_names
        self._original = original
        self._structure = structure
        self._results = results
        self._options = options
        self._open_session = open_session
        self._session: Runner | None = None

    def run(self, feeds: Feeds) -> list[Any]:
        values = self._original.values(feeds)
        cut = {other: values[name] for name, other in self._results.items()}
        wanted = self._original.compared.values()
        if self._session is None:  # the types of the new inputs are known after a run
            other = _without(self._structure, cut, wanted)
            self._session = self._open_session(other, self._options)
        known = {**feeds, **cut}
        own = {name: known[name] for name in self._session.input_names}
        known.update(zip(self._session.output_names, self._session.run(own), strict=True))
        return [known[name] for name in wanted]


def cut_at_quantisations(
    original: ModelSource,
    other: ModelSource,
    options: OrtOptions,
    open_session: OpenSession = OrtSession,
) -> Segments | None:
    """Cut both models at the quantisations that they share; return ``None`` if there is none.

    Raises:
        ModelError: a model cannot be read.
        RuntimeFailed: the original does not run with the values at the cuts as further outputs.
    """
    first, second = read_structure(original), read_structure(other)
    cuts = tuple(_cuts(first, second))
    if not cuts:
        return None
    given = [value.name for value in first.graph.output]
    results = {a: b for cut in cuts for a, b in cut.results}
    operands = {a: b for cut in cuts for a, b in cut.operands if a not in given}
    compared = {name: name for name in given if name not in results} | operands
    inputs = {value.name for value in first.graph.input}
    exposed = _exposed(first, [n for n in (*operands, *results) if n not in {*given, *inputs}])
    part = _Part(open_session(exposed, options.beside(original)), compared)
    fed = _Fed(
        original=part,
        structure=second,
        results=results,
        options=options.beside(other),
        open_session=open_session,
    )
    return Segments(part, fed)


def _cuts(first: onnx.ModelProto, second: onnx.ModelProto) -> Iterator[_Cut]:
    makers = {name: node for node in second.graph.node for name in node.output if name}
    renamed = {
        node.input[0]: node.output[0]
        for node in first.graph.node
        if node.op_type == "Identity" and node.output[0] in makers
    }
    rounding = set(ROUNDING)
    for _ in first.functions:  # a function may call another
        rounding |= {f.name for f in first.functions if _rounds(f.node, rounding)}
    for node in first.graph.node:
        if not _rounds([node], rounding):
            continue
        results = [(n, n if n in makers else renamed.get(n, "")) for n in node.output if n]
        twins = [makers.get(name) for _, name in results]
        twin = twins[0] if twins else None
        if twin is None or any(other is not twin for other in twins):
            continue
        if (twin.op_type, len(_reads(twin))) != (node.op_type, len(_reads(node))):
            continue
        yield _Cut(tuple(results), tuple(zip(_reads(node), _reads(twin), strict=True)))


def quantises(model: onnx.ModelProto) -> bool:
    """Return whether a model rounds to a quantisation's steps, even in branches and functions."""
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    return any(_rounds(body, ROUNDING) for body in bodies)


def _rounds(nodes: Iterable[onnx.NodeProto], operators: Collection[str]) -> bool:
    return any(
        node.op_type in operators or any(_rounds(g.node, operators) for g in _inner(node))
        for node in nodes
    )


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the operands of a node, and the values that its subgraphs read from outside."""
    return [*filter(None, node.input), *dict.fromkeys(n for g in _inner(node) for n in _free(g))]


def _free(graph: onnx.GraphProto) -> Iterator[str]:
    own = {v.name for v in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    read = [name for node in graph.node for name in _reads(node)]
    yield from (name for name in [*read, *(v.name for v in graph.output)] if name not in own)


def _exposed(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return result


def _without(
    model: onnx.ModelProto, known: Mapping[str, Any], outputs: Iterable[str]
) -> onnx.ModelProto:
    """Return the model with some values as inputs in place of the nodes that make them."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    nodes = [node for node in graph.node if known.keys().isdisjoint(node.output)]
    infos = [info for info in graph.value_info if info.name not in known]
    made = {name for node in nodes for name in node.output} | {t.name for t in graph.initializer}
    declared = {value.name: value for value in graph.output}
    ends = [
        declared.get(n) or onnx.ValueInfoProto(name=n) for n in dict.fromkeys(outputs) if n in made
    ]
    del graph.node[:], graph.value_info[:], graph.output[:]
    graph.node.extend(nodes)
    graph.value_info.extend(infos)
    graph.output.extend(ends)
    for name, value in known.items():
        if not isinstance(value, np.ndarray):
            raise RuntimeFailed(f"{name!r} is not a tensor, so the model cannot be cut there")
        code = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        shape = [None] * value.ndim
        graph.input.append(onnx.helper.make_tensor_value_info(name, code, shape))
    return result
