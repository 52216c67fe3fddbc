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
        used = {number for number, _ in closure.reasons(a, b)}
        kept = [pair if number in used else None for number, pair in enumerate(pairs)]
        assert closure_of(terms, kept).same(a, b)


def turns_into(
    terms: Terms, pairs: list[tuple[int, int]], used: set[tuple[int, bool]]
) -> set[tuple[int, int]]:
    """Which terms become which others by equations that are read in one direction each."""
    ways = {(pairs[number] if forward else pairs[number][::-1]) for number, forward in used}
    ways |= {(a, a) for a in range(len(terms))}
    while True:
        found = {(a, d) for a, b in ways for c, d in ways if b == c}
        for (a, (f, xs)), (b, (g, ys)) in itertools.permutations(enumerate(terms), 2):
            for zs in (ys, ys[::-1]) if f == "plus" else (ys,):
                if f == g and len(xs) == len(zs) and ways.issuperset(zip(xs, zs, strict=True)):
                    found.add((a, b))
        if found <= ways:
            return ways
        ways |= found


@pytest.mark.parametrize("seed", range(12))
def test_equations_are_read_in_the_directions_that_are_told(seed: int) -> None:
    terms, pairs = drawn(seed)
    closure = closure_of(terms, [*pairs])
    equal = [pair for pair in itertools.permutations(range(len(terms)), 2) if closure.same(*pair)]
    for a, b in random.Random(seed).sample(equal, min(6, len(equal))):
        assert (a, b) in turns_into(terms, pairs, closure.reasons(a, b))


def test_terms_that_are_not_equal_have_no_reasons() -> None:
    closure = Closure()
    with pytest.raises(ValueError, match="not equal"):
        closure.reasons(closure.add("a"), closure.add("b"))
