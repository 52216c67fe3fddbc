"""A structured operator is one module, and a generator of the grid; nothing else changes.

DepthToSpace, which makes blocks of pixels of channels, enters a copy of the package. Its module
has types, evaluation, index function, the values of its mode, and the operator of ONNX.
"""

from __future__ import annotations

import pytest

from tests.examples.house import House

MODULE = '''"""Channels that become blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.ops._base import Array, AttrMap, Domain, OnnxForm, Op, register, require
from eqsat_opt.ir.ops.index.integers import Poly, at_least, poly, quotient
from eqsat_opt.ir.ops.index.scalars import IndexTensor, Premises, Scalar
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), block = inputs, attrs["blocksize"]
    require(x.rank == 4 and block >= 1, "blocks of {} pixels in {}", block, x)
    n, channels, height, width = x.shape
    require(isinstance(channels, int) and channels % block**2 == 0, "blocks of {}", x)
    return TensorType(x.dtype, (n, channels // block**2, height * block, width * block))


def _evaluate(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,), b = operands, attrs["blocksize"]
    n, channels, height, width = x.shape
    if attrs["mode"] == "DCR":
        parts = x.reshape(n, b, b, channels // b**2, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, channels // b**2, b, b, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, channels // b**2, height * b, width * b)


def _indexed(operands: Sequence[IndexTensor], attrs: AttrMap, premises: Premises) -> IndexTensor:
    (x,), block = operands, poly(attrs["blocksize"])
    require(x.rank == 4, "images")
    n, channels, height, width = x.shape
    premises.require(at_least(block, 1))
    deep = quotient(channels, block * block)
    premises.same(deep * block * block, channels)

    def at(index: Sequence[Poly]) -> Scalar:
        n, c, i, j = index
        row, column = quotient(i, block), quotient(j, block)
        inner = (i - row * block) * block + j - column * block
        first = attrs["mode"] == "DCR"
        return x.at((n, inner * deep + c if first else c * block * block + inner, row, column))

    return IndexTensor((n, deep, height * block, width * block), at)


register(
    Op(
        name="DepthToSpace",
        arity=(1, 1),
        attrs={"blocksize": "int", "mode": "str"},
        kind="movement",
        type_fn=_type,
        eval_fn=_evaluate,
        flops=lambda _inputs, _output, _attrs: 0,
        index_fn=_indexed,
        choices={"mode": ("DCR", "CRD")},
        onnx=OnnxForm(since=11, defaults={"mode": "DCR"}),
    )
)
'''

GENERATOR = """

@on_grid("DepthToSpace")
def blocks(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        blocksize=(1, 2, 3), mode=(None, "DCR", "CRD"), deep=(1, 2),
        dtype=("float32", "float64"), opset=[n for n in opsets(op) if n >= 11],
    )  # fmt: skip
    for row in rows:
        attrs = {name: row[name] for name in ("blocksize", "mode") if row[name] is not None}
        x = values(2, row["deep"] * row["blocksize"] ** 2, 2, 3, dtype=row["dtype"])
        yield Imported(op, op, [x], attrs, row["opset"])
"""

GRID = """
from tests.conformance.operator_grid.indexing import compared, index_difference
from tests.conformance.operator_grid.judging import faults, verdicts

found = verdicts("DepthToSpace")
assert not [fault for one in found for fault in faults(one)]
assert compared("DepthToSpace")
assert not any(index_difference(*one) for one in compared("DepthToSpace"))
print(len(found))
"""

CERTIFICATES = """
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.selection import default_rules, excluded_rules

assert "DepthToSpace" in OPS
assert excluded_rules() == {}, excluded_rules()
print(len(default_rules()))
"""

RULES = """
from eqsat_opt.rules import Sides, Tensor, ops, rule


def blocks(x: Tensor, mode: str = "CRD") -> Tensor:
    return ops.DepthToSpace(x, blocksize=2, mode=mode)


@rule("blocks/of-sum", bidirectional=True)
def of_sum(x: Tensor, y: Tensor) -> Sides:
    \"\"\"Elements of a sum change their places as those of its operands do.\"\"\"
    return blocks(x + y), blocks(x) + blocks(y), x.shape == y.shape
"""
WRONG = RULES.replace("blocks(x + y)", 'blocks(x + y, "DCR")')

MODEL = """
import sys
import eqsat_opt, numpy as np, onnx, onnxruntime
from onnx import TensorProto as T, helper as h

block = dict(blocksize=2, mode="CRD")
nodes = [
    h.make_node("DepthToSpace", ["x"], ["a"], **block),
    h.make_node("DepthToSpace", ["y"], ["b"], **block),
    h.make_node("Add", ["a", "b"], ["z"]),
]
shape = ["N", 8, 6, 5]
values = [h.make_tensor_value_info(name, T.FLOAT, shape) for name in "xy"]
values.append(h.make_tensor_value_info("z", T.FLOAT, ["N", 2, 12, 10]))
graph = h.make_graph(nodes, "g", values[:2], values[2:])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
options = dict(objective="launches", budget=300, race=False, store=None)
found = eqsat_opt.optimize(model, rules=",".join(["default", *sys.argv[1:]]), **options)
rng = np.random.default_rng(0)
feeds = {name: rng.random((3, 8, 6, 5), dtype=np.float32) for name in "xy"}
was, now = (
    onnxruntime.InferenceSession(one.SerializeToString()).run(None, feeds)[0]
    for one in (model, found)
)
np.testing.assert_array_equal(was, now)
print(*(node.op_type for node in found.graph.node))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    (house.path / "eqsat_opt/ir/ops/blocks.py").write_text(MODULE)
    with (house.path / "tests/conformance/operator_grid/movement.py").open("a") as grid:
        grid.write(GENERATOR)
    (house.path / "rules_of_blocks.py").write_text(RULES)
    return house


def test_no_certificate_goes_stale(house: House) -> None:
    done = house.run("-c", CERTIFICATES)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_it_agrees_with_onnx(house: House) -> None:
    done = house.run("-c", GRID)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_a_rule_on_it_is_proven(house: House) -> None:
    done = house.run("-m", "eqsat_opt", "rules", "import", "rules_of_blocks.py", "--level", "2")
    assert done.returncode == 0, done.stderr
    assert "level 2" in done.stdout


def test_a_wrong_rule_on_it_is_refused(house: House) -> None:
    (house.path / "wrong.py").write_text(WRONG)
    done = house.run("-m", "eqsat_opt", "rules", "import", "wrong.py")
    assert done.returncode == 1
    assert "is wrong" in done.stdout + done.stderr


def test_a_rule_makes_it_in_the_egraph(house: House) -> None:
    """It is read, typed, made by a rule, typed again, priced, written and checked."""
    done = house.run("-c", MODEL, "rules_of_blocks.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Add", "DepthToSpace"]


def test_without_the_module_it_is_opaque() -> None:
    """What shows that the module is what makes the difference."""
    done = House.unchanged().run("-c", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["DepthToSpace", "DepthToSpace", "Add"]
