"""Bodies of If, Loop and Scan, and functions: entered, typed, optimised, with the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest

from eqsat_opt.api import run
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.bodies import importer as import_bodies
from eqsat_opt.ir.onnx.bodies import models as bodies
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.importer import import_model, load_model
from eqsat_opt.ir.passes.body_flops import body_flops
from eqsat_opt.ir.passes.conditions import folded_conditions, import_decided
from eqsat_opt.ir.passes.new_bodies import bodies_in, with_new_bodies
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.pipeline import inner_models
from eqsat_opt.pipeline.options import Options

FAST = Options(store="", measure=False, race=False, check=1, strict=True, threads=1)


def parsed(body: str, head: str = "", functions: str = "") -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 18{head}]>\n{body}\n{functions}'
    return onnx.parser.parse_model(text)


def imported(model: onnx.ModelProto) -> Graph:
    return normalise(import_model(load_model(model)))


def kinds(graph: Graph) -> list[str]:
    return [node.payload.op_type if node.op == OPAQUE else node.op for node in graph.nodes]


def outputs(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return list(
        onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, dict(feeds))
    )


def require_equal(model: onnx.ModelProto, graph: Graph, *feeds: Mapping[str, Any]) -> None:
    """Run a model and the export of its graph on the same data."""
    proto = model_proto(export_model(graph))
    onnx.checker.check_model(proto)
    for one in feeds:
        for left, right in zip(outputs(model, one), outputs(proto, one), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)
            assert left.shape == right.shape
            assert left.dtype == right.dtype


def with_clean_bodies(graph: Graph, depth: int = 0) -> Graph:
    """The graph with every body in normal form, at any depth."""
    clean = {place: normalise(body) for place, body in bodies_in(graph).items()}
    assert depth < 5
    models = {
        place: export_model(with_clean_bodies(body, depth + 1)) for place, body in clean.items()
    }
    return with_new_bodies(graph, models)


def rows(*sizes: int, **more: Any) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"x": random.normal(size=(n, 4)).astype(np.float32), **more} for n in sizes]


BRANCHES = """<then_branch = a () => (float[N, 4] r) { s = Relu(x) r = Mul(s, w) },
    else_branch = b () => (float[N, 4] r) { s = Exp(x) r = Neg(s) }>"""


@pytest.mark.parametrize(("value", "inside"), [(1, ["Relu", "Mul"]), (0, ["Exp", "Neg"])])
def test_a_branch_of_a_constant_condition_enters(value: int, inside: list[str]) -> None:
    model = parsed(
        f"g (float[N, 4] x) => (float[N, 4] y) <bool c = {{{value}}}, float[4] w = {{1, 2, 3, 4}}>"
        f"{{ y = If (c) {BRANCHES} }}"
    )
    graph = imported(model)
    assert kinds(graph) == inside
    require_equal(model, graph, *rows(0, 1, 3))


@pytest.mark.parametrize("size", [1, 4])
def test_a_condition_that_shapes_tell(size: int) -> None:
    """PyTorch's squeeze(1) of a size that the exporter did not look at."""
    result = "float[N] y" if size == 1 else f"float[N, {size}] y"
    model = parsed(f"""g (float[N, {size}] x) => ({result}) {{
        s = Shape (x)  one = Constant <value = int64[1] {{1}}> ()  n = Gather (s, one)
        c = Equal (n, one)
        z = If (c) <then_branch = a () => (r) {{
                rest = Constant <value = int64[1] {{-1}}> ()  r = Reshape (x, rest) }},
            else_branch = b () => (t) {{ t = Identity (x) }}>
        y = Relu (z) }}""")
    graph = imported(model)
    assert "If" not in kinds(graph)
    assert "Relu" in [node.op for node in graph.nodes]
    feeds = [{"x": np.ones((n, size), np.float32)} for n in (0, 1, 2)]
    require_equal(model, graph, *feeds)


def test_a_condition_that_only_folding_tells() -> None:
    model = parsed(
        """g (float[N, 4] x) => (float[N, 4] y)
        <float[2] v = {1, 2}, float zero = {0}, float[4] w = {1, 2, 3, 4}> {
        m = ReduceMean <keepdims = 0> (v)  c = Greater (m, zero)  y = If (c) """
        + BRANCHES
        + "}"
    )
    loaded = load_model(model)
    assert folded_conditions(normalise(import_model(loaded))) == {"c": True}
    imported, clean = import_decided(loaded, normalise, exact=False)
    assert "If" not in kinds(imported)
    assert clean is not None
    assert kinds(clean) == ["Relu", "Mul"]
    require_equal(model, clean, *rows(0, 2))
    result = run(model, FAST)
    assert "If" not in result.report.operators_after


