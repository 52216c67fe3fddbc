"""What is proved of numbers is true: random formulas, evaluated in double precision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.proving.proof import prove
from eqsat_opt.rules.bindings import Bindings, operator
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import Apply, Term, Var, ops

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

PAIRS = 50
X, Y = Var("x"), Var("y")
CONSTANTS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, math.sqrt(2.0), math.sqrt(0.5))
FUNCTIONS = (
    "Neg", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Exp", "Log", "Sigmoid", "Tanh", "Erf", "Relu",
    "HardSwish", "Abs",
)  # fmt: skip


class Formulas:
    """Random formulas of two numbers, and what stands in for parts of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choice(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def term(self, size: int) -> Term:
        if size <= 0:
            return self.choice((X, X, Y))  # type: ignore[no-any-return]
        kind = self.choice("uuucccb")
        if kind == "b":
            op = self.choice(("Add", "Sub", "Mul", "Div", "Max", "Min"))
            left = int(self.rng.integers(size))
            return getattr(ops, op)(self.term(left), self.term(size - 1 - left))  # type: ignore[no-any-return]
        inner = self.term(size - 1)
        return self.function(inner) if kind == "u" else self.constant(inner)

    def function(self, inner: Term) -> Term:
        return getattr(ops, self.choice(FUNCTIONS))(inner)  # type: ignore[no-any-return]

    def constant(self, inner: Term) -> Term:
        c = self.choice(CONSTANTS)
        kind = self.choice("sst-c")
        if kind == "s":
            return ops.Scale(inner, factor=c)
        if kind == "t":
            return ops.Shift(inner, offset=c)
        if kind == "-":
            return ops.Swish(inner, alpha=c)
        return ops.Clip(inner, min=c, max=c + 1.5)

    def moved(self, term: Term) -> Term:
        """Right or wrong: a step on the outside goes inside, or turns into another one."""
        if not isinstance(term, Apply):
            return self.choice((term, ops.Neg(ops.Neg(term)), self.constant(term)))  # type: ignore[no-any-return]
        if self.rng.random() < 0.4:
            args = list(term.args)
            i = int(self.rng.integers(len(args)))
            args[i] = self.moved(args[i])
            return Apply(term.op, tuple(args), term.attrs)
        inner = term.args[0]
        if len(term.args) == 1 and isinstance(inner, Apply) and len(inner.args) == 1:
            swapped = Apply(inner.op, (Apply(term.op, inner.args, term.attrs),), inner.attrs)
            return self.choice((swapped, swapped, self.function(inner), self.constant(inner)))  # type: ignore[no-any-return]
        if len(term.args) == 2:
            return Apply(term.op, term.args[::-1], term.attrs)
        return self.choice((self.function(inner), self.constant(inner)))  # type: ignore[no-any-return]


def value(term: Term, values: Mapping[str, Array]) -> Array:
    if isinstance(term, Var):
        return values[term.name]
    assert isinstance(term, Apply)
    op, attrs = operator(term, Bindings({}, {}))
    with np.errstate(all="ignore"):
        return get_op(op).eval_fn(FLOAT, [value(arg, values) for arg in term.args], attrs)


def agree(left: Term, right: Term, rng: np.random.Generator) -> bool | None:
    """Whether both have the same values; ``None`` where they are never defined at once."""
    points = np.concatenate(
        [rng.standard_normal((2, 200)) * 2, np.abs(rng.standard_normal((2, 200)))], 1
    )
    a, b = (value(side, {"x": points[0], "y": points[1]}) for side in (left, right))
    defined = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e6) & (np.abs(b) < 1e6)
    if not defined.any():
        return None
    return bool(np.allclose(a[defined], b[defined], rtol=1e-6, atol=1e-9))


def compare(seed: int) -> tuple[bool | None, str] | None:
    """The truth about one random pair and what the prover says."""
    formulas = Formulas(seed)
    left = formulas.term(int(formulas.choice((2, 3, 4))))
    right = formulas.moved(left)
    if (
        str(left) == str(right)
        or isinstance(left, Var)
        or not right.variables() <= left.variables()
    ):
        return None
    names = sorted(left.variables())
    when = [Var(name).rank == 1 for name in names]
    if len(names) == 2:
        when.append(X.shape == Y.shape)
    pair = Rule(
        "test/pair", (left,), (right,), tuple(when), (), Numerics.BITEXACT, Phase.EXPLORE, False, ""
    )
    proof = prove(pair, time_limit_s=2.0)
    true = agree(left, right, formulas.rng)
    assert true is not False or proof.status != "proven", f"seed {seed}: {pair} was proved"
    return true, proof.status


def test_what_is_proved_of_numbers_is_true() -> None:
    counts = Counter(found for seed in range(PAIRS) if (found := compare(seed)) is not None)
    print({f"{true}, {status}": n for (true, status), n in sorted(counts.items(), key=str)})
    assert counts[True, "proven"] > PAIRS / 20
    assert counts[False, "unknown"] > PAIRS / 4
