"""Depthwise convolutions on blocked buffers, with the activations before and after them.

onnxruntime computes outputs next to the border one by one, and all activations but Relu in a
further pass. A SiLU is a node of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.epilogues import attributes, epilogue, is_known, silus
from eqsat_opt.runtime.backends.native.sites import DOMAIN, SILU, Site, SiteWay, reads
from eqsat_opt.runtime.backends.ort.nchwc import NCHWC_DOMAIN

__all__ = ["DEPTHWISE", "depthwise_convolutions", "is_depthwise"]

DEPTHWISE = "depthwise"
"""Name of the algorithm of our kernel."""

_WIDTHS, _MOST_ROWS = (3, 5, 7), 7
"""Widths and largest height of a window, as the library was compiled."""


def is_depthwise(attrs: Mapping[str, Any], weights: Sequence[int], block: int) -> bool:
    """Return whether our kernel can compute a convolution.

    Args:
        attrs: the attributes of the operator of ONNX, with or without defaults.
        weights: the shape of the weights: outputs, inputs of a group, height and width.
        block: channels per block; 1 if there are no blocks.
    """
    channels, per_group, height, width = weights
    return (
        block > 1
        and per_group == 1
        and attrs.get("group", 1) == channels
        and channels % block == 0
        and width in _WIDTHS
        and 0 < height <= _MOST_ROWS
        and attrs.get("auto_pad", b"NOTSET") in (b"NOTSET", "NOTSET")
        and all(one in (1, 2) for one in attrs.get("strides") or ())
        and all(one == 1 for one in attrs.get("dilations") or ())
    )


def depthwise_convolutions(
    model: onnx.ModelProto, block: int, taken: Container[str] = ()
) -> Iterator[Site]:
    """Yield the convolutions that can be replaced, with the SiLU before and after each, if any.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        block: channels per block on this machine; 1 if there are no blocks.
        taken: names of nodes that belong to other sites.
    """
    graph = model.graph
    constants = {
        tensor.name: tuple(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT
    }
    readers = Counter(name for node in graph.node for name in reads(node))
    readers.update(value.name for value in graph.output)
    after = {name: node for name, node in silus(model).items() if node.name not in taken}
    before = {node.output[0]: node for node in after.values() if readers[node.output[0]] == 1}
    for node in graph.node:
        if node.domain != NCHWC_DOMAIN or node.op_type != "Conv":
            continue
        attrs, weights = attributes(node), constants.get(node.input[1], ())
        if len(weights) == 4 and is_depthwise(attrs, weights, block) and is_known(node, constants):
            first = before.get(node.input[0])
            last = after.get(node.output[0])
            if last is not None:
                before.pop(last.output[0], None)
            nodes = (node,) if last is None else (node, last)
            made = helper.make_node(
                "GroupedConv",
                [node.input[0] if first is None else first.input[0], *node.input[1:]],
                list(nodes[-1].output),
                name=node.name,
                domain=DOMAIN,
                block=block,
                pads=list(attrs.get("pads") or (0, 0, 0, 0)),
                strides=list(attrs.get("strides") or (1, 1)),
                input_activation=0 if first is None else SILU,
                **epilogue(nodes),
            )
            replaced = nodes if first is None else (first, *nodes)
            way = SiteWay(DEPTHWISE, (made,), roughness=1)
            yield Site(tuple(one.name for one in replaced), (way,))
