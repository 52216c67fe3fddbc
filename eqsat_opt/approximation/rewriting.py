"""Models in which chosen sites are computed in low precision."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir

from eqsat_opt.approximation.drafts import (
    CONTRIB,
    ReplacementDraft,
    drop_unread,
    free_prefix,
    insert_draft,
    names_in,
)
from eqsat_opt.approximation.implementations import ProductImplementation, quantise_rows
from eqsat_opt.approximation.sites import ProductSite, find_sites

__all__ = ["Chosen", "site_model", "with_choice"]

Chosen = Mapping[str, ProductImplementation]
"""Implementation by the name of a site; other sites compute in floats."""


def with_choice(model: onnx_ir.Model, chosen: Chosen) -> onnx_ir.Model:
    """Return a model whose sites are computed as chosen; sites of the same rows share them.

    The interface and the names of results stay.
    """
    result = model.clone()
    graph = result.graph
    graph.sort()
    taken = names_in(graph)
    shared: dict[str, tuple[onnx_ir.Value, ...]] = {}
    for number, site in enumerate(find_sites(result)):
        implementation = chosen.get(site.name)
        if implementation is None:
            continue
        draft = ReplacementDraft(free_prefix(f"low{number}_", taken))
        rows: tuple[onnx_ir.Value, ...] = (site.data,)
        if implementation.reads_integers:
            known = shared.get(site.data.name or "")
            rows = known or tuple(quantise_rows(draft, site.data))
            shared[site.data.name or ""] = rows
        product = implementation.emit(draft, rows, site.matrix())
        if site.bias is not None:
            (product,) = draft.node("Add", [product, site.bias], ["sum"])
        _replace(graph, site, draft, product)
    if any(node.domain == CONTRIB for node in graph):
        result.opset_imports.setdefault(CONTRIB, 1)
    return result


def _replace(
    graph: onnx_ir.Graph, site: ProductSite, draft: ReplacementDraft, product: onnx_ir.Value
) -> None:
    """Put a draft in the place of a site's node, and remove what nobody reads any more."""
    insert_draft(graph, draft, site.node)
    (old,) = site.node.outputs
    weight = site.weight
    product.type, product.shape = old.type, old.shape
    old.replace_all_uses_with(product, replace_graph_outputs=True)
    graph.remove(site.node, safe=True)
    old.name = f"{draft.prefix}replaced"
    product.name = site.name
    drop_unread(graph, weight)


def site_model(site: ProductSite, copies: int = 1) -> onnx_ir.Model:
    """Return a model of one site, or of copies of it that have weights of their own.

    Its input is ``rows``, its outputs ``result0``, ``result1`` and so on. A bias is left out: it
    is added in floats in any case.
    """
    rows = onnx_ir.Value(name="rows", type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT))
    matrix = onnx_ir.tensor(site.matrix())
    graph = onnx_ir.Graph(
        [rows], [], nodes=[], opset_imports={"": 17}, name="site",
    )  # fmt: skip
    for number in range(copies):
        weight = onnx_ir.Value(
            name=f"weight{number}",
            shape=onnx_ir.Shape((site.k, site.n)),
            type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
            const_value=matrix,
        )
        graph.register_initializer(weight)
        node = onnx_ir.node("MatMul", [rows, weight], num_outputs=1)
        (result,) = node.outputs
        result.name = f"result{number}"
        result.type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
        graph.append(node)
        graph.outputs.append(result)
    return onnx_ir.Model(graph, ir_version=9)
