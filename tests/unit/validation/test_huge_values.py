"""Small models whose values are huge: nothing is computed or made up that a model does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import eqsat_opt
from benchmarks.huge_values import HUGE, N
from benchmarks.invalid_models import BOOL, FLOAT, INT64, model, node, value
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.egraph.saturation.worker import saturate_isolated
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Node, attributes
from eqsat_opt.ir.graph.handles import array_constant, folding_room, held_bytes, splat_constant
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.folding import evaluate_opaque, fold
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.kernel_export import export_kernel
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.runtime.inputs import random_inputs
from tests.sampling import sampled

TRUSTING = {"measure": False, "race": False, "check": 0, "threads": 1, "store": "", "budget": 600}
SPARSE = [name for name in HUGE if name.startswith("sparse")]
ONE = np.ones((), np.float32)


@pytest.mark.parametrize("name", sampled([name for name in HUGE if name not in SPARSE], 3))
def test_it_is_optimised_without_being_computed(name: str) -> None:
    found = eqsat_opt.optimize(HUGE[name](), report=True, **TRUSTING)
    assert isinstance(found.model, onnx.ModelProto)
    assert found.model.ByteSize() < 8 << 20


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_tensor_is_not_written_out(name: str) -> None:
    with pytest.raises(ModelError, match="4398046511104 bytes"):
        eqsat_opt.optimize(HUGE[name](), **TRUSTING)


def test_a_splat_is_held_by_one_element() -> None:
    few = array_constant(np.ones((2, 3), np.float32))
    assert held_bytes([splat_constant(ONE, (N,)), few]) == 4 + 24
    assert folding_room([splat_constant(ONE, (N,))]) == folding_room([])
    assert folding_room([array_constant(np.zeros(1 << 27, np.bool_))]) == 1 << 27


def test_what_reads_more_than_is_held_is_not_folded() -> None:
    total = Node("ReduceSum", ("f",), ("s",), attributes(axes=(0,), keepdims=False))
    type_ = StaticType("float32", ())
    assert fold(total, [splat_constant(ONE, (N,))], type_, 1 << 20) is None
    small = fold(total, [splat_constant(ONE, (1000,))], type_, 1 << 20)
    assert small is not None
    assert small.load() == 1000
    held = array_constant(np.ones(1000, np.float32))
    assert fold(total, [held], type_, 16) is not None


@pytest.mark.parametrize("isolated", [False, True])
def test_what_no_machine_holds_is_not_known_at_compile_time(isolated: bool) -> None:
    graph = normalise(import_model(load_model(HUGE["outer product"]())))
    rules: tuple[()] = ()
    found = saturate_isolated(graph, rules, Budget(), 60) if isolated else saturate(graph, rules)
    eclasses = found.eclasses
    known = {
        eclasses.op[n]: bool(eclasses.is_const[eclasses.class_of[n]])
        for n in range(eclasses.n_nodes)
    }
    assert known["MatMul"] is False
    assert known["ReduceSum"] is False


def test_a_kernel_that_is_too_large_is_not_made_up() -> None:
    x, w = TensorType("float32", (2, 1 << 20)), TensorType("float32", (1 << 20, 1 << 20))
    step = Step("MatMul", (), (0, 1))
    kernel = Kernel((Operand(x, False), Operand(w, True)), (step,), (2,))
    with pytest.raises(ModelError, match="too many to measure"):
        export_kernel(kernel)
    small = replace(
        kernel, operands=(Operand(x, False), Operand(replace(w, shape=(1 << 20, 2)), True))
    )
    assert export_kernel(small)


def test_an_input_that_is_too_large_is_not_made_up() -> None:
    with pytest.raises(ModelError, match="too large"):
        random_inputs(HUGE["input of 8 GB"](), 0)


def test_a_loop_of_constants_is_left_to_the_runtime() -> None:
    """It may run as long, and allocate as much, as it likes."""
    body = onnx.helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("v", INT64, [1])],
        [value("d", BOOL, []), value("w", INT64, [1])],
    )
    given = {"n": np.array(3), "t": np.array(True), "one": np.array([1])}
    made = model(
        node("Loop", list(given), ["l"], body=body),
        node("Cast", ["l"], ["f"], to=FLOAT),
        node("Add", ["x", "f"], ["y"]),
        weights=[onnx.numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    loop = next(iter(load_model(made).graph))
    assert loop.op_type == "Loop"
    assert evaluate_opaque(loop, list(given.values()), 17) is None
