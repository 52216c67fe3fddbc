"""Congruence closure: against a fixpoint over all pairs, and the reasons that it gives."""

from __future__ import annotations

import itertools
import random

import pytest

from eqsat_opt.checking.closure import Closure

Terms = list[tuple[str, tuple[int, ...]]]


def drawn(seed: int) -> tuple[Terms, list[tuple[int, int]]]:
    draw = random.Random(seed)
    terms: Terms = [(name, ()) for name in "abcd"]
    for _ in range(20):
        head, count = draw.choice((("f", 1), ("g", 2), ("plus", 2)))
        made = head, tuple(draw.randrange(len(terms)) for _ in range(count))
        if made not in terms:
            terms.append(made)
    pairs = [(draw.randrange(len(terms)), draw.randrange(len(terms))) for _ in range(4)]
    return terms, pairs


def closure_of(terms: Terms, pairs: list[tuple[int, int] | None]) -> Closure:
    closure = Closure()
    for number, (head, operands) in enumerate(terms):
        assert closure.add(head, operands, commutes=head == "plus") == number
    for number, pair in enumerate(pairs):
        if pair is not None:
            closure.unite(*pair, number)
    return closure


def classes_of(terms: Terms, pairs: list[tuple[int, int]]) -> list[int]:
    """The classes by applying the law of congruence to all pairs until nothing changes."""
    label = list(range(len(terms)))

    def unite(a: int, b: int) -> bool:
        low, high = sorted((label[a], label[b]))
        label[:] = [low if one == high else one for one in label]
        return low != high

    for a, b in pairs:
        unite(a, b)
    changed = True
    while changed:
        changed = False
        for (a, (f, xs)), (b, (g, ys)) in itertools.combinations(enumerate(terms), 2):
            left, right = [label[x] for x in xs], [label[y] for y in ys]
            same = left == right or (f == "plus" and left == right[::-1])
            changed |= f == g and len(xs) == len(ys) and same and unite(a, b)
    return label


@pytest.mark.parametrize("seed", range(60))
def test_classes_and_reasons(seed: int) -> None:
    terms, pairs = drawn(seed)
    closure, label = closure_of(terms, [*pairs]), classes_of(terms, pairs)
    for a, b in itertools.combinations(range(len(terms)), 2):
        assert closure.same(a, b) == (label[a] == label[b])
        if not closure.same(a, b):
            continue
        used = closure.reasons(a, b)
        kept = [pair if number in used else None for number, pair in enumerate(pairs)]
        assert closure_of(terms, kept).same(a, b)


def test_terms_that_are_not_equal_have_no_reasons() -> None:
    closure = Closure()
    with pytest.raises(ValueError, match="not equal"):
        closure.reasons(closure.add("a"), closure.add("b"))
