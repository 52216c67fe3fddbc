"""Inputs that a user gives: samples from files, and generators of further ones.

A sample is a file ``.npz`` with an array for each input of the model, by its name. Checks, races
and calibration read samples by this module.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from eqsat_opt.common.paths import shown
from eqsat_opt.errors import OptionError, printable, reason
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.runtime.generators import Generator
from eqsat_opt.runtime.inputs import InputSpec, input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["NO_INPUTS", "GivenInputs", "Sample", "load_samples"]

_ENDING = ".npz"


@dataclass(frozen=True)
class Sample:
    """Values of the inputs of a model.

    Attributes:
        file: the file that they come from, for messages.
        feeds: the arrays by the names of inputs.
    """

    file: str
    feeds: Feeds

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays."""
        return {name: tuple(array.shape) for name, array in self.feeds.items()}


@dataclass(frozen=True)
class GivenInputs:
    """Samples, and generators of the inputs of a model; without any, inputs are random.

    Attributes:
        samples: values of all inputs.
        generators: generators by the name of an input.
    """

    samples: tuple[Sample, ...] = ()
    generators: Mapping[str, Generator] = field(default_factory=dict)

    def specs(
        self, model: ModelSource, derived: Mapping[str, Dim] | None = None
    ) -> tuple[InputSpec, ...]:
        """Return the inputs of a model as `input_specs` does, with their generators."""
        return tuple(
            replace(spec, generator=self.generators.get(spec.name))
            for spec in input_specs(model, derived)
        )

    def feeds(
        self, specs: Sequence[InputSpec], seeds: Sequence[int], sizes: Mapping[str, int]
    ) -> Iterator[Feeds]:
        """Yield inputs for a check, at most one for each seed.

        Args:
            specs: inputs of the model.
            seeds: seeds of drawn inputs.
            sizes: sizes of symbolic dimensions; of samples, those that have these sizes are taken,
                and only if there are none, inputs are drawn.
        """
        own = [one.feeds for one in self.samples if _fits(one, specs, sizes)]
        if own:
            yield from own[: len(seeds)]
            return
        for seed in seeds:
            yield random_inputs(specs, seed, sizes_for(specs, sizes))

    def others(self, specs: Sequence[InputSpec], sizes: Mapping[str, int]) -> Iterator[Sample]:
        """Yield the samples of other sizes."""
        return (one for one in self.samples if not _fits(one, specs, sizes))

    def require_fit(self, model: ModelSource) -> None:
        """Refuse samples or generators that are not for the inputs of a model.

        Raises:
            OptionError: an input is missing, unknown, or of another type or shape.
        """
        if not self.samples and not self.generators:
            return
        specs = {spec.name: spec for spec in input_specs(model)}
        names = ", ".join(specs) or "none"
        for name in self.generators:
            if name not in specs:
                raise OptionError(f"--input names {name!r}; inputs are {names}")
        for name, generator in self.generators.items():
            if not specs[name].is_tensor or specs[name].elem_type == onnx.TensorProto.STRING:
                raise OptionError(f"the input {name!r} holds no numbers, so none are drawn for it")
            if generator.kind == "int" and specs[name].elem_type == onnx.TensorProto.BOOL:
                raise OptionError(f"the input {name!r} is true or false; draw it by 'mask'")
        for sample in self.samples:
            if odd := sorted(sample.feeds.keys() ^ specs.keys()):
                verb = "lacks" if odd[0] in specs else "has"
                raise OptionError(f"{sample.file} {verb} {odd[0]!r}; inputs are {names}")
            for name, spec in specs.items():
                if why := _mismatch(sample, spec):
                    raise OptionError(f"{sample.file}: {name!r} {why}")


NO_INPUTS = GivenInputs()


def _fits(sample: Sample, specs: Sequence[InputSpec], sizes: Mapping[str, int]) -> bool:
    """Return whether a sample has the sizes that are known."""
    for spec in specs:
        for dim, size in zip(spec.shape or (), sample.feeds[spec.name].shape, strict=False):
            if isinstance(dim, str) and sizes.get(dim, size) != size:
                return False
    return True


def _mismatch(sample: Sample, spec: InputSpec) -> str:
    """Return how an array differs from what a model declares; empty if it does not."""
    array = sample.feeds[spec.name]
    if not spec.is_tensor:
        return "is a sequence or a map, which no file of arrays holds"
    wanted = onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)
    if array.dtype != wanted:
        return f"is of {array.dtype}, and the model takes {wanted}; convert it with astype"
    if spec.shape is None:
        return ""
    known = zip(spec.shape, array.shape, strict=False)
    if len(spec.shape) != array.ndim or any(
        isinstance(dim, int) and dim != size for dim, size in known
    ):
        shape = ", ".join(map(str, spec.shape))
        return f"has the shape {array.shape}, and the model takes ({shape})"
    return ""


def load_samples(path: str, most: int | None = None) -> tuple[Sample, ...]:
    """Read samples.

    Args:
        path: a file ``.npz``, or a folder with such files, which are read by order of their names.
        most: number of samples that are read at most; ``None`` for all.

    Raises:
        OptionError: there is no such file, or it holds something else than arrays.
    """
    files = [path]
    if os.path.isdir(path):
        files = sorted(
            os.path.join(path, name) for name in os.listdir(path) if name.endswith(_ENDING)
        )
        if not files:
            raise OptionError(f"the folder {shown(path)} holds no {_ENDING} file, one per sample")
    return tuple(Sample(shown(file), _arrays(file)) for file in files[:most])


def _arrays(path: str) -> Feeds:
    """Read the arrays of a file; texts become objects, as runtimes take them.

    Raises:
        OptionError: the file cannot be read, or holds something else than arrays.
    """
    name = shown(path)
    try:
        with open(path, "rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, np.lib.npyio.NpzFile):
                raise OptionError(
                    f"{name} is a single array; write all inputs by their names: "
                    "numpy.savez(FILE, NAME=ARRAY)"
                )
            arrays = {key: held[key] for key in held.files}
    except OSError as error:
        raise OptionError(f"cannot read {name}: {reason(error)}") from error
    except ValueError as error:  # NumPy advises to unpickle what it cannot read
        raise OptionError(
            f"{name} is no .npz file, or holds other things than numbers and texts; write it with "
            "numpy.savez"
        ) from error
    except (EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
        raise OptionError(
            f"{name} holds no plain arrays ({printable(str(error))}); write it with numpy.savez"
        ) from error
    return {
        key: array.astype(object) if array.dtype.kind == "U" else array
        for key, array in arrays.items()
    }
