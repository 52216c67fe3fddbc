"""The difference of two models as graphs: nodes that were added, removed or changed.

Nothing is run: two graphs that differ may compute the same, which `eqsat-opt bench` measures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import onnx
import onnx_ir

from eqsat_opt.common.text import counted, plain_table
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.pipeline.viewing.alignment import Alignment, Side, align, free_nodes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["GraphDifference", "NodeChange", "compare_graphs"]

_MOST_ROWS = 40
"""Most rows of a kind that a terminal shows."""


@dataclass(frozen=True)
class NodeChange:
    """One node that differs.

    Attributes:
        kind: its change.
        operator: its operator, with the domain if that is not the default one.
        node: its name, or that of its first result, in the first model; in the second one if it was
            added.
        details: its changes, a clause each; for another node its operands and result.
    """

    kind: Literal["added", "removed", "changed"]
    operator: str
    node: str
    details: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GraphDifference:
    """The result of comparing two models as graphs.

    Attributes:
        first, second: names of the models.
        nodes: number of operators of both, constants not counted.
        same: number of nodes that are in both, unchanged.
        changes: the nodes that differ, removed ones first, each kind in running order.
        interface: differences of inputs, outputs and operator sets, a sentence each.
    """

    first: str
    second: str
    nodes: tuple[int, int]
    same: int
    changes: tuple[NodeChange, ...]
    interface: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the models are the same up to names, metadata and the order of nodes."""
        return not self.changes and not self.interface

    def of_kind(self, kind: str) -> tuple[NodeChange, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable keys."""
        return {**asdict(self), "equal": self.is_equal}

    @property
    def summary(self) -> str:
        """The counts in one line."""
        if self.is_equal:
            return f"no difference: {counted(self.same, 'operator')} in both"
        kinds = ("removed", "added", "changed")
        parts = [f"{len(self.of_kind(kind))} {kind}" for kind in kinds]
        return f"{self.nodes[0]} → {self.nodes[1]} operators: {self.same} same, {', '.join(parts)}"

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the counts and a table of the nodes that differ."""
        from rich.text import Text

        yield Text(f"{self.first} → {self.second}", style="bold")
        yield Text(self.summary)
        for sentence in self.interface:
            yield Text(sentence, style="yellow")
        if not self.changes:
            return
        yield ""
        table = plain_table("", "operator", "node", "")
        styles = {"removed": ("-", "red"), "added": ("+", "green"), "changed": ("~", "yellow")}
        for kind, (sign, style) in styles.items():
            found = self.of_kind(kind)
            for change in found[:_MOST_ROWS]:
                cells = (sign, change.operator, change.node, "; ".join(change.details))
                table.add_row(*map(Text, cells), style=style)
            if len(found) > _MOST_ROWS:
                more = f"({len(found) - _MOST_ROWS} more {kind}: --json lists them)"
                table.add_row(sign, Text(more), style=style)
        yield table


def compare_graphs(
    first: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    second: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
) -> GraphDifference:
    """Return where two models differ as graphs; all their constants are read and compared.

    Raises:
        ModelError: a model cannot be read.
    """
    models = load_model(first), load_model(second)
    sides = Side(models[0]), Side(models[1])
    found = align(*sides)
    changed = [change for one in sorted(found.pairs) if (change := _changed(found, one))]
    removed = [_lone("removed", sides[0], n) for n in free_nodes(found, second=False)]
    added = [_lone("added", sides[1], n) for n in free_nodes(found, second=True)]
    return GraphDifference(
        first=_name(first, "the first model"),
        second=_name(second, "the second model"),
        nodes=(len(sides[0].nodes), len(sides[1].nodes)),
        same=len(found.pairs) - len(changed),
        changes=(*removed, *added, *changed),
        interface=tuple(_interface(models, found)),
    )


def _name(source: object, otherwise: str) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else otherwise


def _operator(side: Side, number: int) -> str:
    domain, op_type = side.kinds[number]
    return f"{domain}::{op_type}" if domain else op_type


def _label(side: Side, number: int) -> str:
    return side.nodes[number].name or next(filter(None, side.results[number]), "")


def _lone(kind: Literal["added", "removed"], side: Side, number: int) -> NodeChange:
    reads = ", ".join(name or "(absent)" for name in side.operands[number])
    made = ", ".join(_typed(side, name) for name in side.results[number] if name)
    return NodeChange(kind, _operator(side, number), _label(side, number), (f"{reads} → {made}",))


def _typed(side: Side, name: str) -> str:
    value = side.values.get(name)
    if value is None or value.shape is None or value.dtype is None:
        return name
    dims = ",".join(str(dim) for dim in value.shape)
    return f"{name}: {value.dtype.name.lower()}[{dims}]"


def _changed(found: Alignment, one: int) -> NodeChange | None:
    first, second, other = found.first, found.second, found.pairs[one]
    details = []
    before, after = first.attributes[one], second.attributes[other]
    for name in sorted(before.keys() | after.keys()):
        values = before.get(name, "(absent)"), after.get(name, "(absent)")
        if values[0] != values[1]:
            details.append(f"{name}: {values[0]} → {values[1]}")
    operands = first.operands[one], second.operands[other]
    for place in range(max(map(len, operands))):
        names = [some[place] if place < len(some) else "" for some in operands]
        if not found.same_operand(*names):
            shown = [
                _operand(side, name) for side, name in zip((first, second), names, strict=True)
            ]
            same_text = shown[0] == shown[1]
            change = f"other contents of {shown[0]}" if same_text else f"{shown[0]} → {shown[1]}"
            details.append(f"operand {place}: {change}")
    if not details:
        return None
    return NodeChange("changed", _operator(first, one), _label(first, one), tuple(details))


def _operand(side: Side, name: str) -> str:
    if not name:
        return "(absent)"
    return f"constant {side.contents[name]}" if name in side.constants else name


def _interface(models: tuple[onnx_ir.Model, onnx_ir.Model], found: Alignment) -> Iterator[str]:
    sides = found.first, found.second
    for noun, names in (
        ("input", [s.inputs for s in sides]),
        ("output", [s.outputs for s in sides]),
    ):
        for name in names[0]:
            if name not in names[1]:
                yield f"{noun} {name!r} is in the first model only"
                continue
            types = [_typed(side, name) for side in sides]
            if types[0] != types[1]:
                yield f"{noun} {types[0]} is {types[1].removeprefix(name + ': ')} in the second"
        yield from (
            f"{noun} {n!r} is in the second model only" for n in names[1] if n not in names[0]
        )
    for name in sides[0].outputs:
        if name in sides[1].outputs and not found.same_operand(name, name):
            yield f"output {name!r} is another node's result"
    sets = [dict(model.opset_imports) for model in models]
    for domain in sorted(sets[0].keys() | sets[1].keys()):
        versions = [str(one.get(domain, "none")) for one in sets]
        if versions[0] != versions[1]:
            yield f"operator set {domain or 'ai.onnx'}: {versions[0]} → {versions[1]}"
