"""Statements of proven rules in Lean 4 with Mathlib, without proofs.

Tensors are functions on integers, and sizes are integers. That no side is at a
pole, or takes a root or logarithm of a negative number, is an assumption here: Lean gives 1/0 and
the root of -1 values of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

__all__ = ["theorems"]

_HEAD = """\
/- {about}

Both sides of the rule as functions of the index of an element, over the real numbers: a theorem
for each scenario of ranks, axes and flags. The proofs are left out. -/
import Mathlib

open Classical
open scoped BigOperators

noncomputable section

"""
_OR = "\N{LOGICAL OR}"
_REAL = {"Exp": "Real.exp", "Log": "Real.log"}


@dataclass
class _Text:
    """The text of the nodes of a trace, with the tensors and functions that occur in them."""

    nodes: Sequence[Any]
    tensors: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, None] = field(default_factory=dict)

    def integer(self, node: int) -> str:
        match self.nodes[node]:
            case ["symbol", name]:
                self.symbols[name] = None
                return _name(name)
            case ["poly", *terms]:
                return _joined(" + ", [self._term(term) for term in terms], "(0 : Int)")
            case ["quotient", over, under]:
                return f"({self.integer(over)} / {self.integer(under)})"
            case ["pick", index, extent]:
                return f"(if {self.integer(extent)} = 1 then 0 else {self.integer(index)})"
            case ["broadcast", extent]:
                return self.integer(extent)
            case ["broadcast", extent, *others]:
                first = self.integer(extent)
                rest = first
                for other in reversed(others):
                    value = self.integer(other)
                    rest = value if rest == first else f"(if {value} = 1 then {rest} else {value})"
                return f"(if {first} = 1 then {rest} else {first})"
            case [_, condition, then, otherwise]:
                return (
                    f"(if {self.formula(condition)} then {self.integer(then)} "
                    f"else {self.integer(otherwise)})"
                )
        raise ValueError(self.nodes[node])

    def _term(self, term: Sequence[Any]) -> str:
        coefficient, *factors = term
        return _joined(" * ", [f"({coefficient} : Int)", *map(self.integer, factors)], "1")

    def formula(self, node: int) -> str:
        match self.nodes[node]:
            case [">=0", value]:
                return f"(0 ≤ {self.integer(value)})"
            case ["=0", value]:
                return f"({self.integer(value)} = 0)"
            case ["and", *parts]:
                return _joined(" ∧ ", list(map(self.formula, parts)), "True")
            case [_, *parts]:
                return _joined(f" {_OR} ", list(map(self.formula, parts)), "False")
        raise ValueError(self.nodes[node])

    def number(self, node: int) -> str:
        match self.nodes[node]:
            case ["constant", over, under]:
                return f"({over} / {under} : Real)" if under != 1 else f"({over} : Real)"
            case ["whole", value]:
                return f"(({self.integer(value)} : Int) : Real)"
            case ["read", tensor, *index]:
                self.tensors[tensor] = len(index)
                return _applied(_name(tensor), [self.integer(i) for i in index])
            case ["parameter", name, sign]:
                self.parameters[name] = sign
                return _name(name)
            case ["plus", *parts]:
                return _joined(" + ", list(map(self.number, parts)), "(0 : Real)")
            case ["times", *parts]:
                return _joined(" * ", list(map(self.number, parts)), "(1 : Real)")
            case ["power", base, over, 1]:
                return f"({self.number(base)} ^ ({over} : Int))"
            case ["power", base, over, under]:
                return f"(Real.rpow {self.number(base)} ({over} / {under}))"
            case ["call", function, attributes, *arguments]:
                name = _REAL.get(function)
                if name is None:
                    key = f"{function}({attributes})" if attributes else function
                    self.functions[key] = len(arguments)
                    name = _name(key)
                return _applied(name, [self.number(one) for one in arguments])
            case ["if", condition, then, otherwise]:
                return (
                    f"(if {self.formula(condition)} then {self.number(then)} "
                    f"else {self.number(otherwise)})"
                )
            case ["sum", bound, where, body]:
                ranges = "".join(f"∑ {_name(v)} ∈ {self._range(e)}, " for v, e in bound)
                return f"({ranges}if {self.formula(where)} then {self.number(body)} else 0)"
            case [kind, *cases]:
                found = [self._case(*case) for case in cases]
                name = "sSup" if kind == "max" else "sInf"
                return f"({name} {{element : Real | {f' {_OR} '.join(found)}}})"
        raise ValueError(self.nodes[node])

    def _range(self, extent: int) -> str:
        return f"Finset.Ico (0 : Int) {self.integer(extent)}"

    def _case(self, bound: Sequence[Any], where: int, body: int) -> str:
        variables = "".join(f"∃ {_name(v)} ∈ {self._range(e)}, " for v, e in bound)
        return f"({variables}{self.formula(where)} ∧ element = {self.number(body)})"

    def demands(self, node: int, scope: str = "") -> Iterator[str]:
        """Yield what must hold for all operations of a number to be defined."""
        match self.nodes[node]:
            case ["plus" | "times", *parts]:
                for part in parts:
                    yield from self.demands(part, scope)
            case ["power", base, over, under]:
                value = self.number(base)
                if Fraction(over, under) < 0:
                    yield f"{scope}{value} ≠ 0"
                if under != 1:
                    yield f"{scope}0 ≤ {value}"
                yield from self.demands(base, scope)
            case ["call", function, _, *arguments]:
                if function == "Log":
                    yield f"{scope}0 < {self.number(arguments[0])}"
                for one in arguments:
                    yield from self.demands(one, scope)
            case ["if", condition, then, otherwise]:
                holds = self.formula(condition)
                yield from self.demands(then, f"{scope}{holds} → ")
                yield from self.demands(otherwise, f"{scope}¬{holds} → ")
            case ["sum", *case]:
                yield from self._demands_of(case, scope)
            case ["max" | "min", *cases]:
                for case in cases:
                    yield from self._demands_of(case, scope)

    def _demands_of(self, case: Sequence[Any], scope: str) -> Iterator[str]:
        bound, where, body = case
        inner = "".join(f"∀ {_name(v)} ∈ {self._range(e)}, " for v, e in bound)
        yield from self.demands(body, f"{scope}{inner}{self.formula(where)} → ")


def _name(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and len(name) > 1
    return name if plain else f"«{name.replace('»', '')}»"


def _joined(sign: str, parts: Sequence[str], empty: str) -> str:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else f"({sign.join(parts)})"


def _applied(function: str, arguments: Sequence[str]) -> str:
    return f"({' '.join([function, *arguments])})" if arguments else function


def _arrow(domain: str, count: int) -> str:
    return " → ".join([*[domain] * count, "Real"])


def theorems(trace: Mapping[str, Any], name: str, about: str) -> str:
    """Return one file in Lean with a theorem for each statement of a trace.

    Args:
        trace: the trace of a proof.
        name: name of the rule.
        about: the rule in words.
    """
    return _HEAD.format(about=about.replace("-/", "- /")) + "\n".join(
        _theorem(trace["nodes"], f"{name} {number}", statement)
        for number, statement in enumerate(trace["statements"])
    )


def _theorem(nodes: Sequence[Any], name: str, statement: Mapping[str, Any]) -> str:
    text = _Text(nodes)
    premises = [text.formula(one) for one in statement["premises"]]
    left, right = map(text.number, statement["sides"])
    defined = list(dict.fromkeys(d for side in statement["sides"] for d in text.demands(side)))
    bound = {v for node in nodes if node[0] in ("sum", "max", "min") for v in _binders(node)}
    signs = {"positive": "0 < ", "nonnegative": "0 ≤ ", "negative": "0 > "}
    premises += [
        f"{signs[sign]}{_name(one)}" for one, sign in text.parameters.items() if sign in signs
    ]
    free = [_name(one) for one in text.symbols if one not in bound]
    given = [
        *([f"({' '.join(free)} : Int)"] if free else []),
        *(f"({_name(one)} : {_arrow('Int', rank)})" for one, rank in text.tensors.items()),
        *(f"({_name(one)} : Real)" for one in text.parameters),
        *(f"({_name(one)} : {_arrow('Real', count)})" for one, count in text.functions.items()),
        *(f"(premise{i} : {one})" for i, one in enumerate(premises)),
        *(f"(defined{i} : {one})" for i, one in enumerate(defined)),
    ]
    assumed = "".join(f"\n    {one}" for one in given)
    return f"theorem {_name(name)}{assumed} :\n    {left} =\n    {right} := by\n  sorry\n"


def _binders(node: Sequence[Any]) -> Iterator[str]:
    cases = [node[1:]] if node[0] == "sum" else node[1:]
    for bound, *_ in cases:
        yield from (v for v, _ in bound)
