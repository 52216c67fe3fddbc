"""Sizes that broadcast although nothing shows that they fit: right wherever the model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import SymDim, dim_names
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

FLOAT = TensorProto.FLOAT
CHANNELS = 4
RUNNING = ((5, 5), (1, 5), (5, 1), (1, 1), (0, 1), (1, 0), (0, 0))
"""Sizes ``n`` and ``m`` at which onnxruntime adds ``n`` rows to ``m``."""

node = helper.make_node
QUICK = Options(
    store="", measure=False, race=False, check=1, strict=True, threads=1, budget_s=10, nodes=500,
    shapes={"n": 5, "m": 5},
)  # fmt: skip


@st.composite
def models(draw: Any) -> onnx.ModelProto:
    """Models of ``n`` and ``m`` rows, whose sum is among the values that are worked on."""
    nodes = [node("Add", ["a", "b"], ["v0"])]
    rows = ["a", "b", "v0"]

    def value() -> str:
        return str(draw(st.sampled_from(rows)))

    for _ in range(draw(st.integers(2, 6))):
        out, inner = f"v{len(rows)}", [f"v{len(rows)}_{i}" for i in range(3)]
        match draw(st.sampled_from(range(8))):
            case 0 | 1 | 2:
                op = draw(st.sampled_from(("Add", "Sub", "Mul", "Max")))
                nodes.append(node(op, [value(), value()], [out]))
            case 3:
                nodes.append(node(draw(st.sampled_from(("Relu", "Neg"))), [value()], [out]))
            case 4:
                nodes.append(node("MatMul", [value(), "square"], [out]))
            case 5:
                less = [value(), value()]
                nodes += [
                    node("Less", less, inner[:1]),
                    node("Where", [inner[0], value(), value()], [out]),
                ]
            case 6:
                nodes += [
                    node("Transpose", [value()], inner[:1], perm=[1, 0]),
                    node("Transpose", inner[:1], [out], perm=[1, 0]),
                ]
            case 7:
                nodes += [
                    node("Shape", [value()], inner[:1]),
                    node("Expand", ["row", inner[0]], inner[1:2]),
                    node("Mul", [inner[1], value()], [out]),
                ]
        rows.append(out)
    ends = [node("ReduceSum", [rows[-1], "axis"], ["total"]), node("Abs", ["v0"], ["rest"])]
    random = np.random.default_rng(draw(st.integers(0, 3)))
    weights = {
        "square": random.standard_normal((CHANNELS, CHANNELS)).astype(np.float32),
        "row": random.standard_normal((1, CHANNELS)).astype(np.float32),
        "axis": np.array([0]),
    }
    graph = helper.make_graph(
        [*nodes, *ends],
        "g",
        [
            helper.make_tensor_value_info(x, FLOAT, [s, CHANNELS])
            for x, s in (("a", "n"), ("b", "m"))
        ],
        [helper.make_tensor_value_info(y, FLOAT, None) for y in ("total", "rest")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@settings(max_examples=6, deadline=None)
@given(model=models())
def test_results_are_those_of_the_model_wherever_it_runs(model: onnx.ModelProto) -> None:
    result = run(model, QUICK).model
    sessions = [OrtSession(one, OrtOptions(threads=1, level="disabled")) for one in (model, result)]
    random = np.random.default_rng(0)
    for n, m in RUNNING:
        feeds = {
            name: random.standard_normal((size, CHANNELS)).astype(np.float32)
            for name, size in (("a", n), ("b", m))
        }
        for before, after in zip(*(session.run(feeds) for session in sessions), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


@settings(max_examples=6, deadline=None)
@given(model=models())
def test_every_equality_holds_wherever_the_model_runs(model: onnx.ModelProto) -> None:
    """An e-node that is not defined at some sizes has no value there, and is not compared."""
    graph = normalise(import_model(load_model(model)))
    types = [graph.types[one.output] for one in graph.nodes if one.op != OPAQUE]
    dims = [dim for type_ in types if isinstance(type_, TensorType) for dim in type_.shape]
    assert any(isinstance(dim, SymDim) and len({*dim_names(dim)}) == 2 for dim in dims)
    saturation = saturate(graph, default_rules(), Budget(nodes=1_000))
    reports = [check_eclasses(saturation, dims={"n": n, "m": m}) for n, m in RUNNING]
    assert not any(report.bad for report in reports)
    assert len({report.equalities for report in reports}) == 1
