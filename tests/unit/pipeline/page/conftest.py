"""A searched model whose names try to leave the page, and its pages."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt import api
from eqsat_opt.pipeline.page.page import explanation_page, page_text
from eqsat_opt.pipeline.report.explanation import Explanation
from tests.unit.machines import Machine

EVIL = "</script><img src=x onerror=alert(1)>ü\"'&"
"""A name that would leave a script, an attribute and a text."""


_CONSTANT = "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }"


def evil_model() -> onnx.ModelProto:
    """Two products that associate, behind an operator of another domain."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], [f"scores{EVIL}"], name=f"first{EVIL}"),
        helper.make_node("MatMul", [f"scores{EVIL}", "v"], ["h"], name="second"),
        helper.make_node("Odd", ["h"], [f"y{EVIL}"], name="odd", domain="evil<b>"),
    ]
    shapes = {"q": (64, 4), "k": (4, 64), "v": (64, 4)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(f"y{EVIL}", TensorProto.FLOAT, (64, 4))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil<b>", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(scope="session")
def explanation() -> Explanation:
    found = api.explain(evil_model(), measure=False, store="", threads=1, budget=60)
    race = Machine().race(rounds=1, original=1000.0, best=500.0).to_json()
    report = replace(found.report, model=EVIL, race=race, warnings=(EVIL,), notes=(EVIL,))
    return replace(found, report=report)


@pytest.fixture(scope="session")
def explained(explanation: Explanation) -> str:
    return explanation_page(explanation)


@pytest.fixture(scope="session", params=["(float[2] x) => (float[2] x) {}", _CONSTANT])
def bare(request: pytest.FixtureRequest) -> str:
    """The page of a graph without operators."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["":17]> g {request.param}')
    return explanation_page(api.explain(model, measure=False, store="", threads=1, budget=60))


@pytest.fixture(scope="session")
def unsearched(explanation: Explanation) -> str:
    return page_text(explanation.report, None)
