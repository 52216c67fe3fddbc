"""Frames of a rule: what is chosen before its extents are solved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from eqsat_opt.ir.dims import sym
from eqsat_opt.ir.ops import OPS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern

__all__ = ["PADS", "Frame", "frames"]

_RANKS = (2, 4, 3, 1, 5)
_FRAMES = 40
_SYMBOLIC = frozenset({"lo", "hi", "pads", "kernel"})
"""Attributes that are unknowns like the extents; all others are chosen per frame."""
_FUNCTIONS = ("Mish", "Softsign", "Cos", "Softplus", "Sin", "Ceil", "Floor", "Round")
"""Each stands for an arbitrary function: no equation of the book mentions one of them."""
_FLAGS = frozenset({"ceil", "count_include_pad", "keepdims"})
PADS = "pads "
"""Start of the names of unknown pads."""


@dataclass(frozen=True)
class Frame:
    """What is chosen before extents are solved.

    Attributes:
        ranks: of the tensor variables.
        attrs: values of the attribute variables; those that are solved for are symbols.
        ones: extents that are 1, as tensor variable and axis.
    """

    ranks: Mapping[str, int]
    attrs: Mapping[str, Any]
    ones: frozenset[tuple[str, int]]

    @property
    def key(self) -> str:
        return str((sorted(self.ranks.items()), sorted(self.attrs.items()), sorted(self.ones)))


def _uses(rule: Rule) -> Iterator[tuple[str, AttrPattern]]:
    """Attribute names and the patterns that stand there."""
    for root in (*rule.lhs, *rule.rhs):
        for term in root.walk():
            if isinstance(term, Apply):
                yield from term.attrs.items()


def _ranks(rule: Rule, usual: int) -> dict[str, int]:
    """Ranks as the conditions say, otherwise the usual one."""
    names = sorted({name for root in (*rule.lhs, *rule.rhs) for name in root.variables()})
    said: dict[str, int] = {}
    for _ in range(2):
        for condition in rule.when:
            if condition.kind != "==" or condition.args[0].kind != "rank":
                continue
            left, right = condition.args
            if right.kind == "literal":
                said[left.args[0]] = int(right.args[0])
            elif right.kind == "rank":
                known = said.get(left.args[0], said.get(right.args[0], usual))
                said[left.args[0]] = said[right.args[0]] = known
    return {name: said.get(name, usual) for name in names}


def _attribute(key: str, kind: str, name: str, rank: int, rng: np.random.Generator) -> Any:
    """A value for one attribute variable, by the attribute that it stands for.

    No equation of the book singles out the numbers that are chosen here (as it does a stride of 1
    or the permutation that keeps the order), so what holds for them holds for any. One group is
    among the choices, because some left sides have no other typing.
    """

    def numbers(count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in rng.integers(low, high, size=max(count, 0)))

    if kind == "Int" and key in _SYMBOLIC:
        return sym(f"{key} {name}")
    match key:
        case "axis":
            return int(rng.integers(rank))
        case "axes" if kind == "Int":
            return int(rng.integers(rank))
        case "group":
            return int(rng.choice((1, 2, 3, 4)))
        case "strides" | "dilations":
            return numbers(rank - 2, 2, 6)
        case "pads":
            return numbers(2 * (rank - 2), 1, 6)
        case "kernel":
            return numbers(rank - 2, 6, 9)
        case "axes":
            return tuple(sorted({int(i) for i in rng.integers(rank, size=rank)}))
        case "perm":
            return _permutation(rank, rng)
    if kind == "Float":
        return float(rng.integers(3, 99)) / 64
    if kind == "Int":
        return int(rng.integers(2)) if key in _FLAGS else int(rng.integers(2, 9))
    return numbers(rank, 2, 6)


def _permutation(rank: int, rng: np.random.Generator) -> tuple[int, ...]:
    """A random permutation, but not the identity where there is another."""
    order = tuple(range(rank))
    while True:
        chosen = tuple(int(i) for i in rng.permutation(rank))
        if chosen != order or rank < 2:
            return chosen


def frames(rule: Rule, rng: np.random.Generator) -> Iterator[Frame]:
    """Frames of ``rule`` of ranks 1 to 5; some may be equal to others, and some admit no typing."""
    kinds = dict(rule.kinds)
    broadcasts = any(
        isinstance(t, Apply) and t.op != MAP and OPS[t.op].kind == "pointwise" and len(t.args) == 2
        for root in rule.lhs
        for t in root.walk()
    )
    for number in range(_FRAMES):
        usual = _RANKS[number % len(_RANKS)]
        ranks = _ranks(rule, usual)
        rank = max(ranks.values(), default=usual)
        attrs: dict[str, Any] = {}
        functions = cycle((name, ()) for name in _FUNCTIONS)
        for key, pattern in _uses(rule):
            for part in pattern if isinstance(pattern, tuple) else (pattern,):
                for leaf in (leaf for leaf in part.leaves() if leaf.kind == "attr"):
                    name = leaf.args[0]
                    if name not in attrs:
                        attrs[name] = (
                            next(functions)
                            if kinds[name] == "Func"
                            else _attribute(key, kinds[name], name, rank, rng)
                        )
        places = [(name, i) for name, r in sorted(ranks.items()) for i in range(r)]
        # In every third frame some extents are 1, so that operands broadcast.
        ones = broadcasts and number % 3 == 2
        chosen = [place for place in places if ones and rng.random() < 0.3]
        yield Frame(ranks, attrs, frozenset(chosen))
