"""Pointwise regions of a model as onnxruntime runs it, each by a kernel generated for it."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.generated.regions import Region, regions
from eqsat_opt.runtime.backends.generated.source import DOMAIN
from eqsat_opt.runtime.backends.generated.typed import typed_graph
from eqsat_opt.runtime.backends.native.region_library import BEGINS, KERNEL
from eqsat_opt.runtime.backends.native.sites import Site, Way
from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["GENERATED", "region_sites"]

GENERATED = "generated"
"""Name of the way."""


def region_sites(model: onnx.ModelProto, options: OrtOptions) -> tuple[Site, ...]:
    """The regions of a model; none where nothing can be compiled.

    Args:
        model: as onnxruntime optimises it on this machine, its nodes with names.
        options: how it is run as it is.
    """
    graph = None if compiler_missing() else typed_graph(model, options)
    return () if graph is None else tuple(map(_site, regions(graph)))


def _site(region: Region) -> Site:
    attrs: dict[str, Any] = {BEGINS: list(region.begins), KERNEL: region.kernel.to_json()}
    node = helper.make_node(
        region.kernel.name,
        list(region.inputs),
        list(region.outputs),
        name=region.nodes[-1],
        domain=DOMAIN,
        **attrs,
    )
    way = Way(GENERATED, (node,), roughness=0 if region.kernel.is_exact else 1)
    return Site(region.nodes, (way,), is_small=True)
