"""Lists of passes: each row runs in its classes, finds its cases, and finds nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx.parser
import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import NORMAL_FORM
from eqsat_opt.ir.passes.protocol import Pass, run_passes, since, up_to
from eqsat_opt.ir.passes.simplification.case import SimplificationCase
from eqsat_opt.ir.passes.simplification.draft import Draft
from eqsat_opt.ir.passes.simplification.simplify import CASES, simplify
from eqsat_opt.ir.passes.storage_form import SMALLEST_FORM, STORAGE_FORM
from eqsat_opt.lab.testing import GraphMaker

LISTS = {"normal": NORMAL_FORM, "storage": STORAGE_FORM, "smallest": SMALLEST_FORM}
ROWS = [pytest.param(one, id=f"{name}-{one.name}") for name in LISTS for one in LISTS[name]]

F32 = np.float32


# ** running a list **


def named(name: str) -> Callable[[Graph], Graph]:
    """A pass that leaves a trace, unless it ran last."""

    def run(graph: Graph) -> Graph:
        trace = graph.outputs[0]
        return graph if trace.endswith(name) else replace(graph, outputs=(trace + name,))

    return run


def trace(*passes: Pass, numerics: Numerics = Numerics.REFACTOR) -> str:
    return run_passes(passes, Graph((), ("",), (), {}, {}), numerics).outputs[0]


def test_passes_run_in_order_and_in_their_classes() -> None:
    rows = (
        Pass("a", named("a")),
        Pass("b", named("b"), since(Numerics.REFACTOR)),
        Pass("c", named("c"), up_to(Numerics.REASSOCIATE)),
    )
    assert [trace(*rows, numerics=one) for one in Numerics] == ["ac", "ac", "a", "ab", "ab"]


def test_a_pass_runs_again_only_after_a_change() -> None:
    calls = []

    def run(graph: Graph) -> Graph:
        calls.append(graph)
        return replace(graph)

    counted, nothing = Pass("counted", run), Pass("nothing", lambda graph: graph)
    assert (trace(counted, nothing, counted), len(calls)) == ("", 1)
    assert (trace(counted, Pass("a", named("a")), counted), len(calls)) == ("a", 3)


def test_classes_are_intervals() -> None:
    assert since(Numerics.BITEXACT) == up_to(Numerics.RELAXED) == frozenset(Numerics)
    assert since(Numerics.RELAXED) == {Numerics.RELAXED}
    assert up_to(Numerics.BITEXACT) == {Numerics.BITEXACT}


# ** rows of lists **


def convolved(op: str) -> Graph:
    """A convolution, and an operator with constants after it."""
    g = GraphMaker()
    y = g.conv(g.input("x", 1, 2, 4, 4), g.weight(3, 2, 1, 1))
    if op == "BatchNormalization":
        ones = g.constant(np.ones(3, F32))
        return g.graph(g(op, y, g.weight(3), g.weight(3), ones, ones, epsilon=1e-5))
    return g.graph(g(op, y, g.weight(3, 1, 1)))


def infinite() -> Graph:
    g = GraphMaker()
    return g.graph(g("Mul", g.input("x", 2), g.constant(np.array([1, np.inf], F32))))


def biased() -> Graph:
    g = GraphMaker()
    return g.graph(g("Add", g("MatMul", g.input("x", 2, 3), g.weight(3, 4)), g.weight(4)))


def turned() -> Graph:
    """A constant that is read plain and transposed."""
    g = GraphMaker()
    x, w = g.input("x", 32, 32), g.weight(32, 32)
    return g.graph(g("Add", g("Mul", x, w), g("Transpose", w, perm=(1, 0))))


CHANGED: dict[str, Callable[[], Graph]] = {
    "simplify": turned,
    "batch-normalisation": partial(convolved, "BatchNormalization"),
    "affine": partial(convolved, "Mul"),
    "infinite-products": infinite,
    "gemms": biased,
    "unfolding": lambda: simplify(turned(), Numerics.REFACTOR),
}
"""A graph that each pass changes."""


def test_each_pass_has_an_example() -> None:
    assert {one.name for rows in LISTS.values() for one in rows} == CHANGED.keys()


@pytest.mark.parametrize("row", ROWS)
def test_a_pass_changes_its_example_once(row: Pass) -> None:
    graph = CHANGED[row.name]()
    before = str(graph)
    once = row.run(graph)
    assert str(once) != before == str(graph)
    assert str(row.run(once)) == str(once)


@pytest.mark.parametrize("row", ROWS)
def test_a_pass_numbers_its_cases(row: Pass) -> None:
    function = row.run.func if isinstance(row.run, partial) else row.run
    assert re.search(r"^ *1\. .*^ *2\. ", function.__doc__ or "", re.DOTALL | re.MULTILINE)


# ** cases of the simplification **


def applied(op: str, *constants: Any, **attrs: Any) -> Graph:
    """An operator on constants and on inputs of 2 x 2 elements; a text names an input."""
    g = GraphMaker()
    names = {one: g.input(one, 2, 2) for one in constants if isinstance(one, str)}
    operands = [names[one] if isinstance(one, str) else g.constant(one) for one in constants]
    return g.graph(g(op, *operands, **attrs))


def expanded(second: tuple[int, ...]) -> Graph:
    g = GraphMaker()
    x, y = g.input("x", 1, 2), g.input("y", *second)
    return g.graph(g("Add", g("Expand", x, shape=(2, 2)), y))


def twice(op: str) -> Graph:
    g = GraphMaker()
    x, y = g.input("x", 2, 2), g.input("y", 2, 2)
    first, second = g(op, x, y), g(op, y, x)
    return g.graph(first, second)


def opaque(node: str) -> Graph:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 2] x) => (float[2, 2] y)'
    weights = "<float[2, 2] w = {1, 0, 0, 1}, int8[2, 2] q = {1, 0, 0, 1}, float s = {2}>"
    return import_model(load_model(onnx.parser.parse_model(f"{head} {weights} {{ {node} }}")))


ONE, ZERO = np.ones((), F32), np.zeros((), F32)
WHOLE, PART, ROW = np.ones((2, 2), bool), np.eye(2, dtype=bool), np.array([1, 2], F32)

CASE_EXAMPLES: dict[str, tuple[Graph, object, Graph]] = {
    "expansion": (expanded((2, 2)), ("x", "y"), expanded((1, 2))),
    "identity": (opaque("y = Identity (x)"), "x", opaque("y = Hardmax (x)")),
    "no-effect": (
        applied("Transpose", "x", perm=(0, 1)), "x", applied("Transpose", "x", perm=(1, 0))
    ),
    "neutral-element": (applied("Mul", ONE, "x"), "x", applied("Add", "x", ZERO)),
    "zero": (applied("Add", "x", ZERO), "x", applied("Add", "x", ONE)),
    "chosen-branch": (applied("Where", WHOLE, "x", "y"), "x", applied("Where", PART, "x", "y")),
    "expanded-branch": (
        applied("Where", ~WHOLE, "x", ONE), np.ones((2, 2)), applied("Where", ~WHOLE, "x", ROW)
    ),
    "constant": (applied("Neg", ROW), -ROW, applied("Neg", "x")),
    "rounded-constant": (applied("Exp", 0 * ROW), np.ones(2), applied("Exp", "x")),
    "opaque-constant": (
        opaque("y = Hardmax (w)"), np.eye(2), opaque("y = DequantizeLinear (q, s)")
    ),
    "common-subexpression": (twice("Add"), "v0", twice("Sub")),
}  # fmt: skip
"""A graph, the value that the case finds for its last node, and a graph where it finds nothing."""


def found_by(case: SimplificationCase, graph: Graph) -> list[object]:
    """What the case finds for each node: a name, operands, or the elements of a constant."""
    draft, results = Draft(graph), list[object]()
    for node in graph.nodes:
        found = case.find(node, draft) if node.op in case.ops else None
        if isinstance(found, Node):
            results.append(found.inputs)
        elif found is None or isinstance(found, str):
            results.append(found)
        else:
            results.append([one.load().tolist() for one in found if one is not None])
    return results


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_finds_its_example_and_no_other(case: SimplificationCase) -> None:
    graph, expected, other = CASE_EXAMPLES[case.name]
    *_, found = found_by(case, graph)
    assert found == ([expected.tolist()] if isinstance(expected, np.ndarray) else expected)
    assert set(found_by(case, other)) == {None}


def test_each_case_has_an_example() -> None:
    assert [case.name for case in CASES] == [*CASE_EXAMPLES]


@pytest.mark.parametrize("name", ["zero", "rounded-constant", "opaque-constant"])
def test_a_case_is_one_of_its_classes_only(name: str) -> None:
    graph, classes = CASE_EXAMPLES[name][0], [one.classes for one in CASES if one.name == name]
    changed = {one for one in Numerics if str(simplify(graph, one)) != str(graph)}
    assert [changed] == classes
