"""The check looks between quantisations: a flipped rounding is no error, a wrong number is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.validation.compare import Difference, Reference, differences

ORT = OrtOptions(1)
PRODUCT_OF_TWO = "b = Mul(a, tenth) h = Mul(b, five)"
"""A half of an integer but for rounding: on the border between two steps, every other time."""
HALF = "h = Mul(a, half)"

STATIC = "q = QuantizeLinear(h, one, zero) e = DequantizeLinear(q, one, zero) y = Sin(e)"
DYNAMIC = (
    "c = Add(h, quarter) u, v, w = DynamicQuantizeLinear(c) p = DequantizeLinear(u, v, w)"
    " y = Sin(p)"
)
BRANCH = (
    "y = If(yes) <then_branch = g () => (float[64,64] r)"
    " { q = QuantizeLinear(h, one, zero) e = DequantizeLinear(q, one, zero) r = Sin(e) },"
    " else_branch = g () => (float[64,64] s) { s = Identity(h) }>"
)
FUNCTION = "e = local.rounded(h, one, zero) y = Sin(e)"
NAMED = "q = QuantizeLinear(h, one, zero) y = DequantizeLinear(q, one, zero)"

VALUES = {"one": 1.0, "tenth": 0.1, "five": 5.0, "half": 0.5, "quarter": 0.25, "small": 0.01}


def model(front: str, back: str = STATIC, **changed: float) -> ModelProto:
    """Integers x as floats a, then ``front`` from a to h, and ``back`` from h to y."""
    result: ModelProto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17, "local": 1]> main'
        " (int8[64,64] x) => (float[64,64] y)"
        f" {{ a = DequantizeLinear(x, one) {front} {back} }}"
    )
    for name, value in {**VALUES, **changed}.items():
        array = np.array(value, np.float32)
        result.graph.initializer.append(numpy_helper.from_array(array, name))
    zero = np.array(changed.get("zero", 0), np.int8)
    del result.graph.initializer[len(VALUES) :]
    result.graph.initializer.append(numpy_helper.from_array(zero, "zero"))
    result.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    if back == FUNCTION:
        rounded = onnx.parser.parse_function(
            '<domain: "local", opset_import: ["": 17]> rounded (h, one, zero) => (e)'
            " { q = QuantizeLinear(h, one, zero) e = DequantizeLinear(q, one, zero) }"
        )
        result.functions.append(rounded)
    return result


def compared(
    original: ModelSource, other: ModelSource, numerics: Numerics = Numerics.REASSOCIATE
) -> tuple[Difference, Difference]:
    """The difference of y as it is judged, and as the outputs alone show it."""
    reference = Reference.of(original, ORT, [0, 1])
    (judged,) = differences(reference, other, ORT, numerics)
    (plain,) = differences(replace(reference, model=None), other, ORT, numerics)
    return judged, plain


@pytest.mark.parametrize("back", [STATIC, DYNAMIC, BRANCH, FUNCTION, NAMED])
def test_a_flipped_rounding_is_no_error(back: str) -> None:
    judged, plain = compared(model(PRODUCT_OF_TWO, back), model(HALF, back))
    assert plain.why
    assert not judged.why
    assert judged.max_rel <= judged.tolerance
    assert judged.max_abs == plain.max_abs > 0.4
    assert judged.is_flipped
    assert not plain.is_flipped


@pytest.mark.parametrize("back", [STATIC, DYNAMIC, BRANCH, FUNCTION, NAMED])
def test_an_error_of_less_than_a_step_is_noticed(back: str) -> None:
    judged, _plain = compared(model(PRODUCT_OF_TWO, back), model(HALF, back, half=0.501))
    assert judged.why


@pytest.mark.parametrize(
    "other",
    [
        model(HALF, zero=1),
        model(HALF, one=1.01),
        model(HALF, STATIC.replace("Sin(e)", "Cos(e)")),
        model(HALF, STATIC.replace("y =", "f = Mul(e, one) g = Add(f, small) y =").replace(
            "Sin(e)", "Sin(g)")),
        model(HALF, STATIC.replace("h, one, zero", "a, one, zero")),
    ],
    ids=["zero point", "scale", "behind", "slightly behind", "operand"],
)  # fmt: skip
def test_an_error_beside_flipped_roundings_is_noticed(other: ModelProto) -> None:
    judged, _plain = compared(model(PRODUCT_OF_TWO), other)
    assert judged.why


def test_quantisations_may_come_to_read_one_value() -> None:
    """Two that read equal values read one value, once these are shared."""
    both = (
        f"{STATIC.replace('y =', 'o =')} u = QuantizeLinear(g, one, zero)"
        " v = DequantizeLinear(u, one, zero) y = Add(o, v)"
    )
    apart = model(PRODUCT_OF_TWO.replace("b =", "c = Mul(a, tenth) g = Mul(c, five) b ="), both)
    shared = model(HALF, both.replace("(g,", "(h,"))
    judged, plain = compared(apart, shared)
    assert plain.why
    assert not judged.why


def test_weights_beside_the_model_are_found(tmp_path: Path) -> None:
    """The cut model is in memory, its weights stay where they are."""
    behind = STATIC.replace("Sin(e)", "MatMul(e, m)")
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), "m")
    paths = []
    for name, front in (("a", PRODUCT_OF_TWO), ("b", HALF)):
        saved = model(front, behind)
        saved.graph.initializer.append(weight)
        paths.append(tmp_path / name / f"{name}.onnx")
        paths[-1].parent.mkdir()
        onnx.save(saved, paths[-1], save_as_external_data=True, location=f"{name}.data",
                  size_threshold=0)  # fmt: skip
    judged, plain = compared(paths[0], paths[1])
    assert plain.why
    assert not judged.why


def test_a_model_whose_roundings_flip_is_optimised() -> None:
    options = Options(
        measure=False, race=False, check=2, store="", threads=1, budget_s=600, numerics="refactor",
        objective="launches",
    )  # fmt: skip
    result = run(model(PRODUCT_OF_TWO), options)
    assert [node.op_type for node in result.model.graph.node].count("Mul") == 1
    assert result.report.max_abs_error > 0.5
    assert result.report.max_rel_error < 1e-3
    (note,) = (note for note in result.report.notes if "quantisation" in note)
    assert note.startswith("output 'y' moved by up to ")
