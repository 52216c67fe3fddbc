"""An operator with several outputs is a structured operator with one function for each of them.

SoftmaxCrossEntropyLoss, of which training wants the loss and the logarithms that it is made of,
enters a copy of the package. Its record has both outputs of ONNX, so no reader or writer is needed.
"""

from __future__ import annotations

import pytest

from tests.examples.house import House

MODULE = '''"""The loss of a classifier, and the logarithms that it is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    OUTPUT, Array, AttrMap, Domain, OnnxForm, Op, get_op, per_operand_element, register, require,
)
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    scores, labels = inputs
    require(scores.dtype in FLOATS and labels.dtype == "int64", "a loss of {}", inputs)
    require(scores.rank == 2 and labels.shape == scores.shape[:1], "classes {}", inputs)
    if attrs[OUTPUT] == 1:
        return scores
    return TensorType(scores.dtype, labels.shape if attrs["reduction"] == "none" else ())


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    scores, labels = operands
    logarithms = get_op("LogSoftmax").eval_fn(domain, [scores], {"axis": 1})
    if attrs[OUTPUT] == 1:
        return logarithms
    chosen = np.take_along_axis(logarithms, labels[:, None], 1)[:, 0]
    losses = domain.sub(np.zeros_like(chosen), chosen)
    if attrs["reduction"] == "none":
        return losses
    total = domain.sum(losses, (0,))[0]
    return total if attrs["reduction"] == "sum" else domain.div(
        total, domain.constant(len(losses), total)
    )


register(
    Op(
        name="SoftmaxCrossEntropyLoss",
        arity=(2, 2),
        attrs={"reduction": "str", OUTPUT: "int"},
        kind="reduction",
        type_fn=_type,
        eval_fn=_evaluate,
        flops=per_operand_element,
        element_types={1: "int64"},
        choices={"reduction": ("none", "sum", "mean"), OUTPUT: (0, 1)},
        onnx=OnnxForm(since=12, defaults={"reduction": "mean"}),
    )
)
'''

GENERATOR = """

@on_grid("SoftmaxCrossEntropyLoss")
def losses(op: str, values: Values) -> Iterator[Configuration]:
    labels = np.array([1, 0, 3, 1], np.int64)
    for opset, reduction in itertools.product(opsets(op), (None, "none", "sum", "mean")):
        attrs = {} if reduction is None else {"reduction": reduction}
        yield Imported(op, op, [values(4, 5), labels], attrs, opset, outputs=2)
"""

GRID = """
from tests.conformance.operator_grid.judging import faults, verdicts

found = verdicts("SoftmaxCrossEntropyLoss")
assert not [fault for one in found for fault in faults(one)]
print(len(found))
"""

MODEL = """
import eqsat_opt, numpy as np, onnx, onnxruntime
from onnx import TensorProto as T, helper as h

loss = "SoftmaxCrossEntropyLoss"
nodes = [
    h.make_node(loss, ["x", "t"], ["a", "p"], name="first"),
    h.make_node(loss, ["x", "t"], ["b", "q"], name="second"),
    h.make_node("Add", ["a", "b"], ["y"]),
    h.make_node("Relu", ["q"], ["z"]),
]
shapes = {"x": [4, 5], "t": [4], "y": [], "z": [4, 5]}
values = [
    h.make_tensor_value_info(name, T.INT64 if name == "t" else T.FLOAT, shape)
    for name, shape in shapes.items()
]
graph = h.make_graph(nodes, "g", values[:2], values[2:])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
options = dict(objective="launches", budget=300, race=False, store=None)
found = eqsat_opt.optimize(model, **options)
rng = np.random.default_rng(0)
feeds = {"x": rng.random((4, 5), dtype=np.float32), "t": np.array([1, 0, 3, 1])}
was, now = (
    onnxruntime.InferenceSession(one.SerializeToString()).run(None, feeds)
    for one in (model, found)
)
for one, other in zip(was, now):
    np.testing.assert_array_equal(one, other)
print(*(node.op_type for node in found.graph.node))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    (house.path / "eqsat_opt/ir/ops/losses.py").write_text(MODULE)
    with (house.path / "tests/conformance/operator_grid/reductions.py").open("a") as grid:
        grid.write(GENERATOR)
    return house


def test_it_agrees_with_onnx(house: House) -> None:
    done = house.run("-c", GRID)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_outputs_of_equal_applications_are_one_kernel(house: House) -> None:
    done = house.run("-c", MODEL)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["Add", "Relu", "SoftmaxCrossEntropyLoss"]


def test_without_the_module_there_are_two() -> None:
    done = House.unchanged().run("-c", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split().count("SoftmaxCrossEntropyLoss") == 2
