"""Convolutions of sequences that our kernel can take over, as products of patches.

onnxruntime computes them without its blocks: sample by sample, by products of few columns where the
sequences are short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.epilogues import attributes, epilogue, is_known, silus
from eqsat_opt.runtime.backends.native.sites import CONTRIBUTED, DOMAIN, Site, SiteWay

__all__ = ["PATCHES", "sequence_convolutions"]

PATCHES = "packed-patches"
"""Name of the algorithm of our kernel."""

_CONVOLUTIONS = {("", "Conv"), (CONTRIBUTED, "FusedConv")}


def sequence_convolutions(model: onnx.ModelProto) -> Iterator[Site]:
    """Yield the convolutions that can be replaced, each with the SiLU that follows it, if any.

    They have one spatial axis, one group, and constant weights in float32.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
    """
    given = {value.name for value in model.graph.input}
    constants = {
        tensor.name: tuple(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in given
    }
    followers = silus(model)
    for node in model.graph.node:
        kind = node.domain.replace("ai.onnx", ""), node.op_type
        if kind in _CONVOLUTIONS and _is_ours(node, constants):
            silu = followers.get(node.output[0])
            nodes = (node,) if silu is None else (node, silu)
            attrs = attributes(node)
            made = helper.make_node(
                "SequenceConv",
                list(node.input[:3]),
                list(nodes[-1].output),
                name=node.name,
                domain=DOMAIN,
                stride=(attrs.get("strides") or (1,))[0],
                dilation=(attrs.get("dilations") or (1,))[0],
                pads=list(attrs.get("pads") or (0, 0)),
                **epilogue(nodes),
            )
            yield Site(tuple(one.name for one in nodes), (SiteWay(PATCHES, (made,), roughness=1),))


def _is_ours(node: onnx.NodeProto, constants: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether our kernel computes the same as a convolution."""
    attrs = attributes(node)
    weights = constants.get(node.input[1], ())
    return (
        len(weights) == 3
        and 0 not in weights
        and attrs.get("group", 1) == 1
        and attrs.get("auto_pad", b"NOTSET") == b"NOTSET"
        and min(attrs.get("pads") or (0,)) >= 0
        and is_known(node, constants)
        and not any(node.input[3:])
    )
