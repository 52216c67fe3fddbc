"""The proof of a rule for all sizes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops.index.evaluation import formula_value
from eqsat_opt.ir.ops.index.integers import atom, within
from eqsat_opt.ir.ops.index.scalars import Read, Unindexed, bound
from eqsat_opt.proving.proof.axes.reach import Reach, Uneven, reach_of
from eqsat_opt.proving.proof.budget import Budget, OutOfWork
from eqsat_opt.proving.proof.definedness import undefined
from eqsat_opt.proving.proof.elements import Rounded, elements_of
from eqsat_opt.proving.proof.obligations import Key, Obligation, obligation
from eqsat_opt.proving.proof.record import Record, Statement
from eqsat_opt.proving.proof.sums.equality import vanishes
from eqsat_opt.proving.proof.sums.from_terms import normalise
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import negative
from eqsat_opt.proving.typing.scenario import Scenario, scenarios
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import applied, parts, shown

__all__ = ["Proof", "Status", "prove"]

Status = Literal["proven", "unknown", "unsupported"]

_SYMBOLIC = ("strides", "pads", "dilations", "kernel", "group")
_TRIES = 12
_LEAST_RANK = 3
"""Rank up to which all ranks are tried, even where lower ones would suffice."""
LIMIT_S = 3.0
"""Limit on the work on a scenario, as seconds of an idle core."""


@dataclass(frozen=True)
class Proof:
    """The result of the prover for one rule.

    Attributes:
        status: ``proven``, ``unknown`` (no proof was found, which refutes nothing) or
            ``unsupported`` (an operator or attribute has no index semantics, or a proof at a few
            ranks and over real numbers would show too little).
        reason: why there is no proof; empty where there is one.
        scope: description of the cases that the proof covers.
        scenarios: number of combinations of ranks, axes and flags that were proved.
        time_s: processor time that the prover took.
    """

    status: Status
    reason: str
    scope: str
    scenarios: int
    time_s: float


@dataclass
class _Known:
    """The sums proved so far, and how often an unknown sum was met."""

    statements: set[Key] = field(default_factory=set)
    met: Counter[Key] = field(default_factory=Counter)


@dataclass
class _Attempt:
    """The scenarios of a rule up to the first that is not proved."""

    proved: list[Scenario]
    failed: Scenario | None = None
    doubt: str = ""


def prove(rule: Rule, *, time_limit_s: float = LIMIT_S, record: Record | None = None) -> Proof:
    """Prove that both sides of ``rule`` agree at all sizes, over the real numbers.

    The proof assumes the conditions of the rule, that both sides are well typed, and that their
    types are equal, which every reader of a rule checks before applying it. Extents are at least 1.
    One proof serves both directions.

    Nonlinear functions are unknown functions, except that Relu, Max, Min and max pools are extrema,
    exp(a + b) = exp(a) exp(b), the error function is odd, sigmoids, gates and clips are made of
    these, and roots, powers, logarithms and quotients combine where both sides are defined. Nothing
    is claimed where the side that is replaced has no value (a pole, the root of a negative number).
    Where it has a value, the other side is shown to have one too, except at single poles that a
    branch, an extremum or a function hides.

    Overflow of floating point is left out. Rules in which whole numbers could wrap around or be
    rounded are not proved (:mod:`~eqsat_opt.proving.proof.elements`), nor are rules whose behaviour
    at the ranks that are tried does not determine that at others
    (:mod:`~eqsat_opt.proving.proof.axes.reach`). Float literals are read as the numbers that they
    were rounded from, and constants near a target as the target.

    Args:
        rule: a rule with any number of roots.
        time_limit_s: limit on the work on one combination of ranks, axes and flags, as seconds of
            an idle core; beyond it the result is ``unknown``. Work is counted in steps, so that the
            result is the same on every machine.
        record: a record to fill with what the proof rests on.

    Raises:
        RuleError: z3 is not installed.
    """
    try:
        import z3
    except ImportError as error:
        raise RuleError(
            "proofs need z3; install it with: pip install 'eqsat-opt[verify]'"
        ) from error
    start = time.thread_time()

    def done(status: Status, reason: str, scope: str = "", count: int = 0) -> Proof:
        return Proof(
            status=status,
            reason=reason,
            scope=scope,
            scenarios=count,
            time_s=time.thread_time() - start,
        )

    try:
        elements, reach = elements_of(rule), reach_of(rule)
        attempt = _attempt(rule, max(_LEAST_RANK, reach.highest), Budget(time_limit_s, record))
    except Uneven as error:
        return done("unsupported", f"higher ranks may differ from those that are tried: {error}")
    except (Rounded, Unindexed) as error:
        return done("unsupported", str(error))
    except OutOfWork:
        return done("unknown", f"no proof within the work of about {time_limit_s:g} s")
    except z3.Z3Exception as error:
        return done("unknown", f"z3 gave up: {error}")
    if attempt.failed is not None:
        doubt = f": {attempt.doubt}" if attempt.doubt else ""
        return done("unknown", f"no proof at {_described(attempt.failed)}{doubt}")
    proved = attempt.proved
    if not proved:
        return done("unknown", "no ranks and flags were found at which both sides type")
    return done("proven", "", _scope(rule, proved, elements, reach), len(proved))


def _window_attributes(rule: Rule) -> list[str]:
    """Return the attributes of windows that are variables of the rule."""
    found = {
        key
        for term in applied(rule.lhs)
        if "strides" in term.attrs
        for key, value in term.attrs.items()
        if key in _SYMBOLIC
        for part in parts(value)
        if next(part.leaves(), None) is not None
    }
    return sorted(found)


def _attempt(rule: Rule, highest: int, budget: Budget) -> _Attempt:
    attempt = _Attempt([])
    known = _Known()
    for scenario in scenarios(rule, highest):
        budget.scenario()
        context = Context(scenario.premises, budget)
        if not _occurs(scenario, context):
            continue
        doubt = _undefined(rule, scenario, context)
        if doubt or not _holds(scenario, context, known):
            attempt.failed, attempt.doubt = scenario, doubt
            break
        attempt.proved.append(scenario)
    return attempt


def _occurs(scenario: Scenario, context: Context) -> bool:
    """Return whether the premises can hold, at a small instance or as far as z3 can decide."""
    symbols = sorted({symbol for fact in scenario.premises for symbol in fact.symbols()})
    for seed in range(_TRIES):
        draw = random.Random(seed)
        sizes = {symbol: draw.choice((0, 1, 1, 1, 2, 3)) if seed else 1 for symbol in symbols}
        if all(formula_value(fact, sizes) for fact in scenario.premises):
            return True
    return context.feasible()


def _undefined(rule: Rule, scenario: Scenario, context: Context) -> str:
    """Return why a side may be undefined where its counterpart is defined; empty if it is not."""
    for left, right in scenario.sides:
        index = [atom(bound("i")) for _ in left.shape]
        elements = left.at(index), right.at(index)
        if all(isinstance(one, Read) for one in elements):
            continue  # an operand has all its elements
        inside = [within(i, extent) for i, extent in zip(index, left.shape, strict=True)]
        with context.assuming(inside):
            for one, other in (elements, elements[::-1])[: 1 + rule.bidirectional]:
                doubt = undefined(one, other, rule, context)
                if doubt is not None:
                    return doubt
    return ""


def _holds(scenario: Scenario, context: Context, known: _Known) -> bool:
    for left, right in scenario.sides:
        places = [bound("i") for _ in left.shape]
        index = [atom(place) for place in places]
        sides = left.at(index), right.at(index)
        elements = normalise(sides[0]), normalise(sides[1])
        inside = [within(i, extent) for i, extent in zip(index, left.shape, strict=True)]
        record = context.budget.record
        if record is not None:
            record.state(Statement((*scenario.premises, *inside), sides, elements))
        if elements[0] == elements[1]:
            continue
        difference = elements[0] + negative(elements[1])
        if _proved(obligation(difference, [*scenario.premises, *inside]), context, known):
            continue
        with context.assuming(inside):
            if record is not None:
                record.roots.append((context.ordered, difference))
            if not vanishes(difference, context):
                return False
    return True


def _proved(wanted: Obligation, context: Context, known: _Known) -> bool:
    """Return whether a sum vanishes, which is known already or now proved."""
    keys = []
    for key in wanted.statements():
        if key in known.statements:
            return True
        keys.append(key)
    bare, guarded = keys
    record = context.budget.record
    if known.met[bare] == 1 and vanishes(wanted.sum, Context((), context.budget)):
        known.statements.add(bare)
        if record is not None:
            record.roots.append(((), wanted.sum))
        return True
    known.met[bare] += 1
    # A stored statement must not rest on an assumption that is not part of it.
    alone = Context(wanted.assumptions, context.budget)
    if not vanishes(wanted.sum, alone):
        return False
    if record is not None:
        record.roots.append((alone.ordered, wanted.sum))
    known.statements.add(guarded if alone.used else bare)
    return True


# Words -------------------------------------------------------------------------------------------


def _described(scenario: Scenario) -> str:
    made = [f"{name} = {shown(value)}" for name, value in scenario.choices.items()]
    return ", ".join(made) or "any sizes"


def _span(values: Iterable[int]) -> str:
    numbers = sorted(set(values))
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers))


def _scope(rule: Rule, proved: Sequence[Scenario], elements: str, reach: Reach) -> str:
    names = list(dict.fromkeys(name for scenario in proved for name in scenario.choices))
    ranks: dict[str, list[str]] = {}
    others = []
    for name in names:
        values = [s.choices[name] for s in proved if name in s.choices]
        if not name.startswith("rank "):
            others.append(name)
            continue
        tensor = name.removeprefix("rank ")
        ranks.setdefault(
            "any rank" if tensor in reach.open else f"rank {_span(values)}", []
        ).append(tensor)
    parts = [f"{span} of {', '.join(tensors)}" for span, tensors in ranks.items()]
    symbolic = [*others, *_window_attributes(rule)]
    if symbolic:
        parts.append(f"any {', '.join(symbolic)}")
    if any(condition.kind == "near" for condition in rule.when):
        parts.append("constants within a tolerance are taken for their target")
    return "; ".join([f"all sizes, {elements}", *parts])
