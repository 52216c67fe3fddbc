"""Instances of a left side that z3 finds, for the rules whose instances are hardly ever drawn.

The typing of the left side at symbolic sizes, and the conditions of the rule, are formulas over
integers (:mod:`eqsat_opt.proving.typing.scenario`). Small models of them are instances. The models
are made to differ: each symbol in turn is set to a random number, if that is possible.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import prod
from typing import Any, TypeAlias

from eqsat_opt.ir.ops.index.integers import AllOf, AnyOf, Atom, Formula, IsZero, NonNegative, Poly
from eqsat_opt.ir.ops.index.scalars import Unindexed
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.proof.sums.integers_z3 import definition
from eqsat_opt.proving.typing.hints import Hints
from eqsat_opt.proving.typing.most_general import FUNCTIONS
from eqsat_opt.proving.typing.open_attributes import SIGNED
from eqsat_opt.proving.typing.scenario import Scenario, scenarios, value_at
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, AttrPattern, Expr, applied

__all__ = ["Model", "models"]

_LARGEST = (3, 5, 8)
"""Bounds on the symbols, which are used in turn."""
_SCENARIOS = 24
"""Most combinations of ranks and flags in which models are looked for."""
_MOST_SCENARIOS = 4_000
_EACH = 96
"""Most models of one combination."""
_LIMIT = 2_000_000
"""Limit of one solver call, in z3's resource units."""
_NUMBERS = 12
"""Number of draws of the real attributes of a model."""

Sizes: TypeAlias = Mapping[Atom, int]


@dataclass(frozen=True)
class Model:
    """An instance at values of the symbols of one scenario.

    Attributes:
        scenario: ranks, axes and flags, and the sizes in terms of the symbols.
        sizes: values of the symbols.
        dtypes: tensor to element type.
        numbers: values of the attributes that are no integers.
    """

    scenario: Scenario
    sizes: Sizes
    dtypes: Mapping[str, str]
    numbers: Mapping[str, Any]

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(value_at(self.scenario.shapes[name], self.sizes, {}))

    def _attribute(self, name: str) -> Any:
        if name in self.numbers:
            return self.numbers[name]
        return value_at(self.scenario.attrs[name], self.sizes, self.numbers)

    @property
    def key(self) -> Any:
        """A key that is the same for equal instances of a rule."""
        tensors, attributes = sorted(self.dtypes), sorted({*self.scenario.attrs, *self.numbers})
        return (
            tuple(self.dtypes[name] for name in tensors),
            tuple(self._shape(name) for name in tensors),
            tuple(self._attribute(name) for name in attributes),
        )

    @property
    def elements(self) -> int:
        """Number of elements of all operands together."""
        return sum(prod(self._shape(name)) for name in self.dtypes)

    def bindings(self) -> Bindings:
        """Return the types and attributes of the instance, as readers of rules take them."""
        types = {n: TensorType(dtype, self._shape(n)) for n, dtype in self.dtypes.items()}
        names = {*self.scenario.attrs, *self.numbers}
        return Bindings(types, {name: self._attribute(name) for name in sorted(names)})

    def _with(self, changes: Sizes) -> Model | None:
        """Return the model at other values of some symbols, which the caller has to check.

        Returns:
            ``None`` if an extent would be negative.
        """
        changed = replace(self, sizes={**self.sizes, **changes})
        extents = [d for name in self.dtypes for d in changed._shape(name)]
        return changed if min(extents, default=0) >= 0 else None

    def shrunk(self) -> Iterator[Model]:
        """Yield smaller models, with one or two smaller symbols."""
        less = [{s: value - 1} for s, value in self.sizes.items() if value > 1]
        both = [a | b for a, b in combinations(less, 2)]
        smaller = (self._with(changes) for changes in (*less, *both))
        return (one for one in smaller if one is not None and one.elements < self.elements)

    def emptied(self) -> Iterator[Model]:
        """Yield smaller models with one symbol of 0."""
        empty = (self._with({symbol: 0}) for symbol in self.sizes)
        return (one for one in empty if one is not None and one.elements < self.elements)

    def stretched(self, extent: int, others: int) -> Iterator[Model]:
        """Yield models with one symbol as given, and all others at most ``others``."""
        small = {symbol: min(value, others) for symbol, value in self.sizes.items()}
        long = (self._with({**small, symbol: extent}) for symbol in self.sizes)
        return (one for one in long if one is not None)


def models(rule: Rule, hints: Hints, *, seed: int = 0) -> Iterator[Model]:
    """Yield candidates of all kinds, a few of each in turn; z3 must be installed.

    Args:
        rule: one direction of a rule; its right side is ignored.
        hints: hints of its left side.
        seed: seed of everything drawn.
    """
    rng = random.Random(f"models {seed}")
    left = replace(rule, rhs=rule.lhs)
    try:
        found = list(islice(scenarios(left), _MOST_SCENARIOS))
    except Unindexed:
        return
    rng.shuffle(found)
    sources = [_of_scenario(rule, one, hints, rng) for one in found[: 8 * _SCENARIOS]]
    productive: list[Iterator[Model]] = []
    for source in sources:
        first = next(source, None)
        if first is not None:
            yield first
            productive.append(source)
        if len(productive) == _SCENARIOS:
            break
    for _ in range(_EACH - 1):
        for source in productive:
            yield from islice(source, 1)


