"""Plans of three tiny models, byte for byte.

``EQSAT_OPT_WRITE_GOLDEN=1 pytest tests/golden/test_golden_plans.py`` writes them anew; read the
difference before you commit it. Versions of backends are left out.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from eqsat_opt.pipeline.plans import plan_model
from eqsat_opt.runtime.plan.files import plan_text, read_plan

FOLDER = Path(__file__).parent / "plans"

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # Two branches that are written into the parts of their Concat.
    "branches": (
        """
        <ir_version: 8, opset_import: ["": 17]>
        branches (float[1, 2, 4, 4] x) => (float[1, 3, 4, 4] y) {
            a = Conv <kernel_shape = [1, 1]> (x, w1)
            b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w2)
            r = Relu(a)
            s = Tanh(b)
            y = Concat <axis = 1> (r, s)
        }
        """,
        {"w1": (1, 2, 1, 1), "w2": (2, 2, 3, 3)},
        {"backend": "numpy", "streams": 2},
    ),
    # Slices and a Reshape that move nothing; a constant that is computed when the plan is loaded.
    "views": (
        """
        <ir_version: 8, opset_import: ["": 17]>
        views (float[2, 6] x) => (float[2, 3] y) {
            left, right = Split <axis = 1> (x, sizes)
            scale = Exp(w)
            scaled = Mul(left, scale)
            y = Add(scaled, right)
        }
        """,
        {"w": (3,), "sizes": np.array([3, 3])},
        {"backend": "numpy"},
    ),
    # A whole graph is a plan of one segment.
    "segment": (
        """
        <ir_version: 8, opset_import: ["": 17]>
        segment (float[N, 3] x) => (float[N, 2] y) {
            p = MatMul(x, w)
            y = Softmax <axis = -1> (p)
        }
        """,
        {"w": (3, 2)},
        {"backend": "ort", "shapes": {"N": 4}},
    ),
}


def model_of(name: str) -> onnx.ModelProto:
    text, weights, _ = MODELS[name]
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    for weight, shape in weights.items():
        is_array = isinstance(shape, np.ndarray)
        array = shape if is_array else generator.integers(-9, 9, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, weight))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_golden_plan(name: str) -> None:
    plan = replace(plan_model(model_of(name), **MODELS[name][2]), versions={})
    path = FOLDER / f"{name}.plan.json"
    if os.environ.get("EQSAT_OPT_WRITE_GOLDEN"):
        path.write_text(plan_text(plan))
    assert plan_text(plan) == path.read_text()
    assert read_plan(path) == plan
