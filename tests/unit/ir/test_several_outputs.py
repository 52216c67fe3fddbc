"""Operators with several outputs, from the model through the e-graph and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.cli import main
from eqsat_opt.common.codecs import Entry
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, sized
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.graph.values_json import operator_from_json, operator_to_json
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.kernel_export import export_kernel
from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.numbers.rationals import RationalDomain

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
OPTIONS: dict[str, Any] = {"objective": "launches", "budget": 300, "race": False, "store": None}
X = np.round(np.random.default_rng(0).standard_normal((3, 6)) * 2).astype(np.float32)


def value(name: str, dtype: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def top(values: str, places: str, of: str = "x", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node("TopK", [of, "k"], [values, places], name=f"top {values}", **attrs)


def model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto], k: int = 2
) -> onnx.ModelProto:
    integers = {"k": k, "zero": 0, "one": 1}
    arrays = {name: np.array([number], np.int64) for name, number in integers.items()}
    arrays["table"] = np.arange(6, dtype=np.float32)
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [value("x", F32, 3, 6)], outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def run(one: onnx.ModelProto) -> list[Array]:
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=_CPU)
    return [np.asarray(result) for result in session.run(None, {"x": X})]


_CPU = ["CPUExecutionProvider"]


def found(one: onnx.ModelProto, **options: Any) -> list[str]:
    """Operators of the optimised model, which computes the same under the same names."""
    result = eqsat_opt.optimize(one, **{**OPTIONS, **options})
    onnx.checker.check_model(result, full_check=True)
    assert list(result.graph.output) == list(one.graph.output)
    for was, now in zip(run(one), run(result), strict=True):
        np.testing.assert_array_equal(was, now)
    return [node.op_type for node in result.graph.node]


BOTH = [value("v", F32, 3, 2), value("i", I64, 3, 2)]
OTHERS = [value("w", F32, 3, 2), value("j", I64, 3, 2)]


# ** the graph **


def test_each_output_that_is_read_is_a_node() -> None:
    unread = import_model(load_model(model([top("v", "i")], BOTH[1:])))
    assert [node.outputs for node in unread.nodes] == [("i",)]
    nodes = [top("v", "i"), top("w", "j", largest=0), helper.make_node("Relu", ["w"], ["r"])]
    graph = normalise(import_model(load_model(model(nodes, [*BOTH, value("r", F32, 3, 2)]))))
    assert [(n.op, n.outputs, dict(n.attrs).get("output")) for n in graph.nodes] == [
        ("TopK", ("v",), 0), ("TopK", ("i",), 1), ("TopK", ("w",), 0), ("Relu", ("r",), None),
    ]  # fmt: skip
    assert str(graph.types["i"]) == "int64[3,2]"


@pytest.mark.parametrize(
    ("nodes", "outputs", "names"),
    [
        ([top("v", "i")], BOTH, ["top v"]),
        ([top("v", "i")], BOTH[:1], ["top v"]),
        ([top("v", "i")], BOTH[1:], ["top v"]),
        ([top("v", "i", largest=0), top("w", "j")], [BOTH[0], OTHERS[1]], ["top v", "top w"]),
        ([top("v", "i"), top("w", "j")], [*BOTH, *OTHERS], ["top v", "top w"]),
        ([top("v", "i"), top("w", "j")], [BOTH[0], OTHERS[1]], ["top v"]),
    ],
)
def test_a_model_goes_round(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], names: list[str]
) -> None:
    """Outputs of one application are one node again, with its name."""
    one = model(nodes, outputs)
    back = model_proto(export_model(import_model(load_model(one))))
    onnx.checker.check_model(back, full_check=True)
    assert [(node.op_type, node.name) for node in back.graph.node] == [("TopK", n) for n in names]
    for was, now in zip(run(one), run(back), strict=True):
        np.testing.assert_array_equal(was, now)


def test_an_order_that_is_left_open_stays_as_it_came() -> None:
    graph = import_model(load_model(model([top("v", "i", sorted=0)], BOTH)))
    assert [(node.op, node.outputs) for node in graph.nodes] == [(OPAQUE, ("v", "i"))]


def test_the_least_elements_need_a_newer_operator_set() -> None:
    graph = import_model(load_model(model([top("v", "i", largest=0)], BOTH)))
    graph.model.graph.opset_imports[""] = 10
    with pytest.raises(ModelError, match="TopK cannot be written in operator set 10"):
        export_model(graph)


# ** the e-graph **


def test_equal_outputs_are_one() -> None:
    nodes = [top("v", "i"), top("w", "j"), helper.make_node("Add", ["v", "w"], ["s"])]
    outputs = [value("s", F32, 3, 2), value("j", I64, 3, 2)]
    assert found(model(nodes, outputs)).count("TopK") == 1


def test_operands_that_become_equal_make_outputs_equal() -> None:
    """A rule unites what both applications read, so that both outputs are shared."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        top("v", "i", of="a"),
        top("w", "j", of="b"),
        helper.make_node("Add", ["v", "w"], ["s"]),
        helper.make_node("Add", ["i", "j"], ["t"]),
    ]
    outputs = [value("s", F32, 3, 2), value("t", I64, 3, 2)]
    assert sorted(found(model(nodes, outputs)))[-2:] == ["Relu", "TopK"]


