"""Benchmark models with seeded random weights, built in memory with no downloads.

The graphs are those on which the literature of graph substitution reports, under names that say
whose variant they are. Weights are scaled on real activations, so that outputs depend on inputs
and on every weight: a wrong rewrite shows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from eqsat_opt.errors import OptionError
from eqsat_opt.zoo._registry import RECIPES, Description, Recipe, Size

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat_opt.zoo._external import save_external, synthetic_large

__all__ = ["Description", "build", "describe", "names", "save_external", "synthetic_large"]


def names() -> tuple[str, ...]:
    """Names that `build` and `describe` take."""
    return tuple(RECIPES)


def describe(name: str) -> Description:
    """Say what a model is, without building it.

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
        name: one of `names()`.
        scale: "full" as published; "tiny" has the same structure with few channels, blocks and
            pixels, for fast tests.
        seed: seed of the weights.
        **sizes: sizes of the model to change, such as `tokens=64` (see its builder's signature).

    Raises:
        OptionError: no such model, scale or size.
    """
    recipe = _recipe(name)
    if scale not in ("full", "tiny"):
        raise OptionError(f"unknown scale {scale!r}; choose 'full' or 'tiny'")
    module = importlib.import_module(f"eqsat_opt.zoo.{recipe.module}")
    builder: Callable[..., ModelProto] = getattr(module, name)
    known = set(inspect.signature(builder).parameters) - {"seed"}
    if unknown := sorted(set(sizes) - known):
        raise OptionError(
            f"{name} has no size {', '.join(unknown)}; choose among {', '.join(sorted(known))}"
        )
    return builder(seed, **{**(recipe.tiny if scale == "tiny" else {}), **sizes})


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise OptionError(f"unknown zoo model {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def __getattr__(name: str) -> object:
    if name in ("save_external", "synthetic_large"):
        return getattr(importlib.import_module("eqsat_opt.zoo._external"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
