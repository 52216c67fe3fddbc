"""Mutation test of the prover: what differs from its rule at some instance is never proved."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.ops.index.evaluation import evaluate, formula_value, poly_value
from eqsat_opt.ir.ops.index.integers import Atom
from eqsat_opt.ir.ops.index.scalars import Unindexed
from eqsat_opt.proving.numbers.definitions import PI
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.typing.scenario import Scenario, scenarios
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.term import Apply, Condition, Expr, Term, Var, expr

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

BOOK = {one.name: one for rules in families().values() for one in rules}
MUTANTS = 20
REAL = frozenset(
    {"Relu", "Max", "Min", "MaxPool", "ReduceMax", "Sqrt", "Pow", "LRN", "Exp", "Log", "Softmax",
     "LogSoftmax", "Where", "Sigmoid", "Tanh", "Swish", "Erf", "Gelu", "Clip", "HardSigmoid",
     "HardSwish", "Rsqrt", "RmsN", "LayerNormalization", "RMSNormalization", "Attention",
     "MaskedAttention"}
)  # fmt: skip
"""Operators whose properties the prover uses, so that a random function refutes too much."""


EXCHANGED = {
    "Relu": "Tanh", "Max": "Min", "Min": "Max", "ReduceSum": "ReduceMean", "ReduceMax": "ReduceMin",
    "ReduceMean": "ReduceSum", "Softmax": "LogSoftmax", "Sqrt": "Rsqrt", "Rsqrt": "Sqrt",
    "Exp": "Sigmoid", "Center": "Relu",
}  # fmt: skip
"""Operators of the same attributes."""
WEAKER: dict[str, Literal["<="]] = {"<": "<=", "==": "<=", "!=": "<="}
"""Conditions that admit more, or other cases."""


def _edited(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from ((*value[:i], new, *value[i + 1 :]) for new in _edited(part, names))
    elif value.kind == "literal" and isinstance(value.args[0], (int, float)):
        yield expr(value.args[0] + 1)
        if value.args[0] > 0:
            yield expr(value.args[0] - 1)
    elif value.kind == "attr":
        yield from (Expr("attr", (name,)) for name in names if name != value.args[0])
        if names:
            yield value + value // 3  # differs from 3 on
    elif value.kind != "literal":
        yield value + 1
        yield value - value // 5
        if value.kind in ("+", "-", "*", "/"):
            yield Expr("-" if value.kind == "+" else "+", value.args)
            yield value.args[0]


def _mutants(term: Term, variables: list[str], kinds: dict[str, list[str]]) -> Iterator[Term]:
    """All terms that are one edit away."""
    if isinstance(term, Var):
        yield from (Var(name) for name in variables if name != term.name)
        return
    assert isinstance(term, Apply)
    if term.op in ("Add", "Sub", "Mul"):
        yield from (replace(term, op=op) for op in ("Add", "Sub", "Mul") if op != term.op)
    if term.op in EXCHANGED:
        yield replace(term, op=EXCHANGED[term.op])
    if len(term.args) == 2:
        yield replace(term, args=term.args[::-1])
    yield from term.args
    for key, value in term.attrs.items():
        if key not in ("dtype", "f"):
            for new in _edited(value, kinds.get(key, [])):
                yield replace(term, attrs={**term.attrs, key: new})
    for i, arg in enumerate(term.args):
        for new in _mutants(arg, variables, kinds):
            yield replace(term, args=(*term.args[:i], new, *term.args[i + 1 :]))


def mutants(one: Rule) -> Iterator[Rule]:
    """All rules with one edit on the right side, or one condition less."""
    variables = sorted({name for root in one.lhs for name in root.variables()})
    integers = [name for name, kind in one.kinds if kind == "Int"]
    lists = [name for name, kind in one.kinds if kind == "Ints" and name in ("s", "d")]
    free = ("lo", "hi", "group", "axis", "axes", "repeats")
    kinds = {"strides": lists, "dilations": lists, **dict.fromkeys(free, integers)}
    for i, root in enumerate(one.rhs):
        for new in _mutants(root, variables, kinds):
            yield replace(one, rhs=(*one.rhs[:i], new, *one.rhs[i + 1 :]))
    for i, condition in enumerate(one.when):
        yield replace(one, when=one.when[:i] + one.when[i + 1 :])
        if condition.kind in WEAKER:
            weaker = Condition(WEAKER[condition.kind], condition.args)
            yield replace(one, when=(*one.when[:i], weaker, *one.when[i + 1 :]))


def _sizes(scenario: Scenario, draw: random.Random) -> dict[Atom, int] | None:
    """Small sizes at which the premises of a scenario hold."""
    symbols = {s for premise in scenario.premises for s in premise.symbols()}
    symbols |= {s for shape in scenario.shapes.values() for e in shape for s in e.symbols()}
    for _ in range(100):
        sizes = {s: draw.choice((0, 1, 1, 2, 2, 3, 4)) for s in sorted(symbols)}
        if all(formula_value(premise, sizes) for premise in scenario.premises):
            return sizes
    return None


def differs(one: Rule, draw: random.Random) -> bool | None:
    """Whether both sides differ at some small instance; ``None`` if none was found."""
    terms = [t for root in (*one.lhs, *one.rhs) for t in root.walk() if isinstance(t, Apply)]
    real = bool({term.op for term in terms} & REAL)
    found = list(scenarios(one))
    draw.shuffle(found)
    verdict = None
    for scenario in found[:12]:
        sizes = _sizes(scenario, draw)
        if sizes is None:
            continue
        shapes = {
            name: tuple(int(poly_value(extent, sizes)) for extent in shape)
            for name, shape in scenario.shapes.items()
        }
        if any(np.prod(shape) > 300 for shape in shapes.values()):
            continue
        rng = np.random.default_rng(draw.randrange(10**6))
        field = FieldDomain(seed=draw.randrange(10**6))
        values = {
            name: rng.standard_normal(shape) if real else field.random(rng, shape)
            for name, shape in shapes.items()
        }
        numbers = {PI.name: math.pi}
        for i, (name, sign) in enumerate(scenario.parameters.items()):
            size = (0.5, 0.25, 2.0)[i % 3]
            signs = {"negative": (-1,), "unknown": (1, -1)}.get(sign, (1,))
            numbers[name] = size * draw.choice(signs)
        for sides in scenario.sides:
            with np.errstate(all="ignore"):
                left, right = (
                    evaluate(side, FLOAT if real else field, values, sizes, numbers)
                    for side in sides
                )
            close = np.allclose(left, right, rtol=1e-8, atol=1e-8, equal_nan=True)
            if not (close if real else np.array_equal(left, right)):
                return True
        verdict = False
    return verdict


def judge(one: Rule, draw: random.Random) -> tuple[str, str] | None:
    """What a mutant is and what the prover says of it."""
    try:
        wrong = differs(one, draw)
    except Unindexed:
        return None  # a mutant that is no rule: an attribute that stands for two things
    status = prove(one, time_limit_s=2.0).status
    assert not wrong or status != "proven", f"{one} was proved"
    return {True: "wrong", False: "not refuted", None: "no instance"}[wrong], status


def test_no_wrong_mutant_is_proved() -> None:
    draw = random.Random(1)
    pool = [mutant for one in BOOK.values() for mutant in mutants(one)]
    counts = Counter(judge(mutant, draw) for mutant in draw.sample(pool, MUTANTS))
    print(f"{MUTANTS} of {len(pool)} mutants: {dict(counts)}")
    refused = sum(
        number
        for verdict, number in counts.items()
        if verdict is not None and verdict[0] == "wrong"
    )
    assert refused >= MUTANTS / 5
