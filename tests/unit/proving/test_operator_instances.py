"""Every operator of the registry can stand in a rule: instances, meaning, and index functions."""

from __future__ import annotations

import itertools
from contextlib import suppress
from itertools import islice

import numpy as np
import onnx
import pytest

from eqsat_opt.ir.ops import OPS, Array, IllTyped, Op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import DTYPE_CODES, FLOATS, TensorType, numpy_dtype, require_static
from eqsat_opt.proving.checks.exact import MIN_POINTS
from eqsat_opt.proving.instances.left_side import Found, Sizes, left_side
from eqsat_opt.proving.instances.search import find_instances
from eqsat_opt.proving.numbers.evaluation import (
    FieldNumbers,
    FloatNumbers,
    IntegerNumbers,
    Numbers,
    RationalNumbers,
    TwoFieldNumbers,
    program,
)
from eqsat_opt.proving.numbers.twofield import LOGARITHMIC, LOGARITHMIC_ORDER, ORDER
from eqsat_opt.rules.bindings import operator
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import Apply, AttrPattern, Expr, Var, expr
from tests.sampling import sampled

SIZES = Sizes(3, 5)
LITERALS = {
    ("Cast", "to"): "float64",
    ("Scalar", "dtype"): "float32",
    ("Fill", "dtype"): "float32",
    ("IdentityKernel", "dtype"): "float32",
}
"""Strings are no variables of rules."""
UNSPOKEN = {
    **dict.fromkeys(("ArgMax", "ArgMin"), "a place is no number of the domain of the elements"),
    "Continued": "which element lies beyond the ends is a matter of many cases",
    **dict.fromkeys(
        ("GatherElements", "GatherND", "ReverseSequence", "ScatterElements", "ScatterND"),
        "which element is read, or written over, is a matter of data",
    ),
    "Mod": "of whole numbers, and of others, it is another function",
    "Range": "how many numbers there are is a matter of data",
    "Resize": "weights are rounded to float32",
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "a state has as many factors as there are steps"),
}
"""Why no rule speaks of these: nothing draws instances of them, so none can be certified."""
UNDRAWN = {**UNSPOKEN, "StridedSlice": "begin, end and step that fit are drawn by nobody"}
"""The same, and of what kernels are made nevertheless."""
WITHOUT_INDICES = {
    "ReduceProd": "a product over an extent that is a symbol has no normal form",
    **UNSPOKEN,
}
"""Why no rule on these is proven for all sizes."""


def _rule(op: Op, arity: int) -> Rule:
    """The operator on variables, equal to itself."""
    kinds: list[tuple[str, str]] = [(f"x{i}", "Tensor") for i in range(arity)]
    attrs: dict[str, AttrPattern] = {}
    for key, kind in op.attrs.items():
        few = op.choices.get(key, ("",)) if kind == "str" else ("",)
        literal = LITERALS.get((op.name, key), few[0])
        attrs[key] = expr(literal) if literal else Expr("attr", (f"a_{key}",))
        if not literal:
            kinds.append(
                (f"a_{key}", {"int": "Int", "size": "Int", "ints": "Ints", "float": "Float"}[kind])
            )
    side = (Apply(op.name, tuple(Var(f"x{i}") for i in range(arity)), attrs),)
    return Rule(
        f"same/{op.name.lower()}", side, side, (), tuple(kinds), Numerics.BITEXACT, Phase.EXPLORE,
        False, "",
    )  # fmt: skip


CASES = [
    pytest.param(op, arity, id=f"{op.name}-{arity}")
    for op in OPS.values()
    if op.name not in UNDRAWN
    for arity in range(op.arity[0], min(op.arity[1], 5) + 1)
]


