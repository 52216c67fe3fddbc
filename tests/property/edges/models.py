"""Whole models at the edges: symbols, subgraphs, functions, and feeds of other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tests.property.edges.draft import (
    FLOATS,
    INTEGERS,
    LOCAL,
    Draft,
    Impossible,
    Value,
    array_of,
    code_of,
)
from tests.property.edges.operators import OPERATORS

__all__ = ["OPSETS", "EdgeModel", "draw_model", "draw_operator"]

Array = npt.NDArray[Any]

OPSETS = (*range(9, 25), 13, 17, 21, 23)
_SIZES = {"N": 2, "M": 3, "K": 4}
"""Symbols and what they are at first."""
_FEEDABLE = (np.float32,) * 10 + (np.float64, np.float64, np.float16, np.float16, bool)


_UNFIT = (Impossible, ValueError, IndexError, ZeroDivisionError, OverflowError)
"""What is raised where operands do not suit an operator."""


@dataclass(frozen=True)
class EdgeModel:
    """A model and inputs, the first of them ordinary, the others special or of other sizes."""

    model: onnx.ModelProto
    feeds: tuple[dict[str, Array], ...]


def draw_model(random: Random) -> EdgeModel:
    """A model that onnxruntime runs on its first feed at least.

    Raises:
        Impossible: it refuses what came out.
    """
    draft = Draft(random, random.choice(OPSETS))
    inputs = [_input(draft, f"x{i}") for i in range(random.randint(1, 3))]
    for _ in range(random.randint(2, 6)):
        step(draft)
    infos = [helper.make_tensor_value_info(v.name, code_of(v.dtype), dims) for v, dims in inputs]
    # Something that is always rewritten, so that the model is written anew.
    infos.append(helper.make_tensor_value_info("forced", TensorProto.FLOAT, [2]))
    for a, b in (("forced", "f1"), ("f1", "f2"), ("f2", "forced_out")):
        draft.nodes.append(helper.make_node("Relu", [a], [b]))
    outputs = [_output(draft, v) for v in _ends(draft)]
    outputs.append(helper.make_tensor_value_info("forced_out", TensorProto.FLOAT, [2]))
    graph = helper.make_graph(draft.nodes, "edge", infos, outputs, draft.initializers)
    model = draft.model(graph, draft.functions)
    forced = {"forced": np.array([-1, 1], np.float32)}
    feeds = [{**{v.name: v.array for v, _ in inputs}, **forced}]
    others = (1, 5) if draft.full else (0, 1, 1, 5)
    feeds += [
        {**_other_feed(random, inputs, sizes, draft.plain), **forced}
        for sizes in ((), others, others)
    ]
    return EdgeModel(model, tuple(feeds))


def draw_operator(random: Random) -> EdgeModel:
    """A model of one operator or motif, whose first feed may be special too.

    Raises:
        Impossible: what was drawn does not fit.
    """
    draft = Draft(random, random.choice((7, 8, *OPSETS)))
    inputs = [_input(draft, f"x{i}") for i in range(2)]
    if random.random() < 0.6:
        kind = random.choice(("special", "special", "mask", "end"))
        inputs = [
            (Value(v.name, array_of(random, v.dtype, v.shape, kind)), dims) for v, dims in inputs
        ]
        draft.values[:] = [v for v, _ in inputs]
    try:
        random.choice(OPERATORS)(draft)
    except _UNFIT as error:
        raise Impossible from error
    infos = [helper.make_tensor_value_info(v.name, code_of(v.dtype), dims) for v, dims in inputs]
    outputs = [_output(draft, v) for v in _ends(draft)]
    graph = helper.make_graph(draft.nodes, "edge", infos, outputs, draft.initializers)
    others = (1, 5) if draft.full else (0, 1, 1, 5)
    feeds = [{v.name: v.array for v, _ in inputs}]
    feeds += [_other_feed(random, inputs, sizes, draft.plain) for sizes in ((), (), others, others)]
    return EdgeModel(draft.model(graph, []), tuple(feeds))


def step(draft: Draft) -> None:
    """One operator, motif, subgraph or function; nothing where none fits."""
    for _ in range(8):
        nodes, constants, values = len(draft.nodes), len(draft.initializers), len(draft.values)
        kind = draft.random.random()
        try:
            if kind < 0.05 and draft.outer is None:
                _conditional(draft)
            elif kind < 0.08 and draft.outer is None:
                _loop(draft)
            elif kind < 0.11 and draft.outer is None and draft.opset >= 13:
                _function(draft)
            else:
                draft.random.choice(OPERATORS)(draft)
        except _UNFIT:
            # Operands that an operator does not take: whatever it began goes.
            del draft.nodes[nodes:], draft.initializers[constants:], draft.values[values:]
            continue
        return


def _input(draft: Draft, name: str) -> tuple[Value, list[int | str]]:
    random = draft.random
    dims: list[int | str] = [
        random.choice(("N", "M", "K", 1, 2, 3, 4, 0 if random.random() < 0.2 else 2))
        for _ in range(random.choice((1, 2, 2, 3, 4, 4, 4)))
    ]
    shape = [_SIZES[d] if isinstance(d, str) else d for d in dims]
    dtype = np.dtype(random.choice((*_FEEDABLE, random.choice(INTEGERS))))
    value = Value(name, array_of(random, dtype, shape, "ordinary"))
    draft.values.append(value)
    return value, dims


def _other_feed(
    random: Random,
    inputs: list[tuple[Value, list[int | str]]],
    others: tuple[int, ...],
    plain: bool,
) -> dict[str, Array]:
    """Special values at the sizes that are first, or ordinary ones at other sizes."""
    sizes = {s: random.choice(others) if others else n for s, n in _SIZES.items()}
    kinds = ("ordinary", "gate") if others or plain else ("special", "mask", "end", "ordinary")
    return {
        value.name: array_of(
            random,
            value.dtype,
            [sizes[d] if isinstance(d, str) else d for d in dims],
            random.choice(kinds),
        )
        for value, dims in inputs
    }


def _ends(draft: Draft) -> list[Value]:
    """What nobody reads, and now and then something inside; Python cannot see brain floats."""
    read = {name for node in draft.nodes for name in node.input}
    made = {name for node in draft.nodes if node.op_type != "Constant" for name in node.output}
    computed = [v for v in draft.values if v.name in made]
    ends = [v for v in computed if v.name not in read or draft.random.random() < 0.15]
    if not ends:
        raise Impossible("nothing was drawn")
    plain = [v for v in ends if v.dtype != FLOATS[3]]
    return plain + [draft.op("Cast", v, to=TensorProto.FLOAT) for v in ends if v.dtype == FLOATS[3]]


def _output(draft: Draft, value: Value) -> onnx.ValueInfoProto:
    """Its element type only: the rest is found out."""
    return helper.make_tensor_value_info(value.name, code_of(value.dtype), None)


def _body(
    draft: Draft, prefix: str, steps: int, wanted: Value | None = None
) -> tuple[Draft, Value]:
    """A subgraph that captures what it likes; its last value, of the type of ``wanted``."""
    inner = Draft(draft.random, draft.opset, prefix, draft)
    for _ in range(steps):
        step(inner)
    ends = [v for v in inner.values if wanted is None or v.dtype == wanted.dtype]
    ends = [v for v in ends if any(v.name in node.output for node in inner.nodes)]
    if not ends:
        raise Impossible
    return inner, ends[-1]


def _captured(draft: Draft, *bodies: Draft) -> list[Value]:
    names = {name for body in bodies for node in body.nodes for name in node.input}
    own = {v.name for body in bodies for v in body.values}
    weights = {t.name: t for t in draft.initializers}
    values = [v for v in draft.visible() if v.name in names - own]
    missing = names - own - {v.name for v in values}
    from onnx import numpy_helper

    return values + [
        Value(n, numpy_helper.to_array(weights[n]), constant=True) for n in missing if n in weights
    ]


def _conditional(draft: Draft) -> None:
    then, first = _body(draft, f"t{draft.count}_", draft.random.randint(1, 2))
    other, second = _body(draft, f"e{draft.count}_", draft.random.randint(1, 2), first)
    truths = [v for v in draft.values if v.dtype == np.bool_ and v.array.size == 1]
    fixed = draft.constant(np.array(draft.random.random() < 0.5))
    condition = draft.random.choice([*truths, fixed])
    graphs = [
        helper.make_graph(
            body.nodes,
            name,
            [],
            [helper.make_tensor_value_info(end.name, code_of(end.dtype), None)],
            body.initializers,
        )
        for body, end, name in ((then, first, "then"), (other, second, "else"))
    ]
    name = draft.name()
    node = helper.make_node(
        "If", [condition.name], [name], f"n_{name}", then_branch=graphs[0], else_branch=graphs[1]
    )
    draft.add(node, [condition, *_captured(draft, then, other)])


def _loop(draft: Draft) -> None:
    """A value that is carried, with something captured."""
    x = draft.floating()
    prefix = f"l{draft.count}_"
    inner = Draft(draft.random, draft.opset, prefix, draft)
    inner.values.append(Value(f"{prefix}x", x.array))
    inner.op("Add", inner.values[0], draft.partner(x))
    step(inner)
    ends = [v for v in inner.values[1:] if v.dtype == x.dtype and v.shape == x.shape]
    if not ends:
        raise Impossible
    body = helper.make_graph(
        [*inner.nodes, helper.make_node("Identity", [f"{prefix}c"], [f"{prefix}d"])],
        "body",
        [
            helper.make_tensor_value_info(f"{prefix}i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{prefix}c", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{prefix}x", code_of(x.dtype), None),
        ],
        [
            helper.make_tensor_value_info(f"{prefix}d", TensorProto.BOOL, []),
            helper.make_tensor_value_info(ends[-1].name, code_of(x.dtype), None),
        ],
        inner.initializers,
    )
    trips = draft.constant(np.array(draft.random.choice((0, 1, 3))))
    name = draft.name()
    node = helper.make_node("Loop", [trips.name, "", x.name], [name], f"n_{name}", body=body)
    draft.add(node, [trips, x, *_captured(draft, inner)])


def _function(draft: Draft) -> None:
    """A call of a function of the model: some operator on its argument, twice."""
    x = draft.floating()
    ops = [draft.random.choice(("Relu", "Exp", "Neg", "Sigmoid", "Clip")) for _ in range(2)]
    name = f"f{len(draft.functions)}_{draft.count}"
    nodes = [
        helper.make_node(ops[0], ["a"], ["b"]),
        helper.make_node(ops[1], ["b"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["d"]),
    ]
    imports = [helper.make_opsetid("", draft.opset)]
    function = helper.make_function(LOCAL, name, ["a"], ["d"], nodes, imports)
    draft.functions.append(function)
    try:
        draft.ops(name, x, outputs=1, domain=LOCAL)
    except Impossible:
        draft.functions.remove(function)
        raise
