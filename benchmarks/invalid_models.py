"""Models that are not valid, of every kind: each is refused in a sentence, with little effort.

    python -m benchmarks.invalid_models [NAME ...]

runs the command line on each in a process of its own, and measures what that takes, beside loading
the libraries. The tests run the same models in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as nh

from eqsat_opt.cli import main as main_of_the_cli

__all__ = ["KINDS", "LIMIT_BYTES", "LIMIT_S", "measured", "model", "node", "value", "write"]

LIMIT_S, LIMIT_BYTES = 10.0, 1 << 30
_HANGS_S = 600.0  # by the clock on the wall, which a busy machine slows

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
EVIL = "\x1b[31mred\x1b]0;title\x07[bold]x[/bold]\u202e\n"
"""A name that would colour a terminal, rename its window and break the line."""

Kind = Callable[[], ModelProto | bytes | None]
Value = tuple[str, int, Sequence[int | str] | None]

node = helper.make_node


def value(name: str, code: int = FLOAT, dims: Sequence[int | str] | None = (2, 3)) -> Any:
    """The declaration of a tensor."""
    return helper.make_tensor_value_info(name, code, dims)


def model(
    *nodes: NodeProto,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    ir_version: int = 9,
) -> ModelProto:
    """A model that turns x into y, unless it is told otherwise."""
    graph = helper.make_graph(
        nodes,
        "invalid",
        [value("x")] if inputs is None else inputs,
        [value("y", FLOAT, None)] if outputs is None else outputs,
        list(weights),
    )
    opsets = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=ir_version, functions=list(functions)
    )


def relu() -> ModelProto:
    """A valid model."""
    return model(node("Relu", ["x"], ["y"]))


def changed(change: Callable[[ModelProto], object], start: ModelProto | None = None) -> ModelProto:
    """A valid model, with something done to it."""
    result = relu() if start is None else start
    change(result)
    return result


def ints(name: str, *values: int) -> TensorProto:
    """A vector of integers."""
    return nh.from_array(np.array(values, np.int64), name)


def floats(name: str, *dims: int) -> TensorProto:
    """Ones."""
    return nh.from_array(np.ones(dims, np.float32), name)


def binary(op: str, left: Any, right: Any, **attributes: Any) -> ModelProto:
    """An operator on two inputs."""
    return model(
        node(op, ["x", "z"], ["y"], **attributes),
        inputs=[value("x", *left), value("z", *right)],
    )


def convolution(weight: Sequence[int], **attributes: Any) -> ModelProto:
    """A convolution of 4 channels."""
    return model(
        node("Conv", ["x", "w"], ["y"], **attributes),
        inputs=[value("x", FLOAT, [1, 4, 8, 8])],
        weights=[floats("w", *weight)],
    )


def tensor(**fields: Any) -> ModelProto:
    """A weight with given fields."""
    weight = TensorProto(name="w", **fields)
    return model(node("Add", ["x", "w"], ["y"]), weights=[weight])


def external(*entries: tuple[str, str], dims: Sequence[int] = (3,)) -> ModelProto:
    """A weight in another file; beside the model lie 12 bytes in ``w.bin``."""
    weight = TensorProto(name="w", data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in entries:
        weight.external_data.add(key=key, value=text)
    return model(node("Add", ["x", "w"], ["y"]), weights=[weight])


def sparse(dims: Sequence[int], values: Sequence[float], indices: Any) -> ModelProto:
    """A sparse constant."""
    data = onnx.SparseTensorProto(dims=dims)
    data.values.CopyFrom(nh.from_array(np.array(values, np.float32), ""))
    data.indices.CopyFrom(nh.from_array(np.array(indices, np.int64), ""))
    return model(
        node("Constant", [], ["c"], sparse_value=data),
        node("Add", ["x", "c"], ["y"]),
        inputs=[value("x", FLOAT, [8])],
    )


def untyped(op: str, **values: Mapping[str, Any]) -> ModelProto:
    """A unary operator with attributes that are written field by field."""
    one = node(op, ["x"], ["y"])
    for name, fields in values.items():
        one.attribute.add(name=name, **fields)
    return model(one)


def graph(nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
    """The body of a control-flow operator."""
    return helper.make_graph(nodes, "body", inputs, outputs)


def branches(then: GraphProto | None, other: GraphProto | None) -> ModelProto:
    """An If."""
    bodies = {"then_branch": then, "else_branch": other}
    return model(
        node("If", ["c"], ["y"], **{k: v for k, v in bodies.items() if v is not None}),
        inputs=[value("x"), value("c", BOOL, [])],
    )


def branch(*nodes: NodeProto, outputs: Sequence[Any] | None = None) -> GraphProto:
    """A branch that gives o, by default Relu of x."""
    return graph(
        nodes or [node("Relu", ["x"], ["o"])],
        [],
        [value("o")] if outputs is None else outputs,
    )


def loop(body: GraphProto) -> ModelProto:
    """A Loop with one carried value."""
    return model(
        node("Loop", ["n", "c", "x"], ["y"], body=body),
        inputs=[value("x"), value("n", INT64, []), value("c", BOOL, [])],
    )


def function(
    name: str, *nodes: NodeProto, opset: int | None = 17, attributes: Sequence[str] = ()
) -> onnx.FunctionProto:
    """A function of one input a and one output o."""
    opsets = [helper.make_opsetid("own", 1)]
    if opset is not None:
        opsets.append(helper.make_opsetid("", opset))
    return helper.make_function("own", name, ["a"], ["o"], nodes, opsets, list(attributes))


def calls(*functions: onnx.FunctionProto, inputs: Sequence[str] = ("x",)) -> ModelProto:
    """A call of the first function."""
    one = node(functions[0].name, inputs, ["y"], domain="own")
    return model(one, functions=functions, domains={"own": 1})


def own(name: str, source: str, target: str) -> NodeProto:
    """A call of a function."""
    return node(name, [source], [target], domain="own")


def _loop_body(inputs: int = 3, outputs: int = 2) -> GraphProto:
    given = [value("i", INT64, []), value("d", BOOL, []), value("v"), value("u")][:inputs]
    nodes = [node("Identity", ["d"], ["e"]), node("Relu", ["x"], ["w"])]
    return graph(nodes, given, [value("e", BOOL, []), value("w"), value("w")][:outputs])


def _cyclic(*reads: str) -> list[NodeProto]:
    return [node("Add", ["x", reads[0]], ["a"]), node("Relu", ["a"], ["b"]),
            node("Neg", ["b"], ["y"])]  # fmt: skip


def _twice_attribute() -> ModelProto:
    one = node("Transpose", ["x"], ["y"], perm=[1, 0])
    one.attribute.append(helper.make_attribute("perm", [0, 1]))
    return model(one)


def _broken_text() -> bytes:
    named: bytes = model(node("Relu", ["x"], ["y"], name="NAMED")).SerializeToString()
    return named.replace(b"NAMED", b"\xff\xfe\xfa\xfb\xfc")


def _two_imports() -> ModelProto:
    return changed(lambda m: m.opset_import.append(helper.make_opsetid("", 13)))


def _without(field: str) -> ModelProto:
    return changed(lambda m: m.ClearField(field))


FILES: Mapping[str, Kind] = {
    "no file": lambda: None,
    "empty": lambda: b"",
    "truncated": lambda: convolution([4, 4, 3, 3]).SerializeToString()[:-20],
    "text": lambda: b"this is a text and no model\n" * 9,
    "json": lambda: json.dumps({"irVersion": "9"}).encode(),
    "every byte": lambda: bytes(range(256)),
    "noise": lambda: np.random.default_rng(0).bytes(1 << 16),
    "zeros": lambda: bytes(1 << 12),
    "zip": lambda: b"PK\x03\x04" + bytes(100),
    "gzip": lambda: b"\x1f\x8b\x08" + bytes(100),
    "tensor": lambda: floats("w", 5).SerializeToString(),
    "graph": lambda: relu().graph.SerializeToString(),
    "node": lambda: relu().graph.node[0].SerializeToString(),
}
ENVELOPE: Mapping[str, Kind] = {
    "no graph": lambda: _without("graph"),
    "empty graph": lambda: changed(lambda m: m.graph.CopyFrom(GraphProto(name="empty"))),
    "no operator set": lambda: _without("opset_import"),
    "operator set twice": _two_imports,
    "operator set 0": lambda: model(node("Relu", ["x"], ["y"]), opset=0),
    "operator set -1": lambda: model(node("Relu", ["x"], ["y"]), opset=-1),
    "operator set 1000000": lambda: model(node("Relu", ["x"], ["y"]), opset=10**6),
    "ir version 0": lambda: changed(lambda m: m.__setattr__("ir_version", 0)),
    "ir version -1": lambda: changed(lambda m: m.__setattr__("ir_version", -1)),
    "ir version 1000000": lambda: changed(lambda m: m.__setattr__("ir_version", 10**6)),
    "domain not imported": lambda: model(own("F", "x", "y")),
}
VALUES: Mapping[str, Kind] = {
    "no outputs": lambda: model(node("Relu", ["x"], ["y"]), outputs=[]),
    "output undefined": lambda: model(node("Relu", ["x"], ["z"])),
    "output without name": lambda: model(node("Relu", ["x"], [""]), outputs=[value("")]),
    "input without name": lambda: model(node("Relu", [""], ["y"]), inputs=[value("")]),
    "input without type": lambda: changed(lambda m: m.graph.input[0].ClearField("type")),
    "input twice": lambda: model(node("Relu", ["x"], ["y"]), inputs=[value("x"), value("x")]),
    "input defined again": lambda: model(node("Relu", ["y"], ["x"]), node("Relu", ["x"], ["y"])),
    "weight twice": lambda: model(
        node("Add", ["x", "w"], ["y"]), weights=[floats("w", 3), floats("w", 3)]
    ),
    "weight without name": lambda: model(node("Add", ["x", "x"], ["y"]), weights=[floats("", 3)]),
    "value twice": lambda: model(node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])),
    "cycle": lambda: model(*_cyclic("b")),
    "cycle of one": lambda: model(node("Add", ["x", "y"], ["y"])),
    "reads nothing": lambda: model(node("Add", ["x", "nowhere"], ["y"])),
    "huge dimensions": lambda: model(
        node("Relu", ["x"], ["y"]), inputs=[value("x", FLOAT, [1 << 62, 1 << 62])]
    ),
    "unknown element type": lambda: model(node("Relu", ["x"], ["y"]), inputs=[value("x", 99, [3])]),
    "undefined element type": lambda: model(
        node("Relu", ["x"], ["y"]), inputs=[value("x", 0, [3])]
    ),
    "output of another type": lambda: model(
        node("Relu", ["x"], ["y"]), outputs=[value("y", INT64, [2, 3])]
    ),
    "output is a sequence": lambda: model(
        node("Relu", ["x"], ["y"]),
        outputs=[helper.make_tensor_sequence_value_info("y", FLOAT, [2, 3])],
    ),
    "escape sequences": lambda: model(node("Add", ["x", EVIL], ["y"], name=EVIL)),
    "escape sequences in an operator": lambda: model(node(EVIL, ["x"], ["y"], name=EVIL)),
    "name of broken text": _broken_text,
}
TENSORS: Mapping[str, Kind] = {
    "raw data too short": lambda: tensor(data_type=FLOAT, dims=[3], raw_data=b"1234"),
    "raw data too long": lambda: tensor(data_type=FLOAT, dims=[1], raw_data=bytes(12)),
    "huge without data": lambda: tensor(data_type=FLOAT, dims=[1 << 40]),
    "huger than an address": lambda: tensor(
        data_type=FLOAT, dims=[1 << 62, 1 << 62], raw_data=b"1"
    ),
    "too few values": lambda: tensor(data_type=FLOAT, dims=[3], float_data=[1.0]),
    "values in another field": lambda: tensor(data_type=FLOAT, dims=[3], int32_data=[1, 2, 3]),
    "dimension of a weight negative": lambda: tensor(data_type=FLOAT, dims=[-3], raw_data=b""),
    "weight of an unknown type": lambda: tensor(data_type=77, dims=[1], raw_data=b"1"),
    "weight of no type": lambda: tensor(dims=[1], raw_data=b"1234"),
    "texts of broken utf-8 as bytes too few": lambda: tensor(
        data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff"]
    ),
    "sparse index out of range": lambda: sparse([8], [1.0, 2.0], [1, 99]),
    "sparse index negative": lambda: sparse([8], [1.0], [-1]),
    "sparse with too many values": lambda: sparse([8], [1.0, 2.0, 3.0], [1]),
    "sparse of negative size": lambda: sparse([-8], [1.0], [0]),
    "sparse of huge size": lambda: sparse([1 << 62, 1 << 62], [1.0], [[0, 0]]),
    "external missing": lambda: external(("location", "gone.bin")),
    "external short": lambda: external(("location", "w.bin"), dims=[4000]),
    "external length wrong": lambda: external(("location", "w.bin"), ("length", "8")),
    "external offset negative": lambda: external(("location", "w.bin"), ("offset", "-4")),
    "external offset no number": lambda: external(("location", "w.bin"), ("offset", "four")),
    "external outside": lambda: external(("location", "../secret.bin")),
    "external absolute": lambda: external(("location", "/etc/passwd")),
    "external a folder": lambda: external(("location", ".")),
    "external nowhere": lambda: external(("offset", "0")),
    "external huge": lambda: external(("location", "w.bin"), dims=[1 << 62]),
}
ATTRIBUTES: Mapping[str, Kind] = {
    "int for ints": lambda: model(node("Transpose", ["x"], ["y"], perm=1)),
    "ints for int": lambda: model(node("Softmax", ["x"], ["y"], axis=[1])),
    "text for int": lambda: model(node("Softmax", ["x"], ["y"], axis="one")),
    "float for int": lambda: model(node("Softmax", ["x"], ["y"], axis=1.0)),
    "attribute unknown": lambda: model(node("Relu", ["x"], ["y"], slope=0.1)),
    "attribute missing": lambda: model(node("Cast", ["x"], ["y"])),
    "attribute twice": _twice_attribute,
    "attribute without name": lambda: untyped("Relu", **{"": {"i": 1, "type": AttributeProto.INT}}),
    "attribute without type": lambda: untyped("Softmax", axis={"i": 1}),
    "attribute of an unknown type": lambda: changed(
        lambda m: m.graph.node[0].attribute[0].ClearField("type"),
        model(node("Softmax", ["x"], ["y"], axis=1)),
    ),
    "constant of two values": lambda: model(
        node("Constant", [], ["c"], value_float=1.0, value_int=1), node("Add", ["x", "c"], ["y"])
    ),
    "constant of no value": lambda: model(
        node("Constant", [], ["c"]), node("Add", ["x", "c"], ["y"])
    ),
}
OPERATORS: Mapping[str, Kind] = {
    "operator unknown": lambda: model(node("Frobnicate", ["x"], ["y"])),
    "operator not yet": lambda: model(node("Gelu", ["x"], ["y"]), opset=13),
    "operator no longer": lambda: model(node("Scatter", ["x", "x", "x"], ["y"]), opset=17),
    "operator of machine learning unknown": lambda: model(
        node("Frobnicate", ["x"], ["y"], domain="ai.onnx.ml"), domains={"ai.onnx.ml": 3}
    ),
    "operator without name": lambda: model(node("", ["x"], ["y"])),
    "too few inputs": lambda: model(node("Add", ["x"], ["y"])),
    "too many inputs": lambda: model(node("Relu", ["x", "x"], ["y"])),
    "too many outputs": lambda: model(node("Relu", ["x"], ["y", "z"])),
    "no inputs": lambda: model(node("Relu", [], ["y"])),
    "required input left out": lambda: model(node("Add", ["", "x"], ["y"])),
    "types differ": lambda: binary("Add", (FLOAT, [3]), (INT64, [3])),
    "type not taken": lambda: binary("And", (FLOAT, [3]), (FLOAT, [3])),
    "condition no bool": lambda: model(
        node("Where", ["x", "x", "x"], ["y"]), inputs=[value("x", FLOAT, [3])]
    ),
    "no broadcast": lambda: binary("Add", (FLOAT, [2, 3]), (FLOAT, [2, 4])),
    "product of other sizes": lambda: binary("MatMul", (FLOAT, [2, 3]), (FLOAT, [4, 5])),
    "gemm of rank 3": lambda: binary("Gemm", (FLOAT, [2, 3, 4]), (FLOAT, [4, 5])),
    "gemm of other sizes": lambda: binary("Gemm", (FLOAT, [2, 3]), (FLOAT, [4, 5])),
    "perm no permutation": lambda: model(node("Transpose", ["x"], ["y"], perm=[0, 0])),
    "perm too long": lambda: model(node("Transpose", ["x"], ["y"], perm=[0, 2, 1])),
    "groups do not divide": lambda: convolution([4, 1, 3, 3], group=3),
    "group 0": lambda: convolution([4, 4, 3, 3], group=0),
    "channels differ": lambda: convolution([4, 3, 3, 3]),
    "kernel shape differs": lambda: convolution([4, 4, 3, 3], kernel_shape=[5, 5, 5]),
    "too many pads": lambda: convolution([4, 4, 3, 3], pads=[1, 1, 1]),
    "stride 0": lambda: convolution([4, 4, 3, 3], strides=[0, 0]),
    "auto_pad unknown": lambda: convolution([4, 4, 3, 3], auto_pad="SOMEHOW"),
    "reshape to another size": lambda: model(
        node("Reshape", ["x", "s"], ["y"]), weights=[ints("s", 4, 4)]
    ),
    "reshape with two unknowns": lambda: model(
        node("Reshape", ["x", "s"], ["y"]), weights=[ints("s", -1, -1)]
    ),
    "concat of other sizes": lambda: binary("Concat", (FLOAT, [2, 3]), (FLOAT, [4, 4]), axis=1),
    "concat of other ranks": lambda: binary("Concat", (FLOAT, [2, 3]), (FLOAT, [2]), axis=0),
    "concat axis out of range": lambda: binary("Concat", (FLOAT, [2]), (FLOAT, [2]), axis=5),
    "concat without axis": lambda: binary("Concat", (FLOAT, [2]), (FLOAT, [2])),
    "split sizes do not sum": lambda: model(
        node("Split", ["x", "s"], ["y", "z"], axis=1), weights=[ints("s", 1, 1)]
    ),
    "split into too many": lambda: model(
        node("Split", ["x", "s"], ["y", "z"], axis=1), weights=[ints("s", 1, 1, 1)]
    ),
    "cast to unknown": lambda: model(node("Cast", ["x"], ["y"], to=99)),
    "einsum not an equation": lambda: model(node("Einsum", ["x", "x"], ["y"], equation="i->->j")),
    "einsum of another rank": lambda: model(node("Einsum", ["x"], ["y"], equation="ijk->i")),
    "resize to nothing": lambda: model(node("Resize", ["x"], ["y"])),
    "gather axis out of range": lambda: binary("Gather", (FLOAT, [2, 3]), (INT64, [1]), axis=7),
    "gather by floats": lambda: binary("Gather", (FLOAT, [2, 3]), (FLOAT, [1])),
    "softmax axis out of range": lambda: model(node("Softmax", ["x"], ["y"], axis=9)),
    "flatten axis out of range": lambda: model(node("Flatten", ["x"], ["y"], axis=9)),
    "reduce axis out of range": lambda: model(node("ReduceMax", ["x"], ["y"], axes=[9])),
    "squeeze of a long axis": lambda: model(
        node("Squeeze", ["x", "a"], ["y"]), weights=[ints("a", 1)]
    ),
    "unsqueeze twice the same": lambda: model(
        node("Unsqueeze", ["x", "a"], ["y"]), weights=[ints("a", 1, 1)]
    ),
    "pad of another rank": lambda: model(
        node("Pad", ["x", "p"], ["y"]), weights=[ints("p", 1, 1, 1)]
    ),
    "slice of an axis out of range": lambda: model(
        node("Slice", ["x", "s", "e", "a"], ["y"]),
        weights=[ints("s", 0), ints("e", 1), ints("a", 7)],
    ),
    "depth not divided": lambda: model(
        node("DepthToSpace", ["x"], ["y"], blocksize=3), inputs=[value("x", FLOAT, [1, 4, 2, 2])]
    ),
    "pool without kernel": lambda: model(
        node("MaxPool", ["x"], ["y"]), inputs=[value("x", FLOAT, [1, 4, 8, 8])]
    ),
    "pool of rank 2": lambda: model(node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])),
    "normalisation of other channels": lambda: model(
        node("BatchNormalization", ["x", "w", "w", "w", "w"], ["y"]),
        inputs=[value("x", FLOAT, [1, 4, 8, 8])],
        weights=[floats("w", 2, 2)],
    ),
    "random of a huge negative size": lambda: model(
        node("RandomNormal", [], ["r"], shape=[-4]), node("Add", ["x", "r"], ["y"])
    ),
}
GRAPHS: Mapping[str, Kind] = {
    "branch reads nothing": lambda: branches(branch(node("Relu", ["nowhere"], ["o"])), branch()),
    "branch output undefined": lambda: branches(branch(outputs=[value("q")]), branch()),
    "branch defines twice": lambda: branches(
        branch(node("Relu", ["x"], ["o"]), node("Neg", ["x"], ["o"])), branch()
    ),
    "branch with a cycle": lambda: branches(
        branch(node("Add", ["x", "p"], ["o"]), node("Relu", ["o"], ["p"])), branch()
    ),
    "branches differ in outputs": lambda: branches(
        branch(), branch(outputs=[value("o"), value("o")])
    ),
    "branches differ in type": lambda: branches(
        branch(), branch(node("Cast", ["x"], ["o"], to=INT64), outputs=[value("o", INT64)])
    ),
    "branch missing": lambda: branches(branch(), None),
    "condition of floats": lambda: changed(
        lambda m: m.graph.input[1].CopyFrom(value("c", FLOAT, [])), branches(branch(), branch())
    ),
    "loop body of too few outputs": lambda: loop(_loop_body(outputs=1)),
    "loop body of too few inputs": lambda: loop(_loop_body(inputs=2)),
    "loop body of too many inputs": lambda: loop(_loop_body(inputs=4)),
    "function calls itself": lambda: calls(function("F", own("F", "a", "o"))),
    "functions call each other": lambda: calls(
        function("F", own("G", "a", "o")), function("G", own("F", "a", "o"))
    ),
    "function imports no operators": lambda: calls(
        function("F", node("Relu", ["a"], ["o"]), opset=None)
    ),
    "function twice": lambda: calls(
        function("F", node("Relu", ["a"], ["o"])), function("F", node("Neg", ["a"], ["o"]))
    ),
    "function reads nothing": lambda: calls(function("F", node("Relu", ["nowhere"], ["o"]))),
    "function output undefined": lambda: calls(function("F", node("Relu", ["a"], ["q"]))),
    "function defines twice": lambda: calls(
        function("F", node("Relu", ["a"], ["o"]), node("Neg", ["a"], ["o"]))
    ),
    "function of an unknown operator": lambda: calls(
        function("F", node("Frobnicate", ["a"], ["o"]))
    ),
    "call with too many inputs": lambda: calls(
        function("F", node("Relu", ["a"], ["o"])), inputs=["x", "x"]
    ),
}


KINDS: Mapping[str, Kind] = {
    **FILES, **ENVELOPE, **VALUES, **TENSORS, **ATTRIBUTES, **OPERATORS, **GRAPHS
}  # fmt: skip
"""Name to what makes the model; bytes are a file's contents, ``None`` is no file."""


