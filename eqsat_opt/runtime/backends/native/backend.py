"""Our kernels as a backend: the algorithms of a convolution as rows of the extraction problem.

They replace nodes of the graph that onnxruntime optimises, so they have the same fusions. A choice
among them is written as the plain operator: the algorithm that computes a node is decided when the
form for this machine is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import onnx
from onnx import numpy_helper

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.onnx.kernel_export import export_kernel
from eqsat_opt.ir.values.types import require_static
from eqsat_opt.runtime.backends.native import NAME
from eqsat_opt.runtime.backends.native.convolutions import (
    convolutions,
    is_plain,
    layer_error,
    tilings,
    winograd_name,
)
from eqsat_opt.runtime.backends.native.depthwise import (
    DEPTHWISE,
    depthwise_convolutions,
    is_depthwise,
)
from eqsat_opt.runtime.backends.native.library import instructions, library_digest, with_kernels
from eqsat_opt.runtime.backends.native.sequences import PATCHES, sequence_convolutions
from eqsat_opt.runtime.backends.native.sites import with_names, with_ways
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.measuring import (
    MIN_KERNEL_US,
    blocked_form,
    measure_kernel,
    session_overhead_us,
)
from eqsat_opt.runtime.backends.ort.patterns import ort_patterns
from eqsat_opt.runtime.backends.ort.session import (
    OrtOptions,
    OrtSession,
    ort_optimized,
    ort_version,
)
from eqsat_opt.runtime.backends.protocol import CarriedForm, Implementation, KernelPattern, Offer
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.measure import Measurement, measure
from eqsat_opt.runtime.source import Feeds

__all__ = ["NativeBackend"]

_ALGORITHM = "eqsat_opt.algorithm"
"""Metadata key of a request that holds the name of the algorithm."""

_FOOTPRINT = 16 << 20
"""Bytes of weights that exceed the caches of one core."""

_COPIES = 2, 8
"""Least and largest number of kernels in a model that is measured."""


class NativeBackend:
    """Backend of our algorithms for convolutions, inside a session of onnxruntime."""

    name = NAME

    def __init__(self) -> None:
        self._block = nchwc_block()

    def version(self) -> str:
        """Return the versions of the library and onnxruntime, and the processor instructions."""
        return f"native {library_digest()} {instructions()}, onnxruntime {ort_version()}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return the patterns that onnxruntime fuses with a convolution."""
        return tuple(one for one in ort_patterns() if one.name.startswith("conv-"))

    def carried(self) -> Sequence[CarriedForm]:
        """Return no forms: the kernels read and write those of onnxruntime."""
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return Winograd's algorithm for each tile, or our kernel of another convolution.

        Those are the product of patches of a sequence, and the depthwise kernel. Weights of a tile
        are transformed at load or in runs.
        """
        first = kernel.steps[0]
        if first.op != "Conv" or len(kernel.outputs) != 1:
            return ()
        x, w = (kernel.operands[i] for i in first.operands[:2])
        if x.type.rank not in (3, 4) or x.type.dtype != "float32" or not w.const:
            return ()
        if x.type.rank == 3:
            is_one = dict(first.attrs).get("group", 1) == 1
            return (Implementation(PATCHES),) if is_one else ()
        weights = require_static(w.type).shape
        if is_depthwise(dict(first.attrs), weights, self._block):
            return (Implementation(DEPTHWISE),)
        if not is_plain(dict(first.attrs), weights, self._block):
            return ()
        size = weights[2], weights[3]
        return tuple(
            Implementation(
                winograd_name(tile, in_run),
                arithmetic=math.prod(
                    (m + r - 1) / (m * r) for m, r in zip(tile, size, strict=True)
                ),
                error=layer_error(tile, size),
            )
            for tile, in_run in tilings(size)
        )

    def request(self, offer: Offer) -> bytes:
        """Serialise a model of one kernel, which names the algorithm.

        Raises:
            EqsatError: ONNX cannot express the kernel.
        """
        model = onnx.load_model_from_string(export_kernel(offer.body))
        model.metadata_props.add(key=_ALGORITHM, value=offer.implementation.algorithm)
        data: bytes = model.SerializeToString()
        return data

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure a kernel relative to onnxruntime's, with weights that come from memory.

        Convolutions of sequences are measured with weights in the caches, as onnxruntime's are.
        The ratio of the times in such a model is applied to the price of onnxruntime's kernel
        alone, so that both prices are comparable in one problem. If onnxruntime does not run the
        kernel in blocks, onnxruntime's own kernel is measured.
        """
        model = onnx.load_model_from_string(request)
        algorithm = model.metadata_props.pop().value
        if algorithm == PATCHES:
            return _measured_in_rows(model, threads, budget_s)
        own = _own(model.SerializeToString(), threads, budget_s)
        if own is None:
            return measure_kernel(model, threads, budget_s=budget_s)
        alone, repeated, feeds, repeated_us = own
        block = nchwc_block()
        found = (*convolutions(repeated, block), *depthwise_convolutions(repeated, block))
        chosen = [(site, way) for site in found for way in site.ways if way.name == algorithm]
        if not chosen:
            return alone
        options = with_kernels(OrtOptions(threads))
        spent_us = _time_us(with_ways(repeated, chosen), options, feeds, budget_s / 2)
        return _scaled(alone, spent_us / repeated_us)


