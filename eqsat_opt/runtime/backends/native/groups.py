"""Convolutions with few channels per group, on blocked buffers.

Narrow groups make onnxruntime leave its blocked layout: data are reordered twice, and the kernel is
slow. Two ways keep the layout. Our kernel permutes the channels of a block, so that each group
meets its own weights. Or several groups are joined into one, with zero weights between them, which
fills a block for onnxruntime's own kernel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.epilogues import attributes, epilogue, is_known
from eqsat_opt.runtime.backends.native.sites import DOMAIN, Site, SiteWay, reads
from eqsat_opt.runtime.backends.ort.nchwc import NCHWC_DOMAIN

__all__ = [
    "GROUPED",
    "WIDER_GROUPS",
    "grouped_convolutions",
    "joined",
    "of_groups",
]

GROUPED = "grouped"
"""Name of the algorithm of our kernel."""

WIDER_GROUPS = "wider-groups"
"""Name of the algorithm that joins groups; products of finite data with the added zeros are 0."""

_CONVOLUTIONS = {("", "Conv"), ("com.microsoft", "FusedConv")}

_PER_GROUP, _WIDTH, _MOST_ROWS = (2, 4, 8), 3, 7
"""Channels per group, and width and largest height of a window, as the library was compiled.
Depthwise convolutions are absent: onnxruntime has those in blocks."""


def grouped_convolutions(model: onnx.ModelProto, block: int) -> Iterator[Site]:
    """Yield the convolutions whose groups are narrower than a block, with the reorders saved.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        block: channels per block on this machine; 1 if there are no blocks.
    """
    values = _Values.of(model)
    for node in model.graph.node:
        if block == 1 or (node.domain.replace("ai.onnx", ""), node.op_type) not in _CONVOLUTIONS:
            continue
        weights = values.constants.get(node.input[1])
        attrs = attributes(node)
        if (
            weights is not None
            and len(weights.dims) == 4
            and attrs.get("auto_pad", b"NOTSET") == b"NOTSET"
            and is_known(node, values.constants)
            and not any(node.input[3:])
        ):
            n = joined(attrs.get("group", 1), weights.dims, block)
            if n > 1:
                yield _site(node, attrs, values, n, block=block)


def _is_ours(attrs: Mapping[str, Any], weights: Sequence[int], block: int) -> bool:
    """Return whether our kernel can compute a convolution.

    Args:
        attrs: the attributes of the operator of ONNX, with or without defaults.
        weights: the shape of the weights: outputs, inputs of a group, height and width.
        block: channels per block.
    """
    channels, per_group, height, width = weights
    return (
        attrs.get("group", 1) * per_group == channels
        and channels % block == 0
        and per_group < block
        and per_group in _PER_GROUP
        and width == _WIDTH
        and 0 < height <= _MOST_ROWS
        and all(one in (1, 2) for one in attrs.get("strides") or ())
        and all(one == 1 for one in attrs.get("dilations") or ())
    )


def joined(groups: int, weights: Sequence[int], block: int) -> int:
    """Return how many groups have to be joined into one that fills blocks.

    The number is 1 if none need to be joined, or they cannot be.

    Args:
        groups: the number of groups of the convolution.
        weights: the shape of the weights: outputs, inputs of a group, height and width.
        block: channels per block.
    """
    if 0 in weights or groups < 2 or weights[0] % groups:
        return 1
    outputs = weights[0] // groups
    n = math.lcm(*(block // math.gcd(block, channels) for channels in (weights[1], outputs)))
    return n if groups % n == 0 else 1


def _in_blocks(weights: NDArray[Any], groups: int, n: int, block: int) -> NDArray[Any]:
    """Join every `n` groups of weights into one, in the order of onnxruntime's blocked kernel.

    Args:
        weights: the weights by outputs, inputs of a group, height and width.
        groups: the number of groups of the convolution, a multiple of `n`.
        n: the number of groups that become one.
        block: channels per block, which divides the inputs and the outputs of a joined group.

    Returns:
        The elements in the order [outputs / block][inputs / block][height][width][input][output],
        in the shape of weights of `groups` / `n` groups.
    """
    outputs, inputs, *size = weights.shape
    wide = np.zeros((groups // n, n, outputs // groups, n, inputs, *size), weights.dtype)
    each = np.arange(n)
    wide[:, each, :, each] = weights.reshape(
        groups // n, n, outputs // groups, inputs, *size
    ).swapaxes(0, 1)
    blocked = wide.reshape(outputs // block, block, n * inputs // block, block, *size)
    ordered = np.ascontiguousarray(blocked.transpose(0, 2, 4, 5, 3, 1))
    result: NDArray[Any] = ordered.reshape(outputs, n * inputs, *size)
    return result


def of_groups(weights: NDArray[Any], block: int) -> NDArray[Any]:
    """Return weights in the order in which our kernel reads them.

    Args:
        weights: the weights by outputs, inputs of a group, height and width.
        block: channels per block, which divides the outputs.

    Returns:
        The elements in the order [outputs / block][height][width][input][output], in the shape of
        the weights.
    """
    blocked = weights.reshape(-1, block, *weights.shape[1:])
    ordered = np.ascontiguousarray(blocked.transpose(0, 3, 4, 2, 1))
    result: NDArray[Any] = ordered.reshape(weights.shape)
    return result


@dataclass(frozen=True)
class _Values:
    """Facts about the values of a graph.

    Attributes:
        constants: the constants in float32, by name.
        maker: the node that defines a value.
        readers: the nodes that read a value, each as often as it reads it.
        outputs: the names of the values that the model returns.
    """

    constants: Mapping[str, TensorProto]
    maker: Mapping[str, onnx.NodeProto]
    readers: Mapping[str, Sequence[onnx.NodeProto]]
    outputs: frozenset[str]

    @staticmethod
    def of(model: onnx.ModelProto) -> _Values:
        graph = model.graph
        given = {value.name for value in graph.input}
        readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in graph.node:
            for name in reads(node):
                readers[name].append(node)
        return _Values(
            {
                t.name: t
                for t in graph.initializer
                if t.data_type == TensorProto.FLOAT and t.name not in given
            },
            {name: node for node in graph.node for name in node.output},
            readers,
            frozenset(value.name for value in graph.output),
        )

    def is_read_once(self, name: str) -> bool:
        return name not in self.outputs and len(self.readers[name]) == 1


def _site(
    node: onnx.NodeProto, attrs: Mapping[str, Any], values: _Values, n: int, *, block: int
) -> Site:
    """Return the site with its ways in blocks, which save reorders or add some."""
    tensor, groups = values.constants[node.input[1]], attrs["group"]
    data, result = node.input[0], node.output[0]
    replaced, first = [node], []

    before = values.maker.get(data)
    if before is not None and before.op_type == "ReorderOutput" and _is_plain(before):
        blocked = before.input[0]
        if values.is_read_once(data):
            replaced.insert(0, before)
    else:
        blocked = f"{node.name}/data"
        first.append(_reorder("ReorderInput", data, blocked, node.name))

    after = [one for one in values.readers[result] if one.op_type == "ReorderInput"]
    is_inside = len(after) == 1 and _is_plain(after[0])
    out = after[0].output[0] if is_inside else f"{node.name}/result"
    replaced += after if is_inside else []
    last = []
    if not (is_inside and values.is_read_once(result)):
        last = [_reorder("ReorderOutput", out, result, node.name, channels=tensor.dims[0])]

    weights, name = numpy_helper.to_array(tensor), f"{node.name}/weights"
    inputs = [blocked, name, *node.input[2:3]]
    wider = helper.make_node(
        "Conv",
        inputs,
        [out],
        name=node.name,
        domain=NCHWC_DOMAIN,
        **{**attrs, "group": groups // n},
    )
    made = [(WIDER_GROUPS, wider, _in_blocks(weights, groups, n, block))]
    if _is_ours(attrs, weights.shape, block):
        ours = _ours(node, attrs, inputs, out, block=block)
        made.append((GROUPED, ours, of_groups(weights, block)))
    ways = (
        SiteWay(title, (*first, one, *last), 1, constants=(numpy_helper.from_array(ordered, name),))
        for title, one, ordered in made
    )
    return Site(tuple(one.name for one in replaced), tuple(ways))


def _ours(
    node: onnx.NodeProto,
    attrs: Mapping[str, Any],
    inputs: Sequence[str],
    output: str,
    *,
    block: int,
) -> onnx.NodeProto:
    return helper.make_node(
        "GroupedConv",
        list(inputs),
        [output],
        name=node.name,
        domain=DOMAIN,
        block=block,
        pads=list(attrs.get("pads") or (0, 0, 0, 0)),
        strides=list(attrs.get("strides") or (1, 1)),
        input_activation=0,
        **epilogue((node,)),
    )


def _is_plain(reorder: onnx.NodeProto) -> bool:
    """Return whether channels precede the plane in the layout without blocks."""
    return not any(a.i for a in reorder.attribute if a.name == "channels_last")


def _reorder(kind: str, data: str, result: str, name: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(
        kind, [data], [result], name=f"{name}/{kind}", domain=NCHWC_DOMAIN, channels_last=0, **attrs
    )
