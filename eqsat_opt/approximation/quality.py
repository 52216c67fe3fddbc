"""Goals for the outputs of a model in low precision that are no bound on their error.

`top1>=0.99` asks that the largest element of 99 % of all rows stays at its place: labels of a
classifier, tokens, characters. `cosine>=0.999` asks that no output turns further away from the
original's. A function of a user's own accepts or refuses the outputs of one sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import OptionError

__all__ = ["Judge", "Quality", "parse_quality"]

Outputs: TypeAlias = Sequence[Any]
"""The outputs of a model for one sample, in the order of the interface."""

Judge: TypeAlias = Callable[[Outputs, Outputs], bool]
"""A function that is given the outputs of a candidate and those of the original for one sample."""

_Array = npt.NDArray[Any]
_Pairs = Sequence[tuple[Outputs, Outputs]]

_GOAL = re.compile(r"\s*(top1|cosine)\s*>=\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True)
class Quality:
    """A measure of the outputs over all samples, and the least value that is accepted.

    Attributes:
        text: the goal as the user wrote it.
        least: the least value.
        measure: returns the value, at most 1, for pairs of outputs, those of the original second.
    """

    text: str
    least: float
    measure: Callable[[_Pairs], float]


def parse_quality(goal: str | Judge) -> Quality:
    """Return the goal that a text or a function of a user's own means.

    Raises:
        OptionError: the text is no goal.
    """
    if not isinstance(goal, str):
        name = getattr(goal, "__name__", type(goal).__name__)
        return Quality(f"{name}>=1", 1.0, lambda pairs: _accepted(goal, pairs))
    found = _GOAL.fullmatch(goal)
    least = _number(found[2]) if found else None
    if found is None or least is None or not 0 < least <= 1:
        raise OptionError(
            f"the quality {goal!r} is not known; write top1>=0.99 or cosine>=0.999, with a number "
            "above 0 and at most 1"
        )
    return Quality(f"{found[1]}>={least:g}", least, {"top1": _top1, "cosine": _cosine}[found[1]])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _accepted(judge: Judge, pairs: _Pairs) -> float:
    """Return the share of samples that a function accepts."""
    return float(np.mean([bool(judge(*pair)) for pair in pairs]))


def _top1(pairs: _Pairs) -> float:
    """Return the share of rows, along the last axes, whose largest element stays where it is.

    Raises:
        OptionError: no output has rows of floats.
    """
    equal = [
        found.argmax(axis=-1) == right.argmax(axis=-1)
        for found, right in _floats(pairs)
        if right.ndim and right.shape[-1] > 1
    ]
    if not sum(one.size for one in equal):
        raise OptionError(
            "top1 needs an output of floats whose last axis has two elements or more; write "
            "cosine>=0.999, or a bound with --max-error"
        )
    return float(np.mean(np.concatenate([one.ravel() for one in equal])))


def _cosine(pairs: _Pairs) -> float:
    """Return the smallest cosine of an output and the original's."""
    return min((_angle(found, right) for found, right in _floats(pairs)), default=1.0)


def _angle(found: _Array, right: _Array) -> float:
    left, right = (np.nan_to_num(one.astype(np.float64).ravel()) for one in (found, right))
    # Scaled, since squares of large elements have no float.
    sizes = [float(np.abs(one).max(initial=0.0)) for one in (left, right)]
    if not all(sizes):
        return float(sizes[0] == sizes[1])
    left, right = left / sizes[0], right / sizes[1]
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))


def _floats(pairs: _Pairs) -> list[tuple[_Array, _Array]]:
    return [
        (found, right)
        for sample in pairs
        for found, right in zip(*sample, strict=True)
        if isinstance(found, np.ndarray)
        and isinstance(right, np.ndarray)
        and right.dtype.kind == "f"
        and found.shape == right.shape
    ]
