"""Pointwise regions of a model as onnxruntime runs it, each computed by a generated kernel."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from eqsat_opt.runtime.backends.generated import NAME as GENERATED
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.generated.regions import Region, regions
from eqsat_opt.runtime.backends.generated.source import DOMAIN
from eqsat_opt.runtime.backends.generated.typed import typed_graph
from eqsat_opt.runtime.backends.native.region_library import BEGINS, KERNEL
from eqsat_opt.runtime.backends.native.sites import Site, SiteWay
from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["region_sites"]


def region_sites(model: onnx.ModelProto, options: OrtOptions) -> tuple[Site, ...]:
    """Return the sites of a model's regions; none if nothing can be compiled here.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        options: the options that run the graph unchanged.
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
    way = SiteWay(GENERATED, (node,), roughness=0 if region.kernel.is_exact else 1)
    return Site(region.nodes, (way,), is_small=True)