def _measured_in_rows(model: onnx.ModelProto, threads: int, budget_s: float) -> Measurement:
    """Measure our kernel for a convolution of sequences, relative to onnxruntime's."""
    alone = measure_kernel(model, threads, budget_s=budget_s)
    options = OrtOptions(threads)
    optimized = with_names(ort_optimized(model, options))
    chosen = [(site, site.ways[0]) for site in sequence_convolutions(optimized)]
    if not chosen:
        return alone
    feeds = random_inputs(model, 0)
    own_us = _time_us(optimized, replace(options, level="disabled"), feeds, budget_s / 2)
    ours = with_ways(optimized, chosen)
    ratio = _time_us(ours, with_kernels(options), feeds, budget_s / 2) / own_us
    return _scaled(alone, ratio)


def _scaled(alone: Measurement, ratio: float) -> Measurement:
    return replace(
        alone,
        time_us=alone.time_us * ratio,
        p20_us=alone.p20_us * ratio,
        median_us=alone.median_us * ratio,
    )


@lru_cache(maxsize=4)
def _own(
    content: bytes, threads: int, budget_s: float
) -> tuple[Measurement, onnx.ModelProto, Feeds, float] | None:
    """Measure onnxruntime's kernel alone and in a model of several copies.

    The result is cached, since all algorithms of one kernel are measured one after another.

    Returns:
        The measurement alone, the model of several copies, its inputs, and its time in µs;
        ``None`` if the kernel does not run in blocks.
    """
    model = onnx.load_model_from_string(content)
    options = OrtOptions(threads)
    found = blocked_form(model, random_inputs(model, 0), options)
    if found is None:
        return None
    repeated, feeds = _repeated(found[0]), found[1]
    repeated_us = _time_us(repeated, replace(options, level="disabled"), feeds, budget_s / 2)
    return measure_kernel(model, threads, budget_s=budget_s), repeated, feeds, repeated_us


def _time_us(model: onnx.ModelProto, options: OrtOptions, feeds: Feeds, budget_s: float) -> float:
    found = measure(
        OrtSession(model, options).bind(feeds), threads=options.threads, budget_s=budget_s
    )
    return max(found.time_us - session_overhead_us(options.threads), MIN_KERNEL_US)


def _repeated(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of several copies of a kernel on the same data, each with separate weights."""
    size = sum(tensor.ByteSize() for tensor in model.graph.initializer)
    least, most = _COPIES
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for field in ("node", "initializer", "output", "value_info"):
        graph.ClearField(field)
    shared = {value.name for value in graph.input} | {""}
    for copy in range(min(max(_FOOTPRINT // max(size, 1), least), most)):
        for tensor in model.graph.initializer:
            # The values differ, since onnxruntime stores equal constants only once.
            values = numpy_helper.to_array(tensor)
            other = values if values.dtype.kind != "f" else np.roll(values, copy, axis=-1)
            graph.initializer.append(numpy_helper.from_array(other, f"{tensor.name}/{copy}"))
        for node in model.graph.node:
            named = graph.node.add()
            named.CopyFrom(node)
            for names in (named.input, named.output):
                names[:] = [n if n in shared else f"{n}/{copy}" for n in names]
        for value in model.graph.output:
            named_value = graph.output.add()
            named_value.CopyFrom(value)
            named_value.name = f"{value.name}/{copy}"
    return with_names(result)
