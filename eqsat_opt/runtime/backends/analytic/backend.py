"""The backend of a device that is known only by its profile: patterns and algorithms, no code.

It offers the kernels that libraries of such devices have, so that an extraction can target the
device. It runs and measures nothing; prices come from the profile's model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import StaticType, TensorType, numpy_dtype
from eqsat_opt.runtime.backends.analytic import NAME
from eqsat_opt.runtime.backends.analytic.patterns import analytic_patterns
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    Implementation,
    KernelPattern,
)
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere

__all__ = ["VIEW", "AnalyticBackend", "conversions", "in_all_forms", "workspace_bytes"]

VIEW = Implementation("view", strided=True)
"""Implementation that runs nothing: the neighbouring kernels read and write views instead."""

_STRIDED = replace(DEFAULT, strided=True)

_MOVING = frozenset({"Concat", "Slice"})

_FREE_CLASSES = frozenset({"pointwise", "window"})
_FREE = _MOVING | {"GlobalAveragePool", "GlobalMaxPool", "Pad"}
"""Operators that run equally fast in any layout, by class and by name."""

_DEFINITION = "direct"
"""Algorithm that computes every convolution; it is offered even if a profile does not list it."""

_VIEWED_CLASSES = frozenset({"pointwise", "movement", "window"})
"""Classes of operators whose kernels address elements by strides. Libraries and generated kernels
for all others, such as products and reductions, are fast on packed operands."""

_COMPLEX = 2
"""Real numbers in each complex number of a spectrum."""


class AnalyticBackend(Elsewhere):
    """The kernels that a device could run, derived from its profile.

    Args:
        profile: the profile of the device.

    Attributes:
        profile: the same profile.
        interface: the form of inputs, outputs and all tensors that are not images.

    Convolutions of images read and write them with channels innermost. Pointwise and window
    operators accept any layout; all others take tensors in the order of ONNX.

    Algorithms of a convolution, each with its workspace: ``direct``; ``gemm`` on a matrix of
    columns; ``winograd``, F(2x2, 3x3) on transformed tiles (Lavin and Gray, Fast Algorithms for
    Convolutional Neural Networks, 2016); ``fft`` on spectra of whole planes (Mathieu et al., Fast
    Training of Convolutional Networks through FFTs, 2014).
    """

    name = NAME

    def version(self) -> str:
        """Return the name of the model and of the device."""
        return f"analytic {self.profile.name}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return epilogues and chains of elementwise operators."""
        return analytic_patterns()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the algorithms of a convolution, or the implementations of another kernel.

        A kernel that only moves data has two, a copy and a view; any other has one. Each comes in
        the forms that it may have. A kernel without steps is a conversion.
        """
        if not kernel.steps:
            return conversions(self, kernel)
        is_strided = _takes_views(kernel)
        if kernel.steps[0].op == "Conv":
            algorithms = tuple(
                Implementation(
                    algorithm,
                    arithmetic=share.value if share else 1.0,
                    workspace_bytes=workspace_bytes,
                    strided=is_strided,
                )
                for algorithm, workspace_bytes in _ways_to_convolve(kernel).items()
                for share in (self.profile.multipliers.get(algorithm),)
                if share or algorithm == _DEFINITION
            )
            return tuple(self.formed(kernel, how) for how in algorithms)
        return in_all_forms(self, kernel, is_strided=is_strided)


def in_all_forms(
    backend: Elsewhere, kernel: Kernel, *, is_strided: bool
) -> Sequence[Implementation]:
    """Return a kernel's only implementation, or a copy and a view if it only moves data.

    If all its operators run equally fast in any layout, each implementation is also offered with
    images in the layout of convolutions.
    """
    is_moved = all(step.op in _MOVING for step in kernel.steps)
    default = _STRIDED if is_strided else DEFAULT
    found = (default, VIEW) if is_moved else (default,)
    if not all(_is_free(step.op) for step in kernel.steps):
        return found
    formed = (backend.formed(kernel, how) for how in found)
    return (*found, *(how for how in formed if how.reads))


def conversions(backend: Elsewhere, kernel: Kernel) -> Sequence[Implementation]:
    """Return a copy for a kernel without steps, which converts between forms of a device."""
    known = {backend.interface, backend.images}
    return (_STRIDED,) if {kernel.operands[0].form, kernel.writes} <= known else ()


def _takes_views(kernel: Kernel) -> bool:
    """Return whether operands and results of a kernel may be views.

    cuDNN 9.19 keeps all of its plans for convolutions of strided images (35 of 35 in float32), but
    few of them (5) if a residual is added.
    """
    first, *rest = kernel.steps
    if first.op != "Conv":
        return all(get_op(step.op).kind in _VIEWED_CLASSES for step in kernel.steps)
    images = [one for one in kernel.operands if not one.const]
    return len(images) == 1 and all(get_op(step.op).kind == "pointwise" for step in rest)


def _is_free(op: str) -> bool:
    """Return whether an operator runs equally fast in any layout."""
    return op in _FREE or get_op(op).kind in _FREE_CLASSES


def workspace_bytes(kernel: Kernel, algorithm: str) -> int:
    """Return the workspace of an algorithm, in bytes, for a kernel of literal sizes."""
    if kernel.steps and kernel.steps[0].op == "Conv":
        return _ways_to_convolve(kernel).get(algorithm, 0)
    return 0


def _ways_to_convolve(kernel: Kernel) -> dict[str, int]:
    """Return the algorithms for the convolution that begins a kernel, with workspace in bytes.

    The first algorithm can compute every convolution.
    """
    step = kernel.steps[0]
    types = kernel.required_types()
    x, w = (types[i] for i in step.operands[:2])
    y = types[len(kernel.operands)]
    size = numpy_dtype(x.dtype).itemsize
    taps = math.prod(w.shape[2:])
    batch, channels = x.shape[:2]
    points = math.prod(y.shape[2:])
    is_plain = taps == 1 and points == math.prod(x.shape[2:])
    found = {
        _DEFINITION: 0,
        "gemm": 0 if is_plain else size * batch * channels * taps * points,
    }
    if _is_dense(step, x):
        window = w.shape[2:]
        is_const = kernel.operands[step.operands[1]].const
        if window == (3, 3):
            found["winograd"] = size * _winograd_numbers(x, y, is_const)
        if math.prod(window) > 1:
            found["fft"] = size * _spectrum_numbers(x, y, window, is_const)
    return found


def _is_dense(step: Step, x: TensorType) -> bool:
    """Return whether a convolution of images has no groups, strides or gaps, as transforms need."""
    attrs = dict(step.attrs)
    ones = (1, 1)
    return (
        x.rank == 4 and attrs["group"] == 1 and attrs["strides"] == ones
        and attrs["dilations"] == ones
    )  # fmt: skip


def _winograd_numbers(x: StaticType, y: StaticType, is_const: bool) -> int:
    """Count the numbers in transformed 4 x 4 tiles of input, output and non-constant weights."""
    batch, outputs, height, width = y.shape
    inputs = x.shape[1]
    tiles = batch * -(-height // 2) * -(-width // 2)
    return 16 * (tiles * (inputs + outputs) + (0 if is_const else inputs * outputs))


def _spectrum_numbers(x: StaticType, y: StaticType, window: tuple[int, ...], is_const: bool) -> int:
    """Count the numbers in the spectra of all planes of input, output and non-constant weights."""
    batch, outputs, height, width = y.shape
    inputs = x.shape[1]
    plane = (height + window[0] - 1) * ((width + window[1] - 1) // 2 + 1) * _COMPLEX
    return plane * (batch * (inputs + outputs) + (0 if is_const else inputs * outputs))
