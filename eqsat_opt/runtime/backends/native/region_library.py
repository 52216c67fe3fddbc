"""The library of a graph's generated kernels, compiled from the descriptions in its nodes.

A node carries the description of its kernel, not its source. The source is generated again when the
file is opened, so no text of a file is compiled verbatim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import onnx

from eqsat_opt.errors import ModelError
from eqsat_opt.runtime.backends.generated.compiling import compiled
from eqsat_opt.runtime.backends.generated.kernel import FloatKernel
from eqsat_opt.runtime.backends.generated.source import DOMAIN
from eqsat_opt.runtime.backends.native.library import instructions
from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["BEGINS", "KERNEL", "region_library", "with_regions"]

KERNEL, BEGINS = "kernel", "begins"
"""Attributes of a node: the kernel's description, and the element of each input where it begins."""


def with_regions(
    options: OrtOptions, nodes: Iterable[onnx.NodeProto], limit_s: float = math.inf
) -> OrtOptions:
    """Add the library of the kernels that some nodes describe to the options, if any node does.

    Args:
        options: the options that the graph of these nodes needs otherwise.
        nodes: the nodes of the whole graph, including those of other kernels.
        limit_s: seconds for the compiler.

    Raises:
        ModelError: a description is damaged.
        RuntimeFailed: the kernels cannot be compiled.
    """
    library = region_library(nodes, limit_s)
    return replace(options, custom_ops=(*options.custom_ops, library)) if library else options


def region_library(nodes: Iterable[onnx.NodeProto], limit_s: float = math.inf) -> str:
    """Compile the library of these nodes, and return its path; empty if none is generated.

    Raises:
        ModelError: a description is damaged.
        RuntimeFailed: the kernels cannot be compiled.
    """
    kernels = [_kernel_of(node) for node in nodes if node.domain == DOMAIN]
    return compiled(kernels, instructions(), limit_s) if kernels else ""


def _kernel_of(node: onnx.NodeProto) -> FloatKernel:
    text = next((a.s for a in node.attribute if a.name == KERNEL), b"")
    kernel = FloatKernel.from_json(text.decode(errors="replace"))
    if kernel.name != node.op_type:
        raise ModelError(
            "the description of a generated kernel is not the node's; make the file again with "
            "--tuned"
        )
    return kernel
