"""What may be infinite in a model of finite inputs, and what is finite in every such run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eqsat_opt.ir.passes.finiteness import source_of_infinities
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing import GraphMaker

Build = Callable[[GraphMaker, str], str]


def number(g: GraphMaker, value: float, dtype: str = "float32") -> str:
    return g.constant(np.full((1, 1), value, dtype))


def mean_square(g: GraphMaker, x: str, epsilon: float) -> str:
    square = g("ReduceMean", g("Mul", x, x), axes=(1,), keepdims=1)
    return g("Add", square, number(g, epsilon))


FINITE: dict[str, Build] = {
    "products": lambda g, x: g("Relu", g("MatMul", x, g.weight(4, 4))),
    "a constant divisor": lambda g, x: g("Div", x, number(g, -3.0)),
    "a root of squares": lambda g, x: g("Sqrt", g("Mul", x, x)),
    "a normalisation": lambda g, x: g("Div", x, g("Sqrt", mean_square(g, x, 1e-5))),
    "a softmax written out": lambda g, x: g(
        "Div", g("Exp", x), g("ReduceSum", g("Exp", x), axes=(1,), keepdims=1)
    ),
    "a quotient by what is clipped": lambda g, x: g("Div", x, g("Clip", x, min=1e-3, max=1.0)),
    "a logarithm of a sigmoid": lambda g, x: g("Log", g("Sigmoid", x)),
    "whole powers": lambda g, x: g("Pow", x, number(g, 3.0)),
    "a power of an absolute value": lambda g, x: g("Pow", g("Abs", x), number(g, 0.5)),
    "a bound at the end of the range": lambda g, x: g("Min", x, number(g, np.inf)),
    "a mask of -1e9": lambda g, x: g("Add", g("Relu", x), number(g, -1e9)),
    "a shifted exponential": lambda g, x: g("Reciprocal", g("Shift", g("Exp", x), offset=1.0)),
    "moved numbers": lambda g, x: g("Log", g("Transpose", g("Softplus", x), perm=(1, 0))),
}
INFINITE: dict[str, tuple[str, Build]] = {
    "an infinite mask": ("the constant 'c0'", lambda g, x: g("Add", x, number(g, -np.inf))),
    "the lowest number": (
        "the constant 'c0'",
        lambda g, x: g("Add", x, number(g, float(np.finfo(np.float32).min))),
    ),
    "no number": ("the constant 'c0'", lambda g, x: g("Mul", x, number(g, np.nan))),
    "a filled infinity": ("Fill ", lambda g, x: g(
        "Add", x, g("Fill", shape=(4, 4), value=-np.inf, dtype="float32"))),
    "a quotient": ("Div ", lambda g, x: g("Div", x, x)),
    "a constant zero": ("Div ", lambda g, x: g("Div", x, number(g, 0.0))),
    "a logarithm": ("Log ", lambda g, x: g("Log", g("Relu", x))),
    "a root": ("Sqrt ", lambda g, x: g("Sqrt", x)),
    "a normalisation without an epsilon": (
        "Div ",
        lambda g, x: g("Div", x, g("Sqrt", mean_square(g, x, 0.0))),
    ),
    "a broken power": ("Pow ", lambda g, x: g("Pow", x, number(g, 0.5))),
    "a negative power": ("Pow ", lambda g, x: g("Pow", g("Abs", x), number(g, -1.0))),
    "a test for NaN": (
        "IsNaN ", lambda g, x: g("Where", g("IsNaN", x), number(g, 0.0), x)),
    "an unknown operator": (
        "Opaque ",
        lambda g, x: g("Relu", *g.opaque("Own", x, outputs=(TensorType("float32", (4, 4)),))),
    ),
    "a padded quotient": (
        "Div ",
        lambda g, x: g(
            "Div",
            g.weight(6, 4),
            g("Pad", g("Exp", x), pads=(1, 0, 1, 0), value=0.0),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("build", FINITE.values(), ids=FINITE)
def test_what_is_finite_for_finite_inputs(build: Build) -> None:
    g = GraphMaker()
    assert source_of_infinities(g.graph(build(g, g.input("x", 4, 4)))) == ""


@pytest.mark.parametrize(("said", "build"), INFINITE.values(), ids=INFINITE)
def test_what_may_be_infinite(said: str, build: Build) -> None:
    g = GraphMaker()
    found = source_of_infinities(g.graph(build(g, g.input("x", 4, 4))))
    assert found.startswith(said)


def test_an_input_that_is_only_added_before_a_softmax_is_a_mask() -> None:
    def found(is_used: bool) -> str:
        g = GraphMaker()
        x, m = g.input("x", 4, 4), g.input("m", 4, 4)
        scores = g("Softmax", g("Add", g("MatMul", x, x), g("Transpose", m, perm=(1, 0))), axis=1)
        return source_of_infinities(g.graph(scores, *([g("Relu", m)] if is_used else [])))

    assert found(is_used=False) == "the mask 'm'"
    assert found(is_used=True) == ""
