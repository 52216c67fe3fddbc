"""Refutations: the smallest instance found at which a rule is wrong, and code that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import OPS, Array
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import FLOATS, TensorType, numpy_dtype
from eqsat_opt.proving.numbers.evaluation import (
    FloatNumbers,
    IntegerNumbers,
    Numbers,
    Values,
    concrete,
    program,
)
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["Refutation", "counterexample", "mistyped", "refutation_at"]

_TRIES = 60
_MOST_ELEMENTS = 200
"""Larger operands are not simplified element by element."""


@dataclass(frozen=True)
class Refutation:
    """The smallest instance found at which the two sides differ.

    Attributes:
        types: tensor variable to type.
        attrs: attribute variable to value.
        root: number of the equation that fails, from 0.
        reason: how the sides differ.
        values: tensor variable to value; empty if the types differ already.
        left, right: both values; ``None`` if the types differ already.
        method: kind of numbers on which the sides differ.
        code: Python that evaluates both sides and fails.
    """

    types: Mapping[str, TensorType]
    attrs: Mapping[str, Any]
    root: int
    reason: str
    values: Values = field(default_factory=dict)
    left: Array | None = None
    right: Array | None = None
    method: str = "types"
    code: str = field(default="", repr=False)

    @property
    def where(self) -> str:
        """Shapes and attributes, in one line."""
        shapes = ", ".join(f"{name}: {type_}" for name, type_ in self.types.items())
        return shapes + "".join(f", {name}={_show(value)}" for name, value in self.attrs.items())

    @property
    def line(self) -> str:
        """Shapes, attributes and reason, in one line for messages."""
        return f"{self.where}: {self.reason}"

    def __str__(self) -> str:
        lines = [self.where, self.reason]
        lines += [f"{name} = {_text(value, name)}" for name, value in self.values.items()]
        if self.left is not None and self.right is not None:
            lines += [f"left  {_text(self.left)}", f"right {_text(self.right)}"]
        return "\n".join(lines)


def _show(value: Any) -> str:
    return str(value[0]) if isinstance(value, tuple) and value and value[0] in OPS else str(value)


def _text(array: Array, name: str = "left") -> str:
    indent = " " * (len(name) + (3 if name != "left" else 2))
    return np.array2string(array, precision=6, threshold=32, separator=", ").replace(
        "\n", "\n" + indent
    )


# Code ---------------------------------------------------------------------------------------------


def _literal(array: Array, dtype: str) -> str:
    values = repr(array.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
    return f"np.array({values}, dtype=np.{dtype})"


def _code(
    rule: Rule, bindings: Bindings, root: int, values: Values, numbers: Numbers, reason: str
) -> str:
    lines = [
        f"# {rule.name}: {rule.lhs[root]} => {rule.rhs[root]}",
        "import numpy as np",
        "",
        "from eqsat_opt.ir.ops import get_op",
    ]
    name = type(numbers.domain).__name__
    if numbers.domain is FLOAT:
        lines += ["from eqsat_opt.ir.ops.domains import FLOAT as numbers", ""]
    elif name == "FieldDomain":
        lines += ["from eqsat_opt.ir.ops.domains import FieldDomain", ""]
        lines.append(f"numbers = FieldDomain(seed={getattr(numbers, 'seed', 0)})")
    else:
        module = type(numbers.domain).__module__
        lines += [f"from {module} import {name}", ""]
        lines.append(f"numbers = {name}(seed={getattr(numbers, 'seed', 0)})")
    used = {
        t.name for s in (rule.lhs[root], rule.rhs[root]) for t in s.walk() if isinstance(t, Var)
    }
    for variable in sorted(used):
        array = values[variable]
        dtype = "object_" if array.dtype == object else array.dtype.name.replace("bool", "bool_")
        lines.append(f"{variable} = {_literal(array, dtype)}")
    counter = [0]

    def emit(term: Term) -> str:
        if isinstance(term, Var):
            return term.name
        assert isinstance(term, Apply)
        operands = ", ".join(emit(arg) for arg in term.args)
        op, attrs = concrete(term, bindings, numbers.dtype)
        counter[0] += 1
        target = f"{op.lower()}_{counter[0]}"
        lines.append(f'{target} = get_op("{op}").eval_fn(numbers, [{operands}], {dict(attrs)!r})')
        return target

    for side, term in (("left", rule.lhs[root]), ("right", rule.rhs[root])):
        lines.append(f"{side} = {emit(term)}")
    lines.append(f"assert left.shape == right.shape  # {reason}")
    check = "assert_allclose" if isinstance(numbers, FloatNumbers) else "assert_array_equal"
    lines.append(f"np.testing.{check}(left, right)")
    return "\n".join(lines) + "\n"


# Smaller values -----------------------------------------------------------------------------------


def _difference(
    rule: Rule, bindings: Bindings, numbers: Numbers, values: Values
) -> tuple[int, str, Array, Array] | None:
    """Return the first root that differs, how it does, and both values; ``None`` if none does."""
    pairs = program(rule, bindings, numbers.dtype).run(values, numbers.domain)
    for root, (left, right) in enumerate(pairs):
        if left.shape != right.shape:
            return root, f"shapes {left.shape} and {right.shape} differ", left, right
        wrong = numbers.wrong(left, right)
        if wrong.any():
            return root, f"{int(wrong.sum())} of {wrong.size} elements differ", left, right
    return None


def _small(bindings: Bindings, seed: int, integer: bool) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name, type_ in bindings.static_types.items():
        shape = type_.shape
        if type_.dtype == "bool":
            values[name] = rng.integers(0, 2, shape).astype(bool)
            continue
        drawn = rng.integers(-1 if seed % 2 else 0, 2 + seed % 3, shape)
        own = integer or type_.dtype not in FLOATS
        values[name] = np.asarray(drawn).astype(numpy_dtype(type_.dtype) if own else np.float64)
    return values


def _simplified(
    rule: Rule, bindings: Bindings, numbers: Numbers, values: dict[str, Array]
) -> dict[str, Array]:
    """Replace each element by 0, or else by 1, wherever a difference remains."""
    if sum(array.size for array in values.values()) > _MOST_ELEMENTS:
        return values
    for array in values.values():
        array.setflags(write=True)
        for index in np.ndindex(array.shape):
            kept = array[index]
            for simple in (0, 1):
                if kept == simple:
                    break
                array[index] = simple
                if _difference(rule, bindings, numbers, values) is not None:
                    break
                array[index] = kept
    return values


def counterexample(
    rule: Rule, bindings: Bindings, numbers: Numbers, values: Values
) -> Refutation | None:
    """Return the refutation at an instance, with values as small as can be found.

    Returns:
        ``None`` if both sides agree at all values tried, ``values`` included.
    """
    integer = isinstance(numbers, IntegerNumbers)
    plain: Numbers = IntegerNumbers(0) if integer else FloatNumbers(0)
    with np.errstate(all="ignore"):
        for seed in range(_TRIES):
            small = _small(bindings, seed, integer)
            if _difference(rule, bindings, plain, small) is not None:
                simple = _simplified(rule, bindings, plain, small)
                return refutation_at(rule, bindings, plain, simple)
        return refutation_at(rule, bindings, numbers, values)


def refutation_at(
    rule: Rule, bindings: Bindings, numbers: Numbers, values: Values
) -> Refutation | None:
    """Return the refutation at an instance and just these values; ``None`` if the sides agree."""
    found = _difference(rule, bindings, numbers, values)
    if found is None:
        return None
    root, reason, left, right = found
    return Refutation(
        types=bindings.types, attrs=bindings.attrs, root=root, reason=reason, values=values,
        left=left, right=right, method=numbers.name,
        code=_code(rule, bindings, root, values, numbers=numbers, reason=reason),
    )  # fmt: skip


def mistyped(rule: Rule, bindings: Bindings, root: int, reason: str) -> Refutation:
    """Return the refutation of two sides of different types.

    Its code fails only where their shapes differ.
    """
    values = _small(bindings, 1, integer=False)
    code = _code(rule, bindings, root, values, numbers=FloatNumbers(0), reason=reason)
    return Refutation(bindings.types, bindings.attrs, root, reason, code=code)
