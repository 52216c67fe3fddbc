"""The pass of onnx-ir: it takes its place among other passes."""

from __future__ import annotations

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import ClearMetadataAndDocStringPass

from eqsat_opt.errors import OptionError
from eqsat_opt.lab import zoo
from eqsat_opt.onnx_pass import EqSatPass

QUICK = {"race": False, "measure": False, "store": "", "threads": 1, "budget": 600}


def test_a_pass_among_others() -> None:
    given = onnx_ir.from_proto(zoo.build("weight_chain", scale="tiny"))
    before = onnx_ir.to_proto(given).SerializeToString()
    step = EqSatPass(**QUICK)
    made = Sequential(step, ClearMetadataAndDocStringPass())(given)
    assert made.modified
    assert step.result is not None
    assert step.result.report.winner != "original"
    assert onnx_ir.to_proto(given).SerializeToString() == before
    assert len(list(made.model.graph)) < len(list(given.graph))
    first, second = (
        onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
        for model in (given, made.model)
    )
    feeds = {one.name: np.ones(one.shape, np.float32) for one in first.get_inputs()}
    before, after = first.run(None, feeds), second.run(None, feeds)
    np.testing.assert_allclose(before[0], after[0], rtol=1e-3, atol=1e-5)


def test_a_pass_without_a_gain_changes_nothing() -> None:
    given = onnx_ir.from_proto(zoo.build("weight_chain", scale="tiny"))
    assert not EqSatPass(rules="none", **QUICK)(given).modified


def test_options_are_checked_when_a_pass_is_made() -> None:
    with pytest.raises(OptionError, match="budgget"):
        EqSatPass(budgget=3)