def test_an_output_that_nobody_reads_is_no_node() -> None:
    graph = normalise(import_model(load_model(model([top("v", "i")], BOTH[1:]))))
    eclasses = saturate(graph, (), Budget(iterations=1)).eclasses
    kept = [attrs for op, attrs in zip(eclasses.op, eclasses.attrs, strict=True) if op == "TopK"]
    assert [dict(attrs)["output"] for attrs in kept] == [1]
    assert found(model([top("v", "i")], BOTH[1:])) == ["TopK"]


def test_an_output_that_a_subgraph_reads_keeps_its_name() -> None:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["v"], ["q"])], "branch", [], [value("q", F32, 3, 2)]
    )
    nodes = [
        top("v", "i"),
        helper.make_node("ReduceMax", ["i"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Relu", ["v"], ["z"]),
    ]
    one = model(nodes, [value("y", F32, 3, 2), value("z", F32, 3, 2)])
    assert found(one).count("TopK") == 1


def test_a_graph_output_may_be_read_as_well() -> None:
    nodes = [top("v", "i"), helper.make_node("Gather", ["table", "i"], ["y"])]
    assert found(model(nodes, [*BOTH, value("y", F32, 3, 2)])) == ["TopK", "Gather"]


def test_constants_are_folded_output_by_output() -> None:
    nodes = [
        top("v", "i", of="table"),
        helper.make_node("Gather", ["x", "i"], ["p"], axis=1),
        helper.make_node("Mul", ["p", "v"], ["y"]),
    ]
    assert found(model(nodes, [value("y", F32, 3, 2)])) == ["Gather", "Mul"]


# ** kernels **


def both_outputs() -> Kernel:
    attrs = (("axis", 1), ("k", 2), ("largest", 1))
    steps = [Step("TopK", (*attrs, ("output", output)), (0,)) for output in (0, 1)]
    operand = Operand(TensorType("float32", (3, 6)), const=False)
    return Kernel((operand,), tuple(steps), (1, 2))


def test_outputs_of_one_application_run_at_once() -> None:
    kernel = both_outputs()
    one = onnx.load_model_from_string(export_kernel(kernel))
    assert [node.op_type for node in one.graph.node] == ["TopK"]
    assert len(one.graph.output) == 2
    assert kernel.flops == 18
    assert kernel.bytes == 4 * 18 + 4 * 6 + 8 * 6


# ** as many as a size says **


def sized_model(*few: onnx.NodeProto) -> onnx.ModelProto:
    """The greatest elements of rows that are as long as a run says, and the places of these."""
    both = [helper.make_node("Relu", ["x"], ["a"]), *few, top("v", "i", of="a")]
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        *both,
        helper.make_node("Cast", ["i"], ["f"], to=F32),
        helper.make_node("Add", ["v", "f"], ["s"]),
    ]
    inputs = [helper.make_tensor_value_info("x", F32, ["rows", "columns"])]
    outputs = [helper.make_tensor_value_info("s", F32, ["rows", None])]
    three = numpy_helper.from_array(np.array([3], np.int64), "three")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [three])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ALL = (helper.make_node("Identity", ["n"], ["k"]),)
