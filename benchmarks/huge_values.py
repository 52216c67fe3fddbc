"""Small valid models whose values are huge: nothing is computed that the model does not hold.

    python -m benchmarks.huge_values [NAME ...]

runs the command line on each in a process of its own, and measures what that takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as nh

from benchmarks.invalid_models import (
    FLOAT,
    INT64,
    LIMIT_BYTES,
    LIMIT_S,
    floats,
    ints,
    measured,
    model,
    node,
    value,
)

__all__ = ["HUGE"]

N = 1 << 40
"""Elements of a tensor that no machine holds."""


def scalar(name: str, number: float, kind: type = np.int64) -> TensorProto:
    """A constant without dimensions."""
    return nh.from_array(np.array(number, kind), name)


def reduced(*nodes: NodeProto, weights: Sequence[TensorProto] = (), tail: str = "h") -> ModelProto:
    """Add to x the sum of a huge value h."""
    return model(
        *nodes,
        node("ReduceSum", [tail], ["s"], keepdims=0),
        node("Add", ["x", "s"], ["y"]),
        weights=list(weights),
    )


def sliced(*nodes: NodeProto, weights: Sequence[TensorProto] = ()) -> ModelProto:
    """Add to x the first element of a huge vector h."""
    return model(
        *nodes,
        node("Slice", ["h", "zero", "one"], ["s"]),
        node("Add", ["x", "s"], ["y"]),
        weights=[*weights, ints("zero", 0), ints("one", 1)],
    )


def filled(*dims: int, kind: type = np.float32) -> list[NodeProto]:
    """A huge constant f."""
    shape = helper.make_tensor("shape", INT64, [len(dims)], dims)
    fill = nh.from_array(np.ones(1, kind), "value")
    return [
        node("Constant", [], ["d"], value=shape),
        node("ConstantOfShape", ["d"], ["f"], value=fill),
    ]


def _sparse(as_input: bool) -> ModelProto:
    data = onnx.SparseTensorProto(dims=[N])
    data.values.CopyFrom(nh.from_array(np.ones(1, np.float32), "h"))
    data.indices.CopyFrom(nh.from_array(np.zeros(1, np.int64), ""))
    made = sliced()
    made.graph.sparse_initializer.append(data)
    if as_input:
        made.graph.input.append(value("h", FLOAT, [N]))
    return made


HUGE: Mapping[str, Callable[[], ModelProto]] = {
    "ConstantOfShape": lambda: sliced(*filled(N), node("Identity", ["f"], ["h"])),
    "ConstantOfShape summed": lambda: reduced(*filled(N), node("Identity", ["f"], ["h"])),
    "ConstantOfShape of integers": lambda: sliced(
        *filled(N, kind=np.int64), node("Cast", ["f"], ["h"], to=FLOAT)
    ),
    "pointwise": lambda: reduced(
        *filled(N), node("Exp", ["f"], ["e"]), node("Mul", ["e", "f"], ["h"])
    ),
    "Softmax": lambda: reduced(*filled(1 << 20, 1 << 20), node("Softmax", ["f"], ["h"], axis=1)),
    "Erf": lambda: reduced(*filled(N), node("Erf", ["f"], ["h"])),
    "Expand": lambda: sliced(
        node("Expand", ["w", "n"], ["h"]), weights=[floats("w", 1), ints("n", N)]
    ),
    "Expand of an input": lambda: reduced(
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Expand", ["m", "n"], ["h"]),
        weights=[ints("n", N)],
    ),
    "Tile": lambda: sliced(node("Tile", ["w", "n"], ["h"]), weights=[floats("w", 3), ints("n", N)]),
    "Tile of an input": lambda: reduced(node("Tile", ["x", "n"], ["h"]), weights=[ints("n", N, 1)]),
    "Range": lambda: sliced(
        node("Range", ["a", "n", "b"], ["r"]),
        node("Cast", ["r"], ["h"], to=FLOAT),
        weights=[scalar("a", 0), scalar("n", N), scalar("b", 1)],
    ),
    "Range of small steps": lambda: sliced(
        node("Range", ["a", "n", "b"], ["h"]),
        weights=[
            scalar("a", 0, np.float32),
            scalar("n", 1, np.float32),
            scalar("b", 1e-12, np.float32),
        ],
    ),
    "Pad": lambda: sliced(
        node("Pad", ["w", "p"], ["h"]), weights=[floats("w", 3), ints("p", 0, N)]
    ),
    "Pad of an input": lambda: reduced(
        node("Pad", ["x", "p"], ["h"]), weights=[ints("p", 0, 0, 0, N)]
    ),
    "OneHot": lambda: reduced(
        node("OneHot", ["i", "n", "v"], ["h"]),
        weights=[ints("i", 0, 1), scalar("n", N), nh.from_array(np.array([0, 1], np.float32), "v")],
    ),
    "Resize": lambda: reduced(
        node("Resize", ["w", "", "", "n"], ["h"]),
        weights=[floats("w", 1, 1, 2, 2), ints("n", 1, 1, 1 << 20, 1 << 20)],
    ),
    "Resize by scales": lambda: reduced(
        node("Resize", ["w", "", "n"], ["h"]),
        weights=[
            floats("w", 1, 1, 2, 2),
            nh.from_array(np.array([1, 1, 1e6, 1e6], np.float32), "n"),
        ],
    ),
    "EyeLike": lambda: reduced(*filled(1 << 20, 1 << 20), node("EyeLike", ["f"], ["h"])),
    "RandomNormal": lambda: sliced(node("RandomNormal", [], ["h"], shape=[N])),
    "RandomUniformLike": lambda: reduced(*filled(N), node("RandomUniformLike", ["f"], ["h"])),
    "Gather": lambda: sliced(
        *filled(N, kind=np.int64), node("Gather", ["w", "f"], ["h"]), weights=[floats("w", 3)]
    ),
    "outer product": lambda: reduced(
        node("MatMul", ["u", "v"], ["h"]),
        weights=[floats("u", 1 << 18, 1), floats("v", 1, 1 << 18)],
    ),
    "broadcast": lambda: reduced(
        node("Add", ["u", "v"], ["h"]), weights=[floats("u", 1 << 18, 1), floats("v", 1, 1 << 18)]
    ),
    "NonZero": lambda: reduced(
        *filled(N), node("NonZero", ["f"], ["z"]), node("Cast", ["z"], ["h"], to=FLOAT)
    ),
    "Shape of what is huge": lambda: model(
        *filled(N),
        node("Shape", ["f"], ["s"]),
        node("Cast", ["s"], ["t"], to=FLOAT),
        node("Add", ["x", "t"], ["y"]),
    ),
    "Where": lambda: reduced(
        *filled(N),
        node("Less", ["f", "w"], ["c"]),
        node("Where", ["c", "f", "w"], ["h"]),
        weights=[floats("w", 1)],
    ),
    "Dropout": lambda: reduced(*filled(N), node("Dropout", ["f"], ["h"])),
    "Einsum": lambda: reduced(
        node("Einsum", ["u", "v"], ["h"], equation="i,j->ij"),
        weights=[floats("u", 1 << 18), floats("v", 1 << 18)],
    ),
    "Constant in a branch": lambda: model(
        node("If", ["c"], ["y"], then_branch=_branch(), else_branch=_branch()),
        inputs=[value("x"), value("c", TensorProto.BOOL, [])],
    ),
    "sparse": lambda: _sparse(as_input=False),
    "sparse default of an input": lambda: _sparse(as_input=True),
    "input": lambda: model(node("Relu", ["x"], ["y"]), inputs=[value("x", FLOAT, [N])]),
    "input of 8 GB": lambda: model(
        node("Relu", ["x"], ["y"]), inputs=[value("x", FLOAT, [1 << 31])]
    ),
    "convolution": lambda: model(
        node("Conv", ["x", "w"], ["y"], pads=[1 << 19] * 4),
        inputs=[value("x", FLOAT, [1, 1, 8, 8])],
        weights=[floats("w", 1, 1, 3, 3)],
    ),
    "weights": lambda: model(
        *filled(N // 1024, 1024),
        node("Transpose", ["f"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
        inputs=[value("x", FLOAT, [2, 1024])],
    ),
}


def _branch() -> onnx.GraphProto:
    return helper.make_graph(
        [*filled(N), node("ReduceSum", ["f"], ["s"], keepdims=0), node("Add", ["x", "s"], ["o"])],
        "branch", [], [value("o")],
    )  # fmt: skip


def fault(name: str) -> str:
    """What is wrong with how a model is taken; empty if nothing is. Prints what it measures."""
    arguments = ("--budget", "3", "--threads", "1", "--no-measure", "-o", "out.onnx")
    code, said, seconds, peak_bytes = measured(HUGE[name](), *arguments)
    print(f"{name:30} {code} {seconds:5.1f} s {peak_bytes >> 20:5} MiB  {said.strip()}", flush=True)
    if code not in (0, 1) or (code == 1 and ("unexpected" in said or "out of memory" in said)):
        return f"exit code {code}"
    if seconds > LIMIT_S:
        return f"more than {LIMIT_S:g} s"
    return "" if peak_bytes <= LIMIT_BYTES else f"more than {LIMIT_BYTES >> 20} MiB"


def main() -> int:
    """Optimise all, or those that are named; 1 if one costs more than it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all if none")
    names = parser.parse_args().names or list(HUGE)
    faults = {name: why for name in names if (why := fault(name))}
    for name, why in faults.items():
        print(f"{name}: {why}")
    print(f"{len(names) - len(faults)} of {len(names)} cost no more than they should")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