def test_names_inside_that_others_have_too() -> None:
    """Both branches, the graph behind and a nested branch use one name; tensors keep theirs."""
    model = parsed("""g (float[N, 4] x, bool c) => (float[N, 4] y) <bool t = {1}> {
        q = If (t) <then_branch = a () => (float[N, 4] r) <float[4] v = {5, 6, 7, 8}> {
                k = Add (x, v)
                r = If (c) <then_branch = aa () => (float[N, 4] m) { m = Mul (k, v) },
                    else_branch = ab () => (float[N, 4] n) { h = Mul (k, k) n = Add (h, v) }> },
            else_branch = b () => (float[N, 4] r) <float[4] v = {0, 0, 0, 1}> {
                k = Sub (x, v) r = Mul (k, k) }>
        m = Relu (q)
        y = If (c) <then_branch = d () => (float[N, 4] r) { k = Neg (m) r = Exp (k) },
            else_branch = e () => (float[N, 4] r) { k = Exp (m) r = Neg (k) }> }""")
    loaded = load_model(model)
    before = model_proto(loaded).SerializeToString()
    graph = normalise(import_model(loaded))
    feeds = [one for c in (True, False) for one in rows(0, 1, 3, c=np.array(c))]
    require_equal(model, graph, *feeds)
    require_equal(model, with_clean_bodies(graph), *feeds)
    assert model_proto(loaded).SerializeToString() == before


def test_equal_branches_are_one() -> None:
    model = parsed("""g (float[N, 4] x, bool c) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> {
        y = If (c) <then_branch = a () => (float[N, 4] r) { s = Mul (x, w) r = Relu (s) },
            else_branch = b () => (float[N, 4] q)
                { i = Identity (x) t = Mul (w, i) q = Relu (t) }> }""")
    graph = imported(model)
    assert kinds(graph) == ["Mul", "Relu"]
    require_equal(model, graph, *(f for c in (True, False) for f in rows(0, 2, c=np.array(c))))


@pytest.mark.parametrize(
    "second", ["q = Mul (x, v)", "q = Add (x, w)", "i = Neg (w) q = Mul (x, i)"]
)
def test_branches_that_differ_stay(second: str) -> None:
    model = parsed(f"""g (float[N, 4] x, bool c) => (float[N, 4] y)
        <float[4] w = {{1, 2, 3, 4}}, float[4] v = {{1, 2, 3, 5}}> {{
        y = If (c) <then_branch = a () => (float[N, 4] r) {{ r = Mul (x, w) }},
            else_branch = b () => (float[N, 4] q) {{ {second} }}> }}""")
    assert kinds(imported(model)) == ["If"]


def test_random_branches_stay() -> None:
    branch = "{ r = RandomNormal <shape = [2, 4]> () }"
    model = parsed(f"""g (float[2, 4] x, bool c) => (float[2, 4] y) {{
        y = If (c) <then_branch = a () => (float[2, 4] r) {branch},
            else_branch = b () => (float[2, 4] r) {branch}> }}""")
    assert kinds(imported(model)) == ["If"]


def test_results_of_an_if_have_the_type_that_both_branches_give() -> None:
    model = parsed("""g (float[N, 4] x, bool c) => (float[A, 4] y, float[B, 4] z) {
        y, z = If (c) <then_branch = a () => (r, s) { r = Relu (x) s = Concat <axis = 0> (x, x) },
            else_branch = b () => (t, u) { t = Exp (x) u = Neg (x) }> }""")
    types = imported(model).types
    assert str(types["y"]) == "float32[N,4]"
    assert str(types["z"]) == "float32[?z.0,4]"