FEW = (helper.make_node("Min", ["n", "three"], ["k"]),)


@pytest.mark.parametrize("few", [ALL, FEW], ids=["all", "few"])
def test_a_size_says_how_many_come_first(few: tuple[onnx.NodeProto, ...], tmp_path: Path) -> None:
    """A user's rule speaks of numbers only, and columns of its tables hold sizes as well."""
    one = sized_model(*few)
    graph = import_model(load_model(one))
    assert [node.op for node in graph.nodes if node.op == "TopK"]
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    for rules in ("default", f"default,{path}"):
        result = eqsat_opt.optimize(one, **OPTIONS, rules=rules)
        assert [node.op_type for node in result.graph.node].count("TopK") == 1
        sessions = [
            onnxruntime.InferenceSession(each.SerializeToString(), providers=_CPU)
            for each in (one, result)
        ]
        for shape in ((2, 7), (1, 3), (3, 1), (0, 4), (2, 0)):
            x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            was, now = (session.run(None, {"x": x})[0] for session in sessions)
            np.testing.assert_array_equal(was, now)


def test_a_size_that_says_how_many_goes_through_files() -> None:
    nodes = import_model(load_model(sized_model(*FEW))).nodes
    attrs = next(node.attrs for node in nodes if node.op == "TopK")
    held = json.loads(json.dumps(operator_to_json("TopK", attrs)))
    assert operator_from_json(Entry(held, "here"), 1, {}) == ("TopK", attrs)
    assert [dict(sized(attrs, {"columns": size}))["k"] for size in (2, 5)] == [2, 3]


# ** what it means **


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_both_evaluations_agree(largest: int, output: int, axis: int) -> None:
    """Sorting, and the ranks of which index functions speak, at elements with ties."""
    attrs = {"axis": axis, "k": 3, "largest": largest, "output": output}
    evaluate = get_op("TopK").eval_fn
    exact = np.frompyfunc(lambda number: Fraction(float(number)), 1, 1)(X)
    ours = evaluate(FLOAT, [X], attrs)
    np.testing.assert_array_equal(ours, evaluate(RationalDomain(), [exact], attrs).astype(float))


# ** rules **

RULES = '''
from eqsat_opt.rules import Int, Sides, Tensor, ops, rule


@rule("top/prefix")
def prefix(x: Tensor, axis: Int, k: Int, m: Int, largest: Int, output: Int) -> Sides:
    """The first of the first."""
    top = ops.TopK(x, axis=axis, k=k, largest=largest, output=output)
    least = ops.TopK(x, axis=axis, k=m, largest=largest, output=output)
    return ops.Slice(top, axis=axis, lo=0, hi=m), least, m > 0
'''


WRONG = RULES.replace("k=m, largest=largest", "k=m, largest=0")


@pytest.mark.parametrize(("rules", "said"), [(RULES, "level 2"), (WRONG, "is wrong")])
def test_a_rule_speaks_of_one_output(
    rules: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.py"
    path.write_text(rules)
    status = main(["rules", "import", str(path), "--level", "2"])
    assert status == (said == "is wrong")
    assert said in "".join(capsys.readouterr())


def test_a_rule_makes_outputs_in_the_egraph(tmp_path: Path) -> None:
    """Both are made, typed, and computed by one kernel."""
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    nodes = [
        top("v", "i"),
        *(helper.make_node("Slice", [n, "zero", "one", "one"], [f"{n}1"]) for n in "vi"),
    ]
    one = model(nodes, [value("v1", F32, 3, 1), value("i1", I64, 3, 1)])
    assert found(one, rules=f"default,{path}") == ["TopK"]
