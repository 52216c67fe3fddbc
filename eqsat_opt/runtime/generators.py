"""Generators of input values: by a text of the user, or by the name of an input.

Most inputs are numbers, of which any are as good as others. Some mean something: a mask of a batch
of texts hides their ends, a picture is smooth, sound is a sum of waves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import OptionError, or_nearest

__all__ = ["GENERATORS", "Generator", "parse_generator", "suggested_generator"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Draw = Callable[[Shape, tuple[float, ...], np.random.Generator], Array]


def _int(shape: Shape, ends: tuple[float, ...], random: np.random.Generator) -> Array:
    return random.integers(int(ends[0]), int(ends[1]), size=shape)


def _uniform(shape: Shape, ends: tuple[float, ...], random: np.random.Generator) -> Array:
    return random.uniform(ends[0], ends[1], size=shape)


def _normal(shape: Shape, numbers: tuple[float, ...], random: np.random.Generator) -> Array:
    return random.normal(numbers[0], numbers[1], size=shape)


def _constant(shape: Shape, numbers: tuple[float, ...], _: np.random.Generator) -> Array:
    return np.full(shape, numbers[0])


def _mask(shape: Shape, _: tuple[float, ...], random: np.random.Generator) -> Array:
    """Draw rows of ones that end in zeros, at least one of each row being 1."""
    if not shape or 0 in shape:
        return np.ones(shape)
    lengths = random.integers(1, shape[-1] + 1, size=(*shape[:-1], 1))
    return np.asarray(np.arange(shape[-1]) < lengths)


def _along(axis: int, values: Array, shape: Shape) -> Array:
    """Return values along one axis of a shape, to be broadcast along all others."""
    return values.reshape([-1 if number == axis else 1 for number in range(len(shape))])


def _image(shape: Shape, ends: tuple[float, ...], random: np.random.Generator) -> Array:
    """Draw slow waves along the two longest axes and a little noise, between two numbers."""
    value = random.uniform(0, 0.1, size=shape)
    for axis in sorted(range(len(shape)), key=lambda one: -shape[one])[:2]:
        place = _along(axis, np.linspace(0, 1, shape[axis]), shape)
        waves, phase = random.uniform(0.5, 3), random.uniform(0, 2 * np.pi)
        value = value + 0.225 * (1 + np.sin(2 * np.pi * waves * place + phase))
    return ends[0] + (ends[1] - ends[0]) * value


def _audio(shape: Shape, _: tuple[float, ...], random: np.random.Generator) -> Array:
    """Draw a sum of tones and a little noise along the longest axis, between -1 and 1."""
    value = random.normal(0, 0.02, size=shape).clip(-0.1, 0.1)
    if not shape or 0 in shape:
        return value
    axis = int(np.argmax(shape))
    place = _along(axis, np.arange(shape[axis]), shape)
    for share in (0.5, 0.25, 0.125):
        value = value + share * np.sin(random.uniform(0.01, 0.5) * place + random.uniform(0, 6.3))
    return value


@dataclass(frozen=True)
class _Kind:
    """A kind of values.

    Attributes:
        draw: draws values for a shape, from the arguments.
        arguments: names of the arguments.
        defaults: values of the arguments where none are given; ``None`` if they must be.
    """

    draw: Draw
    arguments: tuple[str, ...] = ()
    defaults: tuple[float, ...] | None = None


_KINDS: Mapping[str, _Kind] = {
    "int": _Kind(_int, ("LOW", "END")),
    "uniform": _Kind(_uniform, ("LOW", "HIGH"), (0.0, 1.0)),
    "normal": _Kind(_normal, ("MEAN", "DEVIATION"), (0.0, 1.0)),
    "constant": _Kind(_constant, ("VALUE",)),
    "mask": _Kind(_mask, (), ()),
    "image": _Kind(_image, ("LOW", "HIGH"), (0.0, 1.0)),
    "audio": _Kind(_audio, (), ()),
}

GENERATORS = tuple(
    f"{name}({','.join(kind.arguments)})" if kind.arguments else name
    for name, kind in _KINDS.items()
)
"""The grammar of generators, a text for each kind."""


@dataclass(frozen=True)
class Generator:
    """A generator of the values of one input.

    Attributes:
        kind: ``int``, ``uniform``, ``normal``, ``constant``, ``mask``, ``image`` or ``audio``.
        numbers: its arguments.
    """

    kind: str
    numbers: tuple[float, ...] = ()

    def draw(self, shape: Shape, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
        """Draw values of a shape, converted to an element type."""
        return np.asarray(_KINDS[self.kind].draw(shape, self.numbers, random)).astype(dtype)

    @property
    def integer_ends(self) -> tuple[int, int] | None:
        """The least and greatest value, where all values between them are as likely."""
        return (int(self.numbers[0]), int(self.numbers[1]) - 1) if self.kind == "int" else None


def parse_generator(text: str, where: str) -> Generator:
    """Return the generator that a text says, as ``int(0,30522)`` or ``mask``.

    Args:
        text: the text.
        where: the owner of the text, for messages.

    Raises:
        OptionError: there is no such generator, or its arguments have no meaning.
    """
    found = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    if found is None or found[1] not in _KINDS:
        name = found[1] if found is not None else text
        raise OptionError(f"{where} is drawn by {text!r}; {or_nearest(name, GENERATORS)}")
    kind = _KINDS[found[1]]
    parts = [part.strip() for part in (found[2] or "").split(",") if part.strip()]
    usage = next(one for one in GENERATORS if one.partition("(")[0] == found[1])
    try:
        numbers = tuple(map(float, parts))
    except ValueError:
        raise OptionError(f"{where} is drawn by {text!r}; write numbers: {usage}") from None
    if not numbers and kind.defaults is not None:
        numbers = kind.defaults
    if len(numbers) != len(kind.arguments) or not np.isfinite(numbers).all():
        raise OptionError(f"{where} is drawn by {text!r}; write {usage}")
    if found[1] == "int" and not (
        all(one == int(one) and abs(one) < 2**62 for one in numbers) and numbers[0] < numbers[1]
    ):
        raise OptionError(
            f"{where} is drawn by {text!r}; give whole numbers, of which the second is above all "
            "values"
        )
    if found[1] in ("uniform", "image") and numbers[0] > numbers[1]:
        raise OptionError(f"{where} is drawn by {text!r}; give the lower number first")
    if found[1] == "normal" and numbers[1] < 0:
        raise OptionError(f"{where} is drawn by {text!r}; a deviation is not negative")
    return Generator(found[1], numbers)


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_BY_NAME: tuple[tuple[re.Pattern[str], Generator], ...] = (
    (_words("attention_?mask", "input_?mask", "padding_?mask", "^mask(_ids)?$"), Generator("mask")),
    (_words("audio", "wave_?form", "^wave?$", "^speech$", "^pcm$"), Generator("audio")),
    (_words("pixel_?values", "image", "^img", "^frame$"), Generator("image", (-2.0, 2.0))),
)


def suggested_generator(name: str, shape: Shape, *, is_float: bool) -> Generator | None:
    """Return the generator of values that an input of this name and shape means, if it says so.

    Args:
        name: name of the input.
        shape: its sizes.
        is_float: whether its elements are floats; otherwise they are integers.
    """
    found = next((one for pattern, one in _BY_NAME if pattern.search(name)), None)
    if found is None:
        return None
    if found.kind == "mask":
        # A float mask may be one that is added, which is no mask of ones.
        return found if not is_float and len(shape) == 2 else None
    fits = len(shape) in (3, 4, 5) if found.kind == "image" else len(shape) in (1, 2, 3)
    return found if is_float and fits else None
