"""Numbers beside tensors whose last axis has one element have as many axes as these."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

SHAPES = ("2, 3, 1", "N, 3, 1", "1", "2, 3", "2, 1, 3", "2, N", "0, 1")
NODES = (
    "y = Sub (half, x)", "y = Max (x, half)", "y = Div (x, one)", "y = Pow (x, one)",
    "y = Mul (x, half)", "y = Add (half, x)", "y = Clip (x, half)", "y = PRelu (x, one)",
    "m = Greater (x, half) y = Where (m, x, half)",
    "m = Sub (half, x) r = Reshape (half, shape) k = Sub (r, half) y = Add (m, k)",
)  # fmt: skip


def model(nodes: str, shape: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[{shape}] x) => (float[{shape}] y)
        <float half = {{0.5}}, float[1] one = {{1.5}}, int64[1] shape = {{1}}> {{ {nodes} }}""")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", NODES)
def test_the_written_model_computes_the_same(nodes: str, shape: str) -> None:
    given = model(nodes, shape)
    sizes = tuple(5 if size == "N" else int(size) for size in shape.split(", "))
    feeds = {"x": np.abs(np.random.default_rng(0).standard_normal(sizes)).astype(np.float32)}
    options = OrtOptions(threads=1)
    (expected,) = OrtSession(given, options).run(feeds)
    for graph in (import_model(load_model(given)), normalise(import_model(load_model(given)))):
        written = model_proto(export_model(graph))
        onnx.checker.check_model(written, full_check=True)
        (found,) = OrtSession(written, options).run(feeds)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("nodes", NODES[:6])
def test_a_number_beside_a_column_has_its_axes(nodes: str) -> None:
    for shape, axes in (("2, 3, 1", 3), ("N, 3, 1", 3), ("2, 3", 0), ("2, 1, 3", 0)):
        graph = normalise(import_model(load_model(model(nodes, shape))))
        numbers = model_proto(export_model(graph)).graph.initializer
        assert {len(one.dims) for one in numbers} <= {axes, 1} - ({1} if axes else set())


def test_a_number_of_two_ranks_is_stored_for_each() -> None:
    given = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3, 1] x, float[4, 1] z) => (float[2, 3, 1] y, float[4, 1] w)
        <float half = {0.5}> { y = Max (x, half) w = Max (z, half) }""")
    written = model_proto(export_model(import_model(load_model(given))))
    assert sorted(len(one.dims) for one in written.graph.initializer) == [2, 3]
