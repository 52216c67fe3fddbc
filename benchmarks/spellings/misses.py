"""Near misses: models that differ from a spelling by one constant, axis, factor or operand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.spellings.attention import AttentionForm, attend, split_heads
from benchmarks.spellings.gates import (
    CUBIC,
    GATE,
    OUTER_FORMS,
    around_gate,
    cubic_argument,
    hard_gate,
)
from benchmarks.spellings.norms import mean_over, over_root, squared
from benchmarks.spellings.writer import (
    HEAD_SIZE,
    LAYER_EPSILON,
    RMS_EPSILON,
    WIDTH,
    Spelling,
    Writer,
)

__all__ = ["near_misses"]


def _miss(
    family: str,
    name: str,
    write: Callable[[Writer], str],
    *found: str,
    anywhere: bool = True,
    **attrs: float | str,
) -> Spelling:
    writer = Writer()
    return Spelling(family, name, writer.model(write(writer)), " ".join(found), attrs, anywhere)


def _missed_gelus() -> Iterator[Spelling]:
    root = math.sqrt(0.5)
    for form in OUTER_FORMS:

        def gelu(
            w: Writer, factor: float = root, half: float = 0.5, one: float = 1.0, form: int = form
        ) -> str:
            return around_gate(w, form, w("Erf", w("Mul", "x", factor)), half, one)

        # A wrong factor outside leaves a Gelu with another factor; the output is none.
        yield _miss("gelu", f"half is 0.6, form {form}", partial(gelu, half=0.6),
                    "Gelu", anywhere=False)  # fmt: skip
        yield _miss("gelu", f"0.7 inside, form {form}", partial(gelu, factor=0.7), "Gelu")
        yield _miss("gelu", f"one is 1.1, form {form}", partial(gelu, one=1.1), "Gelu")
        yield _miss("gelu", f"minus, form {form}", partial(gelu, factor=-root), "Gelu",
                    anywhere=False)  # fmt: skip
    for form in range(7):

        def tanh(
            w: Writer, gate: float = GATE, cubic: float = CUBIC, half: float = 0.5, form: int = form
        ) -> str:
            return around_gate(w, 0, w("Tanh", cubic_argument(w, form, "left", gate, cubic)), half)

        yield _miss("gelu-tanh", f"cubic 0.0447, argument {form}",
                    partial(tanh, cubic=0.0447), "Gelu")  # fmt: skip
        yield _miss("gelu-tanh", f"gate 0.8, argument {form}", partial(tanh, gate=0.8), "Gelu")
        yield _miss("gelu-tanh", f"half 0.51, argument {form}", partial(tanh, half=0.51),
                    "Gelu", anywhere=False)  # fmt: skip

        def sigmoid(w: Writer, form: int = form) -> str:
            return w("Mul", "x", w("Sigmoid", cubic_argument(w, form, "left")))

        yield _miss("gelu-sigmoid", f"no factor 2, argument {form}", sigmoid, "Gelu", "Swish")


def _missed_gates() -> Iterator[Spelling]:
    def logistic(w: Writer, one: float, x: str = "x") -> str:
        return w("Reciprocal", w("Add", one, w("Exp", w("Neg", x))))

    gates: dict[str, Callable[[Writer], str]] = {
        "one is 1.1": lambda w: w("Mul", "x", logistic(w, 1.1)),
        "shifted": lambda w: w("Mul", "x", w("Sigmoid", w("Add", "x", 0.01))),
        "of another": lambda w: w("Mul", w("Abs", "x"), w("Sigmoid", "x")),
        "of the square": lambda w: w("Mul", "x", w("Sigmoid", w("Mul", "x", "x"))),
        "of the cube": lambda w: w("Mul", "x", w("Sigmoid", w("Pow", "x", 3.0))),
        "tanh": lambda w: w("Mul", "x", w("Tanh", "x")),
        "half shifted": lambda w: w("Mul", "x", w("Add", w("Tanh", "x"), 0.9)),
        "sum": lambda w: w("Add", "x", w("Sigmoid", "x")),
        "two exponentials": lambda w: w("Div", w("Mul", "x", w("Exp", "x")),
                                        w("Add", w("Exp", w("Mul", "x", 1.01)), 1.0)),
    }  # fmt: skip
    for name, write in gates.items():
        yield _miss("swish", name, write, "Swish", "Gelu")
    for clip, form in itertools.product(range(4), range(5)):
        wrong = {
            "offset 2.9": (2.9, 6.0, 6.0, True),
            "top 5": (3.0, 5.0, 6.0, True),
            "by 5": (3.0, 6.0, 5.0, False),
        }
        for name, (offset, top, by, anywhere) in wrong.items():
            if (clip + form) % 2:
                continue

            def hard(
                w: Writer, form: Sequence[int] = (clip, form),
                constants: Sequence[float] = (offset, top, by),
            ) -> str:  # fmt: skip
                return hard_gate(w, *form, *constants)

            yield _miss("hard-swish", f"{name}, clip {clip}, form {form}", hard, "HardSwish",
                        anywhere=anywhere)  # fmt: skip


def _missed_norms() -> Iterator[Spelling]:
    both = ("LayerNormalization", "RMSNormalization")
    for root in range(8):

        def layer(
            w: Writer, *, root: int = root, epsilon: float = LAYER_EPSILON, mean_axis: int = -1,
            axis: int = -1, part: float = 1.0, outside: bool = False, count: float = 0.0,
            centred: bool = True, twice: bool = False, other: bool = False,
        ) -> str:  # fmt: skip
            mean = mean_over(w, "x", 0, mean_axis)
            mean = mean if part == 1.0 else w("Mul", mean, part)
            d = w("Sub", "x", mean) if centred else "x"
            square = squared(w, w("Abs", w("Add", d, 0.1)) if other else d, 1)
            variance = mean_over(w, square, 0, axis)
            if count:
                variance = w("Div", w("ReduceSum", square, w.ints(axis), keepdims=1), count)
            if outside:
                y = w("Div", d, w("Add", w("Sqrt", variance), epsilon))
            else:
                spread = w("Add", variance, epsilon) if epsilon else variance
                y = over_root(w, spread, root, d)
            scale = w.vector()
            y = w("Mul", y, scale)
            return w("Add", w("Mul", y, scale) if twice else y, w.vector())

        wrong: dict[str, tuple[Callable[[Writer], str], tuple[str, ...], bool]] = {
            "no epsilon": (partial(layer, epsilon=0.0), both, True),
            "epsilon outside": (partial(layer, outside=True), both, True),
            "another axis": (partial(layer, mean_axis=1, axis=1), both, True),
            "variance of another axis": (partial(layer, axis=1), both, True),
            "mean of another axis": (partial(layer, mean_axis=1), both[:1], True),
            "half the mean": (partial(layer, part=0.5), both[:1], True),
            "unbiased": (partial(layer, count=23.0), both[:1], False),
            "not centred": (partial(layer, centred=False), both[:1], True),
            "scale twice": (partial(layer, twice=True), both[:1], False),
            "variance of another": (partial(layer, other=True), both, True),
        }  # fmt: skip
        for name, (write, found, anywhere) in wrong.items():
            yield _miss("layer-norm", f"{name}, root {root}", write, *found, anywhere=anywhere)

        def rms(w: Writer, root: int = root, *, axis: int = -1, plain: bool = False) -> str:
            spread = mean_over(w, w("Abs", "x") if plain else squared(w, "x", 0), 0, axis)
            return over_root(w, w("Add", spread, RMS_EPSILON), root, "x")

        yield _miss("rms-norm", f"another axis, root {root}", partial(rms, axis=1), *both)
        yield _miss("rms-norm", f"no square, root {root}", partial(rms, plain=True), *both)


def _missed_softmax() -> Iterator[Spelling]:
    for how in range(3):

        def quotient(w: Writer, e: str, total: str, how: int = how) -> str:
            if how == 0:
                return w("Div", e, total)
            if how == 1:
                return w("Mul", e, w("Reciprocal", total))
            return w("Mul", w("Pow", total, -1.0), e)

        def total(w: Writer, e: str, axis: int = -1) -> str:
            return w("ReduceSum", e, w.ints(axis), keepdims=1)

        def other(w: Writer, f: Callable[..., str] = quotient) -> str:
            return f(w, w("Exp", "x"), total(w, w("Exp", w("Mul", "x", 1.01))))

        def mean(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", "x")
            return f(w, e, mean_over(w, e, 0))

        def epsilon(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", "x")
            return f(w, e, w("Add", total(w, e), 1e-3))

        def axis(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", w("Sub", "x", w("ReduceMax", "x", axes=[-1], keepdims=1)))
            return f(w, e, total(w, e, 1))

        yield _miss("softmax", f"another exponential, form {how}", other, "Softmax")
        yield _miss("softmax", f"mean, form {how}", mean, "Softmax", anywhere=False)
        yield _miss("softmax", f"epsilon below, form {how}", epsilon, "Softmax")
        yield _miss("softmax", f"axis of the sum, form {how}", axis, "Softmax", anywhere=False,
                    axis=2)  # fmt: skip


def _missed_attention() -> Iterator[Spelling]:
    both = ("Attention", "MaskedAttention")
    for softmax, keys, mask in itertools.product((0, 1, 4), (0, 1), ("none", "causal")):
        for scale in ("twice", "nowhere"):
            how = AttentionForm(scale, softmax, keys, mask)
            name = f"scale {scale}, softmax {softmax}, keys {keys}, mask {mask}"
            yield _miss("attention", name, partial(attend, how=how), *both, scale=HEAD_SIZE**-0.5)
    for keys in (0, 1):

        def wrong_axis(w: Writer, keys: int = keys) -> str:
            q, k, v = (split_heads(w, w("MatMul", "x", w.vector(WIDTH, WIDTH)), (0, 2, 1, 3))
                       for _ in range(3))  # fmt: skip
            z = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), HEAD_SIZE**-0.5)
            weights = w("Softmax", z, axis=2)
            return w("MatMul", weights, v) if keys else w("Transpose", weights, perm=[0, 1, 3, 2])

        yield _miss("attention", f"axis of the softmax, {keys}", wrong_axis, *both)


def near_misses() -> list[Spelling]:
    """Models that must not be recognised; ``op`` lists what would be false there."""
    return [
        *_missed_gelus(), *_missed_gates(), *_missed_norms(), *_missed_softmax(),
        *_missed_attention(),
    ]  # fmt: skip
