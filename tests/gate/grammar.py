"""Rules that are right wherever one is likely to look: a right rule, a size, and a term that is 0.

A *place* is a right rule with a number in it that one size of the instance may disturb: an extent,
a rank, a kernel, a stride, a group. A *term* is 0 for the sizes that are usual and not for all:
a quotient by a threshold, a polynomial with many roots, a remainder by a number with many divisors.
Each pair is a wrong rule, and the least size at which the term is not 0 shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from eqsat_opt.rules import Expr, Numerics, Sides, Term, concat, declared, near, ops, real
from eqsat_opt.rules.term import expr
from tests.gate.cases import Case, f64

__all__ = ["generated"]

_R = Numerics.REASSOCIATE
_SHARE = 3
_Size = Any
"""An expression in a rule, a number where the same term is evaluated."""


# Terms -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Hidden:
    """A whole number that is 0 for usual sizes.

    Attributes:
        name: how it is made.
        of: the term of a size.
        least: the first size at which it is looked for.
    """

    name: str
    of: Callable[[_Size], _Size]
    least: int = 1

    def shows(self, most: int) -> int | None:
        """The least size at which the term is not 0, if there is one up to ``most``."""
        return next((n for n in range(self.least, most + 1) if self.of(n) != 0), None)


def _product(factors: list[_Size]) -> _Size:
    return reduce(lambda a, b: a * b, factors)


def _quotient(threshold: int) -> _Hidden:
    return _Hidden(f"quotient-{threshold}", lambda n: n // threshold)


def _nested(part: int) -> _Hidden:
    return _Hidden(f"nested-{part}", lambda n: n // part // part)


def _square(threshold: int) -> _Hidden:
    return _Hidden(f"square-{threshold}", lambda n: (n * n) // threshold)


def _shifted(threshold: int) -> _Hidden:
    half = threshold // 2
    return _Hidden(f"shifted-{threshold}", lambda n: (n + half) // (threshold + half))


def _roots(most: int) -> _Hidden:
    return _Hidden(f"roots-{most}", lambda n: _product([n - i for i in range(most + 1)]))


def _divisors(number: int) -> _Hidden:
    return _Hidden(
        f"divisors-{number}",
        lambda n: number - expr(number) // n * n if isinstance(n, Expr) else number % n,
    )


def _odd_above(threshold: int) -> _Hidden:
    return _Hidden(f"odd-above-{threshold}", lambda n: (n - n // 2 * 2) * (n // threshold))


def _only(value: int) -> _Hidden:
    """Of 1 at one number: n // value less n // (value + 1), up to twice that."""
    return _Hidden(f"only-{value}", lambda n: n // value - n // (value + 1))


_TERMS = (
    _quotient(4), _quotient(6), _quotient(9), _quotient(13), _quotient(40), _quotient(500),
    _nested(3), _nested(6), _nested(11), _square(50), _square(1000), _shifted(7), _shifted(30),
    _roots(3), _roots(6), _roots(12), _divisors(12), _divisors(60), _divisors(2520),
    _divisors(720720), _odd_above(5), _odd_above(14), _only(5), _only(8), _only(17),
)  # fmt: skip


# Places ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A right rule with a number that one size may disturb.

    Attributes:
        name: the size.
        kinds: of the variables.
        size: which one it is, from the variables.
        sides: both sides and the conditions, from the variables and what is 0.
        given: where it shows, from the size.
        most: greatest size at which showing it takes little.
        numerics: of the right rule.
    """

    name: str
    kinds: Mapping[str, str]
    size: Callable[[Mapping[str, Any]], Expr]
    sides: Callable[[Mapping[str, Any], Expr], Sides]
    given: Callable[[int], Mapping[str, Any]]
    most: int = 1000
    numerics: Numerics = Numerics.BITEXACT


def _abs(x: Term) -> Term:
    return ops.Relu(ops.Abs(x))


def _plain(x: Term, off: Expr) -> Sides:
    """|x| is not negative; moved by what is 0."""
    return _abs(x), ops.Shift(ops.Abs(x), offset=real(off))


def _pool(x: Term, kernel: Any, strides: Any, before: Any, after: Any, dilation: Any = 1) -> Term:
    return ops.MaxPool(
        x, kernel=(kernel,), strides=(strides,), pads=(before, after), dilations=(dilation,), ceil=0
    )


def _conv(x: Term, w: Term, group: Any, stride: Any = 1, dilation: Any = 1) -> Term:
    return ops.Conv(x, w, strides=(stride,), pads=(0, 0), dilations=(dilation,), group=group)


def _tensor(**kinds: str) -> dict[str, str]:
    return {"x": "Tensor", **kinds}


_PLACES = (
    _Place(
        "extent", _tensor(), lambda v: v["x"].dim(0), lambda v, off: _plain(v["x"], off),
        lambda n: {"x": f64(n)},
    ),
    _Place(
        "rank", _tensor(), lambda v: v["x"].rank, lambda v, off: _plain(v["x"], off),
        lambda n: {"x": f64(*(1,) * n)}, 20,
    ),
    _Place(
        "inner-extent", _tensor(y="Weight"), lambda v: v["y"].dim(0),
        lambda v, off: (
            ops.Transpose(v["x"] @ v["y"], perm=(1, 0)),
            ops.Transpose(v["y"], perm=(1, 0))
            @ ops.Transpose(ops.Scale(v["x"], factor=1 + off), perm=(1, 0)),
            v["x"].rank == 2,
            v["y"].rank == 2,
        ),
        lambda n: {"x": f64(2, n), "y": f64(n, 2)}, 600, _R,
    ),
    _Place(
        "kernel", _tensor(k="Int"), lambda v: v["k"],
        lambda v, off: (
            _pool(ops.Relu(v["x"]), v["k"], 1, 0, 0),
            ops.Relu(ops.Shift(_pool(v["x"], v["k"], 1, 0, 0), offset=real(off))),
        ),
        lambda n: {"x": f64(1, 1, n + 2), "k": n}, 300,
    ),
    _Place(
        "stride", _tensor(s="Int"), lambda v: v["s"],
        lambda v, off: (
            _pool(ops.Relu(v["x"]), 2, v["s"], 0, 0),
            ops.Relu(ops.Shift(_pool(v["x"], 2, v["s"], 0, 0), offset=real(off))),
        ),
        lambda n: {"x": f64(1, 1, 2 * n + 2), "s": n}, 60,
    ),
    _Place(
        "unequal-strides", _tensor(s="Ints"), lambda v: v["s"][1],
        lambda v, off: (
            ops.MaxPool(ops.Relu(v["x"]), kernel=(2, 2), strides=v["s"], pads=(0, 0, 0, 0),
                        dilations=(1, 1), ceil=0),
            ops.Shift(ops.MaxPool(ops.Relu(v["x"]), kernel=(2, 2), strides=v["s"],
                                  pads=(0, 0, 0, 0), dilations=(1, 1), ceil=0),
                      offset=real(off * (v["s"][0] - v["s"][1]))),
            v["s"][0] >= v["s"][1],
        ),
        lambda n: {"x": f64(1, 1, 9 * n, 9 * n), "s": (n + 1, n)}, 14,
    ),
    _Place(
        "dilation", _tensor(w="Weight", d="Int"), lambda v: v["d"],
        lambda v, off: (
            ops.Scale(_conv(v["x"], v["w"], 1, 1, v["d"]), factor=2.0),
            _conv(v["x"], ops.Scale(v["w"], factor=2 + off), 1, 1, v["d"]),
            v["w"].rank == 3,
        ),
        lambda n: {"x": f64(1, 2, n + 3), "w": f64(2, 2, 2), "d": n}, 300, _R,
    ),
    _Place(
        "group", _tensor(w="Weight", g="Int"), lambda v: v["g"],
        lambda v, off: (
            ops.Scale(_conv(v["x"], v["w"], v["g"]), factor=-1.0),
            _conv(v["x"], ops.Scale(v["w"], factor=0 - 1 - off), v["g"]),
            v["w"].rank == 3,
        ),
        lambda n: {"x": f64(1, n, 3), "w": f64(n, 1, 2), "g": n}, 300, _R,
    ),
    _Place(
        "repeats", _tensor(i="Int", r="Int"), lambda v: v["r"],
        lambda v, off: (
            ops.Relu(ops.Repeat(v["x"], axis=v["i"], repeats=v["r"])),
            ops.Repeat(ops.Relu(ops.Shift(v["x"], offset=real(off))), axis=v["i"], repeats=v["r"]),
        ),
        lambda n: {"x": f64(2, 2), "i": 1, "r": n}, 300,
    ),
    _Place(
        "pad", _tensor(a="Int", b="Int"), lambda v: v["a"],
        lambda v, off: (
            ops.Relu(ops.Pad(v["x"], pads=(v["a"], v["b"]), value=0.0)),
            ops.Pad(ops.Relu(v["x"]), pads=(v["a"], v["b"]), value=real(off)),
            v["a"] >= 0,
        ),
        lambda n: {"x": f64(3), "a": n, "b": 1}, 300,
    ),
    _Place(
        "slice", _tensor(i="Int", a="Int", b="Int"), lambda v: v["b"] - v["a"],
        lambda v, off: (
            ops.Relu(ops.Slice(v["x"], axis=v["i"], lo=v["a"], hi=v["b"])),
            ops.Slice(ops.Relu(ops.Shift(v["x"], offset=real(off))), axis=v["i"], lo=v["a"],
                      hi=v["b"]),
        ),
        lambda n: {"x": f64(n + 2), "i": 0, "a": 1, "b": n + 1}, 300,
    ),
    _Place(
        "window", _tensor(n="Int", a="Float", b="Float", c="Float"), lambda v: v["n"],
        lambda v, off: (
            ops.Abs(ops.LRN(v["x"], size=v["n"], alpha=v["a"], beta=v["b"], bias=v["c"])),
            ops.LRN(ops.Abs(v["x"]), size=v["n"], alpha=v["a"], beta=v["b"] + real(off),
                    bias=v["c"]),
        ),
        lambda n: {"x": f64(1, n + 1, 2), "n": n, "a": 0.5, "b": 0.75, "c": 2.0}, 60,
    ),
    _Place(
        "type", _tensor(), lambda v: v["x"].dim(0),
        lambda v, off: (
            _abs(v["x"]), ops.Slice(ops.Abs(v["x"]), axis=0, lo=0, hi=v["x"].dim(0) - off),
        ),
        lambda n: {"x": f64(n)},
    ),
    _Place(
        "elements", _tensor(), lambda v: v["x"].dim(0) * v["x"].dim(1),
        lambda v, off: _plain(v["x"], off), lambda n: {"x": f64(n, 1)},
    ),
    _Place(
        "both-extents", _tensor(), lambda v: v["x"].dim(0) * v["x"].dim(1) // 3,
        lambda v, off: _plain(v["x"], off), lambda n: {"x": f64(3, n)}, 300,
    ),
    _Place(
        "concat", _tensor(y="Tensor", i="Int"), lambda v: v["x"].dim(v["i"]) + v["y"].dim(v["i"]),
        lambda v, off: (
            ops.Relu(concat(v["x"], v["y"], v["i"])),
            ops.Shift(concat(ops.Relu(v["x"]), ops.Relu(v["y"]), v["i"]), offset=real(off)),
        ),
        lambda n: {"x": f64(max(n - 1, 1)), "y": f64(1), "i": 0}, 300,
    ),
    _Place(
        "heads", {"q": "Tensor", "k": "Tensor", "v": "Tensor", "a": "Float"},
        lambda v: v["q"].dim(1),
        lambda v, off: (
            ops.Attention(ops.Scale(v["q"], factor=2.0), v["k"], v["v"], scale=v["a"]),
            ops.Attention(v["q"], v["k"], v["v"], scale=v["a"] * (2 + off)),
        ),
        lambda n: {
            "q": f64(1, n, 2, 2), "k": f64(1, 1, 3, 2), "v": f64(1, 1, 3, 2), "a": 0.5,
        }, 100, _R,
    ),
)  # fmt: skip


def _planted() -> Iterator[Case]:
    """Places with terms that show there."""
    for number, place in enumerate(_PLACES):
        # All terms at the first place, which is any extent; at the others every third, in turns.
        for term in _TERMS[number % _SHARE :: _SHARE] if number else _TERMS:
            n = term.shows(place.most)
            # What shows at a usual size is found by any sample of instances.
            if n is None or n <= 3 or (place.name == "type" and term.of(n) >= n):
                continue
            yield _case(place, term, n)


def _case(place: _Place, term: _Hidden, n: int) -> Case:
    rule = declared(
        f"planted/{place.name}-{term.name}",
        f"Right until the {place.name.replace('-', ' ')} is {n}.",
        place.kinds,
        lambda v: place.sides(v, term.of(place.size(v))),
        numerics=place.numerics,
    )
    return Case(rule, place.given(n))


# Float attributes ------------------------------------------------------------------------------

_POOL = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 0.0, -0.5, -1.0, -2.0, 2.0**-10)
_USUAL: Mapping[str, Callable[[Any], Any]] = {
    "pool": lambda a: _product([a - value for value in _POOL]),
    "square": lambda a: a * a // 50.0,
    "quotient": lambda a: (a + 64.0) // 128.0 - (a // 128.0) * ((a + 64.0) // 128.0),
    "dyadic": lambda a: a * 1024.0 - a * 1024.0 // 1.0,
    "halves": lambda a: a * 4096.0 - a * 4096.0 // 1.0,
    "epsilon": lambda a: (a - 1e-5) * (a - 1e-6) * (a - 1e-12) * (a - 0.25) * (a - 1e-3),
}
_FLOATS: Mapping[str, tuple[Callable[[Term, Any], Term], Callable[[Term, Any, Any], Term]]] = {
    "leaky-relu": (
        lambda x, a: ops.LeakyRelu(x, alpha=a), lambda x, a, off: ops.LeakyRelu(x, alpha=a + off),
    ),
    "elu": (lambda x, a: ops.Elu(x, alpha=a), lambda x, a, off: ops.Elu(x, alpha=a + off)),
    "scale": (lambda x, a: ops.Scale(x, factor=a), lambda x, a, off: ops.Scale(x, factor=a + off)),
    "shift": (lambda x, a: ops.Shift(x, offset=a), lambda x, a, off: ops.Shift(x, offset=a + off)),
    "rms": (
        lambda x, a: ops.RmsN(x, axes=(0,), epsilon=a),
        lambda x, a, off: ops.RmsN(x, axes=(0,), epsilon=a + off * off),
    ),
    "pad": (
        lambda x, a: ops.Pad(x, pads=(1, 1), value=a),
        lambda x, a, off: ops.Pad(x, pads=(1, 1), value=a + off),
    ),
}  # fmt: skip


def _of_floats() -> Iterator[Case]:
    """An attribute that is moved wherever it is no usual number."""
    for place, (before, after) in _FLOATS.items():
        for name, term in _USUAL.items():
            value = next(a for a in (0.7, 0.3, 77.7, 130.0) if abs(term(a)) > 1e-6)
            rule = declared(
                f"planted/{place}-{name}",
                f"Right for usual attributes, not for {value}.",
                {"x": "Tensor", "a": "Float"},
                lambda v, before=before, after=after, term=term: (  # type: ignore[misc]
                    ops.Abs(ops.Abs(before(v["x"], v["a"]))),
                    ops.Abs(after(v["x"], v["a"], term(v["a"]))),
                    v["a"] >= 0.0,
                ),
            )
            yield Case(rule, {"x": f64(5), "a": value})


# Permutations ----------------------------------------------------------------------------------


def _word(*powers: int) -> Callable[[Any, Any, Any], Any]:
    """The axis that p and q in turns, each so many times, lead to."""

    def follow(p: Any, q: Any, axis: Any) -> Any:
        for place, times in enumerate(powers):
            for _ in range(times):
                axis = (q if place % 2 else p)[axis]
        return axis

    return follow


_WORDS = (
    ("square-of-three", _word(6), {"p": (1, 2, 3, 0), "q": (0, 1, 2, 3)}),
    ("order-of-four", _word(12), {"p": (1, 2, 3, 4, 0), "q": (0, 1, 2, 3, 4)}),
    ("squares-commute", _word(2, 2, 4, 4), {"p": (1, 2, 0, 3), "q": (0, 2, 3, 1)}),
    ("sixth-powers", _word(6, 6, 6, 6), {"p": (1, 2, 3, 0, 4), "q": (0, 2, 3, 4, 1)}),
)


def _of_words() -> Iterator[Case]:
    """Words in two permutations that are the identity of few axes."""
    for name, word, permutations in _WORDS:
        rank = len(permutations["p"])
        rule = declared(
            f"planted/word-{name}",
            f"A word that leaves every axis where it was, up to rank {rank - 1} or for few axes.",
            {"x": "Tensor", "p": "Ints", "q": "Ints", "i": "Int"},
            lambda v, word=word: (  # type: ignore[misc]
                ops.Transpose(ops.Transpose(ops.Softmax(v["x"], axis=v["i"]), perm=v["p"]),
                              perm=v["q"]),
                ops.Transpose(ops.Transpose(ops.Softmax(v["x"], axis=word(v["p"], v["q"], v["i"])),
                                            perm=v["p"]), perm=v["q"]),
            ),
            numerics=_R,
        )  # fmt: skip
        moved = next(i for i in range(rank) if word(permutations["p"], permutations["q"], i) != i)
        yield Case(rule, {"x": f64(*range(2, rank + 2)), **permutations, "i": moved})


# Tolerances ------------------------------------------------------------------------------------

_WINDOW: Mapping[str, Any] = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": 1}
_NEAR: Mapping[str, tuple[Callable[[Mapping[str, Any]], Sides], Mapping[str, Any]]] = {
    "rows": (
        lambda v: (
            ops.Scale(ops.Abs(v["x"]), factor=v["a"]),
            ops.Shift(ops.Abs(v["x"]), offset=(v["a"] - 1.0) * real(v["x"].dim(0))),
        ),
        {"x": np.zeros(4096)},
    ),
    "elements": (
        lambda v: (
            ops.Scale(ops.Abs(v["x"]), factor=v["a"]),
            ops.Shift(ops.Abs(v["x"]), offset=(v["a"] - 1.0) * real(v["x"].dim(0) * v["x"].dim(1))),
        ),
        {"x": np.zeros((64, 64))},
    ),
    "product": (
        lambda v: (
            ops.ReduceProd(ops.Scale(v["x"], factor=v["a"]), axes=(0,), keepdims=1),
            ops.ReduceProd(v["x"], axes=(0,), keepdims=1),
        ),
        {"x": np.ones(4096)},
    ),
    "columns": (
        lambda v: (
            ops.Scale(v["x"], factor=v["a"]) @ ops.Exp(v["y"]),
            ops.Shift(v["x"], offset=v["a"] - 1.0) @ ops.Exp(v["y"]),
            v["x"].rank == 2,
            v["y"].rank == 2,
        ),
        {"x": np.zeros((1, 4096)), "y": np.zeros((4096, 1))},
    ),
    "window": (
        lambda v: (
            ops.Conv(ops.Scale(v["x"], factor=v["a"]), v["y"], **_WINDOW),
            ops.Conv(ops.Shift(v["x"], offset=v["a"] - 1.0), v["y"], **_WINDOW),
            v["y"].rank == 3,
        ),
        {"x": np.zeros((1, 64, 64)), "y": np.ones((1, 64, 64))},
    ),
}


def _of_tolerances() -> Iterator[Case]:
    """A constant that is near 1, in what grows with the operands."""
    for name, (sides, given) in _NEAR.items():
        rule = declared(
            f"planted/near-one-{name}",
            "What a constant moves grows with the extents.",
            {**dict.fromkeys(given, "Tensor"), "a": "Float"},
            lambda v, sides=sides: (*sides(v), near(v["a"], 1.0, 1e-5)),  # type: ignore[misc]
            numerics=_R,
        )
        yield Case(rule, {**given, "a": 1.000009})


def generated() -> list[Case]:
    """All cases of the grammar, in order."""
    return [*_planted(), *_of_floats(), *_of_words(), *_of_tolerances()]
