"""Where onnxruntime or onnx.reference says nothing about a configuration, or something wrong.

A configuration with an excused peer counts as compared with the other one, which must agree. One
with every peer excused is left out: nobody can say whether the registry is right. An excuse that
nothing needs any more fails a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.operator_grid.configuration import Configuration, Fixed

__all__ = ["EXCUSES", "SEEN_IN", "Excuse", "excuses"]

SEEN_IN = {"onnx": "1.23", "onnxruntime": "1.32"}
"""Releases in which each excuse was seen to be needed; others may have mended something."""


@dataclass(frozen=True)
class Excuse:
    """Why a peer need not agree.

    Attributes:
        peer: whom it excuses.
        nodes: operators that it is about, as the model or the registry calls them.
        applies: whether it is about this configuration.
        reason: what the peer does; where it computes, why that is wrong.
    """

    peer: str
    nodes: frozenset[str]
    applies: Callable[[Configuration], bool]
    reason: str

    def __str__(self) -> str:
        return f"{self.peer}, {' '.join(sorted(self.nodes))}: {self.reason}"


EXCUSES: list[Excuse] = []


def excuses(configuration: Configuration, peer: str) -> list[Excuse]:
    """What excuses ``peer`` from agreeing."""
    return [
        e for e in EXCUSES
        if e.peer == peer and _node(configuration) in e.nodes and e.applies(configuration)
    ]  # fmt: skip


def _node(configuration: Configuration) -> str:
    return getattr(configuration, "node", configuration.op)


def _attrs(configuration: Configuration) -> Mapping[str, Any]:
    attrs: Mapping[str, Any] = getattr(configuration, "attrs", {})
    return attrs


def _dtypes(configuration: Configuration) -> set[str]:
    return {str(array.dtype) for array in configuration.feeds.values()}


def _shape(configuration: Configuration, operand: int = 0) -> tuple[int, ...]:
    return tuple(configuration.feeds[f"x{operand}"].shape)


def _add(peer: str, nodes: str, reason: str, applies: Callable[[Configuration], bool]) -> None:
    EXCUSES.append(Excuse(peer, frozenset(nodes.split()), applies, reason))


# onnxruntime: kernels that the CPU provider does not have -----------------------------------------


def _no_kernel(dtype: str, nodes: str, before: int = 1 << 20, since: int = 0) -> None:
    span = "" if before == 1 << 20 else f" before operator set {before}"
    span += "" if not since else f" since operator set {since}"
    for node in nodes.split():
        _add(
            "onnxruntime", node, f"no CPU kernel for {dtype}{span}",
            lambda c: dtype in _dtypes(c) and since <= c.opset < before,
        )  # fmt: skip


_no_kernel(
    "float64",
    "AveragePool Celu Conv ConvTranspose Elu Erf GlobalAveragePool GlobalMaxPool HardSigmoid "
    "HardSwish InstanceNormalization LRN Mean Selu Softplus Softsign ThresholdedRelu",
)
_no_kernel("float64", "Max MaxPool Min", before=8)
_no_kernel("float64", "Clip", before=12)
_no_kernel("float64", "LeakyRelu PRelu", before=16)
_no_kernel("float64", "Mish", before=18)
_no_kernel("float64", "Mish", since=20)
_no_kernel("int32", "PRelu", before=16)
_no_kernel("int64", "PRelu", before=16)
_no_kernel("int32", "Erf")
_no_kernel("int64", "Erf Gemm Relu")
_add(
    "onnxruntime", "Gelu", "no CPU kernel for float64 of Erf, which it is made of",
    lambda c: "float64" in _dtypes(c) and _attrs(c).get("approximate", "none") == "none",
)  # fmt: skip
_add(
    "onnxruntime", "Where", "no CPU kernel for a choice between bool",
    lambda c: _dtypes(c) == {"bool"},
)  # fmt: skip

_add(
    "onnxruntime", "LRN", "takes odd sizes only",
    lambda c: int(_attrs(c)["size"]) % 2 == 0,
)  # fmt: skip

# onnx.reference: what it refuses, or computes otherwise than specified, unlike onnxruntime --------

_add(
    "onnx.reference", "BatchNormalization",
    "before operator set 14 it takes the statistics of the batch in, by the momentum; its class "
    "for 7 and 8 also returns a tuple in a tuple",
    lambda c: c.opset < 14,
)  # fmt: skip
_add(
    "onnx.reference", "Softsign", "returns a scalar for rank 0, which it then refuses",
    lambda c: _shape(c) == (),
)  # fmt: skip
_add(
    "onnx.reference", "Pow", "NumPy refuses to raise integers to negative powers",
    lambda c: not _dtypes(c) & {"float16", "float32", "float64"}
    and bool((c.feeds["x1"] < 0).any()),
)  # fmt: skip
_add(
    "onnx.reference", "Mean", "adds in place to the first operand, which must have the full shape",
    lambda c: _shape(c) != (2, 3),
)  # fmt: skip
_add(
    "onnx.reference", "Unsqueeze", "inserts axes one after the other as they are listed",
    lambda c: c.opset < 13 and tuple(_attrs(c)["axes"]) != tuple(sorted(_attrs(c)["axes"])),
)  # fmt: skip
_add(
    "onnx.reference", "ConvTranspose",
    "cuts the weights of several groups by output channels; their first axis is of input channels",
    lambda c: int(_attrs(c).get("group", 1)) > 1,
)  # fmt: skip
_add(
    "onnx.reference", "Softmax LogSoftmax",
    "has the meaning of operator set 13 for older ones too, where all axes from `axis` on are one "
    "and the first of them is 1 by default",
    lambda c: c.opset < 13 and _shape(c)[_attrs(c).get("axis", -1)] == 1,
)  # fmt: skip
_add(
    "onnx.reference", "LogSoftmax", "the logarithm of a softmax that has rounded to 0",
    lambda c: bool(np.abs(c.feeds["x0"]).max() > 100),
)  # fmt: skip
_add(
    "onnx.reference", "GlobalMaxPool", "reduces two axes, whatever the rank",
    lambda c: len(_shape(c)) != 4,
)  # fmt: skip
_add(
    "onnx.reference", "LRN", "runs over as many channels as there are images",
    lambda c: _shape(c)[0] != _shape(c)[1],
)  # fmt: skip


_add(
    "onnx.reference", "GatherElements", "wants as many places as elements along all other axes",
    lambda c: _is_narrower(c, _attrs(c).get("axis", 0)),
)  # fmt: skip
_add(
    "onnx.reference", "LSTM GRU RNN", "runs all sequences to the end, whatever their lengths",
    lambda c: "int32" in _dtypes(c),
)  # fmt: skip
_add(
    "onnx.reference", "RNN", "knows no other activations by name",
    lambda c: bool({"Relu", "Sigmoid"} & set(_attrs(c).get("activations", ()))),
)  # fmt: skip
_add(
    "onnx.reference", "Scatter", "knows it under its later name only",
    lambda c: True,
)  # fmt: skip
_add(
    "onnx.reference", "Pad", "leaves pads below 0 to NumPy, which refuses them",
    lambda c: min(_pads(c)) < 0,
)  # fmt: skip
_add(
    "onnx.reference", "Resize", "does not know how TensorFlow places the nearest pixels",
    lambda c: _attrs(c).get("coordinate_transformation_mode") == "tf_half_pixel_for_nn",
)  # fmt: skip
_add(
    "onnx.reference", "Resize", "refuses axes in another order",
    lambda c: _attrs(c).get("axes") == (-1, -2),
)  # fmt: skip
_add(
    "onnx.reference", "Resize",
    "places pixels by scale times size, which it does not round down, and rounds no position",
    lambda c: any(scale % 1 for scale in _scales(c)),
)  # fmt: skip
_add(
    "onnx.reference", "Resize Upsample",
    "knows no Resize of operator set 10, no scales that are an attribute, and of Upsample whole "
    "scales of nearest pixels alone",
    lambda c: c.opset in (7, 10)
    or (c.opset == 9 and (_attrs(c)["mode"] == "linear" or any(s % 1 for s in _scales(c)))),
)  # fmt: skip


def _is_narrower(configuration: Configuration, axis: int) -> bool:
    pairs = list(zip(_shape(configuration), _shape(configuration, 1), strict=True))
    if axis >= 0:  # an axis that is counted from the end is one of the others
        del pairs[axis]
    return any(size != other for size, other in pairs)


def _pads(configuration: Configuration) -> list[int]:
    second: Any = [*getattr(configuration, "operands", ()), None, None][1]
    return list(_attrs(configuration).get("pads", second.array if second else (0,)))


def _scales(configuration: Configuration) -> list[float]:
    """The constant operands that are no whole numbers by type, or the attribute."""
    operands = getattr(configuration, "operands", ())
    fixed = [o.array for o in operands if isinstance(o, Fixed) and o.array.dtype == np.float32]
    return [float(scale) for array in fixed for scale in array] + list(
        _attrs(configuration).get("scales", ())
    )


def _several(configuration: Configuration, name: str) -> bool:
    return any(value > 1 for value in _attrs(configuration).get(name, ()))


def _dense(configuration: Configuration) -> bool:
    return not _several(configuration, "strides") and not _several(configuration, "dilations")


def _auto(configuration: Configuration) -> str:
    return str(_attrs(configuration).get("auto_pad", "NOTSET"))


def _overhang(configuration: Configuration) -> int:
    """By how much the last windows of a pool may reach beyond the padding, rounding up."""
    attrs, sizes = _attrs(configuration), _shape(configuration)[2:]
    axes = len(sizes)
    pads, ones = attrs.get("pads", (0,) * 2 * axes), (1,) * axes
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    spans = [
        sizes[i] + pads[i] + pads[axes + i] - dilations[i] * (attrs["kernel_shape"][i] - 1) - 1
        for i in range(axes)
    ]
    return max(int(-span % stride) for span, stride in zip(spans, strides, strict=True))


_add(
    "onnx.reference", "MaxPool",
    "without strides and dilations it pads two axes only, and reads begin, end, begin, end",
    lambda c: _dense(c)
    and (len(_shape(c)) != 4 or len(set(_attrs(c).get("pads", ()))) > 1)
    and (any(_attrs(c).get("pads", ())) or _auto(c).startswith("SAME")),
)  # fmt: skip
_add(
    "onnx.reference", "MaxPool", "pads integers with NaN, where strides and dilations are 1",
    lambda c: _dense(c) and len(_shape(c)) == 4 and bool(_dtypes(c) & {"int8", "uint8"}),
)  # fmt: skip
_add(
    "onnx.reference", "MaxPool", "rounds the output of SAME_LOWER down",
    lambda c: not _dense(c) and _auto(c) == "SAME_LOWER",
)  # fmt: skip
_add(
    "onnx.reference", "AveragePool", "refuses ceil_mode beside auto_pad",
    lambda c: _auto(c) != "NOTSET" and bool(_attrs(c).get("ceil_mode")),
)  # fmt: skip
_add(
    "onnx.reference", "AveragePool", "the output of VALID forgets the dilations",
    lambda c: _auto(c) == "VALID" and _several(c, "dilations"),
)  # fmt: skip
_add(
    "onnx.reference", "AveragePool",
    "rounding up, it adds half of what the last window lacks in front, so that all windows move",
    lambda c: bool(_attrs(c).get("ceil_mode")) and _overhang(c) >= 2,
)  # fmt: skip