LOOP = """g (float[N, 4] x, int64 trips, bool go) => (float[N, 4] y, float[K, N, 4] z)
    <float[4, 4] w = {1, 2, 3, 4, 0, 1, 0, 1, 2, 1, 0, 0, 1, 1, 1, 1}> {
    b = Relu (x)
    y, z = Loop (trips, go, x) <body = l (int64 i, bool c, float[N, 4] h)
        => (bool d, float[N, 4] n, float[N, 4] s) {
            d = Identity (c)
            p = MatMul (h, w)
            q = Mul (p, p)
            k = Identity (q)
            s = Add (k, b)
            n = Tanh (s) }> }"""


def loop_feeds() -> list[dict[str, Any]]:
    return [
        {**one, "trips": np.array(trips), "go": np.array(go)}
        for trips in (0, 1, 3)
        for go in (True, False)
        for one in rows(0, 1, 2)
    ]


def test_a_loop_is_typed_and_its_body_put_back() -> None:
    model = parsed(LOOP)
    graph = imported(model)
    assert str(graph.types["y"]) == "float32[N,4]"
    assert str(graph.types["z"]) == "float32[?z.2,N,4]"
    again = with_clean_bodies(graph)
    (node,) = [node for node in again.nodes if node.op == OPAQUE]
    body = node.payload.attributes["body"].as_graph()
    assert len(body) == 5  # an Identity less
    assert not body.initializers  # weights stay where they are
    assert set(node.captures) == {"b", "w"}
    require_equal(model, again, *loop_feeds())


def test_a_state_that_grows_has_an_open_size() -> None:
    model = parsed("""g (float[N, 4] x, int64 trips) => (float[A, 4] y) {
        none = Constant <value = bool {1}> ()
        y = Loop (trips, none, x) <body = l (int64 i, bool c, h) => (bool d, n) {
            d = Identity (c)  n = Concat <axis = 0> (h, x) }> }""")
    graph = imported(model)
    assert str(graph.types["y"]) == "float32[?y.0,4]"
    feeds = [{**one, "trips": np.array(t)} for t in (0, 1, 2) for one in rows(0, 1, 2)]
    require_equal(model, with_clean_bodies(graph), *feeds)


@pytest.mark.parametrize(("trips", "expected"), [(2, "float32[N,4]"), (0, None)])
def test_what_a_loop_carries_may_begin_as_something_else(trips: int, expected: str | None) -> None:
    """Exporters write a placeholder of another rank where the first iteration gives the value."""
    model = parsed(f"""g (float[N, 4] x) => (float[A, B] z) <int64 trips = {{{trips}}},
        bool go = {{1}}, float nothing = {{0}}> {{
        y = Loop (trips, go, nothing) <body = l (int64 i, bool c, h) => (bool d, n) {{
            d = Identity(c) t = Cast <to = 1> (i) n = Add(x, t)
        }}>
        z = Relu(y)
    }}""")
    graph = imported(model)
    assert kinds(graph)[-1] == "Relu"
    assert graph.nodes[-1].op == ("Relu" if expected else OPAQUE)
    if expected:
        assert str(graph.types["z"]) == expected
        require_equal(model, graph, *rows(0, 1, 3))


def test_the_length_of_a_loop_that_runs_so_often() -> None:
    model = parsed("""g (float[N, 4] x) => (float[A, 4] y, float[T, A, 4] z) {
        trips = Constant <value = int64 {3}> ()  go = Constant <value = bool {1}> ()
        y, z = Loop (trips, go, x) <body = l (int64 i, bool c, h) => (bool d, n, s) {
            d = Identity (c)  n = Relu (h) s = Neg (h) }> }""")
    graph = imported(model)
    assert str(graph.types["z"]) == "float32[3,N,4]"
    require_equal(model, with_clean_bodies(graph), *rows(0, 2))


@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_is_typed_and_its_body_put_back(direction: int) -> None:
    model = parsed(f"""g (float[B, T, 4] x, float[B, 4] h) => (float[B, 4] y, float[B, T, 4] z)
        <float[4] w = {{1, 2, 3, 4}}> {{
        y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-2],
                scan_input_directions = [{direction}], scan_output_directions = [{direction}],
                body = l (float[B, 4] s, float[B, 4] e) => (float[B, 4] n, float[B, 4] o) {{
                    m = Mul (e, w)  k = Identity (m)  a = Add (k, s)  n = Tanh (a)
                    o = Neg (a) }}> (h, x) }}""")
    graph = imported(model)
    assert str(graph.types["y"]) == "float32[B,4]"
    assert str(graph.types["z"]) == "float32[B,T,4]"
    random = np.random.default_rng(1)
    feeds = [
        {
            "x": random.normal(size=(b, t, 4)).astype(np.float32),
            "h": np.ones((b, 4), np.float32),
        }
        for b in (1, 2)
        for t in (1, 5)
    ]
    require_equal(model, with_clean_bodies(graph), *feeds)


