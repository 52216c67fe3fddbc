"""Expected times: the table that ships, and what measured kernels change."""

from __future__ import annotations

import pytest

from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.trends import Expectation, Trend, class_of, kind_of, load_trends
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.registry import portable_names

TRENDS = {"ort": {"MatMul": Trend(4.0, 2.0), "pointwise": Trend(1.0, 3.0), "": Trend(2.0, 5.0)}}

CLASSES = ("pointwise", "contraction", "reduction", "window", "movement")


def operand(*shape: int, const: bool = False) -> Operand:
    return Operand(TensorType("float32", shape), const)


def product(rows: int, *after: str) -> Kernel:
    steps = [Step("MatMul", (), (0, 1))]
    steps += [Step(op, (), (2 + number,)) for number, op in enumerate(after)]
    return Kernel((operand(rows, 64), operand(64, 64, const=True)), tuple(steps), (1 + len(steps),))


def convolution(weight: tuple[int, ...], group: int = 1) -> Kernel:
    axes = len(weight) - 2
    step = Step(
        "Conv",
        attributes(strides=(1,) * axes, pads=(0,) * 2 * axes, dilations=(1,) * axes, group=group),
        (0, 1),
    )
    image = operand(1, weight[1] * group, *((8,) * axes))
    return Kernel((image, operand(*weight, const=True)), (step,), (2,))


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (product(8), "MatMul"),
        (product(8, "Relu", "Neg"), "MatMul"),
        (Kernel((operand(4),), (Step("Relu", (), (0,)), Step("Exp", (), (1,))), (2,)), "Relu"),
        (Kernel((operand(4),), (), (0,)), ""),
        (convolution((8, 4, 3, 3)), "Conv"),
        (convolution((8, 4, 1, 1)), "Conv pointwise"),
        (convolution((8, 1, 3, 3), group=8), "Conv depthwise"),
        (convolution((8, 2, 3, 3), group=4), "Conv grouped"),
        (convolution((8, 4, 3)), "Conv 1-D"),
        (convolution((8, 4, 1)), "Conv pointwise 1-D"),
    ],
)
def test_kinds(kernel: Kernel, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_a_kind_without_a_row_has_that_of_its_class_or_of_all() -> None:
    expected = Expectation(TRENDS)
    assert expected.time_us("ort", product(8), 10.0) == pytest.approx(24.0)
    relu = Kernel((operand(4),), (Step("Relu", (), (0,)),), (1,))
    assert expected.time_us("ort", relu, 10.0) == pytest.approx(31.0)
    assert expected.time_us("ort", convolution((8, 4, 3, 3)), 10.0) == pytest.approx(52.0)
    assert expected.time_us("elsewhere", relu, 10.0) > 10.0
    assert Expectation({}).time_us("ort", Kernel((operand(4),), (), (0,)), 0.0) > 0.0


def test_measured_kernels_of_the_kind_correct_those_of_similar_size_most() -> None:
    expected = Expectation(TRENDS)
    before = [expected.time_us("ort", product(rows), 10.0) for rows in (8, 16, 4096)]
    assert before == pytest.approx([24.0] * 3)
    expected.add("ort", product(8), 10.0, 96.0)
    same, near, far = (expected.time_us("ort", product(rows), 10.0) for rows in (8, 16, 4096))
    assert 96.0 > same > near > far > 24.0
    for _ in range(50):
        expected.add("ort", product(8), 10.0, 96.0)
    assert expected.time_us("ort", product(8), 10.0) == pytest.approx(96.0, rel=0.02)
    assert expected.time_us("ort", convolution((8, 4, 3, 3)), 10.0) == pytest.approx(52.0)


def test_no_kernel_is_expected_below_its_bound() -> None:
    expected = Expectation(TRENDS)
    expected.add("ort", product(8), 10.0, 0.0)
    assert expected.time_us("ort", product(8), 10.0) == 10.0


def test_the_table_that_ships_names_backends_and_operators_that_exist() -> None:
    table = load_trends()
    assert set(table) <= set(portable_names()) | {"native"}
    for trends in table.values():
        assert "" in trends
        for kind, trend in trends.items():
            assert class_of(kind) or kind in ("", *CLASSES)
            assert trend.overhead_us >= 0
            assert trend.slowdown >= 1


def test_a_pricer_expects_more_than_the_bound_and_says_so() -> None:
    pricer = Pricer(None, 1)
    offer = pricer.usual(product(64))
    quote = pricer.expect(offer)
    assert quote.source == "expected"
    assert quote.time_us > pricer.price(offer).time_us
    assert not quote.is_settled
