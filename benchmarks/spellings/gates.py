"""Spellings of Gelu in its three forms, Swish and HardSwish."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

from benchmarks.spellings.writer import Spelling, Writer, spelled

__all__ = [
    "CUBIC",
    "GATE",
    "OUTER_FORMS",
    "around_gate",
    "clipped",
    "cubic_argument",
    "gelu",
    "gelu_sigmoid",
    "gelu_tanh",
    "hard_gate",
    "hard_swish",
    "sigmoid_of",
    "swish",
]

GATE, CUBIC = math.sqrt(2.0 / math.pi), 0.044715

_ERF_ARGUMENTS: dict[str, Callable[[Writer], str]] = {
    "times-root-half": lambda w: w("Mul", "x", math.sqrt(0.5)),
    "root-half-times": lambda w: w("Mul", math.sqrt(0.5), "x"),
    "over-root-two": lambda w: w("Div", "x", math.sqrt(2.0)),
    "over-computed-root": lambda w: w("Div", "x", w("Sqrt", 2.0)),
    "decimal": lambda w: w("Mul", "x", 0.70710678),
    "two-steps": lambda w: w("Mul", w("Div", "x", 2.0), math.sqrt(2.0)),
    "times-power": lambda w: w("Mul", "x", w("Pow", 2.0, -0.5)),
}


def around_gate(w: Writer, form: int, gate: str, half: float = 0.5, one: float = 1.0) -> str:
    """Half * x * (one + gate), in ten arrangements."""
    match form:
        case 0:
            return w("Mul", w("Mul", "x", w("Add", gate, one)), half)
        case 1:
            return w("Div", w("Mul", w("Add", one, gate), "x"), 1.0 / half)
        case 2:
            return w("Mul", w("Mul", half, "x"), w("Add", gate, one))
        case 3:
            return w("Mul", "x", w("Add", half * one, w("Mul", half, gate)))
        case 4:
            part = w("Mul", "x", half)
            return w("Add", part if one == 1.0 else w("Mul", part, one), w("Mul", part, gate))
        case 5:
            whole = "x" if one == 1.0 else w("Mul", "x", one)
            return w("Mul", half, w("Add", whole, w("Mul", "x", gate)))
        case 6:
            return w("Add", w("Mul", "x", half * one), w("Mul", "x", w("Mul", gate, half)))
        case 7:
            return w("Mul", w("Add", gate, one), w("Div", "x", 1.0 / half))
        case 8:
            return w("Mul", "x", w("Mul", w("Add", gate, one), half))
        case _:
            return w("Mul", w("Neg", "x"), w("Sub", -half * one, w("Mul", half, gate)))


OUTER_FORMS = range(10)


def gelu() -> Iterator[Spelling]:
    for (name, argument), form in itertools.product(_ERF_ARGUMENTS.items(), OUTER_FORMS):

        def write(w: Writer, argument: Callable[[Writer], str] = argument, form: int = form) -> str:
            return around_gate(w, form, w("Erf", argument(w)))

        yield spelled("gelu", f"{name}, form {form}", write, "Gelu", approximate="none")

    def odd(w: Writer) -> str:
        gate = w("Neg", w("Erf", w("Mul", "x", -math.sqrt(0.5))))
        return w("Mul", w("Mul", "x", 0.5), w("Add", gate, 1.0))

    yield spelled("gelu", "odd", odd, "Gelu", approximate="none")


def _cube(w: Writer, how: str) -> str:
    if how == "pow":
        return w("Pow", "x", 3.0)
    square = w("Pow", "x", 2.0) if how == "pow-two" else w("Mul", "x", "x")
    return w("Mul", square, "x") if how == "left" else w("Mul", "x", square)


def cubic_argument(
    w: Writer, form: int, cube: str, gate: float = GATE, cubic: float = CUBIC
) -> str:
    """Gate * (x + cubic * x³), in seven arrangements."""
    match form:
        case 0:
            return w("Mul", gate, w("Add", "x", w("Mul", cubic, _cube(w, cube))))
        case 1:
            scaled = w("Mul", _cube(w, cube), gate * cubic)
            return w("Add", w("Mul", "x", gate), scaled)
        case 2:
            inner = w("Add", 1.0, w("Mul", w("Mul", "x", "x"), cubic))
            return w("Mul", w("Mul", "x", gate), inner)
        case 3:
            square = w("Pow", "x", 2.0)
            return w("Mul", "x", w("Add", w("Mul", gate * cubic, square), gate))
        case 4:
            return w("Div", w("Add", "x", w("Mul", cubic, _cube(w, cube))), 1.0 / gate)
        case 5:
            powers = w("Mul", w("Mul", w("Mul", cubic, "x"), "x"), "x")
            return w("Mul", gate, w("Add", powers, "x"))
        case _:
            total = w("Add", w("Mul", _cube(w, cube), cubic), "x")
            return w("Mul", total, w("Sqrt", w("Div", 2.0, math.pi)) if gate == GATE else gate)


def gelu_tanh() -> Iterator[Spelling]:
    for form, cube, outer in itertools.product(range(7), ("left", "right", "pow"), OUTER_FORMS):
        if (form + outer) % 2:
            continue

        def write(w: Writer, form: int = form, cube: str = cube, outer: int = outer) -> str:
            return around_gate(w, outer, w("Tanh", cubic_argument(w, form, cube)))

        name = f"argument {form}, cube {cube}, form {outer}"
        yield spelled("gelu-tanh", name, write, "Gelu", approximate="tanh")


def sigmoid_of(w: Writer, u: str, how: int) -> str:
    """sigmoid(u), in six spellings."""
    match how:
        case 0:
            return w("Sigmoid", u)
        case 1:
            return w("Reciprocal", w("Add", 1.0, w("Exp", w("Neg", u))))
        case 2:
            return w("Div", 1.0, w("Add", w("Exp", w("Mul", u, -1.0)), 1.0))
        case 3:
            return w("Sub", 1.0, w("Sigmoid", w("Neg", u)))
        case 4:
            return w("Mul", w("Add", w("Tanh", w("Mul", u, 0.5)), 1.0), 0.5)
        case _:
            e = w("Exp", u)
            return w("Div", e, w("Add", 1.0, e))


def gelu_sigmoid() -> Iterator[Spelling]:
    for form, how in itertools.product(range(7), range(6)):

        def write(w: Writer, form: int = form, how: int = how) -> str:
            return w("Mul", "x", sigmoid_of(w, cubic_argument(w, form, "left", 2.0 * GATE), how))

        yield spelled(
            "gelu-sigmoid", f"argument {form}, sigmoid {how}", write, "Gelu", approximate="tanh"
        )


def swish() -> Iterator[Spelling]:
    for k, how, form in itertools.product((1.0, 1.702, 1.5), range(6), range(4)):

        def write(w: Writer, k: float = k, how: int = how, form: int = form) -> str:
            u = "x" if k == 1.0 else w("Mul", "x", k)
            gate = sigmoid_of(w, u, how)
            if form == 0:
                return w("Mul", "x", gate)
            if form == 1:
                return w("Mul", gate, "x")
            if form == 2:
                return w("Neg", w("Mul", w("Neg", "x"), gate))
            return w("Mul", w("Mul", "x", 0.5), w("Mul", gate, 2.0))

        yield spelled("swish", f"factor {k}, sigmoid {how}, form {form}", write, "Swish", alpha=k)
    for k in (1.0, 1.702):

        def quotient(w: Writer, k: float = k) -> str:
            return w("Div", "x", w("Add", 1.0, w("Exp", w("Mul", "x", -k))))

        def both(w: Writer, k: float = k) -> str:
            e = w("Exp", w("Mul", "x", k))
            return w("Div", w("Mul", "x", e), w("Add", e, 1.0))

        def rest(w: Writer, k: float = k) -> str:
            return w("Sub", "x", w("Mul", "x", w("Sigmoid", w("Mul", "x", -k))))

        for name, other in (("quotient", quotient), ("exponentials", both), ("rest", rest)):
            yield spelled("swish", f"factor {k}, {name}", other, "Swish", alpha=k)


def clipped(w: Writer, x: str, low: float, high: float, how: int) -> str:
    match how:
        case 0:
            return w("Clip", x, low, high)
        case 1:
            return w("Max", w("Min", x, high), low)
        case 2:
            return w("Min", high, w("Max", low, x))
        case _:
            return w("Min", w("Relu", x), high)


def hard_gate(w: Writer, clip: int, form: int, offset: float, top: float, by: float) -> str:
    """X * clip(x + offset, 0, top) / by."""
    six = clipped(w, w("Add", "x", offset), 0.0, top, clip)
    match form:
        case 0:
            return w("Div", w("Mul", "x", six), by)
        case 1:
            return w("Mul", "x", w("Div", six, by))
        case 2:
            return w("Mul", w("Mul", "x", six), 1.0 / by)
        case 3:
            return w("Mul", w("Mul", "x", 1.0 / by), six)
        case _:
            line = w("Add", w("Div", "x", by), offset / by)
            return w("Mul", clipped(w, line, 0.0, top / by, clip), "x")


def hard_swish() -> Iterator[Spelling]:
    for clip, form in itertools.product(range(4), range(5)):

        def write(w: Writer, clip: int = clip, form: int = form) -> str:
            return hard_gate(w, clip, form, 3.0, 6.0, 6.0)

        yield spelled("hard-swish", f"clip {clip}, form {form}", write, "HardSwish")
    for order in range(4):

        def hard_sigmoid(w: Writer, order: int = order) -> str:
            gate = w("HardSigmoid", "x", alpha=1.0 / 6.0, beta=0.5)
            if order == 0:
                return w("Mul", "x", gate)
            if order == 1:
                return w("Mul", gate, "x")
            if order == 2:
                return w("Mul", w("Mul", "x", 2.0), w("Div", gate, 2.0))
            return w("Neg", w("Mul", gate, w("Neg", "x")))

        yield spelled("hard-swish", f"hard sigmoid, form {order}", hard_sigmoid, "HardSwish")