def test_bodies_in_bodies() -> None:
    model = parsed("""g (float[N, 4] x, int64 trips, bool c) => (float[N, 4] y)
        <float[4] w = {1, 2, 3, 4}, bool t = {1}> {
        y = Loop (trips, c, x) <body = l (int64 i, bool g, float[N, 4] h)
            => (bool d, float[N, 4] n) {
            d = Identity (g)
            e = If (t) <then_branch = a () => (float[N, 4] r) { s = Mul (h, w) r = Tanh (s) },
                else_branch = b () => (float[N, 4] r) { r = Neg (h) }>
            n = If (g) <then_branch = aa () => (float[N, 4] r) { s = Mul (e, w) r = Tanh (s) },
                else_branch = ab () => (float[N, 4] r) { r = Add (x, w) }> }> }""")
    graph = imported(model)
    again = with_clean_bodies(graph)
    (node,) = [node for node in again.nodes if node.op == OPAQUE]
    inside = [one.op_type for one in node.payload.attributes["body"].as_graph()]
    assert inside.count("If") == 1
    feeds = [
        {**one, "trips": np.array(n), "c": np.array(c)}
        for n in (0, 1, 2)
        for c in (True, False)
        for one in rows(0, 2)
    ]
    require_equal(model, again, *feeds)


FUNCTIONS = """
<domain: "f", opset_import: ["" : 18]>
foo <alpha: float = 0.25> (a, c) => (b) {
  t = LeakyRelu <alpha: float = @alpha> (a)
  b = If (c) <then_branch = tb () => (float[N, 4] r) { k = Relu (t) r = Neg (k) },
      else_branch = eb () => (float[N, 4] r) { k = Abs (t) r = Elu <alpha: float = @alpha> (k) }> }
<domain: "f", opset_import: ["" : 18, "f" : 1]>
twice (a, c) => (b, d) { d = f.foo (a, c)  b = Exp (d) }
<domain: "f", opset_import: ["" : 18]>
name (a) => (b) { b = Identity (a) }
<domain: "f", opset_import: ["" : 18]>
idle (a) => (b) { b = Relu (a) }
"""


def test_functions_are_inlined_where_operators_are_known() -> None:
    model = parsed(
        """g (float[N, 4] x, bool c) => (float[N, 4] y, float[N, 4] z, float[N, 4] p, float[N, 4] t)
        {
        y = f.foo <alpha = 0.5> (x, c)
        z, unread = f.twice (y, c)
        p = f.name (x)
        t = If (c) <then_branch = a () => (float[N, 4] k) { k = f.foo (x, c) },
            else_branch = b () => (float[N, 4] r) { k = Abs (x) r = Exp (k) }> }""",
        ', "f" : 1',
        FUNCTIONS,
    )
    model.graph.node[1].output[1] = ""
    loaded = load_model(model)
    before = model_proto(loaded).SerializeToString()
    graph = normalise(import_model(loaded))
    assert [node.op for node in graph.nodes if node.op != OPAQUE].count("LeakyRelu") == 2
    assert [function.name for function in export_model(graph).functions.values()] == ["name"]
    feeds = [one for c in (True, False) for one in rows(0, 1, 3, c=np.array(c))]
    require_equal(model, graph, *feeds)
    require_equal(model, with_clean_bodies(graph), *feeds)
    assert model_proto(loaded).SerializeToString() == before


def test_a_function_that_returns_an_input_keeps_the_interface() -> None:
    model = parsed(
        "g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) { y, z = f.pass (x) }",
        ', "f" : 1',
        '<domain: "f", opset_import: ["" : 18]> pass (a) => (b, c) { b = Relu (a) c = Neg (b) }',
    )
    model.functions[0].output[1] = "b"
    graph = imported(model)
    assert graph.inputs == ("x",)
    assert graph.outputs == ("y", "z")
    exported = model_proto(export_model(graph))
    for feeds in rows(0, 2):
        expected = np.maximum(feeds["x"], 0)
        for found in outputs(exported, feeds):
            np.testing.assert_array_equal(found, expected)


