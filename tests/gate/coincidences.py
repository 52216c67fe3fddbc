"""Rules that are right until several sizes meet: a right rule, some sizes, and a term that is 0.

A term is not 0 only where its sizes have certain residues, quotients or products together, so no
single size shows it. Each pair of a place and a term is a wrong rule, and the smallest sizes at
which the term is not 0 show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from eqsat_opt.rules import Numerics, Sides, Term, concat, declared, ops, real
from tests.gate.cases import Case, f64, positive

__all__ = ["of_coincidences"]

_R = Numerics.REASSOCIATE
_TERMS_EACH = 9
_Size = Any
"""An expression in a rule, a number where the same term is evaluated."""
_Vars = Mapping[str, Any]


def _alike(a: _Size, b: _Size) -> _Size:
    """1 where both are equal, and 0 elsewhere."""
    return 1 // (1 + (a - b) * (a - b))


def _rest(a: _Size, divisor: _Size) -> _Size:
    return a - a // divisor * divisor


def _divides(number: int, a: _Size) -> _Size:
    """1 where the number divides a, and 0 elsewhere."""
    return _alike(_rest(a, number), 0)


_OF_TWO: Mapping[str, Callable[[_Size, _Size], _Size]] = {
    "three-for-each-of-two": lambda m, n: (m // n // 3 - m // n // 4) * (n // 2),
    "five-for-each-of-three": lambda m, n: (m // n // 5) * (n // 3),
    "residues-5-7": lambda m, n: (_rest(m, 5) // 4) * (_rest(n, 7) // 6),
    "residues-3-4": lambda m, n: (_rest(m, 3) // 2) * (_rest(n, 4) // 3),
    "residues-6-10": lambda m, n: _alike(_rest(m, 6), 5) * _alike(_rest(n, 10), 9),
    "product-divided-by-35": lambda m, n: _divides(35, m * n) * (m // 2) * (n // 2),
    "product-is-91": lambda m, n: _alike(m * n, 91) * (n // 2) * (m // 2),
    "sum-is-13": lambda m, n: _alike(m + n, 13) * (m * n // 40),
    "threefold": lambda m, n: _alike(m, 3 * n) * (n // 2),
    "a-square-and-one": lambda m, n: _alike(m, n * n + 1) * (n // 3),
    "squares-make-25": lambda m, n: _alike(m * m + n * n, 25),
    "twice-a-square": lambda m, n: _alike(m * m, 2 * n * n + 1) * (n // 2),
    "quotient-and-remainder": lambda m, n: _alike(m // n, 2) * _alike(_rest(m, n), 3),
    "nested-quotient": lambda m, n: (m // n // 2 // 2) * (n // 3),
    "second-remainder": lambda m, n: _alike(_rest(n, _rest(m, n) + 1), 3),
    "least-is-four": lambda m, n: (m // 4) * (n // (m + 1)),
    "apart-by-seven": lambda m, n: _alike(m - n, 7) * (n // 4),
    "both-above": lambda m, n: (m // 7) * (n // 6),
    "five-and-eleven": lambda m, n: _alike(m, 5) * _alike(n, 11),
    "one-of-six-fewer": lambda m, n: _alike(_rest(m, 6), 5) * _alike(_rest(n, 4), 1) * (n // 2),
    "quotients-apart": lambda m, n: (m // 4 - n // 4) * (m // 5) * _alike(_rest(n, 3), 2),
    "rounded-up": lambda m, n: ((m + n - 1) // n - m // n) * (m // n // 2) * (n // 5),
}  # fmt: skip
_OF_THREE: Mapping[str, Callable[[_Size, _Size, _Size], _Size]] = {
    "sum-of-two": lambda m, n, k: _alike(m + n, k) * (m // 3) * (n // 2),
    "product-of-two": lambda m, n, k: _alike(m * n, k) * (m // 2) * (n // 3),
    "three-residues": lambda m, n, k: (_rest(m, 3) // 2) * (_rest(n, 4) // 3) * (_rest(k, 5) // 4),
    "right-triangle": lambda m, n, k: _alike(m * m + n * n, k * k),
    "two-quotients": lambda m, n, k: (m // n // 2) * (k // n // 2) * (n // 2),
    "equal-and-above": lambda m, n, k: _alike(m, n) * _alike(n, k) * (k // 4),
    "quotient-is-third": lambda m, n, k: _alike(m // n, k) * (k // 2) * (n // 2) * (m // 5),
    "odd-together": lambda m, n, k: _rest(m, 2) * _rest(n, 2) * _rest(k, 2) * (m * n * k // 20),
}


@dataclass(frozen=True)
class _Place:
    """A right rule with a number that several sizes may disturb.

    Attributes:
        name: of the sizes.
        kinds: of the variables.
        sizes: which ones they are, from the variables.
        sides: both sides and the conditions, from the variables and what is 0.
        given: where it shows, from the sizes; ``None`` where no such operands are.
        most: greatest of the sizes, one by one.
        numerics: of the right rule.
    """

    name: str
    kinds: Mapping[str, str]
    sizes: Callable[[_Vars], tuple[Any, ...]]
    sides: Callable[[_Vars, Any], Sides]
    given: Callable[..., Mapping[str, Any] | None]
    most: tuple[int, ...]
    numerics: Numerics = Numerics.BITEXACT


def _moved(x: Term, off: Any) -> Sides:
    """|x| is not negative; moved by what is 0."""
    return ops.Relu(ops.Abs(x)), ops.Shift(ops.Abs(x), offset=real(off))


def _scaled_product(x: Any, y: Any, off: Any) -> Sides:
    return (
        ops.Scale(x @ y, factor=-1.0), x @ ops.Scale(y, factor=0 - 1 - off),
        x.rank == 2, y.rank == 2,
    )  # fmt: skip


def _pool(x: Term, kernel: Any, strides: Any) -> Term:
    return ops.MaxPool(x, kernel=(kernel,), strides=(strides,), pads=(0, 0), dilations=(1,), ceil=0)


def _conv(v: _Vars, off: Any, group: Any = 1, dilation: Any = 1) -> Sides:
    x, w = v["x"], v["w"]
    more = {"strides": (1,), "pads": (0, 0), "dilations": (dilation,), "group": group}
    return (
        ops.Scale(ops.Conv(x, w, **more), factor=-1.0),
        ops.Conv(x, ops.Scale(w, factor=0 - 1 - off), **more),
        w.rank == 3,
    )


def _shared_keys(v: _Vars, off: Any) -> Sides:
    k, value = (ops.Repeat(v[name], axis=1, repeats=v["r"]) for name in ("k", "v"))
    return (
        ops.Attention(ops.Scale(v["q"], factor=2.0), k, value, scale=v["a"]),
        ops.Attention(v["q"], k, value, scale=v["a"] * (2 + off)),
    )


_TENSOR = {"x": "Tensor"}
_PRODUCT = {"x": "Tensor", "y": "Weight"}
_CONV = {"x": "Tensor", "w": "Weight"}
_PLACES = (
    _Place("rows-and-columns", _TENSOR, lambda v: (v["x"].dim(0), v["x"].dim(1)),
           lambda v, off: _moved(v["x"], off), lambda m, n: {"x": f64(m, n)}, (99, 99)),
    _Place("heads-for-each-key",
           {"q": "Tensor", "k": "Tensor", "v": "Tensor", "r": "Int", "a": "Float"},
           lambda v: (v["q"].dim(1), v["k"].dim(1)), _shared_keys,
           lambda m, n: None if m % n else {
               "q": f64(1, m, 2, 2), "k": f64(1, n, 3, 2), "v": f64(1, n, 3, 2), "r": m // n,
               "a": 0.5}, (40, 40), _R),
    _Place("heads-and-keys",
           {"q": "Tensor", "k": "Tensor", "v": "Tensor", "r": "Int", "a": "Float"},
           lambda v: (v["r"], v["k"].dim(1)), _shared_keys,
           lambda m, n: {"q": f64(1, m * n, 2, 2), "k": f64(1, n, 3, 2), "v": f64(1, n, 3, 2),
                         "r": m, "a": 0.5}, (14, 14), _R),
    _Place("kernel-and-stride", _TENSOR | {"k": "Int", "s": "Int"}, lambda v: (v["k"], v["s"]),
           lambda v, off: (
               _pool(ops.Relu(v["x"]), v["k"], v["s"]),
               ops.Relu(ops.Shift(_pool(v["x"], v["k"], v["s"]), offset=real(off)))),
           lambda m, n: {"x": f64(1, 1, m + n), "k": m, "s": n}, (40, 40)),
    _Place("outer-extents", _PRODUCT, lambda v: (v["x"].dim(0), v["y"].dim(1)),
           lambda v, off: _scaled_product(v["x"], v["y"], off),
           lambda m, n: {"x": f64(m, 2), "y": f64(2, n)}, (60, 60), _R),
    _Place("inner-and-outer", _PRODUCT, lambda v: (v["y"].dim(0), v["y"].dim(1)),
           lambda v, off: _scaled_product(v["x"], v["y"], off),
           lambda m, n: {"x": f64(1, m), "y": f64(m, n)}, (60, 60), _R),
    _Place("parts", _TENSOR | {"y": "Tensor", "i": "Int"},
           lambda v: (v["x"].dim(v["i"]), v["y"].dim(v["i"])),
           lambda v, off: (
               ops.Relu(concat(v["x"], v["y"], v["i"])),
               ops.Shift(concat(ops.Relu(v["x"]), ops.Relu(v["y"]), v["i"]), offset=real(off))),
           lambda m, n: {"x": f64(m), "y": f64(n), "i": 0}, (99, 99)),
    _Place("pads", _TENSOR | {"a": "Int", "b": "Int"}, lambda v: (v["a"], v["b"]),
           lambda v, off: (
               ops.Relu(ops.Pad(v["x"], pads=(v["a"], v["b"]), value=0.0)),
               ops.Pad(ops.Relu(v["x"]), pads=(v["a"], v["b"]), value=real(off)),
               v["a"] >= 0, v["b"] >= 1),
           lambda m, n: {"x": f64(3), "a": m, "b": n}, (40, 40)),
    _Place("bounds", _TENSOR | {"i": "Int", "a": "Int", "b": "Int"}, lambda v: (v["b"], v["a"]),
           lambda v, off: (
               ops.Relu(ops.Slice(v["x"], axis=v["i"], lo=v["a"], hi=v["b"])),
               ops.Slice(ops.Relu(ops.Shift(v["x"], offset=real(off))), axis=v["i"], lo=v["a"],
                         hi=v["b"]),
               v["a"] >= 1),
           lambda m, n: {"x": positive(m + 1), "i": 0, "a": n, "b": m} if n < m else None,
           (40, 40)),
    _Place("rank-and-extent", _TENSOR, lambda v: (v["x"].dim(0), v["x"].rank),
           lambda v, off: _moved(v["x"], off), lambda m, n: {"x": f64(m, *(1,) * (n - 1))},
           (99, 8)),
    _Place("repeats-and-extent", _TENSOR | {"i": "Int", "r": "Int"},
           lambda v: (v["r"], v["x"].dim(v["i"])),
           lambda v, off: (
               ops.Relu(ops.Repeat(v["x"], axis=v["i"], repeats=v["r"])),
               ops.Repeat(ops.Relu(ops.Shift(v["x"], offset=real(off))), axis=v["i"],
                          repeats=v["r"])),
           lambda m, n: {"x": f64(n), "i": 0, "r": m}, (40, 40)),
    _Place("dilation-and-kernel", _CONV | {"d": "Int"}, lambda v: (v["d"], v["w"].dim(2)),
           lambda v, off: _conv(v, off, dilation=v["d"]),
           lambda m, n: {"x": f64(1, 1, m * (n - 1) + 2), "w": f64(1, 1, n), "d": m}, (20, 20),
           _R),
    _Place("channels-and-groups", _CONV | {"g": "Int"}, lambda v: (v["w"].dim(0), v["g"]),
           lambda v, off: _conv(v, off, group=v["g"]),
           lambda m, n: None if m % n else {"x": f64(1, n, 2), "w": f64(m, 1, 1), "g": n},
           (40, 40), _R),
    _Place("three-extents", _TENSOR, lambda v: tuple(v["x"].dim(i) for i in range(3)),
           lambda v, off: _moved(v["x"], off), lambda m, n, k: {"x": f64(m, n, k)}, (14, 14, 14)),
    _Place("all-of-a-product", _PRODUCT,
           lambda v: (v["x"].dim(0), v["x"].dim(1), v["y"].dim(1)),
           lambda v, off: _scaled_product(v["x"], v["y"], off),
           lambda m, n, k: {"x": f64(m, n), "y": f64(n, k)}, (14, 14, 14), _R),
    _Place("a-kernel", _CONV, lambda v: tuple(v["w"].dim(i) for i in range(3)),
           lambda v, off: _conv(v, off),
           lambda m, n, k: {"x": f64(1, n, k + 1), "w": f64(m, n, k)}, (14, 14, 14), _R),
)  # fmt: skip


def _shown(place: _Place, term: Callable[..., int]) -> Mapping[str, Any] | None:
    """What the variables are at the smallest sizes that show the term, if there are any."""
    ranges = [range(1, most + 1) for most in place.most]
    for sizes in sorted(product(*ranges), key=lambda sizes: (sum(sizes), sizes)):
        if term(*sizes) and (given := place.given(*sizes)) is not None:
            return given
    return None


def of_coincidences() -> Iterator[Case]:
    """Places with terms, in turns, that show there."""
    for number, place in enumerate(_PLACES):
        terms = _OF_TWO if len(place.most) == 2 else _OF_THREE
        names = [*terms] * 2
        for name in names[number % len(terms) :][: min(_TERMS_EACH, len(terms))]:
            if (given := _shown(place, terms[name])) is not None:
                yield _case(place, name, terms[name], given)


def _case(place: _Place, name: str, term: Callable[..., Any], given: Mapping[str, Any]) -> Case:
    rule = declared(
        f"coincidence/{place.name}-{name}",
        f"Right until the {place.name.replace('-', ' ')} meet: {name.replace('-', ' ')}.",
        place.kinds,
        lambda v: place.sides(v, term(*place.sizes(v))),
        numerics=place.numerics,
    )
    return Case(rule, given)
