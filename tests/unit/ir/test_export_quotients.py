"""Sizes that are quotients of others are computed in the exported model."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.values.dims import floor_div, sym
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession


def _graph() -> Graph:
    """A row that is repeated ``(height - 2) // 3 + 1`` times."""
    rows = floor_div(sym("height") - 2, 3) + 1
    return Graph(
        inputs=("x", "row"),
        outputs=("y",),
        nodes=(Node("Expand", ("row",), ("y",), attributes(shape=(rows, 4))),),
        constants={},
        types={
            "x": TensorType("float32", (sym("height"),)),
            "row": TensorType("float32", (1, 4)),
            "y": TensorType("float32", (rows, 4)),
        },
    )


@pytest.mark.parametrize("height", [0, 1, 2, 3, 4, 5, 31])
def test_a_quotient_rounds_down(height: int) -> None:
    model = onnx_ir.to_proto(export_model(_graph()))
    session = OrtSession(model, OrtOptions(threads=1))
    feeds = {"x": np.zeros(height, np.float32), "row": np.ones((1, 4), np.float32)}
    (result,) = session.run(feeds)
    assert result.shape == (max((height - 2) // 3 + 1, 0), 4)