def test_functions_of_another_operator_set_stay() -> None:
    model = parsed(
        "g (float[N, 4] x) => (float[N, 4] y) { y = f.old (x) }",
        ', "f" : 1',
        '<domain: "f", opset_import: ["" : 17]> old (a) => (b) { b = Relu (a) }',
    )
    graph = imported(model)
    assert kinds(graph) == ["old"]
    require_equal(model, graph, *rows(0, 2))


CHOICE = """g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> {
    y = If (c) <then_branch = a () => (float[2, 4] r)
            { i = Identity (x) s = Mul (i, w) t = Mul (i, w) u = Add (s, t) r = Tanh (u) },
        else_branch = b () => (float[2, 4] q)
            { s = Exp (x) i = Identity (s) t = Exp (x) q = Add (t, i) }> }"""


def test_branches_are_optimised_with_what_they_read() -> None:
    model = parsed(CHOICE)
    result = run(model, FAST)
    assert not result.report.warnings
    (node,) = [one for one in result.model.graph.node if one.op_type == "If"]
    sizes = {attribute.name: len(attribute.g.node) for attribute in node.attribute}
    assert sizes["then_branch"] < 5
    assert sizes["else_branch"] < 4
    for c in (True, False):
        for feeds in rows(2, c=np.array(c)):
            left, right = outputs(model, feeds), outputs(result.model, feeds)
            np.testing.assert_allclose(left[0], right[0], rtol=1e-5)


def test_a_body_that_fails_costs_itself() -> None:
    graph = imported(parsed(CHOICE))

    def improve(
        model: onnx_ir.Model, name: str, _shapes: object, _deadline: Deadline
    ) -> tuple[onnx_ir.Model, None] | None:
        if name.startswith("then"):
            return None
        return export_model(normalise(import_model(model))), None

    found = inner_models.with_better_bodies(graph, improve, {}, Deadline.after(100))
    assert [name.partition(" ")[0] for name in found.better] == ["else_branch"]
    require_equal(
        parsed(CHOICE), found.graph, *(f for c in (True, False) for f in rows(2, c=np.array(c)))
    )


def test_an_error_in_a_body_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat_opt.pipeline import optimise as optimising

    real = optimising.optimise

    def failing(model: Any, name: str, *rest: Any, **more: Any) -> Any:
        if " of " in name:
            raise ZeroDivisionError("in a body")
        return real(model, name, *rest, **more)

    monkeypatch.setattr(optimising, "optimise", failing)
    result = run(parsed(CHOICE), Options(**{**vars(FAST), "strict": False}))
    assert any("bodies" in warning and "stay" in warning for warning in result.report.warnings)


def test_no_time_for_bodies_is_said() -> None:
    graph = imported(parsed(CHOICE))
    found = inner_models.with_better_bodies(
        graph, lambda *_: pytest.fail("called"), {}, Deadline.after(0.1)
    )
    assert found.graph is graph
    assert len(found.late) == 2


def test_operations_in_bodies_count() -> None:
    """Of an If the larger branch; of a loop every iteration that is known."""
    choice = parsed("""g (float[2, 4] x, bool c) => (float[2, 4] y)
        <float[4, 4] w = {1, 2, 3, 4, 0, 1, 0, 1, 2, 1, 0, 0, 1, 1, 1, 1}> {
        y = If (c) <then_branch = a () => (float[2, 4] r) { s = MatMul (x, w) r = MatMul (s, w) },
            else_branch = b () => (float[2, 4] r) { r = MatMul (x, w) }> }""")
    product = 2 * 2 * 4 * 4
    assert body_flops(imported(choice), {}) == 2 * product
    loop = """g (float[2, 4] x, int64 n) => (float[2, 4] y)
        <float[4, 4] w = {1, 2, 3, 4, 0, 1, 0, 1, 2, 1, 0, 0, 1, 1, 1, 1}> {
        trips = Constant <value = int64 {3}> ()  go = Constant <value = bool {1}> ()
        y = Loop (TRIPS, go, x) <body = l (int64 i, bool c, float[2, 4] h)
            => (bool d, float[2, 4] m) { d = Identity (c)  m = MatMul (h, w) }> }"""
    assert body_flops(imported(parsed(loop.replace("TRIPS", "trips"))), {}) == 3 * product
    assert body_flops(imported(parsed(loop.replace("TRIPS", "n"))), {}) == product
    before = run(choice, FAST).report.metrics_before
    assert before["flops"] == 2 * product


