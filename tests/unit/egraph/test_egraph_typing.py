"""The e-graph types what the registry types: operators on operands and attributes of all kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest

from eqsat_opt.egraph.encoding.extents import ExtentCodes
from eqsat_opt.egraph.encoding.schema import Schema
from eqsat_opt.egraph.encoding.typing import SETTLED, is_typed, typing_rules
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.egraph.loading.siblings import Seeds
from eqsat_opt.egraph.loading.tables import load
from eqsat_opt.egraph.terms import LEAF, Lowered, TermNode
from eqsat_opt.ir.graph.graph import Graph, attributes
from eqsat_opt.ir.ops import OPS, IllTyped, get_op
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.dims import Dim, encode_dim, sym
from eqsat_opt.ir.values.types import OtherType, TensorType

T = TypeVar("T")
N, M = sym("N"), sym("M")
DTYPES = ("float32", "float16", "int64", "int8", "bool", "string")
Shape = tuple[Dim, ...]
SHAPES: tuple[Shape, ...] = (
    (), (1,), (3,), (N,), (2, 3), (3, 2), (1, 3), (N, 3), (3, N), (0, 3), (2, 3, 4), (N, 1, 4),
    (1, 2, 6, 5), (N, 2, 6, 5), (2, 2, 3, 3), (2, 1, 3, 3), (2, N, 6, 5), (1, 4, 6, 8),
    (1, 2, 5, 8), (N, M), (N, M, 6, 8), (1, N, 6, 8), (2, 3, 4, 2, 1), (2, 2, 3), (1, 2, 8),
)  # fmt: skip
_WINDOWED = tuple(shape for shape in SHAPES if 3 <= len(shape) <= 5)
_UNARY = tuple(sorted(FUNCTIONS))
TYPED_OPS = {op for op in OPS if is_typed(op)} - FUNCTIONS.keys()
TESTED = (*sorted(TYPED_OPS), *(op for op in _UNARY))
DRAWS = 260
SEED = 7


@dataclass(frozen=True)
class Case:
    """An operator applied to operands of some types."""

    op: str
    operands: tuple[TensorType, ...]
    attrs: dict[str, Any]

    def expected(self) -> TensorType | None:
        """The registry's verdict."""
        try:
            return get_op(self.op).type_fn(self.operands, self.attrs)
        except (IllTyped, IndexError, TypeError, AttributeError):
            return None


