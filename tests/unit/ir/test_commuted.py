"""Keys of kernels that differ in the order of their operands."""

from __future__ import annotations

from itertools import permutations

import pytest

from eqsat_opt.ir.graph.commuted_kernels import commuted_key
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType

PLAIN, NHWC = Form("cuda"), Form("cuda", "nhwc")
FORMS = PLAIN, NHWC, PLAIN
TYPES = tuple(TensorType("float32", (1, n, 5, 5)) for n in (1, 4, 4))


def key(kernel: Kernel, forms: tuple[Form, ...]) -> tuple[str, str]:
    return commuted_key(kernel, forms, (NHWC,) * len(kernel.outputs))


def total(
    order: tuple[int, ...], *, op: str, is_exchanged: bool
) -> tuple[Kernel, tuple[Form, ...]]:
    """``(a op b) + c``, whose operands are numbered in some order."""
    at = {operand: number for number, operand in enumerate(order)}
    inner = (at[1], at[0]) if is_exchanged else (at[0], at[1])
    outer = (at[2], 3) if is_exchanged else (3, at[2])
    operands = tuple(Operand(TYPES[i], i == 2, form=FORMS[i]) for i in order)
    steps = Step(op, (), inner), Step("Add", (), outer)
    return Kernel(operands, steps, (4,)), tuple(FORMS[i] for i in order)


@pytest.mark.parametrize("op", ["Add", "Mul", "Max"])
def test_whatever_the_order_is_the_key_is_one(op: str) -> None:
    found = {
        key(*total(order, op=op, is_exchanged=is_exchanged))
        for order in permutations(range(3))
        for is_exchanged in (False, True)
    }
    ((_, forms),) = found
    assert sorted(forms.partition(" > ")[0].split(" ")) == sorted(map(str, FORMS))
    assert forms.endswith(" > cuda/nhwc")


def test_what_is_no_sum_keeps_its_order() -> None:
    a, b = (total((0, 1, 2), op="Sub", is_exchanged=one) for one in (False, True))
    assert key(*a) != key(*b)


def test_forms_are_part_of_the_key() -> None:
    kernel, forms = total((0, 1, 2), op="Add", is_exchanged=False)
    assert key(kernel, forms) != key(kernel, (PLAIN,) * 3)


def test_a_value_read_twice_and_several_results() -> None:
    x = Operand(TYPES[1], False)
    relu, double = Step("Relu", (), (0,)), Step("Add", (), (1, 1))
    slices = Step("Slice", attributes(axis=1, lo=0, hi=2), (2,))
    kernel = Kernel((x,), (relu, double, slices), (1, 3))
    assert key(kernel, (NHWC,)) == (kernel.signature, "cuda/nhwc > cuda/nhwc cuda/nhwc")
    squares = Kernel((x,), tuple(Step("Mul", (), (i, i)) for i in range(60)), (60,))
    assert key(squares, (PLAIN,))[0] == squares.signature
    copy = Kernel((x,), (), (0,), writes=NHWC)
    assert key(copy, (PLAIN,)) == (Kernel((x,), (), (0,)).signature, "cuda/plain > cuda/nhwc")
