"""Values that overlap in memory: parts of merged kernels that lie in concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.runtime.backends.cublaslt.launcher import are_aligned
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.runtime.planning.views import find_views

NHWC = Form("host", "nhwc")


def on_cuda(_node: Node) -> str:
    return "cuda"


def on_numpy(_node: Node) -> str:
    return "numpy"


def planned(graph: Graph, choose: Any = on_numpy, **options: Any) -> Plan:
    """A plan with channels innermost that computes what the graph does."""
    tensors = {name: constant.load for name, constant in graph.constants.items()}
    plan = make_plan(graph, tensors, choose, form_of=lambda name: NHWC, **options)
    constants = make_constants(plan, tensors)
    draw = np.random.default_rng(0)
    feeds = {
        port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype(np.float32)
        for port in plan.inputs
    }
    wanted = evaluate(graph, {name: x.astype(np.float64) for name, x in feeds.items()})
    for seed in range(3):
        found = interpret(plan, constants, feeds, seed)
        for port, want in zip(plan.outputs, wanted, strict=True):
            np.testing.assert_allclose(found[port.name], want, rtol=1e-5, atol=1e-5)
    return plan


def copies(plan: Plan) -> list[str]:
    return [one.reads[0] for one in plan.launches if not one.body.steps]


def merged(g: GraphMaker, x: str, sizes: Sequence[int]) -> list[str]:
    """Parts of one convolution with a bias and a Relu."""
    total, begin, parts = sum(sizes), 0, []
    weights = g.weight(total, g.shape(x)[1], 1, 1)
    whole = g("Relu", g.conv(x, weights, g.weight(total)))
    for size in sizes:
        parts.append(g("Slice", whole, axis=1, lo=begin, hi=begin + size))
        begin += size
    return parts


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_part_lies_where_a_concatenation_ends(part: int, place: int, batch: int) -> None:
    g = GraphMaker()
    parts = merged(g, g.input("x", batch, 3, 4, 4), [2, 3, 4])
    others = [g.conv(one, g.weight(5, g.shape(one)[1], 1, 1)) for one in parts]
    inside = [others[n] for n in range(3) if n != part]
    inside.insert(place, parts[part])
    plan = planned(g.graph(g("Concat", *inside, axis=1)))
    # In the middle it would lie on what others compute.
    assert copies(plan) == ([parts[part]] if place == 1 else [])
    assert any(" and " in one.name for one in plan.buffers) == (place != 1)


def test_both_ends_and_both_kernels() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 3, 4, 4)
    (a, b), (c, d) = merged(g, x, [2, 3]), merged(g, g("Tanh", x), [4, 5])
    middle = g("Add", g.conv(b, g.weight(4, 3, 1, 1)), c)
    plan = planned(g.graph(g("Concat", a, middle, d, axis=1)))
    assert copies(plan) == []
    # What both kernels and the concatenation lie in.
    (root,) = {plan.root_of(name).name for name in (b, c, middle)}
    assert plan.buffer_of[root].dims[1] == 3 + 2 + 4 + 5 + 4


def test_a_concatenation_within_another_one() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 3, 4, 4)
    a, b = merged(g, x, [2, 3])
    inner = g("Concat", a, g.conv(b, g.weight(4, 3, 1, 1)), axis=1)
    outer = g("Concat", inner, g.conv(inner, g.weight(1, 6, 1, 1)), axis=1)
    plan = planned(g.graph(outer))
    assert copies(plan) == []
    assert len({plan.root_of(name).name for name in (b, inner, outer)}) == 1


def test_parts_of_parts() -> None:
    g = GraphMaker()
    first, second = merged(g, g.input("x", 1, 3, 4, 4), [2, 7])
    left, right = (g("Slice", second, axis=1, lo=lo, hi=hi) for lo, hi in ((0, 3), (3, 7)))
    rest = g("Mul", g.conv(first, g.weight(4, 2, 1, 1)), right)
    plan = planned(g.graph(g("Concat", left, rest, axis=1)))
    assert copies(plan) == []


def test_one_part_in_two_concatenations_is_copied_into_one() -> None:
    g = GraphMaker()
    a, b = merged(g, g.input("x", 1, 3, 4, 4), [2, 3])
    one = g("Concat", a, g.conv(b, g.weight(4, 3, 1, 1)), axis=1)
    two = g("Concat", a, g("Tanh", b), axis=1)
    assert copies(planned(g.graph(one, two))) == [a]


def test_what_the_caller_reads_keeps_its_order() -> None:
    """The merged value is an output, so its channels stay where they are."""
    g = GraphMaker()
    a, b = merged(g, g.input("x", 1, 3, 4, 4), [2, 3])
    (whole,) = g.graph(a).nodes[-2].inputs
    joined = g("Concat", a, g.conv(b, g.weight(4, 3, 1, 1)), axis=1)
    assert copies(planned(g.graph(joined, whole))) == [a]


def test_what_has_other_operands_keeps_its_order() -> None:
    """A residual is no constant that can be put into another order."""
    g = GraphMaker()
    x = g.input("x", 1, 5, 4, 4)
    whole = g("Add", g.conv(x, g.weight(5, 5, 1, 1)), x)
    a, b = (g("Slice", whole, axis=1, lo=lo, hi=hi) for lo, hi in ((0, 2), (2, 5)))
    joined = g("Concat", a, g.conv(b, g.weight(4, 3, 1, 1)), axis=1)
    assert copies(planned(g.graph(joined))) == [a]


def test_products_have_channels_too() -> None:
    g = GraphMaker()
    x = g.input("x", 6, 3)
    whole = g("Relu", g("Add", g("MatMul", x, g.weight(3, 9)), g.weight(9)))
    a, b = (g("Slice", whole, axis=1, lo=lo, hi=hi) for lo, hi in ((0, 4), (4, 9)))
    joined = g("Concat", a, g("MatMul", b, g.weight(5, 2)), axis=1)
    assert copies(planned(g.graph(joined))) == []


def test_whoever_wants_values_packed_gets_them_so() -> None:
    """A kernel that knows no gaps reads the other part: sharing would cost it a copy."""
    g = GraphMaker()
    a, b = merged(g, g.input("x", 2, 3, 4, 4), [2, 3])
    whole = g.graph(a).nodes[1].output
    further = g.conv(b, g.weight(4, 3, 1, 1))
    joined = g("Concat", a, further, axis=1)
    nodes = g.graph(joined).nodes
    dims = {n: g.shape(n) for node in nodes for n in (*node.inputs, *node.outputs)}
    given = {"x", *g.graph(joined).constants}
    views = find_views(nodes, dims, {a, b, joined}, given, packed={whole})
    assert set(views.copies.values()) == {f"{joined}[0]"}
    views = find_views(nodes, dims, {a, b, joined}, given)
    assert set(views.copies.values()) == {f"{joined}[0]"}  # first here and there
    views = find_views(nodes, dims, {a, b, joined}, given, aligned={further: 8})
    assert set(views.copies.values()) == {f"{joined}[0]"}  # 2 x 16 elements


@pytest.mark.parametrize(("channels", "copied"), [(4, 0), (6, 2)])
def test_what_is_aligned_begins_at_a_multiple(channels: int, copied: int) -> None:
    g = GraphMaker()
    x = g.input("x", 1, 3, 4, 4)
    parts = [g.conv(x, g.weight(channels, 3, 1, 1)) for _ in range(4)]
    joined = g("Concat", *parts, axis=1)
    nodes = g.graph(joined).nodes
    dims = {n: g.shape(n) for node in nodes for n in (*node.inputs, *node.outputs)}
    innermost = {n: (16 * d[1], 1, 4 * d[1], d[1]) for n, d in dims.items() if len(d) == 4}
    views = find_views(
        nodes, dims, {joined}, {"x"}, strides=innermost, aligned=dict.fromkeys(parts, 4)
    )
    assert len(views.copies) == copied


def test_libraries_refuse_what_is_not_aligned() -> None:
    image = TensorType("float32", (1, 4, 5, 5))
    weights = TensorType("float32", (4, 4, 1, 1))
    attrs = (("dilations", (1, 1)), ("group", 1), ("pads", (0,) * 4), ("strides", (1, 1)))
    operands = Operand(image, False), Operand(weights, True)
    body = Kernel(operands, (Step("Conv", attrs, (0, 1)),), (2,))
    strides = (25 * 12, 1, 5 * 12, 12)
    for offset in (0, 16, 24):
        buffers = {
            "x": Buffer("x", "float32", (1, 4, 5, 5), (100, 1, 20, 4)),
            "w": Buffer("w", "float32", (4, 4, 1, 1), (4, 1, 1, 1)),
            "y": Buffer("y", "float32", (1, 4, 5, 5), strides, offset=offset, base="z"),
        }
        launch = Launch("y", "cudnn", body, "heuristic", reads=("x", "w"), writes=("y",))
        if offset % 16 == 0:
            load_launcher("cudnn").prepare([launch], buffers)
        else:
            with pytest.raises(RuntimeFailed, match="'y' does not begin at a multiple of 16 bytes"):
                load_launcher("cudnn").prepare([launch], buffers)


@pytest.mark.parametrize(
    ("shapes", "fits"),
    [
        (((5, 7), (7, 3)), True),  # one product: it begins where its memory does
        (((2, 4, 7), (2, 7, 3)), True),  # 48 bytes
        (((2, 5, 7), (2, 7, 3)), True),  # 60 bytes, but one call of two batches
        (((2, 1, 5, 7), (1, 3, 7, 3)), False),  # no stride leads through the batches of a factor
        (((2, 1, 4, 7), (1, 3, 7, 3)), True),  # 48 bytes
        (((1, 5, 7), (1, 7, 3)), True),
    ],
)
def test_every_product_of_several_begins_at_a_multiple(shapes: Any, fits: bool) -> None:
    operands = tuple(Operand(TensorType("float32", shape), False) for shape in shapes)
    kernel = Kernel(operands, (Step("MatMul", (), (0, 1)),), (2,))
    product = product_of(kernel)
    assert product is not None
    assert are_aligned(kernel, product) == fits


def adds(channels: Sequence[int], *, is_one_read: bool) -> Graph:
    """Sums that are concatenated, of which something may read the first before."""
    g = GraphMaker()
    sums: list[str] = []
    for n, count in enumerate(channels):
        x, y = (g.input(f"{kind}{n}", 1, count, 4, 4) for kind in "xy")
        pool = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1)}
        if n and is_one_read and channels[0] == count:
            x = g("MaxPool", sums[0], **pool, ceil=0)
        sums.append(g("Add", x, y))
    return g.graph(g("Concat", *sums, axis=1))


@pytest.mark.parametrize(
    ("channels", "is_one_read", "launches", "computed"),
    [
        ((4, 4, 4), False, 1, 0),  # three results of one kernel
        ((4, 4, 4), True, 4, 0),  # a sum, two windows, two sums
        ((4, 8, 4), False, 1, 1),  # one kernel of all, since it copies nothing
    ],
)
def test_a_generated_kernel_writes_parts_where_they_belong(
    channels: Sequence[int], is_one_read: bool, launches: int, computed: int
) -> None:
    plan = planned(adds(channels, is_one_read=is_one_read), on_cuda, target="h200")
    assert copies(plan) == []
    assert len(plan.launches) == launches
    joins = [one for one in plan.launches if any(s.op == "Concat" for s in one.body.steps)]
    assert len(joins) == computed