class Draws:
    """Random attributes, most of them sensible for the operands."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def rarely(self) -> bool:
        return bool(self.rng.random() < 0.12)

    def axis(self, rank: int) -> int:
        return (
            int(self.rng.integers(-1, rank + 1))
            if self.rarely() or not rank
            else self.one(range(rank))
        )

    def window(self, length: int, least: int, most: int) -> tuple[int, ...]:
        """Sizes of a window; now and then one too many, too few or too small."""
        length += self.one((-1, 1)) if self.rarely() else 0
        least -= self.rarely()
        return tuple(int(v) for v in self.rng.integers(least, most + 1, max(length, 0)))

    def shape(self, of: Shape) -> Shape:
        """Another shape, as often as not of as many elements."""
        kind = self.one(range(6))
        if kind == 0:
            return self.one(SHAPES)
        if kind == 1 and len(of) > 1:
            return (of[0] * of[1], *of[2:])
        if kind == 2:
            return (1, *of)
        if kind == 3:
            return tuple(self.one((4, d)) if d == 1 else d for d in of)
        return tuple(of[i] for i in self.rng.permutation(len(of)))

    def attrs(self, op: str, first: Shape) -> dict[str, Any]:
        rank = len(first)
        spatial = max(rank - 2, 1)
        lo = int(self.rng.integers(-1, 3))
        perm = [int(i) for i in self.rng.permutation(rank)]
        if perm and self.rarely():
            perm[0] = perm[-1] if self.rarely() else -1
        axes = tuple(self.axis(rank) for _ in range(self.one((0, 1, 1, 1, 2, 2, 3))))
        pads = self.window(2 * rank, -2 if self.rarely() else 0, 2) if op == "Pad" else ()
        known: dict[str, Any] = {
            "axis": rank - 1 if "Normalization" in op and not self.rarely() else self.axis(rank),
            "axes": axes,
            "perm": tuple(perm),
            "lo": lo,
            "hi": lo + self.one((0, 1, 1, 2, 3)),
            "repeats": self.one((1, 2, 3, 0, -1)),
            "shape": self.shape(first),
            "pads": pads or self.window(2 * spatial, 0, 1),
            "kernel": self.window(spatial, 1, 3),
            "strides": self.window(spatial, 1, 2) if self.rarely() else (1,) * spatial,
            "dilations": self.window(spatial, 1, 2) if self.rarely() else (1,) * spatial,
            "group": self.one((1, 1, 2, 0, -1)),
            "channels": self.one((1, 4)),
            "height": self.one((1, 2, 3)),
            "width": self.one((1, 3)),
            "size": 3,
            "dtype": self.one(DTYPES[:-1]),
        }
        known |= {name: self.one(options) for name, options in OPS[op].choices.items()}
        known["ceil"] = 0
        known["keepdims"] = self.one((1, 1, 1, 0))
        return {
            name: float(self.rng.integers(1, 4)) if kind == "float" else known.get(name, 2)
            for name, kind in OPS[op].attrs.items()
        }


def _partners(op: str, first: Shape) -> list[tuple[Shape, ...]]:
    """Shapes of the other operands that fit the first."""
    last = first[-1:]
    match op:
        case "MatMul":
            return [((*last, 5),), ((*first[:-2], *last, 5),), ((2, *last, 5),)]
        case "Conv":
            axes = max(len(first) - 2, 0)
            channels = first[1] if len(first) > 1 else 1
            return [((4, channels, *(3,) * axes),), ((4, 1, *(2,) * axes),)]
        case "LayerNormalization":
            return [(last, last), (last, (1,))]
        case "Gather":
            return [((2,),), ((),), ((3, 1),)]
        case "RMSNormalization":
            return [(last,)]
        case "Attention" | "MaskedAttention":
            shared = [(*first[:1], n, *first[2:]) if len(first) == 4 else first for n in (1, 2)]
            masks: list[Shape] = [(*first[:-1], *first[-2:-1]), (1,), (7,)]
            found = [(k, k) for k in (first, *shared)]
            return [(*k, m) for k in found for m in masks] if op[0] == "M" else list(found)
        case _:
            return [(first,), ((),), (last,), ((1,) * len(first),), (first[:1],)]


def _cases(op: str) -> Iterator[Case]:
    draws = Draws(SEED)
    arity = {"Conv": 2, "Concat": 2}.get(op, OPS[op].arity[1])
    for number in range(DRAWS):
        dtype = ("bool" if op == "Not" else DTYPES[0]) if number % 2 else draws.one(DTYPES)
        images = op in ("Conv", "MaxPool", "AveragePool", "Attention", "MaskedAttention")
        shown = _WINDOWED if images and number % 8 else SHAPES
        first: Shape = shown[number % len(shown)]
        others: tuple[Shape, ...] = tuple(draws.one(SHAPES) for _ in range(arity - 1))
        if arity > 1 and not draws.rarely():
            others = draws.one(_partners(op, first))
        shapes = (first, *others)[:arity]
        dtypes = [draws.one(DTYPES) if i and draws.rarely() else dtype for i in range(arity)]
        if op == "Gather":
            dtypes[1] = draws.one(("int64", "float32"))
        operands = tuple(map(TensorType, dtypes, shapes))
        yield Case(op, operands, draws.attrs(op, first))


Coded = tuple[str, list[int]] | None
"""Element type and shape as the e-graph has them."""


def _coded(type_: TensorType | None) -> Coded:
    return None if type_ is None else (type_.dtype, [encode_dim(d) for d in type_.shape])


def _typed(cases: Sequence[Case]) -> list[Coded]:
    """What the e-graph makes of each, all in one engine."""
    leaves = {t: i for i, t in enumerate(dict.fromkeys(t for c in cases for t in c.operands))}
    terms = [TermNode(LEAF, attributes(index=i), (), t) for t, i in leaves.items()]
    for case in cases:
        children = tuple(leaves[t] for t in case.operands)
        terms.append(TermNode(case.op, attributes(**case.attrs), children, OtherType()))
    names = tuple(f"x{i}" for i in leaves.values())
    lowered = Lowered(Graph((), (), (), {}, {}), tuple(terms), {}, names, {}, ())
    schema = Schema(tuple(sorted(TYPED_OPS)), ())
    engine = Engine()
    try:
        engine.run([*schema.declarations(), *typing_rules(schema), "(set (now) 0)"])
        load(engine, schema, lowered, Seeds((), ()), (), ExtentCodes.of(lowered.terms))
        engine.run([f"(run-schedule {SETTLED})"])
        tables = engine.tables()
        shapes = {r.inputs[0]: r.output for r in tables["shape"].rows}
        dtypes = {r.inputs[0]: engine.string(r.output) for r in tables["dtype"].rows}
        classes = {engine.i64(r.inputs[0]): r.output for r in tables["Orig"].rows}
        own = [classes[i] for i in range(len(leaves), len(terms))]
        return [
            (dtypes[c], [engine.i64(v) for v in engine.vector(shapes[c])]) if c in dtypes else None
            for c in own
        ]
    finally:
        engine.close()


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[tuple[Case, Coded]]]:
    """Operator to its cases, each with what the e-graph makes of it."""
    cases = [case for op in TESTED for case in _cases(op)]
    found: dict[str, list[tuple[Case, Coded]]] = {}
    for case, coded in zip(cases, _typed(cases), strict=True):
        found.setdefault(case.op, []).append((case, coded))
    return found


@pytest.mark.parametrize("op", TESTED)
def test_what_types_in_the_egraph_types_in_the_registry(
    op: str, verdicts: dict[str, list[tuple[Case, Coded]]]
) -> None:
    wrong = [
        f"{case}: {coded}, not {case.expected()}"
        for case, coded in verdicts[op]
        if coded is not None and coded != _coded(case.expected())
    ]
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:5]])


def test_most_of_what_types_in_the_registry_types_in_the_egraph(
    verdicts: dict[str, list[tuple[Case, Coded]]],
) -> None:
    """And every operator is met both with and without a type.

    Left out in the e-graph are pools of other than two axes, reductions that drop their axes, and
    normalisations by other parameters than vectors along the last axis.
    """
    for op, found in verdicts.items():
        expected = [case.expected() is not None for case, _ in found]
        typed = [coded is not None for _, coded in found]
        print(f"{op:20} {sum(typed):4} of {sum(expected):4} of {len(found)}")
        assert sum(typed) >= max(20, 0.4 * sum(expected)), op
        assert op == "Scalar" or op == "Fill" or not all(expected)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_a_pool_over_an_empty_batch_has_a_type(op: str) -> None:
    shapes = ((0, 2, 3), (2, 0, 3), (2, 2, 0), (0, 2, 3, 4))
    cases = [Case(op, (TensorType("float32", shape),), {}) for shape in shapes]
    assert _typed(cases) == [_coded(case.expected()) for case in cases]
    assert [case.expected() is not None for case in cases] == [True, False, False, True]
