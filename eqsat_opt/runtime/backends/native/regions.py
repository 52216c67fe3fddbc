"""Pointwise regions of a model as onnxruntime runs it, each by a kernel that is generated for it.

A node carries the description of its kernel, not its source: whoever opens the file generates the
source again, so nothing that a file says is compiled as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import onnx
from onnx import helper

from eqsat_opt.errors import ModelError
from eqsat_opt.runtime.backends.generated.compiling import compiled, compiler_missing
from eqsat_opt.runtime.backends.generated.kernel import Kernel
from eqsat_opt.runtime.backends.generated.regions import Region, regions
from eqsat_opt.runtime.backends.generated.source import DOMAIN
from eqsat_opt.runtime.backends.generated.typed import typed_graph
from eqsat_opt.runtime.backends.native.library import instructions
from eqsat_opt.runtime.backends.native.sites import Site, Way
from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["GENERATED", "region_library", "region_sites", "with_regions"]

GENERATED = "generated"
"""Name of the way."""

_KERNEL = "kernel"


def region_sites(model: onnx.ModelProto, options: OrtOptions) -> tuple[Site, ...]:
    """The regions of a model; none where nothing can be compiled.

    Args:
        model: as onnxruntime optimises it on this machine, its nodes with names.
        options: how it is run as it is.
    """
    graph = None if compiler_missing() else typed_graph(model, options)
    return () if graph is None else tuple(map(_site, regions(graph)))


def _site(region: Region) -> Site:
    node = helper.make_node(
        region.kernel.name,
        list(region.inputs),
        list(region.outputs),
        name=region.nodes[-1],
        domain=DOMAIN,
        begins=list(region.begins),
        **{_KERNEL: region.kernel.to_json()},
    )
    way = Way(GENERATED, (node,), roughness=0 if region.kernel.is_exact else 1)
    return Site(region.nodes, (way,), is_small=True)


def with_regions(
    options: OrtOptions, nodes: Iterable[onnx.NodeProto], limit_s: float = math.inf
) -> OrtOptions:
    """The options with the library of the kernels that some nodes describe, if any does.

    Args:
        options: how the graph of these nodes is run otherwise.
        nodes: of the whole graph, others among them.
        limit_s: seconds for the compiler.

    Raises:
        ModelError: a description is damaged.
        RuntimeFailed: the kernels cannot be compiled.
    """
    library = region_library(nodes, limit_s)
    return replace(options, custom_ops=(*options.custom_ops, library)) if library else options


def region_library(nodes: Iterable[onnx.NodeProto], limit_s: float = math.inf) -> str:
    """Path of the library of these nodes; empty where none is generated.

    Raises:
        ModelError: a description is damaged.
        RuntimeFailed: the kernels cannot be compiled.
    """
    kernels = [_kernel_of(node) for node in nodes if node.domain == DOMAIN]
    return compiled(kernels, instructions(), limit_s) if kernels else ""


def _kernel_of(node: onnx.NodeProto) -> Kernel:
    text = next((a.s for a in node.attribute if a.name == _KERNEL), b"")
    kernel = Kernel.from_json(text.decode(errors="replace"))
    if kernel.name != node.op_type:
        raise ModelError(
            "the description of a generated kernel is not the node's; make the file again with "
            "--tuned"
        )
    return kernel