def test_what_a_loop_carries_unchanged_is_read_from_outside() -> None:
    """Weights through every iteration, as Keras hands them on; one of them reads another's name."""
    model = parsed("""g (float[N, 4] x, int64 trips, bool go, float[4] v)
        => (float[N, 4] y, float[4, 4] same, float[4] also, float[K, 4] z)
        <float[4, 4] w = {1, 2, 3, 4, 0, 1, 0, 1, 2, 1, 0, 0, 1, 1, 1, 1}> {
        y, same, also, z = Loop (trips, go, x, w, v)
            <body = l (int64 i, bool c, float[N, 4] h, float[4, 4] m, float[4] b)
            => (bool d, float[N, 4] n, float[4, 4] k, float[4] a, float[4] s) {
                d = Identity (c)
                p = MatMul (h, m)
                q = If (c) <then_branch = tb () => (float[N, 4] r) { r = Add (p, b) },
                    else_branch = eb () => (float[N, 4] r) { r = Mul (p, b) }>
                n = Tanh (q)
                e = Identity (m)
                k = Identity (e)
                a = Identity (b)
                s = Identity (b) }> }""")
    graph = imported(model)
    (node,) = [one for one in graph.nodes if one.op == OPAQUE and one.payload.op_type == "Loop"]
    assert len(node.inputs) == 3
    assert set(node.captures) == {"w", "v"}
    feeds = [{**one, "v": np.ones(4, np.float32)} for one in loop_feeds()]
    require_equal(model, graph, *feeds)
    require_equal(model, with_clean_bodies(graph), *feeds)


def test_values_that_change_places_are_carried() -> None:
    model = parsed("""g (float[N, 4] x, int64 trips, bool go)
        => (float[N, 4] y, float[N, 4] z) {
        b = Relu (x)
        y, z = Loop (trips, go, x, b) <body = l (int64 i, bool c, float[N, 4] h, float[N, 4] m)
            => (bool d, float[N, 4] n, float[N, 4] k) {
                d = Identity (c)  n = Identity (m)  k = Identity (h) }> }""")
    graph = imported(model)
    (node,) = [one for one in graph.nodes if one.op == OPAQUE]
    assert len(node.inputs) == 4
    require_equal(model, graph, *loop_feeds())


def test_a_loop_that_changes_nothing_keeps_a_result() -> None:
    model = parsed("""g (float[N, 4] x, int64 trips, bool go) => (float[N, 4] y) {
        y = Loop (trips, go, x) <body = l (int64 i, bool c, float[N, 4] h)
            => (bool d, float[N, 4] n) { d = Identity (c)  n = Identity (h) }> }""")
    require_equal(model, imported(model), *loop_feeds())


def test_functions_that_would_become_very_many_nodes_stay() -> None:
    """Each calls the next one twice, so that the last is called 2**40 times."""
    made = [
        f'<domain: "f", opset_import: ["" : 18, "f" : 1]> f{i} (a) => (c) '
        f"{{ b = f.f{i + 1} (a) c = f.f{i + 1} (b) }}"
        for i in range(40)
    ]
    last = '<domain: "f", opset_import: ["" : 18]> f40 (a) => (b) { b = Relu (a) }'
    model = parsed(
        "g (float[N, 4] x) => (float[N, 4] y) { y = f.f0 (x) }",
        ', "f" : 1',
        "\n".join([*made, last]),
    )
    assert kinds(imported(model)) == ["f0"]


def test_functions_of_the_domain_of_a_runtime_stay() -> None:
    model = parsed(
        "g (float[N, 4] x) => (float[N, 4] y) { y = com.microsoft.QuickGelu (x) }",
        ', "com.microsoft" : 1',
        '<domain: "com.microsoft", opset_import: ["" : 18]> QuickGelu (a) => (b) '
        "{ s = Sigmoid (a) b = Mul (a, s) }",
    )
    assert kinds(imported(model)) == ["QuickGelu"]


