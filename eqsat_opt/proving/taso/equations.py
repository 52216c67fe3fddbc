"""TASO's generated rules as equations, which come with this package.

``equations.txt`` has a line for each rule of TASO's file, in its order, as :class:`TasoRule` prints
it: ``matmul[none](x, y)``, ``split[ax1](…).0``, outputs separated by ``|``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from eqsat_opt.errors import RuleError
from eqsat_opt.proving.taso.reader import (
    ACTIVATIONS,
    PADS,
    Pair,
    TasoOp,
    TasoRule,
    Value,
)

__all__ = ["parse_rule", "published_rules"]

_TOKEN = re.compile(r"\s*(\.[01]|=>|[a-z]\w*(?:\[[^\]]*\])?|[(),|])")
_CONV = re.compile(r"s(\d+)x(\d+),(\w+),(\w+)")
_AXIS = re.compile(r"ax(\d+)(?:/(\d+)d)?")


@cache
def published_rules() -> tuple[TasoRule, ...]:
    """Return the rules that TASO published, wrong ones included, in the order of its file."""
    text = files("eqsat_opt.proving.taso").joinpath("equations.txt").read_text(encoding="utf-8")
    return tuple(parse_rule(line, number) for number, line in enumerate(text.splitlines()))


def parse_rule(line: str, number: int) -> TasoRule:
    """Return the rule that a line states.

    Raises:
        RuleError: the line is not of the form that rules are printed in.
    """
    return _Line(line, number).rule()


class _Line:
    """A line that is read from left to right; equal operators of a side are one."""

    def __init__(self, line: str, number: int) -> None:
        self.line, self.number = line, number
        self.tokens = _TOKEN.findall(line)
        self.place = 0
        self.variables: dict[str, int] = {}

    def rule(self) -> TasoRule:
        if re.sub(r"\s", "", self.line) != re.sub(r"\s", "", "".join(self.tokens)):
            raise self.damage()
        sides: tuple[list[TasoOp], list[TasoOp]] = ([], [])
        pairs: list[Pair] = []
        while not pairs or self.peek() == "|":
            if pairs:
                self.take("|")
            source = self.value(sides[0])
            self.take("=>")
            pairs.append(Pair(source, self.value(sides[1])))
        if self.peek():
            raise self.damage()
        return TasoRule(self.number, tuple(sides[0]), tuple(sides[1]), tuple(pairs))

    def damage(self) -> RuleError:
        return RuleError(f"{self.line!r} is no rule of TASO; write it as `{_EXAMPLE}`")

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        if not token or (wanted and token not in wanted):
            raise self.damage()
        self.place += 1
        return token

    def value(self, side: list[TasoOp]) -> Value:
        head = self.take()
        if self.peek() != "(":
            return Value(self.variables.setdefault(head, -1 - len(self.variables)), 0)
        self.take("(")
        operands = [self.value(side)]
        while self.take(",", ")") == ",":
            operands.append(self.value(side))
        op = self.operator(head, tuple(operands))
        if op not in side:
            side.append(op)
        output = int(self.take(".0", ".1")[1]) if op.kind == "split" else 0
        return Value(side.index(op), output)

    def operator(self, head: str, operands: tuple[Value, ...]) -> TasoOp:
        kind, _, rest = head.rstrip("]").partition("[")
        given: dict[str, int] = {}
        try:
            if (found := _CONV.fullmatch(rest)) and kind == "conv":
                given = {
                    "stride_h": int(found[1]), "stride_w": int(found[2]),
                    "pad": PADS.index(found[3]), "activation": ACTIVATIONS.index(found[4]),
                }  # fmt: skip
            elif kind == "matmul":
                given = {"activation": ACTIVATIONS.index(rest)}
            elif (found := _AXIS.fullmatch(rest)) and kind in ("concat", "split"):
                given = {"axis": int(found[1])} | ({"rank": int(found[2])} if found[2] else {})
            elif rest or kind not in ("relu", "sigmoid", "tanh", "ewadd", "ewmul"):
                raise self.damage()
        except ValueError as error:
            raise self.damage() from error
        return TasoOp(kind, operands, MappingProxyType(given))


_EXAMPLE = "relu(ewadd(x, y)) => relu(ewadd(y, x))"
