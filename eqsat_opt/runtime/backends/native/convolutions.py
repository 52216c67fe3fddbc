"""Convolutions that our kernels can take over in a model as onnxruntime runs it.

Our kernels read and write the same blocked buffers as those of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from eqsat_opt.runtime.backends.native.epilogues import attributes, epilogue, is_known, silus
from eqsat_opt.runtime.backends.native.sites import DOMAIN, Site, SiteWay
from eqsat_opt.runtime.backends.ort.nchwc import NCHWC_DOMAIN

__all__ = ["TILES", "convolutions", "is_plain", "layer_error", "tilings", "winograd_name"]

TILES: Mapping[tuple[int, int], Sequence[tuple[int, int]]] = {
    (3, 3): ((2, 2), (4, 4), (6, 6)),
    (5, 5): ((2, 2), (4, 4)),
    (1, 3): ((1, 4),),
    (3, 1): ((4, 1),),
    (1, 5): ((1, 2), (1, 4)),
    (5, 1): ((2, 1), (4, 1)),
    (1, 7): ((1, 2),),
    (7, 1): ((2, 1),),
}
"""Tiles by size of the window, each as height and width, as the library was compiled. A tile is
the m of Winograd's F(m, r)."""


_ALWAYS_LOADED = (6, 6)
"""A tile that gains in layers of few channels and large images, where weights are no burden."""


def tilings(kernel: tuple[int, int]) -> Iterator[tuple[tuple[int, int], bool]]:
    """Yield the algorithms for a size of the window: a tile, and whether a run transforms weights.

    Weights are transformed in each run, which reads and keeps less memory, or once when the model
    is loaded.
    """
    for tile in TILES.get(kernel, ()):
        yield tile, False
        if tile != _ALWAYS_LOADED:
            yield tile, True


def winograd_name(tile: tuple[int, int], in_run: bool) -> str:
    """Return the name of an algorithm.

    Args:
        tile: outputs per tile, by height and width.
        in_run: whether weights are transformed in each run.
    """
    return f"winograd-{tile[0]}x{tile[1]}{'-in-run' if in_run else ''}"


def layer_error(tile: tuple[int, int], kernel: tuple[int, int]) -> float:
    """Return a bound on the difference from the direct sum, relative to the largest output.

    It was measured on random shapes: tests/conformance/test_native.py. The bound grows with the
    number of points of the longer axis, since the transforms contain powers of the points.
    """
    points = max(m + r - 1 for m, r in zip(tile, kernel, strict=True))
    return 3e-6 if points <= 4 else 3e-5 if points <= 6 else 6e-5


def is_plain(attrs: Mapping[str, Any], weights: Sequence[int], block: int) -> bool:
    """Return whether a convolution has one group, no strides or gaps, and whole blocks.

    Args:
        attrs: the attributes of the operator of ONNX, with or without defaults.
        weights: the shape of the weights: outputs, inputs, height and width.
        block: channels per block.
    """
    return (
        attrs.get("group", 1) == 1
        and all(one == 1 for name in ("strides", "dilations") for one in attrs.get(name) or ())
        and weights[0] % block == 0
        and weights[1] % block == 0
    )


def convolutions(model: onnx.ModelProto, block: int) -> Iterator[Site]:
    """Yield the convolutions that can be replaced, each with the SiLU that follows it, if any.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
        block: channels per block on this machine.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    followers = silus(model)
    for node in model.graph.node:
        if node.domain == NCHWC_DOMAIN and node.op_type == "Conv":
            weights = shapes.get(node.input[1], ())
            if len(weights) == 4 and _is_ours(node, weights, shapes, block):
                silu = followers.get(node.output[0])
                nodes = (node,) if silu is None else (node, silu)
                ways = [_way(nodes, *one, block) for one in tilings((weights[2], weights[3]))]
                if ways:
                    yield Site(tuple(one.name for one in nodes), tuple(ways))


def _is_ours(
    node: onnx.NodeProto,
    weights: Sequence[int],
    shapes: Mapping[str, Sequence[int]],
    block: int,
) -> bool:
    attrs = attributes(node)
    return (
        attrs.get("auto_pad", b"NOTSET") == b"NOTSET"
        and is_plain(attrs, weights, block)
        and is_known(node, shapes)
    )


def _way(
    nodes: Sequence[onnx.NodeProto], tile: tuple[int, int], in_run: bool, block: int
) -> SiteWay:
    node = nodes[0]
    made = helper.make_node(
        "WinogradConv",
        list(node.input),
        list(nodes[-1].output),
        name=node.name,
        domain=DOMAIN,
        block=block,
        pads=list(attributes(node).get("pads") or (0, 0, 0, 0)),
        tile=list(tile),
        transform_in_run=int(in_run),
        **epilogue(nodes),
    )
    # The more outputs per tile, the fewer products and the larger the errors.
    return SiteWay(winograd_name(tile, in_run), (made,), roughness=tile[0] * tile[1])