def _of_scenario(
    rule: Rule, scenario: Scenario, hints: Hints, rng: random.Random
) -> Iterator[Model]:
    solver = _Solver(scenario, rng)
    for attempt in range(_EACH):
        sizes = solver.next(_LARGEST[attempt % len(_LARGEST)])
        if sizes is None:
            if attempt >= len(_LARGEST) - 1:
                return
            continue
        dtype = rng.choice(hints.dtypes)
        dtypes = {name: hints.demanded.get(name, dtype) for name in scenario.shapes}
        for _ in range(_NUMBERS if scenario.parameters else 1):
            yield Model(scenario, sizes, dtypes, _numbers(rule, scenario, rng))


def _numbers(rule: Rule, scenario: Scenario, rng: random.Random) -> dict[str, Any]:
    """Draw values of the attributes that are numbers or functions."""
    named = [float(v) for c in rule.when for v in _literals(c.args)]
    pool = (*SIGNED, *named)
    names = {name for name in scenario.parameters if name in dict(rule.kinds)}
    functions = {
        leaf.args[0]
        for term in applied(rule.lhs)
        if term.op == MAP
        for leaf in _expr(term.attrs["f"]).leaves()
    }
    return {n: rng.choice(pool) for n in sorted(names)} | {
        n: rng.choice(FUNCTIONS) for n in sorted(functions)
    }


def _expr(pattern: AttrPattern) -> Expr:
    assert isinstance(pattern, Expr)
    return pattern


def _literals(args: Sequence[Any]) -> Iterator[float]:
    for arg in args:
        kind = getattr(arg, "kind", None)
        if kind == "literal" and isinstance(arg.args[0], float):
            yield arg.args[0]
        elif kind is not None:
            yield from _literals(arg.args)


class _Solver:
    """A source of models of one scenario, all of them different."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        import z3

        self._z3 = z3
        self._rng = rng
        self._context = z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._solver.set("rlimit", _LIMIT)
        self._constants: dict[Atom, Any] = {}
        self._values = [*_polynomials([*scenario.shapes.values(), *scenario.attrs.values()])]
        for formula in scenario.premises:
            self._solver.add(self._formula(formula))
        for value in self._values:
            self._sum(value)
        self._symbols = [atom for atom in self._constants if atom.kind == "symbol"]

    def next(self, largest: int) -> Sizes | None:
        """Return a random model with symbols up to ``largest`` in magnitude, if one is left."""
        z3, solver = self._z3, self._solver
        solver.push()
        for symbol in self._symbols:
            constant = self._constants[symbol]
            solver.add(constant <= largest, constant >= -largest)
        if solver.check() != z3.sat:
            solver.pop()
            return None
        model = solver.model()
        for symbol in self._rng.sample(self._symbols, len(self._symbols)):
            wanted = self._constants[symbol] == self._rng.randint(0, largest)
            if solver.check(wanted) == z3.sat:
                model = solver.model()
                solver.add(wanted)
        solver.pop()
        sizes = {s: self._value(model, self._constants[s]) for s in self._symbols}
        solver.add(z3.Or(*(self._constants[s] != v for s, v in sizes.items()), z3.BoolVal(
            not sizes, ctx=self._context)))  # fmt: skip
        return sizes

    @staticmethod
    def _value(model: Any, constant: Any) -> int:
        return int(model.eval(constant, model_completion=True).as_long())

    def _constant(self, part: Atom) -> Any:
        if part not in self._constants:
            self._constants[part] = self._z3.Int(f"a{len(self._constants)}", self._context)
            if part.kind != "symbol":
                self._solver.add(self._formula(definition(part)))
        return self._constants[part]

    def _sum(self, value: Poly) -> Any:
        total = self._z3.IntVal(0, self._context)
        for monomial, coefficient in value.terms:
            total = total + prod(map(self._constant, monomial), start=coefficient)
        return total

    def _formula(self, formula: Formula) -> Any:
        match formula:
            case NonNegative(p):
                return self._sum(p) >= 0
            case IsZero(p):
                return self._sum(p) == 0
            case AllOf(parts):
                true = self._z3.BoolVal(True, self._context)
                return self._z3.And(true, *map(self._formula, parts))
            case AnyOf(parts):
                false = self._z3.BoolVal(False, self._context)
                return self._z3.Or(false, *map(self._formula, parts))


def _polynomials(values: Sequence[Any]) -> Iterator[Poly]:
    for value in values:
        if isinstance(value, Poly):
            yield value
        elif isinstance(value, tuple):
            yield from _polynomials(value)
