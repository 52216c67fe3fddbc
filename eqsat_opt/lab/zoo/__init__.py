"""Benchmark models with seeded random weights, built in memory with no downloads.

The graphs are those on which the literature of graph substitution reports, under names that
identify the variant. Weights are scaled on real activations, so that outputs depend on inputs and
on every weight: a wrong rewrite shows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.lab.zoo._registry import RECIPES, Description, Recipe, Size

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat_opt.lab.zoo._external import save_external, synthetic_large

__all__ = [
    "Description",
    "build",
    "build_named",
    "describe",
    "names",
    "save_external",
    "synthetic_large",
]


def names() -> tuple[str, ...]:
    """Return the names that `build` and `describe` take."""
    return tuple(RECIPES)


def describe(name: str) -> Description:
    """Describe a model, without building it.

    Raises:
        OptionError: no such model.
    """
    return _recipe(name).description


def build(
    name: str, *, scale: Literal["full", "tiny"] = "full", seed: int = 0, **sizes: Size
) -> ModelProto:
    """Build a model: plain ONNX, opset 17, float32, batch 1, static shapes.

    The same arguments give the same bytes on one machine; between machines weights may differ in
    their last bits, because they are scaled by measured activations.

    Args:
        name: a name from `names()`.
        scale: "full" as published; "tiny" has the same structure with few channels, blocks and
            pixels, for fast tests.
        seed: seed of the weights.
        **sizes: sizes of the model to change, such as `tokens=64` (see its builder's signature).

    Raises:
        OptionError: no such model, scale or size, or sizes that do not fit each other.
    """
    return _built(name, scale, seed, sizes)


def build_named(text: str, *, seed: int = 0) -> ModelProto:
    """Build the model of a text: ``NAME``, ``NAME@tiny`` or ``NAME@tiny,n=4,blocks=1x2``.

    Raises:
        OptionError: `build` refuses the model, or a part has another form.
    """
    name, _, rest = text.partition("@")
    scale = "full"
    sizes: dict[str, Size] = {}
    for part in filter(None, rest.split(",")):
        size, is_size, value = part.partition("=")
        if is_size:
            if size in sizes:
                raise OptionError(f"{text!r} gives {size} twice; keep one")
            sizes[size] = _size(text, size, value)
        elif part in ("full", "tiny"):
            scale = part
        else:
            raise OptionError(
                f"unknown scale {part!r} in {text!r}; write {name}, {name}@tiny or {name}@SIZE=4"
            )
    return _built(name, scale, seed, sizes)


def _built(name: str, scale: str, seed: int, sizes: Mapping[str, Size]) -> ModelProto:
    recipe = _recipe(name)
    if scale not in ("full", "tiny"):
        raise OptionError(f"unknown scale {scale!r}; choose 'full' or 'tiny'")
    module = importlib.import_module(f"eqsat_opt.lab.zoo.{recipe.module}")
    builder: Callable[..., ModelProto] = getattr(module, name)
    known = dict(inspect.signature(builder).parameters)
    del known["seed"]
    if unknown := sorted(sizes.keys() - known):
        raise OptionError(
            f"{name} has no size {unknown[0]!r}; {or_nearest(unknown[0], sorted(known))}"
        )
    for size, value in sizes.items():
        if isinstance(value, tuple) != isinstance(known[size].default, tuple):
            wanted = "some numbers" if isinstance(value, int) else "one number"
            raise OptionError(f"the size {size} of {name} is {wanted}, not {value}")
    try:
        return builder(seed, **{**(recipe.tiny if scale == "tiny" else {}), **sizes})
    except Exception as error:
        if not sizes:
            raise
        given = ", ".join(f"{size}={value}" for size, value in sizes.items())
        raise OptionError(
            f"{name} cannot be built with {given}: {str(error).splitlines()[0]}; change the sizes"
        ) from error


def _size(text: str, name: str, value: str) -> Size:
    numbers = value.split("x")
    if not all(number.isascii() and number.isdigit() and int(number) > 0 for number in numbers):
        raise OptionError(
            f"{name} is {value!r} in {text!r}; give a positive whole number, or some as 3x4x6x3"
        )
    return tuple(map(int, numbers)) if len(numbers) > 1 else int(value)


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise OptionError(f"unknown zoo model {name!r}; {or_nearest(name, RECIPES)}")
    return RECIPES[name]


def __getattr__(name: str) -> object:
    if name in ("save_external", "synthetic_large"):
        return getattr(importlib.import_module("eqsat_opt.lab.zoo._external"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
