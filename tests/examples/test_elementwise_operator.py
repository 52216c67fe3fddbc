"""An elementwise operator is one record, and a name in the conformance grid; nothing else changes.

Sinh, which ONNX has since opset 9, enters a copy of the package in the file of such records. In the
grid it is named among the functions of one operand, and so is the kernel that onnxruntime lacks.
"""

from __future__ import annotations

import pytest

from tests.examples.house import House

EDITS = {
    "eqsat_opt/ir/ops/functions.py": (
        '    "Tanh": ScalarFunction(',
        '    "Sinh": ScalarFunction(lambda x, _a: np.sinh(x), since=9, flops=12),\n'
        '    "Tanh": ScalarFunction(',
    ),
    "tests/conformance/operator_grid/pointwise.py": (
        '"HardSwish", "Mish", "IsNaN",\n',
        '"HardSwish", "Mish", "IsNaN", "Sinh",\n',
    ),
    "tests/conformance/operator_grid/excuses.py": (
        "Softplus Softsign ThresholdedRelu",
        "Softplus Softsign ThresholdedRelu Sinh",
    ),
}

CERTIFICATES = """
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.selection import default_rules, excluded_rules

assert "Sinh" in OPS
assert excluded_rules() == {}, excluded_rules()
print(len(default_rules()))
"""

GRID = """
from tests.conformance.operator_grid.judging import faults, verdicts

found = verdicts("Sinh")
assert not [fault for one in found for fault in faults(one)]
print(len(found))
"""

MODEL = """
import eqsat_opt, numpy as np, onnx, onnxruntime
from onnx import TensorProto as T, helper as h

nodes = [
    h.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
    h.make_node("Sinh", ["a"], ["b"]),
    h.make_node("Transpose", ["b"], ["y"], perm=[1, 0]),
]
shape = [64, 48]
values = [h.make_tensor_value_info(name, T.FLOAT, shape) for name in "xy"]
graph = h.make_graph(nodes, "g", values[:1], values[1:])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
options = dict(objective="launches", budget=300, race=False, store=None)
found = eqsat_opt.optimize(model, **options)
x = np.linspace(-2, 2, 64 * 48, dtype=np.float32).reshape(shape)
was, now = (
    onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0]
    for one in (model, found)
)
np.testing.assert_array_equal(was, now)
print(*(node.op_type for node in found.graph.node))
"""

RULES = """
from eqsat_opt.rules import Sides, Tensor, ops, rule


@rule("sinh/of-sum")
def of_sum(x: Tensor, y: Tensor) -> Sides:
    \"\"\"A function of equal arguments, which is all that a proof knows of it.\"\"\"
    return ops.Sinh(x + y), ops.Sinh(y + x)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House.copied_to(tmp_path_factory.mktemp("house")).with_edits(EDITS)


def test_no_certificate_goes_stale(house: House) -> None:
    done = house.run("-c", CERTIFICATES)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_it_agrees_with_onnx(house: House) -> None:
    done = house.run("-c", GRID)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_laws_of_any_function_hold_for_it(house: House) -> None:
    """It is read, typed, moved through transposes by the book, priced, written and checked."""
    done = house.run("-c", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Sinh"]


def test_rules_on_it_are_proven(house: House) -> None:
    file = house.path / "sinh.py"
    file.write_text(RULES)
    done = house.run("-m", "eqsat_opt", "rules", "import", str(file), "--level", "2")
    assert done.returncode == 0, done.stderr
    assert "level 2" in done.stdout


def test_without_the_record_it_is_opaque() -> None:
    """What shows that the record is what makes the difference."""
    done = House.unchanged().run("-c", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Transpose", "Sinh", "Transpose"]
