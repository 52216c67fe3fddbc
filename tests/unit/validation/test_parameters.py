"""Initializers that are inputs too: weights that a caller may replace from one run to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt import api
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph.eclasses_json import eclasses_from_json, eclasses_to_json
from eqsat_opt.ir.graph.graph import ValueKind
from eqsat_opt.ir.graph.listed_graph import ListedGraph, graph_from_json, graph_to_json
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.inputs import input_specs
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.trials import parameter_drafts

SHAPES = {"x": (2, 4), "w": (4, 3), "c": (3,)}
RNG = np.random.default_rng(0)
VALUES = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
FOLDABLE = [
    helper.make_node("Add", ["w", "w"], ["twice"]),
    helper.make_node("MatMul", ["x", "twice"], ["p"]),
    helper.make_node("Add", ["c", "c"], ["d"]),
    helper.make_node("Add", ["p", "d"], ["y"]),
]


def model(*inputs: str, ir_version: int = 8, **changed: Array) -> onnx.ModelProto:
    """With initializers `w` and `c`, of which those in ``inputs`` may be replaced."""
    values = {**VALUES, **changed}
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPES[n]) for n in ("x", *inputs)]
    weights = [numpy_helper.from_array(values[name], name) for name in "wc"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))
    graph = helper.make_graph(FOLDABLE, "g", info, [y], weights)
    opset = helper.make_opsetid("", 17 if ir_version > 3 else 9)
    return helper.make_model(graph, opset_imports=[opset], ir_version=ir_version)


def run(one: onnx.ModelProto, **feeds: Array) -> Array:
    session = onnxruntime.InferenceSession(
        one.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"x": VALUES["x"], **feeds})[0])


@pytest.mark.parametrize(
    ("ir_version", "kinds"),
    [
        (8, [ValueKind.ACTIVATION, ValueKind.PARAMETER, ValueKind.CONSTANT]),
        (3, [ValueKind.ACTIVATION, ValueKind.CONSTANT, ValueKind.CONSTANT]),
    ],
)
def test_kinds_of_values(ir_version: int, kinds: list[ValueKind]) -> None:
    """Before version 4 every initializer had to be an input."""
    inputs = ("w",) if ir_version > 3 else ("w", "c")
    graph = import_model(load_model(model(*inputs, ir_version=ir_version)))
    assert [graph.kind(name) for name in ("x", "w", "c")] == kinds
    assert graph.kind("y") is ValueKind.ACTIVATION


def test_stages_name_parameters_and_read_them_back() -> None:
    graph = normalise(import_model(load_model(model("w"))))
    listed = ListedGraph(graph)
    assert ["w", "parameter"] in [
        [*line.split()[:1], *line.split()[-1:]] for line in listed.lines()
    ]
    back = graph_from_json(graph_to_json(listed))
    assert (back.graph.parameters, str(back)) == (graph.parameters, str(listed))
    assert isinstance(graph.parameters, frozenset)
    options = Options(measure=False, threads=1, store="", budget_s=600.0)
    named: Any = api.stage(model("w"), "eclasses", options)
    assert "parameter w" in str(named)
    assert str(eclasses_from_json(eclasses_to_json(named))) == str(named)


@pytest.mark.parametrize(("inputs", "products"), [((), 1), (("w",), 2), (("w", "c"), 4)])
def test_what_a_caller_replaces_counts_after_optimisation(
    inputs: tuple[str, ...], products: int
) -> None:
    one = model(*inputs)
    options: Any = {"objective": "launches", "budget": 300, "race": False, "store": None}
    found: Any = eqsat_opt.optimize(one, report=True, **options)
    result, report = found.model, found.report
    assert len(result.graph.node) == products
    assert [value.name for value in result.graph.input] == ["x", *inputs]
    for feeds in ({}, {name: VALUES[name] * 3 + 1 for name in inputs}):
        np.testing.assert_allclose(run(one, **feeds), run(result, **feeds), rtol=1e-5, atol=1e-5)
    assert any("take them out of the inputs" in note for note in report.notes) == bool(inputs)


def test_the_check_sees_a_default_that_was_folded() -> None:
    """At the default itself nothing would show."""
    one, folded, options = model("w"), model("w"), OrtOptions(threads=1)
    folded.graph.node[0].CopyFrom(helper.make_node("Add", ["w_as_it_was"] * 2, ["twice"]))
    folded.graph.initializer.append(numpy_helper.from_array(VALUES["w"], "w_as_it_was"))
    drafts = parameter_drafts(one.graph, input_specs(one), {})
    blind = Reference.of(one, options, (0, 1))
    assert not any(found.why for found in differences(blind, folded, options, Numerics.REASSOCIATE))
    seeing = Reference.of(one, options, (0, 1), drafts=drafts)
    assert not any(found.why for found in differences(seeing, one, options, Numerics.REASSOCIATE))
    found = differences(seeing, folded, options, Numerics.REASSOCIATE)
    assert "with other parameters" in found[0].why
