"""No message, note, warning or row names what only this package knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eqsat_opt.cli.app import run
from eqsat_opt.ir.graph.plain_names import OPERATORS, plain_kernel, plain_sizes
from eqsat_opt.rules.glossary import OPERATORS as DOCUMENTED
from tests.sampling import sampled

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node

UNUSABLE = (
    re.compile(rf"(?<![\w./-])({'|'.join(DOCUMENTED)})(?![\w./])"),
    re.compile(r"\?[^\s,()\[\]]+\.\d"),
    re.compile(r"Traceback|<[\w.]+ object at|<class |SymDim|TensorType|OPAQUE|PosixPath|dtype\("),
    re.compile(r"\bNone\b|\bTrue\b|\bFalse\b"),
)
"""Operators that ONNX does not have, sizes without a name, and what Python prints of itself."""


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Sequence[str],
    *,
    opset: int = 17,
    **weights: Any,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def decoder() -> ModelProto:
    """Attention with a cache and a mask, behind a normalisation by the root of the mean square."""
    nodes = [
        node("Mul", ["x", "x"], ["xx"]),
        node("ReduceMean", ["xx"], ["ms"], axes=[-1]),
        node("Add", ["ms", "eps"], ["mse"]),
        node("Sqrt", ["mse"], ["root"]),
        node("Div", ["x", "root"], ["unit"]),
        node("Mul", ["unit", "gain"], ["h"]),
        *(
            made
            for name in "qkv"
            for made in (
                node("MatMul", ["h", f"w{name}"], [f"{name}1"]),
                node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
                node("Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 1, 3]),
            )
        ),
        node("Concat", ["past_key", "k3"], ["present_key"], axis=2),
        node("Concat", ["past_value", "v3"], ["present_value"], axis=2),
        node("Transpose", ["present_key"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q3", "kt"], ["s1"]),
        node("Mul", ["s1", "scale"], ["s2"]),
        node("Add", ["s2", "mask"], ["s3"]),
        node("Softmax", ["s3"], ["p"], axis=-1),
        node("MatMul", ["p", "present_value"], ["o1"]),
        node("Transpose", ["o1"], ["o2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o2", "flat"], ["o3"]),
        node("MatMul", ["o3", "wo"], ["y"]),
    ]
    cache = (FLOAT, ["batch", 2, "past", 8])
    return model(
        nodes,
        {
            "x": (FLOAT, ["batch", "seq", 16]),
            "past_key": cache,
            "past_value": cache,
            "mask": (FLOAT, ["batch", 1, "seq", "past + seq"]),
        },
        ["y", "present_key", "present_value"],
        eps=np.float32(1e-5),
        gain=drawn(16),
        scale=np.float32(8**-0.5),
        heads=np.array([0, 0, 2, 8]),
        flat=np.array([0, 0, 16]),
        **{f"w{name}": drawn(16, 16) for name in "qkvo"},
    )


def quantised() -> ModelProto:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Mul", ["f", "s"], ["m"]),
        node("Mul", ["m", "half"], ["h"]),
        node("Erf", ["h"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["m", "a"], ["y"]),
    ]
    weight = np.random.default_rng(0).integers(-9, 9, (16, 8)).astype(np.int8)
    return model(
        nodes, {"x": (FLOAT, ["N", 16])}, ["y"], w=weight, half=np.float32(0.5), one=np.float32(1)
    )


def body(name: str, *nodes: NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph(
        nodes, name, [], [helper.make_tensor_value_info(output, FLOAT, ["N", 16])]
    )


def bodies() -> ModelProto:
    """A branch, and what no size is known of behind it."""
    then = body("then", node("MatMul", ["x", "w"], ["t0"]), node("Relu", ["t0"], ["t"]), output="t")
    other = body("else", node("Mul", ["x", "two"], ["e0"]), node("Neg", ["e0"], ["e"]), output="e")
    nodes = [
        node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        node("Mul", ["i", "two"], ["h"]),
        node("Mul", ["h", "two"], ["y"]),
    ]
    inputs: dict[str, Any] = {"x": (FLOAT, ["N", 16]), "c": (TensorProto.BOOL, [])}
    return model(nodes, inputs, ["y"], w=drawn(16, 16), two=np.float32(2))


def counted_by_data() -> ModelProto:
    """Axes of inputs without a name, and sizes that the data decide."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["f"], to=FLOAT),
        node("Transpose", ["f"], ["t"], perm=[1, 0]),
        node("MatMul", ["t", "w"], ["m"]),
        node("Add", ["m", "b"], ["a"]),
        node("Add", ["a", "b"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    return model(nodes, {"x": (FLOAT, [None, None])}, ["y"], w=drawn(2, 4), b=drawn(4))


MODELS = {
    "decoder": decoder,
    "quantised": quantised,
    "bodies": bodies,
    "counted_by_data": counted_by_data,
}
FAST = ("--effort", "quick", "--budget", "30", "--store", "", "--threads", "1")


def unusable(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(pattern.search(line) for pattern in UNUSABLE)]


def texts(value: Any) -> list[str]:
    """All texts of a JSON value, keys included."""
    if isinstance(value, dict):
        return [*value, *(text for one in value.values() for text in texts(one))]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", sampled(MODELS, 2))
@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "--no-race", "--verbose"),
        ("optimize", "--no-race", "--objective", "launches"),
        ("explain", "--kernels"),
    ],
    ids=" ".join,
)
def test_nothing_is_named_that_users_do_not_know(
    name: str, command: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, report = tmp_path / "given.onnx", tmp_path / "report.json"
    onnx.save(MODELS[name](), given)
    written = ("-o", str(tmp_path / "made.onnx")) if command[0] == "optimize" else ()
    first, *others = command
    assert run([first, str(given), *others, *written, "--json", str(report), *FAST]) == 0
    told = capsys.readouterr()
    assert unusable(told.out + told.err) == []
    assert unusable("\n".join(texts(json.loads(report.read_text(encoding="utf-8"))))) == []


def test_what_is_spelled_out_is_told_to_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = str(tmp_path / "given.onnx")
    onnx.save(decoder(), given)
    line = ["optimize", given, "-o", str(tmp_path / "made.onnx"), "--no-race", *FAST]
    assert run([*line, "--objective", "launches"]) == 0
    assert "written out" not in "".join(capsys.readouterr())
    assert run([*line, "--objective", "launches", "-v"]) == 0
    assert "Attention with a mask" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("given", ["x.0:5", "x:5,16"])
def test_an_axis_without_a_name_can_be_given_a_size(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [None, 16])}, ["y"])
    path = str(tmp_path / "given.onnx")
    onnx.save(one, path)
    line = ["optimize", path, "-o", str(tmp_path / "made.onnx"), "--no-race", *FAST]
    assert run([*line, "--input-shape", given]) == 0
    assert "x.0=5" in capsys.readouterr().out
    assert run([*line, "--input-shape", "z:5"]) == 1
    assert "there are: x.0" in capsys.readouterr().err


def test_every_operator_of_the_search_alone_has_a_plain_name() -> None:
    """A new operator that ONNX does not have needs one."""
    assert set(OPERATORS) == set(DOCUMENTED)
    assert plain_kernel("Conv+Scale+MyScale") == "Conv+Mul by a constant+MyScale"
    assert (
        plain_sizes("float32[?/a/b.1, 3 + 2*?c.0]") == "float32[axis 1 of /a/b, 3 + 2*axis 0 of c]"
    )
