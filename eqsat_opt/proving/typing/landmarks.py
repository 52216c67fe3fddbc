"""Numbers at which a rule may change its behaviour, and numbers beyond all of these.

A rule sees extents and attributes through its own expressions only, and these change their course
at numbers that literals determine: at a threshold, at a root of a polynomial, where a quotient is
no longer 0. Instances below, at and above each such number, and beyond all of them, cover every
case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from eqsat_opt.ir.ops import get_op
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Condition, Expr, applied, parts

__all__ = ["ARITHMETIC", "FARTHEST", "Landmarks", "expressions", "landmarks", "leaves_of"]

FARTHEST = 20_000
"""Largest extent that is tried; all other extents beside it are small."""
_END = 10**7
"""Exclusive upper bound on extents of tensors."""
_MOST_SCANNED = 600
_ROOTS = 4
"""Most numbers at which one expression changes its course; the smallest ones are taken."""
_OTHERS = (1, 3)
"""Values of the other variables of an expression while one is varied."""
_BARE = frozenset({
    "axis", "axes", "perm", "keepdims", "ceil", "count_include_pad", "approximate", "dtype", "to"
})  # fmt: skip
"""Attributes whose literal values are not compared with any size."""
_GRAIN = 64
"""Denominator of drawn numbers, whose bits are so few that sums and products are exact."""
_LARGEST_REAL = 1e6
_HIGHEST = 16
"""Highest rank that is tried."""
ARITHMETIC = frozenset({"+", "-", "*", "//", "/", "sqrt", "real"})
"""Kinds of expressions that compute a number from others."""
_LEAVES = frozenset({"attr", "dim", "rank", "item"})
_ORDERS = frozenset({"==", "!=", "<", "<="})
_FINE, _FAR = 16, 8
"""Steps per unit, and greatest number, where the sign of an expression of floats is looked at."""
_REAL = frozenset({"float", "near", "far", "==", "!=", "<", "<="})


@dataclass(frozen=True)
class Landmarks:
    """The landmarks of one rule.

    Attributes:
        counts: sizes, strides, groups and the like: at least 1, ascending.
        drawn: counts that are drawn for the rule, larger than most that occur.
        ranks: ranks beyond and beside those that the rule names.
        reals: values of float attributes, of both signs.
        unseen: an expression on the right side that changes its course beyond all numbers tried.
    """

    counts: tuple[int, ...] = ()
    drawn: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    unseen: str = ""

    @property
    def positive(self) -> tuple[float, ...]:
        """The reals that are greater than 0."""
        return tuple(value for value in self.reals if value > 0)


def expressions(rule: Rule) -> Iterator[tuple[str, str, Expr]]:
    """Yield every expression of a rule, with its attribute and kind.

    An expression of a condition has an empty attribute, and the kind of the condition.
    """
    for term in applied(rule.roots):
        if term.op != MAP:
            kinds = get_op(term.op).attrs
            for key, pattern in term.attrs.items():
                yield from ((key, kinds[key], part) for part in parts(pattern))
    for condition in rule.when:
        yield "", condition.kind, _difference(condition)


def _difference(condition: Condition) -> Expr:
    sides = [arg for arg in condition.args[:2] if isinstance(arg, Expr)]
    return Expr("-", tuple(sides)) if len(sides) == 2 else Expr("literal", ("",))


def _nodes(expression: Expr) -> Iterator[Expr]:
    """Yield the expression and all below it, except the indices of extents and list elements."""
    for arg in expression.args if expression.kind in ARITHMETIC else ():
        yield from _nodes(arg)
    yield expression


def _places(expression: Expr) -> Iterator[int]:
    """Yield whole numbers in the indices of extents and list elements, except plain indices."""
    for node in _nodes(expression):
        for index in node.args if node.kind in ("dim", "item") else ():
            if isinstance(index, Expr):
                if index.kind != "literal":
                    yield from (int(number) for number in _numbers(index))
                yield from _places(index)


def _numbers(expression: Expr) -> Iterator[float]:
    for node in _nodes(expression):
        value = node.args[0] if node.kind == "literal" else None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield value


# Whole numbers ------------------------------------------------------------------------------------


def _beside(numbers: Iterable[int]) -> set[int]:
    literals = {abs(number) for number in numbers}
    near = {n + d for n in literals for d in (-1, 0, 1)} | {
        2 * n + d for n in literals for d in (0, 1)
    }
    pairs = {a * b for a in literals for b in literals if a < b} if len(literals) < 5 else set()
    return near | pairs


_Leaf = str


def leaves_of(expression: Expr) -> Iterator[Expr]:
    """Yield the sizes, ranks and attributes that an expression computes with."""
    return (node for node in _nodes(expression) if node.kind in _LEAVES)


def _leaves(expression: Expr) -> set[_Leaf]:
    return set(map(str, leaves_of(expression)))


def _course(expression: Expr, values: Mapping[_Leaf, float], signs: list[int]) -> float:
    """Return the value of an expression; add the signs of all operations in it to ``signs``.

    Raises:
        ArithmeticError: the expression has no value.
    """
    if expression.kind == "literal":
        value = expression.args[0]
        return value if isinstance(value, int | float) else 0
    if expression.kind not in ARITHMETIC:
        return values[str(expression)]
    operands = [_course(arg, values, signs) for arg in expression.args]
    match expression.kind:
        case "+":
            result = operands[0] + operands[1]
        case "-":
            result = operands[0] - operands[1]
        case "*":
            result = operands[0] * operands[1]
        case "//":
            result = operands[0] // operands[1]
        case "/":
            result = operands[0] / operands[1]
        case "sqrt":
            result = math.sqrt(max(operands[0], 0))
        case _:
            result = operands[0]
    signs.append((result > 0) - (result < 0))
    return result


def _signs(expression: Expr, values: dict[_Leaf, int], leaf: _Leaf, value: int) -> list[int]:
    """Return the course of an expression, as signs, where one of its variables has a value."""
    values[leaf] = value
    signs: list[int] = []
    try:
        _course(expression, values, signs)
    except ArithmeticError:
        signs.append(2)
    return signs


def _bends(expression: Expr, dense: int) -> Iterator[int]:
    """Yield values of one variable at which some part of the expression becomes 0 or leaves it.

    Values up to ``dense`` are examined one by one, until the first few such values are found.
    Beyond ``dense`` the steps get longer and longer, and only a change of course from one step to
    the next is noticed.
    """
    leaves = _leaves(expression)
    for leaf in sorted(leaves):
        for other in _OTHERS[: 1 if len(leaves) == 1 else None]:
            values = dict.fromkeys(leaves, other)
            before = _signs(expression, values, leaf, 1)
            value, left = 1, _ROOTS
            while left and value < _END:
                low, value = value, value + 1 if value < dense else value * 5 // 4
                signs = _signs(expression, values, leaf, value)
                if signs == before:
                    continue
                left -= 1
                high = value
                while high - low > 1:
                    middle = (low + high) // 2
                    same = _signs(expression, values, leaf, middle) == before
                    low, high = (middle, high) if same else (low, middle)
                yield from (high - 1, high, high + 1)
                before = signs


def _bent(expression: Expr) -> bool:
    """Return whether an expression may change its course elsewhere than beside its literals."""
    nodes = [node for node in _nodes(expression) if node.kind in ARITHMETIC]
    return len(nodes) > 1 or any(node.kind == "//" for node in nodes)


# Floats -------------------------------------------------------------------------------------------


def _rounded(value: float, inverted: bool) -> float:
    """Round to few bits, so that results are exact; to a power of 2 if the number is inverted."""
    if value == 0 or abs(value) > _LARGEST_REAL:
        return 0.0
    if inverted:
        return math.copysign(2.0 ** round(math.log2(abs(value))), value)
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * _GRAIN) / _GRAIN, exponent)


def _reals(literals: Sequence[float], inverted: bool, rng: random.Random) -> tuple[float, ...]:
    """Return numbers at, beside and beyond some literals, and drawn ones."""
    found = [f * c for c in literals for f in (1.0, -1.0, 2.0, 0.7, 1.4)]
    if literals:
        beyond = 2.0 * max(map(abs, literals)) + 1.0
        found += [beyond, -beyond]
    if inverted:
        found += [2.0 ** rng.randrange(-6, 7) for _ in range(4)] + [-(2.0 ** rng.randrange(-6, 7))]
    else:
        # Odd numerators: none is among the numbers that rules are usually tried with.
        found += [(2 * rng.randrange(3 * _GRAIN // 4) + 1) / _GRAIN for _ in range(4)]
        found += [-(2 * rng.randrange(_GRAIN) + 1) / _GRAIN, (2 * rng.randrange(8, 16) + 1) / 2]
    rounded = [_rounded(value, inverted) for value in found]
    return tuple(dict.fromkeys(value for value in rounded if value))


def _turns(expression: Expr) -> Iterator[float]:
    """Yield numbers on both sides of those at which an expression of floats changes its sign.

    Where a condition ends somewhat beyond the number up to which a rule is right, only numbers
    between both show it.
    """
    leaves = _leaves(expression)
    for leaf in sorted(leaves):

        def sign(value: float, leaf: str = leaf) -> float:
            try:
                number = _course(expression, {**dict.fromkeys(leaves, 1.0), leaf: value}, [])
            except ArithmeticError:
                return 0.0
            return math.copysign(1.0, number) if number else 0.0

        steps = [n / _FINE for n in range(-_FAR * _FINE, _FAR * _FINE + 1)]
        for low, high in pairwise(steps):
            if sign(low) * sign(high) < 0:
                while high - low > 2.0**-12:
                    middle = (low + high) / 2
                    low, high = (middle, high) if sign(middle) == sign(low) else (low, middle)
                yield from (low, high)


@lru_cache(maxsize=64)
def landmarks(rule: Rule) -> Landmarks:
    """Return the landmarks of a rule; drawn ones depend on its left side and conditions."""
    rng = random.Random(f"{' '.join(map(str, rule.lhs))} {' '.join(map(str, rule.when))}")
    whole: set[int] = set()
    ranks: set[int] = set()
    reals: list[float] = []
    bent: list[tuple[str, Expr]] = []
    turns: list[float] = []
    floats = {name for name, kind in rule.kinds if kind == "Float"}
    inverted = False
    for key, kind, expression in expressions(rule):
        if key in _BARE and expression.kind == "literal":
            continue
        numbers = list(_numbers(expression))
        integers = {int(n) for n in numbers if isinstance(n, int)}
        leaves = {node.kind for node in _nodes(expression) if node.kind in _LEAVES}
        if kind in _REAL and not leaves & {"dim", "rank"}:
            reals += numbers
        ranks |= {*_places(expression), *(integers if "rank" in leaves or key in _BARE else ())}
        if leaves != {"rank"} and (leaves or kind != "float") and key not in _BARE:
            whole |= integers
        if kind in _ORDERS and leaves == {"attr"} and _leaves(expression) <= floats:
            turns += _turns(expression)
        inverted = inverted or any(node.kind in ("/", "sqrt") for node in _nodes(expression))
        if _bent(expression):
            bent.append((key, expression))
    most = min(_MOST_SCANNED, 3 * max(whole, default=0) + 8)
    counts = _beside(whole)
    unseen = ""
    for key, expression in bent:
        bends = set(_bends(expression, most))
        counts |= bends
        if key and max(bends, default=0) > FARTHEST:
            unseen = str(expression)
    beyond = 2 * max(map(abs, whole), default=1) + 2
    counts |= {beyond, beyond + rng.randrange(1, 8)}
    return Landmarks(
        counts=tuple(sorted(count for count in counts if 1 <= count <= FARTHEST)),
        drawn=tuple(sorted(rng.sample(range(6, 16), 3))),
        ranks=tuple(sorted({r + d for r in ranks for d in (-1, 0, 1, 2) if 5 < r + d <= _HIGHEST})),
        reals=tuple(dict.fromkeys((*_reals(reals, inverted, rng), *turns))),
        unseen=unseen,
    )
