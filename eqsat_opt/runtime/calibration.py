"""Calibration data: inputs on which the errors of low precision are measured.

They are split in three: sensitivities are measured on some, candidates corrected on others, and the
rest decides whether a candidate keeps the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat_opt.common.text import counted
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.runtime.given_inputs import GivenInputs, Sample, load_samples
from eqsat_opt.runtime.inputs import InputSpec, random_inputs, sizes_for
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["RANDOM", "Calibration", "CalibrationSets", "load_calibration"]

RANDOM = "random"
"""Value of the option for inputs that are drawn."""

_LEAST = 3
"""Fewest samples: one for each part."""

_MOST_FITTING, _MOST_CORRECTING, _MOST_HELD_BACK = 4, 16, 64
"""Most samples of each part; sensitivities take a run of the model for each site and sample."""

_DRAWN = 16
"""Samples that are drawn where they are random."""

_SEED_STEP = 1_000
"""Distance of the seeds of calibration from those of the check."""


@dataclass(frozen=True)
class CalibrationSets:
    """Inputs of a model by their purpose.

    Attributes:
        fitting: inputs on which sensitivities are measured.
        correcting: inputs on which candidates are measured, and predictions corrected.
        held_back: inputs that decide whether a candidate keeps the bound.
    """

    fitting: tuple[Feeds, ...]
    correcting: tuple[Feeds, ...]
    held_back: tuple[Feeds, ...]


@dataclass(frozen=True)
class Calibration:
    """Samples of a user, or none if inputs are drawn.

    Attributes:
        samples: values of all inputs.
        text: description of the data for the report.
    """

    samples: tuple[Sample, ...]
    text: str

    def for_model(self, model: ModelSource) -> Calibration:
        """Return the calibration for the inputs of a model: stacked samples are taken apart.

        An array with one axis more than its input holds a sample for each element of that axis.

        Raises:
            OptionError: a sample does not fit the inputs, or there are too few.
        """
        if not self.samples:
            return self
        specs = GivenInputs(self.samples).specs(model)
        samples = tuple(part for one in self.samples for part in _unstacked(one, specs))
        GivenInputs(samples).require_fit(model)
        if len(samples) < _LEAST:
            raise OptionError(
                f"{self.text} holds {counted(len(samples), 'sample')} for calibration; "
                f"give {_LEAST} or more, as some are held back: a folder of files, or "
                "arrays with one axis more, along which samples lie"
            )
        return replace(self, samples=samples)

    def sets(
        self,
        model: ModelSource,
        inputs: GivenInputs,
        sizes: Mapping[str, int],
        seed: int,
        derived: Mapping[str, Dim] | None = None,
    ) -> CalibrationSets:
        """Return the inputs of a model by their purpose.

        Args:
            model: the model.
            inputs: generators of the user, by which inputs are drawn where no samples are given.
            sizes: sizes of symbolic dimensions of drawn inputs.
            seed: seed of drawn inputs.
            derived: symbolic dimensions that are expressions of others.
        """
        if self.samples:
            feeds = [one.feeds for one in self.samples]
        else:
            specs = inputs.specs(model, derived)
            known = sizes_for(specs, sizes)
            first = seed + _SEED_STEP
            feeds = [random_inputs(specs, first + number, known) for number in range(_DRAWN)]
        return CalibrationSets(
            tuple(feeds[0::4][:_MOST_FITTING]),
            tuple(feeds[2::4][:_MOST_CORRECTING]),
            tuple(feeds[1::2][:_MOST_HELD_BACK]),
        )


def load_calibration(text: str) -> Calibration:
    """Read calibration data: a file ``.npz``, a folder of such files, or `RANDOM`.

    Raises:
        OptionError: a file cannot be read, or holds something else than arrays of numbers.
    """
    if text == RANDOM:
        return Calibration((), "random inputs")
    samples = load_samples(text)
    for sample in samples:
        for name, array in sample.feeds.items():
            if array.dtype.kind == "f" and bool(np.isnan(array).any()):
                raise OptionError(
                    f"{sample.file}: {name!r} holds NaN, with which no error can be measured; "
                    "leave that sample out of the calibration"
                )
    return Calibration(samples, text)


def _unstacked(sample: Sample, specs: tuple[InputSpec, ...]) -> Iterator[Sample]:
    """Yield the samples in one file: itself, or one for each element of the further axis."""
    ranks = {spec.name: math.nan if spec.shape is None else len(spec.shape) for spec in specs}
    extra = {name: array.ndim - ranks.get(name, math.nan) for name, array in sample.feeds.items()}
    lengths = {len(array) for name, array in sample.feeds.items() if extra[name] == 1}
    if len(lengths) != 1 or any(one != 1 for one in extra.values()):
        yield sample
        return
    for number in range(lengths.pop()):
        feeds = {name: array[number] for name, array in sample.feeds.items()}
        yield Sample(f"{sample.file}[{number}]", feeds)