def write(made: ModelProto | bytes | None, folder: Path) -> Path:
    """Write a model or the bytes of a file, and 12 bytes of weights beside it; returns its path."""
    (folder / "w.bin").write_bytes(np.ones(3, np.float32).tobytes())
    path = folder / "invalid.onnx"
    if made is not None:
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return path


def measured(made: ModelProto | bytes | None, *arguments: str) -> tuple[int, str, float, int]:
    """Exit code, standard error, seconds at work and peak bytes of the command line on a model.

    It runs in a fork of this process, so that the libraries are loaded once.
    """
    import eqsat_opt.api  # noqa: F401  (before the fork)

    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        path = write(made, Path(folder))
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            for stream, name in ((1, "output"), (2, "errors")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
            os._exit(main_of_the_cli(["optimize", path.name, "--store", "", "-q", *arguments]))
        deadline = threading.Timer(_HANGS_S, os.kill, (child, signal.SIGKILL))
        deadline.start()
        _, status, used = os.wait4(child, 0)
        deadline.cancel()
        said = (path.parent / "errors").read_text(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    return code, said, used.ru_utime + used.ru_stime, used.ru_maxrss << 10


def fault(kind: str) -> str:
    """What is wrong with how a kind is refused; empty if nothing is. Prints what it measures."""
    code, said, seconds, peak_bytes = measured(KINDS[kind]())
    print(f"{kind:40} {seconds:5.1f} s {peak_bytes >> 20:5} MiB  {said.strip()}", flush=True)
    if code != 1:
        return f"exit code {code}"
    if not said.startswith("error: ") or said.count("\n") != 1 or not said[:-1].isprintable():
        return "no sentence"
    if "unexpected" in said:
        return "nobody expected it"
    if seconds > LIMIT_S:
        return f"more than {LIMIT_S:g} s"
    return "" if peak_bytes <= LIMIT_BYTES else f"more than {LIMIT_BYTES >> 20} MiB"


def main() -> int:
    """Refuse all kinds, or those that are named; 1 if one is not refused as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kinds", nargs="*", metavar="NAME", help="kinds of models; all if none")
    kinds = parser.parse_args().kinds or list(KINDS)
    faults = {kind: why for kind in kinds if (why := fault(kind))}
    for kind, why in faults.items():
        print(f"{kind}: {why}")
    print(f"{len(kinds) - len(faults)} of {len(kinds)} kinds are refused as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