@pytest.mark.parametrize(("op", "arity"), sampled(CASES, 3))
def test_instances_of_every_operator_are_found_without_a_solver(
    op: Op, arity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqsat_opt.proving.instances.left_side.find_spec", lambda _name: None)
    rule = _rule(op, arity)
    points = find_instances(rule, limit=2 * MIN_POINTS).points
    # What has no operands has only as many instances as there are values of its attributes.
    assert len(points) >= (MIN_POINTS if arity else MIN_POINTS // 2)
    draws = list(islice(left_side(rule).drawn(7, SIZES), 200))
    assert sum(one is not None for one in draws) >= 20, "hardly anything that is drawn has a type"


@pytest.mark.parametrize(("op", "arity"), CASES)
def test_every_operator_has_a_meaning_in_every_domain(op: Op, arity: int) -> None:
    rule = _rule(op, arity)
    order = LOGARITHMIC_ORDER if op.name in LOGARITHMIC else ORDER
    compared: set[str] = set()
    for found in find_instances(rule, limit=MIN_POINTS).points[::5]:
        real: list[Numbers] = [
            FieldNumbers(1),
            RationalNumbers(1),
            TwoFieldNumbers(1, order),
            FloatNumbers(1),
        ]
        whole: list[Numbers] = [IntegerNumbers(1)]
        for numbers in whole if found.whole else real:
            values = numbers.draw(found, 1)
            sides = program(rule, found, numbers.dtype)
            with suppress(ZeroDivisionError), np.errstate(all="ignore"):
                for left, right in sides.run(values, numbers.domain):
                    assert not numbers.wrong(left, right).any(), (numbers.name, found)
                    compared.add(numbers.name)
    assert len(compared) >= 4


ONNX_TYPES = {
    name.replace("float64", "double").replace("float32", "float"): name for name in DTYPE_CODES
}
"""What ONNX calls an element type; strings and complex numbers are not computed with."""


def _types_in_onnx(op: Op) -> set[str]:
    """Element types that ONNX gives an operator's data; floats where it does not have it."""
    kind = "BatchNormalization" if op.name.startswith("Batch") else op.name
    if not onnx.defs.has(kind):
        return set(FLOATS)
    schema = onnx.defs.get_schema(kind, 24)
    types = schema.inputs[1 if op.name == "Where" else 0].types if schema.inputs else ()
    return {ONNX_TYPES[t[7:-1]] for t in types if t[7:-1] in ONNX_TYPES} - UNCOMPUTED


UNCOMPUTED = {"string", "complex64", "complex128"}


def _typed(found: Found, dtype: str, empty: int) -> list[TensorType]:
    """The operands with another element type in place of that of the data, and empty extents."""
    data = max((t.dtype for t in found.types.values()), key=FLOATS.__contains__, default="")
    return [
        TensorType(
            dtype if type_.dtype == data else type_.dtype,
            tuple(0 if size == empty else size for size in require_static(type_).shape),
        )
        for _, type_ in sorted(found.types.items())
    ]


def _drawn(type_: TensorType) -> Array:
    rng = np.random.default_rng(0)
    shape = require_static(type_).shape
    drawn = rng.standard_normal(shape) if type_.dtype in FLOATS else rng.integers(0, 2, shape)
    return np.asarray(drawn).astype(numpy_dtype(type_.dtype))


@pytest.mark.parametrize(("op", "arity"), CASES)
def test_every_operator_computes_in_all_element_types_that_onnx_gives_it(
    op: Op, arity: int
) -> None:
    rule = _rule(op, arity)
    computed: set[str] = set()
    for found in find_instances(rule, limit=MIN_POINTS).points[::5]:
        _, attrs = operator(rule.lhs[0], found)  # type: ignore[arg-type]
        for dtype, empty in itertools.product(_types_in_onnx(op), (-1, 2)):
            own = {**attrs, "dtype": dtype} if "dtype" in attrs else attrs
            operands = _typed(found, dtype, empty)
            try:
                expected = op.type_fn(operands, own)
            except IllTyped:
                continue
            result = np.asarray(op.eval_fn(FLOAT, [_drawn(one) for one in operands], own))
            assert result.dtype == numpy_dtype(expected.dtype), dtype
            assert result.shape == require_static(expected).shape
            computed.add(dtype)
    assert computed


@pytest.mark.parametrize("name", OPS)
def test_every_operator_has_an_index_function_or_a_reason(name: str) -> None:
    assert (OPS[name].index_fn is None) == (name in WITHOUT_INDICES)


@pytest.mark.parametrize("name", UNDRAWN)
def test_a_rule_on_what_has_no_instances_is_not_certified(name: str) -> None:
    op = OPS[name]
    assert not find_instances(_rule(op, op.arity[0]), limit=MIN_POINTS).points
