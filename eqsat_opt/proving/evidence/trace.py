"""A record of a proof as a trace, which `eqsat_opt.checking.replay` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eqsat_opt.checking.replay import FORMAT
from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    all_of,
    atom,
)
from eqsat_opt.ir.ops.index.scalars import (
    ZERO,
    Call,
    Choice,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Read,
    Reduce,
    Scalar,
    Times,
    Whole,
)
from eqsat_opt.proving.numbers.definitions import defined
from eqsat_opt.proving.proof.record import Record
from eqsat_opt.proving.proof.sums.normal import (
    Case,
    Extremum,
    Factor,
    Letter,
    Normal,
    Opaque,
    Power,
)

__all__ = ["trace_of"]


@dataclass
class _Table:
    """The nodes of a trace, each once, and where each value has its node."""

    nodes: list[Any] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)
    known: dict[Any, int] = field(default_factory=dict)

    def node(self, *parts: Any) -> int:
        if parts not in self.places:
            self.places[parts] = len(self.nodes)
            self.nodes.append(parts)
        return self.places[parts]

    # Integers -------------------------------------------------------------------------------------

    def atom(self, value: Atom) -> int:
        if value.kind == "symbol":
            return self.node("symbol", value.key)
        parts = [self.poly(a) if isinstance(a, Poly) else self.formula(a) for a in value.args]
        return self.node(value.kind, *parts)

    def poly(self, value: Poly) -> int:
        if value not in self.known:
            terms = (
                (coefficient, *map(self.atom, monomial)) for monomial, coefficient in value.terms
            )
            self.known[value] = self.node("poly", *terms)
        return self.known[value]

    def formula(self, value: Formula) -> int:
        match value:
            case NonNegative(p):
                return self.node(">=0", self.poly(p))
            case IsZero(p):
                return self.node("=0", self.poly(p))
            case AllOf(parts):
                return self.node("and", *map(self.formula, parts))
            case AnyOf(parts):
                return self.node("or", *map(self.formula, parts))

    def formulas(self, values: Sequence[Formula]) -> tuple[int, ...]:
        return tuple(map(self.formula, values))

    def bound(self, bound: Sequence[tuple[Atom, Poly]]) -> tuple[tuple[str, int], ...]:
        return tuple((variable.key, self.poly(extent)) for variable, extent in bound)

    def number(self, value: Fraction) -> int:
        return self.node("constant", value.numerator, value.denominator)

    # Elements as operators define them ------------------------------------------------------------

    def scalar(self, value: Scalar) -> int:
        match value:
            case Read(tensor, index):
                return self.node("read", tensor, *map(self.poly, index))
            case Whole(whole):
                return self.node("whole", self.poly(whole))
            case Constant(number):
                return self.number(number)
            case Parameter(name, sign):
                return self.node("parameter", name, sign)
            case Plus(parts):
                return self.node("plus", *map(self.scalar, parts))
            case Times(parts):
                return self.node("times", *map(self.scalar, parts))
            case Inverse(operand):
                return self.node("power", self.scalar(operand), -1, 1)
            case Choice(condition, then, otherwise):
                inner = self.formula(condition), self.scalar(then), self.scalar(otherwise)
                return self.node("if", *inner)
            case Reduce("sum", bound, where, body):
                return self.node("sum", self.bound(bound), self.formula(where), self.scalar(body))
            case Reduce(kind, bound, where, body):
                case = self.bound(bound), self.formula(where), self.scalar(body)
                return self.node(kind, case)
            case Call():
                return self._call(value)

    def _call(self, call: Call) -> int:
        meaning = defined(call)
        if meaning is not None:
            return self.scalar(meaning)
        match call.function:
            case "Relu":
                return self._extremum("max", [*call.args, ZERO])
            case "Max" | "Min":
                return self._extremum(call.function.lower(), call.args)
            case "Sqrt":
                return self.node("power", self.scalar(call.args[0]), 1, 2)
            case "Pow" if isinstance(call.args[1], Constant):
                exponent = call.args[1].value
                base = self.scalar(call.args[0])
                return self.node("power", base, exponent.numerator, exponent.denominator)
            case _:
                return self._function(call.function, call.attrs, map(self.scalar, call.args))

    def _extremum(self, kind: str, parts: Sequence[Scalar]) -> int:
        return self.node(kind, *(((), self.formula(all_of()), self.scalar(p)) for p in parts))

    def _function(self, name: str, attrs: Sequence[Any], arguments: Any) -> int:
        text = "; ".join(f"{key} = {value}" for key, value in attrs)
        return self.node("call", name, text, *arguments)

    # Sums in normal form --------------------------------------------------------------------------

    def sum(self, value: Normal) -> int:
        if value not in self.known:
            parts = []
            for part in value:
                factors = (self.factor(factor) for factor in part.factors)
                product = self.node("times", self.number(part.coefficient), *factors)
                if part.bound or part.where:
                    where = self.formula(all_of(*part.where))
                    product = self.node("sum", self.bound(part.bound), where, product)
                parts.append(product)
            self.known[value] = self.node("plus", *parts)
        return self.known[value]

    def factor(self, value: Factor) -> int:
        match value:
            case Read() | Parameter():
                return self.scalar(value)
            case Letter(integer):
                return self.node("whole", self.poly(atom(integer)))
            case Power(base, exponent):
                return self.node("power", self.sum(base), exponent.numerator, exponent.denominator)
            case Opaque(name, attrs, arguments):
                return self._function(name, attrs, map(self.sum, arguments))
            case Extremum(kind, cases):
                return self.node(kind, *map(self._case, cases))

    def _case(self, case: Case) -> tuple[Any, ...]:
        where = self.formula(all_of(*case.where))
        return self.bound(case.bound), where, self.sum(case.element)


def trace_of(record: Record, about: Mapping[str, str]) -> dict[str, Any]:
    """Return the trace of a proof as plain data.

    Args:
        record: the record of the proof.
        about: the subject of the trace in words.
    """
    table = _Table()

    def claim(assumptions: Sequence[Formula], sum_: Normal | None) -> list[Any]:
        return [table.formulas(assumptions), None if sum_ is None else table.sum(sum_)]

    statements = [
        {
            "premises": table.formulas(one.premises),
            "sides": [table.scalar(side) for side in one.sides],
            "sums": [table.sum(sum_) for sum_ in one.sums],
        }
        for one in record.statements
    ]
    steps = [
        [one.kind, table.formulas(one.assumptions), table.sum(one.before), table.sum(one.after)]
        for one in record.steps
    ]
    vanishing = [
        {
            "assumptions": table.formulas(one.assumptions),
            "sums": [table.sum(sum_) for sum_ in one.sums],
            "ending": one.ending,
            "rest": [claim(*rest) for rest in one.rest],
        }
        for one in record.vanishing
    ]
    roots = [claim(*root) for root in record.roots]
    return {
        "format": FORMAT, **about, "nodes": table.nodes, "statements": statements,
        "steps": steps, "vanishing": vanishing, "roots": roots,
    }  # fmt: skip
