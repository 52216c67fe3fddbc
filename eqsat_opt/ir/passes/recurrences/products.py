"""Products over the steps of any recurrent cell: one for all gates, and one for all steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.recurrences.affine_forms import (
    AffineForm,
    AffineForms,
    Block,
    ColumnRange,
    Data,
)
from eqsat_opt.ir.passes.recurrences.sequences import stacked, stretch_of, whole
from eqsat_opt.ir.passes.recurrences.writing import Writing

__all__ = ["with_joint_products"]

_LEAST = 3
"""Least number of steps for which products are rearranged."""

_Blocks = tuple[Block, ...]
"""The weights that multiply the same data in each gate of a step: equal in all steps."""


@dataclass(frozen=True)
class _Step:
    """The gates of one step of a cell: the values that are computed from the same data.

    Attributes:
        gates: the values, each [N, H] with an H of its own.
        parts: the data, and what multiplies them in each gate.
        bias: the addend of each gate.
    """

    gates: tuple[str, ...]
    parts: tuple[tuple[Data, _Blocks], ...]
    bias: tuple[tuple[ColumnRange, ...], ...]


def with_joint_products(graph: Graph) -> Graph:
    """Return the graph with few products for the steps of a recurrent cell.

    1. Products of the same data, with the weights of all gates, are one.
    2. Products with the same weights, of data that no step computes, are one of all steps, and the
       biases are added to it.

    Only gates are rearranged of which a state is computed that a later step multiplies, and only if
    that saves products.
    """
    forms = AffineForms(graph)
    steps = list(_steps(forms))
    by_blocks: dict[_Blocks, list[_Step]] = defaultdict(list)
    for step in steps:
        for _, blocks in step.parts:
            by_blocks[blocks].append(step)
    recurrent: set[_Step] = set()
    apart: dict[_Blocks, list[tuple[_Step, Data]]] = {}
    for blocks, those in by_blocks.items():
        if len(those) < _LEAST:
            continue
        later = _after((gate for step in those for gate in step.gates), graph)
        found = [(step, _data(step, blocks)) for step in those]
        known = _alike([(step, data) for step, data in found if data.name not in later])
        if len(known) >= _LEAST:
            apart[blocks] = known
        if len(found) - len(known) >= _LEAST - 1:
            recurrent.update(those)
    if not recurrent:
        return graph
    for those in by_blocks.values():  # a first step whose state is constant is one of them
        if len(those) >= _LEAST and not recurrent.isdisjoint(those):
            recurrent.update(those)
    writing = Writing(graph)
    rows: dict[tuple[_Step, _Blocks], str] = {}
    biased: set[_Step] = set()
    for blocks, known in apart.items():
        if not recurrent.isdisjoint(step for step, _ in known):
            biased |= _joint(blocks, known, biased, rows=rows, writing=writing)
    for step in steps:
        if step in recurrent:
            _write(step, rows, is_biased=step in biased, writing=writing)
    made = writing.result()
    return made if _products(made) < _products(graph) else graph


def _products(graph: Graph) -> int:
    return sum(node.op == "MatMul" for node in graph.nodes)


def _alike(known: Sequence[tuple[_Step, Data]]) -> list[tuple[_Step, Data]]:
    """Return the steps with the most common bias, which their joint product can have."""
    biases = Counter(step.bias for step, _ in known)
    return [one for one in known if one[0].bias == biases.most_common(1)[0][0]]


def _data(step: _Step, blocks: _Blocks) -> Data:
    return next(data for data, own in step.parts if own == blocks)


# ** steps **


def _steps(forms: AffineForms) -> Iterable[_Step]:
    groups: dict[frozenset[Data], dict[str, AffineForm]] = defaultdict(dict)
    for name, form in _gates(forms):
        data = [one for one, _ in form.products]
        if len(set(data)) == len(data):
            groups[frozenset(data)][name] = form
    for gates in groups.values():
        columns = [dict(form.products) for form in gates.values()]
        parts = [(data, tuple(one[data] for one in columns)) for data in columns[0]]
        yield _Step(
            tuple(gates),
            tuple(sorted(parts, key=lambda part: str(part[1]))),
            tuple(form.bias for form in gates.values()),
        )


def _gates(forms: AffineForms) -> Iterable[tuple[str, AffineForm]]:
    """Yield values with an affine form of which something else than such a form is computed."""
    graph = forms.graph
    read = set(graph.outputs)
    for node in graph.nodes:
        if len(node.outputs) != 1 or forms.form(node.output) is None:
            read.update(node.reads)
    for node in graph.nodes:
        name = node.outputs[0]
        form, type_ = forms.form(name), graph.tensor_type(name)
        if form is None or name not in read or type_ is None or type_.rank != 2:
            continue
        if not form.addends:
            yield name, form


def _after(names: Iterable[str], graph: Graph) -> set[str]:
    """Return the values that are computed from some values, and these."""
    later = set(names)
    for node in graph.nodes:
        if not later.isdisjoint(node.reads):
            later.update(node.outputs)
    return later


# ** writing **


def _joint(
    blocks: _Blocks,
    known: Sequence[tuple[_Step, Data]],
    biased: set[_Step],
    *,
    rows: dict[tuple[_Step, _Blocks], str],
    writing: Writing,
) -> set[_Step]:
    """Write the product of the data of several steps, and note each step's rows of it.

    Returns:
        The steps whose biases are in it.
    """
    data = [one for _, one in known]
    stretch = stretch_of(data, writing.graph)
    together = stacked(data, writing) if stretch is None else whole(stretch, writing)
    steps, samples, features = writing.type(together).shape
    assert isinstance(steps, int)
    if isinstance(samples, int):
        together = writing.reshape(together, steps * samples, features)
    product = writing.apply("MatMul", [together, _side_by_side(blocks, writing)])
    bias = known[0][0].bias
    has_bias = any(bias) and biased.isdisjoint(step for step, _ in known)
    if has_bias:
        product = _with_bias(product, bias, blocks, writing=writing)
    for number, (step, _) in enumerate(known):
        place = steps - 1 - number if stretch is not None and stretch.is_reverse else number
        if isinstance(samples, int):
            row = writing.cut(product, 0, place * samples, (place + 1) * samples)
        else:
            row = writing.cut(product, 0, place, place + 1)
            row = writing.reshape(row, *writing.type(row).shape[1:])
        rows[step, blocks] = row
    return {step for step, _ in known} if has_bias else set()


def _write(
    step: _Step, rows: dict[tuple[_Step, _Blocks], str], *, is_biased: bool, writing: Writing
) -> None:
    """Write the gates of a step as columns of one sum of products."""
    producers = writing.graph.producers
    writing.about(source for gate in step.gates for source in producers[gate].sources)
    total = ""
    ordered = sorted(step.parts, key=lambda part: (step, part[1]) not in rows)
    for data, blocks in ordered:
        product = rows.get((step, blocks))
        if product is None:
            weights = _side_by_side(blocks, writing)
            product = writing.apply("MatMul", [writing.data(data), weights])
        total = writing.apply("Add", [product, total]) if total else product
    if not is_biased:
        total = _with_bias(total, step.bias, step.parts[0][1], writing=writing)
    start = 0
    for gate, block in zip(step.gates, step.parts[0][1], strict=True):
        end = start + block.of.hi - block.of.lo
        if len(step.gates) == 1:
            writing.reshape(total, *writing.type(total).shape, name=gate)
        else:
            writing.apply("Slice", [total], name=gate, axis=1, lo=start, hi=end)
        start = end


def _side_by_side(blocks: _Blocks, writing: Writing) -> str:
    return writing.concat([writing.block(block) for block in blocks], axis=1)


def _with_bias(
    value: str, bias: Sequence[Sequence[ColumnRange]], blocks: _Blocks, *, writing: Writing
) -> str:
    """Add the biases of all gates to the columns of a product."""
    if not any(bias):
        return value
    dtype = writing.type(value).dtype
    vectors = [
        writing.vectors(parts, block.of.hi - block.of.lo, dtype)
        for parts, block in zip(bias, blocks, strict=True)
    ]
    return writing.apply("Add", [value, writing.concat(vectors, axis=0)])
