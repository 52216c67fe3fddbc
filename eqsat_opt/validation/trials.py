"""Trials of a model besides random inputs of one size: edges where a wrong rewrite shows.

A draft is only a proposal: where the original does not run on it, it shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.runtime.given_inputs import Sample
from eqsat_opt.runtime.inputs import InputSpec, random_inputs
from eqsat_opt.runtime.source import Feeds

__all__ = ["InputDraft", "Kind", "parameter_drafts", "sample_drafts", "size_drafts"]

Kind = Literal["plain", "special", "large"]
"""The way in which outputs are judged: those of ``plain`` inputs as those of random ones;
``special`` inputs hold infinities, NaN or masks of the same effect; ``large`` inputs hold numbers
that hide all others that they are added to."""

_SINGLY = 4
"""Symbols that get the sizes 0 and 1 each by itself; more would cost more runs than they show."""


_MOST_PARAMETERS = 1 << 24
"""Most elements, over all parameters, that are fed together."""

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})


@dataclass(frozen=True)
class InputDraft:
    """Inputs that are worth a run.

    Attributes:
        what: description that begins with "at" or "with".
        kind: the way in which outputs are judged.
        draw: inputs of this sort for a seed.
    """

    what: str
    kind: Kind
    draw: Callable[[int], Feeds]


def size_drafts(
    specs: Sequence[InputSpec], sets: Sequence[Mapping[str, int]]
) -> Iterator[InputDraft]:
    """Yield drafts at the user's further sets of sizes, then at sizes 1, 0 and odd ones of symbols.

    Args:
        specs: the inputs.
        sets: sizes by symbol; random inputs have those of the first set.
    """
    for one in sets[1:]:
        yield _at(specs, one)
    base = sets[0]
    symbols = sorted({dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)})
    if not symbols:
        return
    yield _at(specs, dict.fromkeys(symbols, 1))
    # Sizes that differ from each other and divide nothing.
    yield _at(specs, {name: base[name] + 2 * i + 1 for i, name in enumerate(symbols)})
    for name in symbols[:_SINGLY]:
        yield _at(specs, {**base, name: 0})
    for name in symbols[:_SINGLY] if len(symbols) > 1 else ():
        yield _at(specs, {**base, name: 1})


def parameter_drafts(
    graph: onnx.GraphProto, specs: Sequence[InputSpec], sizes: Mapping[str, int]
) -> Iterator[InputDraft]:
    """Yield a draft with other values of parameters, to show that a default was folded.

    Parameters are inputs with a default. Their new values are near the default, so that a variance
    stays positive. Integers keep the default, as shapes may depend on them.

    Args:
        graph: graph of a model whose IR version lets callers replace initializers that are inputs.
        specs: the inputs without a default.
        sizes: sizes by symbol.
    """
    inputs = {value.name for value in graph.input}
    held = [
        tensor
        for tensor in graph.initializer
        if tensor.name in inputs
        and tensor.data_type in _FLOATS
        and tensor.data_location != TensorProto.EXTERNAL
    ]
    if held and sum(math.prod(tensor.dims) for tensor in held) <= _MOST_PARAMETERS:
        yield InputDraft("with other parameters", "plain", partial(_moved, held, specs, sizes))


def _moved(
    held: Sequence[TensorProto], specs: Sequence[InputSpec], sizes: Mapping[str, int], seed: int
) -> Feeds:
    generator, feeds = np.random.default_rng(seed), random_inputs(specs, seed, sizes)
    for tensor in held:
        default = numpy_helper.to_array(tensor)
        factors = generator.uniform(0.75, 1.25, default.shape)
        feeds[tensor.name] = np.asarray(default * factors, default.dtype)
    return feeds


def sample_drafts(samples: Iterable[Sample]) -> Iterator[InputDraft]:
    """Yield a draft for each sample of the user."""
    for one in samples:
        yield InputDraft(f"with {one.file}", "plain", partial(_fed, one))


def _fed(sample: Sample, _seed: int) -> Feeds:
    return sample.feeds


def _at(specs: Sequence[InputSpec], sizes: Mapping[str, int]) -> InputDraft:
    text = ", ".join(f"{axis_name(name)}={size}" for name, size in sizes.items())
    return InputDraft(f"at {text}", "plain", lambda seed: random_inputs(specs, seed, sizes))
