"""Kernel patterns in the terms of rules: as text, their conditions, and where they are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.values.types import TensorType, ValueType
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.rules import Condition, Expr, Term, Var, distinct, near, ops
from eqsat_opt.rules.bindings import Bindings, holds
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.patterns import Enode, in_any_order, is_a, match, settled
from eqsat_opt.rules.term import Apply
from eqsat_opt.runtime.backends.ort.patterns import ort_patterns
from eqsat_opt.runtime.backends.protocol import KernelPattern

X, Y, Z = Var("x"), Var("y"), Var("z")


def kernel(name: str) -> KernelPattern:
    return next(one for one in ort_patterns() if one.name == name)


@pytest.mark.parametrize("number", range(len(ort_patterns())))
def test_a_pattern_is_read_back_from_its_text(number: int) -> None:
    one = ort_patterns()[number]
    terms = list(one.pattern.walk())
    spoken: dict[str, object] = {name: getattr(ops, name) for name in OPS}
    spoken |= {term.name: term for term in terms if isinstance(term, Var)}
    values = (v for term in terms if isinstance(term, Apply) for v in term.attrs.values())
    spoken |= {str(v): v for v in values if isinstance(v, Expr) and v.kind == "attr"}
    assert str(eval(str(one.pattern), {}, spoken)) == str(one.pattern)
    assert str(one).startswith(f"{one.name}: {one.pattern}")
    for condition in one.when:
        if condition.kind != "near":
            assert str(eval(str(condition), {}, spoken)) == str(condition)


def shapes(rank: int, extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return product(extents, repeat=rank)


def admitted(one: KernelPattern, **types: tuple[int, ...]) -> bool:
    variables = {name: TensorType("float32", shape) for name, shape in types.items()}
    numbers = {"half": 0.5, "one": 1.0, "root": 2.0**0.5, "inverse": 0.5**0.5, "two": 2.0}
    bindings = Bindings(variables, dict(numbers))
    return all(holds(condition, bindings, lambda *_: True) for condition in one.when)


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("own", [2, 3, 4, 5])
def test_a_bias_of_a_convolution_varies_along_its_channels_alone(rank: int, own: int) -> None:
    data, weight = (2, 7, *(8,) * (rank - 2)), (3, 7, *(1,) * (rank - 2))
    for shape in shapes(own, (1, 3)):
        is_bias = shape == (1, 3, *(1,) * (rank - 2))
        assert admitted(kernel("conv-bias"), x=data, w=weight, b=shape) is is_bias


def test_a_bias_of_one_channel_may_be_a_single_number() -> None:
    for shape in shapes(4, (1, 2)):
        is_bias = shape == (1, 1, 1, 1)
        assert admitted(kernel("conv-bias"), x=(2, 7, 8, 8), w=(1, 7, 1, 1), b=shape) is is_bias


def test_a_bias_of_a_product_is_a_row() -> None:
    one = kernel("matmul-bias")
    for shape in shapes(2, (1, 2, 3)):
        assert admitted(one, x=(2, 4), w=(4, 3), b=shape) is (shape == (1, 3))
    assert not admitted(one, x=(5, 2, 4), w=(4, 3), b=(1, 1, 3))
    assert not admitted(one, x=(2, 4), w=(5, 4, 3), b=(1, 1, 3))


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("name", ["layer-norm-0", "layer-norm-1"])
def test_scales_of_a_normalisation_are_rows(rank: int, name: str) -> None:
    data, row = (2,) * (rank - 1) + (3,), (1,) * (rank - 1) + (3,)
    for shape in shapes(rank, (1, 2, 3)):
        assert admitted(kernel(name), x=data, scale=shape, shift=row) is (shape == row)
        assert admitted(kernel(name), x=data, scale=row, shift=shape) is (shape == row)


def test_numbers_are_those_of_the_function_up_to_rounding() -> None:
    assert admitted(kernel("gelu-00"), x=(2,))
    assert not all(
        holds(c, Bindings({}, {"half": 0.5, "one": 1.0, "root": 1.4142}), lambda *_: True)
        for c in kernel("gelu-00").when
    )


@pytest.mark.parametrize(
    ("pattern", "when", "why"),
    [
        (X, (), "bare variable"),
        (ops.Relu(X), (Y.rank == 2,), "does not bind y"),
        (ops.Relu(X), (distinct(X, Z),), "does not bind z"),
        (ops.Relu(X), (X.dim(Expr("attr", ("i",))) == 2,), "does not bind i"),
        (ops.Relu(X), (near(Expr("attr", ("half",)), 0.5),), "does not bind half"),
    ],
)
def test_what_never_matches_is_refused(
    pattern: Term, when: tuple[Condition, ...], why: str
) -> None:
    with pytest.raises(RuleError, match=why):
        KernelPattern("mine", pattern, when)


# On graphs ----------------------------------------------------------------------------------------


def found(pattern: KernelPattern, g: GraphMaker, value: str) -> list[set[str]]:
    """What each match covers, in a graph."""
    matcher = Matcher(g.graph(value), in_any_order)
    bindings = match(pattern.pattern, matcher, value)
    return [
        set(binding.covered)
        for binding in bindings
        if (variables := settled((binding,))) is not None
        and all(holds(c, variables[1], lambda *_: True) for c in pattern.when)
    ]


def test_a_kernel_is_found_in_a_graph_in_either_order() -> None:
    g = GraphMaker()
    conv = g.conv(g.input("x", 1, 2, 4, 4), g.weight(3, 2, 1, 1))
    biased = g("Add", g.weight(1, 3, 1, 1), conv)
    top = g("LeakyRelu", biased, alpha=0.1)
    covered = [
        found(one, g, top)
        for one in ort_patterns()
        if one.name == "conv-bias-activation" and str(one.pattern).startswith("LeakyRelu")
    ]
    assert covered == [[{conv, biased, top}]]
    wide = g("Add", g.weight(1, 3, 4, 1), conv)
    assert found(kernel("conv-bias"), g, biased) == [{conv, biased}]
    assert found(kernel("conv-bias"), g, wide) == []


def normalised(first: int, second: int) -> tuple[GraphMaker, str]:
    g = GraphMaker()
    x = g.input("x", 2, 3, 4)
    centred = g("Sub", x, g("ReduceMean", x, axes=(first,), keepdims=1))
    mean = g("ReduceMean", g("Mul", centred, centred), axes=(second,), keepdims=1)
    deviation = g("Sqrt", g("Add", mean, g.weight(1)))
    scaled = g("Mul", g("Div", centred, deviation), g.weight(1, 1, 4))
    return g, g("Add", scaled, g.weight(1, 1, 4))


def test_attributes_of_one_name_are_equal() -> None:
    assert len(found(kernel("layer-norm-1"), *normalised(2, 2))[0]) == 9
    assert found(kernel("layer-norm-1"), *normalised(2, 1)) == []


# On classes of several e-nodes --------------------------------------------------------------------


Layout = Mapping[str, Sequence[tuple[str, str]]]


class Classes:
    """Each class has the e-nodes that are given, each an operator on classes."""

    def __init__(self, classes: Layout) -> None:
        self._classes = classes

    def enodes(self, value: str, op: str) -> list[Enode[str]]:
        return [
            ordered
            for name, operands in self._classes.get(value, ())
            for ordered in in_any_order(
                Enode((value, name, operands), name, attributes(), tuple(operands))
            )
            if is_a(name, op)
        ]

    def type(self, value: str) -> ValueType:
        return TensorType("float32", (2, 2))

    def is_const(self, value: str) -> bool:
        return value == "c"


def bound(pattern: Term, classes: Layout, most: int = 99) -> set[str]:
    """What x, y and z stand for in each match."""
    return {
        "".join(one.values.get(name, "") for name in "xyz")
        for one in match(pattern, Classes(classes), "r", most=most)
    }


def test_all_ways_to_choose_are_found() -> None:
    many = {"r": [("Relu", "s")], "s": [("Add", "ab"), ("Mul", "ab"), ("Add", "cd")]}
    assert bound(ops.Relu(X + Y), many) == {"ab", "ba", "cd", "dc"}
    assert bound(ops.Relu(X + Y), {**many, "s": [("Add", "aa")]}) == {"aa"}


def test_a_class_is_computed_in_one_way_wherever_it_is_read() -> None:
    classes = {"r": [("Div", "ss")], "s": [("Sub", "ab"), ("Sub", "cb")]}
    assert bound((X - Y) / (Z - Y), classes) == {"aba", "cbc"}


def test_constants_and_repeated_variables() -> None:
    assert bound(X * Var("y", const=True), {"r": [("Mul", "cd"), ("Mul", "ab")]}) == {"dc"}
    assert bound(X * X, {"r": [("Mul", "ab"), ("Mul", "aa")]}) == {"a"}


def test_choices_are_limited() -> None:
    many = {"r": [("Add", f"a{i}") for i in range(9)]}
    assert len(bound(X + Y, many)) == 18
    assert len(bound(X + Y, many, most=5)) == 5