def test_bodies_are_read_once_at_each_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{ r0 = Relu (x) }"
    for depth in range(1, 12):
        text = (
            f"{{ r{depth} = If (c) <then_branch = a () => (float[N, 4] r{depth - 1}) {text}, "
            f"else_branch = b () => (float[N, 4] e{depth}) {{ e{depth} = Exp (x) }}> }}"
        )
    model = parsed(f"g (float[N, 4] x, bool c) => (float[N, 4] r11) {text}")
    read: list[onnx_ir.Graph] = []
    real = bodies.body_model

    def counting(graph: onnx_ir.Graph, *rest: Any) -> onnx_ir.Model | None:
        read.append(graph)
        return real(graph, *rest)

    monkeypatch.setattr(import_bodies, "body_model", counting)
    graph = import_model(load_model(model))
    assert str(graph.types["r11"]) == "float32[N,4]"
    assert len(read) == 22


def test_what_the_runtime_takes_behind_a_branch_only_stays_there() -> None:
    """It lets Range read a vector of one element where it does not know that; nothing is run."""
    model = parsed("""
        g (float[M] x) => (float[N] y)
        <int64 one = {1}, int64 scalar = {0}, int64 last = {4}, int64 step = {1},
         int64[1] vector = {0}>
        {
            s = Shape(x)
            rank = Size(s)
            c = Equal(rank, one)
            first = If (c) <
                then_branch = then () => (int64[1] t) { t = Identity(vector) },
                else_branch = other () => (int64 e) { e = Identity(scalar) }
            >
            r = Range(first, last, step)
            f = Cast <to: int = 1> (r)
            y = Add(x, f)
        }
    """)
    feeds = {"x": np.ones(4, np.float32)}
    expected = outputs(model, feeds)
    result = run(model, Options(store="", measure=False, race=False, check=0, threads=1))
    np.testing.assert_array_equal(outputs(result.model, feeds)[0], expected[0])


def squeezed_or_not(reader: str) -> onnx.ModelProto:
    """A value loses its last axis if that has one element; what reads it comes behind."""
    return parsed(
        f"""g (float[N, 4, S] x) => (float[M, 3] y)
        <float[4, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
         int64[1] one = {{1}}, int64[1] last = {{2}}, float[1, 3] three = {{0, 0, 0}}> {{
            s = Shape <start = 2> (x)
            c = Equal (s, one)
            z = If (c) <
                then_branch = then () => (float[?, 4] t) {{ t = Squeeze (x, last) }},
                else_branch = other () => (float[?, 4, ?] e) {{ e = Identity (x) }}
            >
            {reader}
        }}"""
    )


def decided(model: onnx.ModelProto) -> Graph:
    _, clean = import_decided(load_model(model), normalise, exact=False)
    assert clean is not None
    return clean


@pytest.mark.parametrize(
    "reader",
    [
        "r = Relu (z) y = Gemm (r, w)",
        """r = Shape (z) two = Constant <value_ints = [2]> () k = Size (r) d = Equal (k, two)
        y = If (d) <
            then_branch = flat () => (float[?, 3] f) { f = Gemm (z, w) },
            else_branch = deep () => (float[?, 3] g) { u = Neg (z) g = Gemm (u, w) }
        >""",
    ],
)
def test_a_branch_enters_if_the_model_could_not_run_with_the_other(reader: str) -> None:
    model = squeezed_or_not(reader)
    clean = decided(model)
    assert "If" not in kinds(clean)
    assert "Gemm" in {node.op for node in clean.nodes} or "MatMul" in kinds(clean)
    require_equal(model, clean, *[{"x": np.ones((n, 4, 1), np.float32)} for n in (0, 1, 2)])


@pytest.mark.parametrize(
    "reader",
    [
        # Nothing needs the product, and a runtime may leave it out.
        "dead = Gemm (z, w) r = ReduceSum <keepdims = 0> (z) y = Add (r, three)",
        # The product is behind a branch that need not be taken.
        """m = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> ()
        d = Less (m, zero)
        y = If (d) <
            then_branch = flat () => (float[?, 3] f) { f = Gemm (z, w) },
            else_branch = sum () => (float[1, 3] h) { h = Add (m, three) }
        >""",
    ],
)
def test_both_branches_stay_if_the_model_may_run_with_either(reader: str) -> None:
    model = squeezed_or_not(reader)
    clean = decided(model)
    assert "If" in kinds(clean)
    require_equal(model, clean, {"x": np.ones((2, 4, 1), np.float32)})
