"""Candidates that only optimised sessions make wrong: no rule is to blame for them."""

from __future__ import annotations

import onnx
import pytest

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.racing.delta_debugging import are_equal_unoptimised
from eqsat_opt.racing.examination import RaceTerms
from eqsat_opt.validation.compare import Reference

TWICE = "g (float[4,8] x) => (float[4,8] y) { a = Relu(x)  y = Relu(a) }"
ONCE = "g (float[4,8] x) => (float[4,8] y) { y = Relu(x) }"
OTHER = "g (float[4,8] x) => (float[4,8] y) { y = LeakyRelu(x) }"


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["":17]> {text}')


@pytest.mark.parametrize(("candidates", "expected"), [([ONCE], True), ([ONCE, OTHER], False)])
def test_what_differs_in_plain_sessions_is_wrong(candidates: list[str], expected: bool) -> None:
    terms = RaceTerms(1, Numerics.REASSOCIATE, (0,), (), 0.0, deadline=Deadline.never())
    reference = Reference.of(parsed(TWICE), terms.session(), (0,))
    assert are_equal_unoptimised(reference, map(parsed, candidates), terms) is expected
