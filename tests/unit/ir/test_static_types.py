"""Types whose sizes are all known are a class of their own, to mypy and at run time."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.common.faults import Faults
from eqsat_opt.errors import InternalError, SymbolicSizes
from eqsat_opt.ir.graph.graph import Constant, attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.dims import SymDim, sym
from eqsat_opt.ir.values.types import (
    OtherType,
    StaticType,
    TensorType,
    require_static,
    static_types,
)
from eqsat_opt.lab.comparison.operators import fold_constants
from eqsat_opt.lab.testing.graphs import GraphMaker

N = sym("n")
OPEN = TensorType("float32", (N, 3))
KNOWN = StaticType("float32", (2, 3))


def test_mypy_refuses_sizes_of_a_type_that_may_be_symbolic() -> None:
    """Were one of these accepted, mypy would call its comment unused."""
    extents: tuple[int, ...] = OPEN.shape  # type: ignore[assignment]
    elements: int = OPEN.size  # type: ignore[assignment]
    size_bytes: int = OPEN.bytes  # type: ignore[assignment]
    assert all(isinstance(one, SymDim) for one in (extents[0], elements, size_bytes))
    with pytest.raises(SymbolicSizes, match="--input-shape"):
        require_static(Constant(OPEN, "", lambda: np.zeros(0)).type)  # type: ignore[arg-type]
    assert not isinstance(StaticType("float32", (N, 3)), StaticType)  # type: ignore[arg-type]


def test_mypy_accepts_sizes_of_a_static_type() -> None:
    extents: tuple[int, ...] = KNOWN.shape
    elements: int = KNOWN.size
    size_bytes: int = KNOWN.bytes
    assert (extents, elements, size_bytes) == ((2, 3), 6, 24)
    assert StaticType("float16", ()).bytes == 2
    assert StaticType("float32", (5, 0)).size == 0


@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_literal_shapes_are_one_type_however_they_are_spelled(shape: tuple[int, ...]) -> None:
    one, other = TensorType("float32", shape), StaticType("float32", tuple(map(int, shape)))
    assert isinstance(one, StaticType)
    assert isinstance(other, StaticType)
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)


@pytest.mark.parametrize("type_", [OPEN, KNOWN, TensorType("bool", (N, 2))])
def test_copies_keep_the_class(type_: TensorType) -> None:
    # As other processes get them.
    for made in (copy.copy(type_), copy.deepcopy(type_)):
        assert made == type_
        assert isinstance(made, StaticType) == isinstance(type_, StaticType)


def test_the_class_follows_the_sizes_and_not_what_a_type_was_made_from() -> None:
    assert isinstance(replace(OPEN, shape=(2, 3)), StaticType)
    known: TensorType = KNOWN
    assert replace(known, shape=(N, 3)) == OPEN
    assert not isinstance(replace(known, shape=(N, 3)), StaticType)
    assert isinstance(replace(known, dtype="int64"), StaticType)


def test_types_are_static_together_or_not_at_all() -> None:
    assert static_types([KNOWN, KNOWN]) == (KNOWN, KNOWN)
    assert static_types([]) == ()
    for other in (OPEN, OtherType(), None):
        assert static_types([KNOWN, other]) is None
    with pytest.raises(SymbolicSizes):
        require_static(OtherType())


def test_a_kernel_is_static_once_its_sizes_are_fixed() -> None:
    relu = Kernel((Operand(OPEN, False),), (Step("Relu", attributes(), (0,)),), (1,))
    assert relu.static_types is None
    with pytest.raises(SymbolicSizes):
        relu.required_types()
    sized = relu.with_sizes({"n": 2})
    assert sized.static_types == sized.required_types() == (KNOWN, KNOWN)


def test_a_stage_that_meets_a_symbolic_size_costs_no_run() -> None:
    faults = Faults()
    assert faults.contain("price", lambda: require_static(OPEN), "it is left out") is None
    (fault,) = faults.found
    assert fault.is_bug
    with pytest.raises(InternalError):
        Faults(is_strict=True).contain("price", lambda: require_static(OPEN), "it is left out")


def test_a_constant_of_open_size_is_not_folded() -> None:
    g = GraphMaker()
    x = g.input("x", "n", 1, 4)
    token = g("Expand", g("Neg", g.weight(1, 1, 4)), shape=(N, 1, 4))
    graph = fold_constants(g.graph(g("Concat", token, x, axis=1)))
    assert [node.op for node in graph.nodes] == ["Expand", "Concat"]
