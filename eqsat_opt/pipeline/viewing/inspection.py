"""An overview of a model, without running it: operators, shapes, work, and what could gain."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir

from eqsat_opt.common.text import (
    amount_text,
    bytes_text,
    count_text,
    counted,
    percent_text,
    plain_table,
    quantity_text,
    sizes_text,
)
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.plain_names import plain_kernel, plain_sizes
from eqsat_opt.ir.onnx.files.content import constant_bytes
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.sparse_tensors import stands_for_initializer
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.body_flops import body_flops
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.passing import Passing, passing_operators
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.viewing.gains import Gain, gains_in_sight

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["Inspection", "Operators", "inspect_model"]

_GAINS_S = 0.3
"""Processor time for trying rules, s; a few hundred operators take a fraction of it."""

_MOST_ROWS = 25
"""Most rows of a table that a terminal shows."""


@dataclass(frozen=True)
class Operators:
    """All nodes of one operator in the main graph of a model.

    Attributes:
        operator: name, with the domain if that is not the default one.
        count: number of nodes.
        flops: floating point operations of one run; ``None`` where nothing counts them.
        bytes: bytes of operands and results, as far as their sizes are known.
        vanish: number of nodes that simplification alone removes, at least.
    """

    operator: str
    count: int
    flops: float | None
    bytes: float
    vanish: int


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The overview of a model.

    Attributes:
        model: name of the model.
        producer: program that wrote it, with its version; empty if it does not say.
        opsets: version of each operator set by domain; the default domain is ``ai.onnx``.
        inputs, outputs: element type and shape by name, in the order of the interface.
        weight_bytes: bytes of all constants.
        flops: floating point operations of one run, bodies included, at the sizes of `sizes`.
        bytes: bytes that all operators read and write.
        sizes: the sizes of symbolic dimensions at which this is counted.
        operators: the operators, those with the most work first.
        passing: the operators that pass through an optimisation unchanged, with reasons.
        gains: the rules that save something in one step.
        untried: number of rules for which there was no time.
    """

    model: str
    producer: str
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    weight_bytes: int
    flops: float
    bytes: float
    sizes: Mapping[str, Mapping[str, int]]
    operators: tuple[Operators, ...]
    passing: tuple[Passing, ...]
    gains: tuple[Gain, ...]
    untried: int

    @property
    def n_operators(self) -> int:
        """Number of nodes of the main graph."""
        return sum(one.count for one in self.operators)

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable keys."""
        return asdict(self)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the overview and its tables."""
        from rich.text import Text

        yield Text(self.model, style="bold")
        yield self._facts()
        if self.operators:
            yield ""
            yield self._operator_table()
        if self.passing:
            yield ""
            yield self._passing_table()
        if self.operators:
            yield ""
            yield from self._gain_lines()

    def _facts(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        work = f"{amount_text(self.flops, 'FLOP')}, {bytes_text(self.bytes)} read and written"
        facts = [("written by", self.producer)] if self.producer else []
        facts += [
            ("operator sets", opsets),
            ("inputs", _interface(self.inputs)),
            ("outputs", _interface(self.outputs)),
            ("operators", count_text(self.n_operators)),
            ("constants", bytes_text(self.weight_bytes)),
            ("a run", work),
        ]
        if text := sizes_text([self.sizes]):
            facts.append(("sizes", text))
        for title, text in facts:
            grid.add_row(title, Text(text))
        return grid

    def _operator_table(self) -> RenderableType:
        titles = ("operator", "nodes", "FLOP", "share", "bytes", "simplified away")
        table = plain_table(*titles, right=slice(1, None))
        for one in self.operators[:_MOST_ROWS]:
            known = one.flops is not None
            share = f"{one.flops / self.flops:.1%}" if one.flops and self.flops else ""
            flops = quantity_text(one.flops) if one.flops else "0" if known else "?"
            gone = count_text(one.vanish) if one.vanish else ""
            _add(
                table,
                one.operator,
                count_text(one.count),
                flops,
                share,
                bytes_text(one.bytes),
                gone,
            )
        if len(self.operators) > _MOST_ROWS:
            more = len(self.operators) - _MOST_ROWS
            _add(table, f"(and {more} more: --json lists them)")
        return table

    def _passing_table(self) -> RenderableType:
        table = plain_table("passes through", "nodes", "because", right=slice(1, 2))
        for one in self.passing[:_MOST_ROWS]:
            _add(table, one.operator, count_text(one.count), one.why)
        return table

    def _gain_lines(self) -> Iterator[RenderableType]:
        gone = sum(one.vanish for one in self.operators)
        if gone:
            yield f"simplification alone removes at least {counted(gone, 'operator')}"
        if self.gains:
            table = plain_table("could gain", "places", "at one place", "rule", right=slice(1, 3))
            for gain in self.gains[:_MOST_ROWS]:
                share = f"about {percent_text(gain.share)}"
                _add(table, gain.rule, count_text(gain.places), share, gain.equation)
            yield table
        else:
            yield "no single rule saves anything here; several together may: eqsat-opt optimize"
        if self.untried:
            yield f"{counted(self.untried, 'rule')} were not tried, for want of time"


def _interface(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {type_}" for name, type_ in values.items()) or "none"


def _add(table: Any, *cells: str) -> None:
    """Add a row of plain text, as names may look like markup."""
    from rich.text import Text

    table.add_row(*map(Text, cells))


def inspect_model(
    source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    shapes: Sequence[Mapping[str, tuple[int, ...] | int]] = (),
) -> Inspection:
    """Return the overview of a model; nothing is run or searched.

    Args:
        source: a path or a model, which is not changed.
        shapes: at most one set of shapes of inputs and sizes of symbolic dimensions; missing ones
            are assumed.

    Raises:
        ModelError: the model cannot be read.
        OptionError: a shape does not fit.
    """
    model = load_model(source)
    graph = import_model(model)
    sizes = size_sets(graph, shapes)[0]
    clean = normalise(graph)
    gains, untried = gains_in_sight(clean, sizes.all, time_limit_s=_GAINS_S)
    work = _Work(graph, clean, sizes)
    operators = work.operators()
    return Inspection(
        model=os.fspath(source) if isinstance(source, str | os.PathLike) else "the model",
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        opsets={domain or "ai.onnx": version for domain, version in model.opset_imports.items()},
        inputs={name: plain_sizes(str(graph.types[name])) for name in graph.inputs},
        outputs={name: plain_sizes(str(graph.types[name])) for name in graph.outputs},
        weight_bytes=constant_bytes(model),
        flops=sum(one.flops or 0.0 for one in operators),
        bytes=sum(one.bytes for one in operators),
        sizes=sizes.to_json(),
        operators=operators,
        passing=passing_operators(clean),
        gains=tuple(_plain(gain) for gain in gains),
        untried=untried,
    )


def _plain(gain: Gain) -> Gain:
    equation = gain.equation.partition("   when ")[0]  # it holds here
    return replace(gain, equation=plain_kernel(equation))


class _Work:
    """The work of the nodes of a model: operations by its graph, bytes by the types of values."""

    def __init__(self, graph: Graph, clean: Graph, sizes: Sizes) -> None:
        self._graph, self._sizes = graph, sizes.all
        self._flops: dict[str, float] = {}
        self._uncounted: set[str] = set()
        for node in graph.nodes:
            # A node that represents several of the file counts for the last of them.
            source = node.sources[-1] if node.sources else ""
            if node.op == OPAQUE:
                self._uncounted.add(source)
            else:
                self._flops[source] = self._flops.get(source, 0.0) + self._flops_of(node)
        self._kept = {source for node in clean.nodes for source in node.sources}

    def operators(self) -> tuple[Operators, ...]:
        """Return the operators of the file, those with the most work first."""
        count: Counter[str] = Counter()
        flops: dict[str, float] = {}
        moved: Counter[str] = Counter()
        vanish: Counter[str] = Counter()
        model = self._graph.model
        for node in model.graph:
            if stands_for_initializer(node):
                continue
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            key = node.name or (node.outputs[0].name if node.outputs else "") or ""
            count[name] += 1
            if key not in self._uncounted:
                flops[name] = flops.get(name, 0.0) + self._flops.get(key, 0.0)
            vanish[name] += key not in self._kept
            moved[name] += sum(map(self._bytes, (*node.inputs, *node.outputs)))
        inner = body_flops(self._graph, self._sizes)
        rows = [
            Operators(
                name,
                number,
                flops.get(name),
                bytes=float(moved[name]),
                vanish=vanish[name],
            )
            for name, number in count.items()
        ]
        if inner:
            rows.append(Operators("(inside of bodies)", 0, inner, bytes=0.0, vanish=0))
        return tuple(sorted(rows, key=lambda one: (-(one.flops or 0), -one.bytes, one.operator)))

    def _flops_of(self, node: Any) -> float:
        types = [self._graph.tensor_type(name) for name in (*node.inputs, *node.outputs)]
        known = [self._sized(type_) for type_ in types if type_ is not None]
        if len(known) != len(types):
            return 0.0
        found = get_op(node.op).flops(known[:-1], known[-1], dict(node.attrs))
        return float(evaluate_dim(found, self._sizes))

    def _sized(self, type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(evaluate_dim(d, self._sizes) for d in type_.shape))

    def _bytes(self, value: onnx_ir.Value | None) -> int:
        if value is None or not value.name:
            return 0
        type_ = self._graph.tensor_type(value.name)
        return 0 if type_ is None else int(evaluate_dim(type_.bytes, self._sizes))
