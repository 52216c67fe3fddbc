"""Models whose weights are in a file beside them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eqsat_opt.common.files import part_of
from eqsat_opt.common.paths import obstacle, real_path
from eqsat_opt.errors import ModelError, reason
from eqsat_opt.lab.zoo._evaluate import IR_VERSION, OPSET
from eqsat_opt.lab.zoo._tracer import Array

__all__ = ["save_external", "synthetic_large"]

# External tensors start on a page, so that a reader can map each of them.
_ALIGNMENT = 4096
_CHUNK_BYTES = 4 << 20
_LEAST_BYTES = 1024


def save_external(model: ModelProto, path: str | os.PathLike[str]) -> None:
    """Write `model` to `path` and its weights of 1 KiB and more to `path` + ".data".

    Raises:
        ModelError: the files cannot be written; none is left behind.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    with _staged(path) as (model_file, data_file, location):
        for index, tensor in enumerate(copy.graph.initializer):
            data = numpy_helper.to_array(tensor).tobytes()
            if len(data) >= _LEAST_BYTES:
                place = (location, _padded(data_file), len(data))
                data_file.write(data)
                moved = _external_tensor(tensor.name, tensor.data_type, tuple(tensor.dims), *place)
                copy.graph.initializer[index].CopyFrom(moved)
        model_file.write(copy.SerializeToString(deterministic=True))


def synthetic_large(
    path: str | os.PathLike[str],
    bytes: int = 1_500_000_000,
    *,
    width: int = 4096,
    batch: int = 4,
    seed: int = 0,
) -> None:
    """Write a rectified chain x ← relu(xW + b) with at least `bytes` of external weights.

    Weights are drawn and written in pieces, so memory does not grow with the model. The weights are
    in `path` + ".data"; input `x` and output `y` have shape (batch, width).

    Raises:
        ModelError: the files cannot be written; none is left behind.
    """
    n_layers = max(1, math.ceil(bytes / (4 * width * width)))
    rng = np.random.default_rng(seed)
    nodes: list[NodeProto] = []
    initializers: list[TensorProto] = []
    with _staged(path) as (model_file, data_file, location):
        value = "x"
        for layer in range(n_layers):
            offset = _padded(data_file)
            for chunk in _he_rows(rng, width):
                data_file.write(chunk.data)
            length = 4 * width * width
            weight = _external_tensor(
                f"weight_{layer}",
                TensorProto.FLOAT,
                (width, width),
                location=location,
                offset=offset,
                length=length,
            )
            bias = rng.standard_normal(width, dtype=np.float32) * np.float32(0.1)
            initializers += [weight, numpy_helper.from_array(bias, f"bias_{layer}")]
            product, total = f"product_{layer}", f"sum_{layer}"
            output = "y" if layer == n_layers - 1 else f"relu_{layer}"
            nodes += [
                helper.make_node("MatMul", [value, weight.name], [product], name=product),
                helper.make_node("Add", [product, f"bias_{layer}"], [total], name=total),
                helper.make_node("Relu", [total], [output], name=f"relu_{layer}"),
            ]
            value = output
        infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, (batch, width))
            for name in ("x", "y")
        ]
        graph = helper.make_graph(nodes, "synthetic_large", infos[:1], infos[1:], initializers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="eqsat_opt.lab.zoo",
        )
        model_file.write(model.SerializeToString(deterministic=True))


def _he_rows(rng: np.random.Generator, width: int) -> Iterator[Array]:
    """Yield rows of a (width, width) weight that keeps the deviation through a rectifier."""
    rows = max(1, _CHUNK_BYTES // (4 * width))
    scale = np.float32((2 / width) ** 0.5)
    for start in range(0, width, rows):
        chunk = rng.standard_normal((min(rows, width - start), width), dtype=np.float32)
        chunk *= scale
        yield chunk


def _external_tensor(
    name: str, data_type: int, dims: tuple[int, ...], location: str, offset: int, length: int
) -> TensorProto:
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def _padded(file: BinaryIO) -> int:
    """Pad the file to the alignment, and return the offset of the next tensor."""
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    return file.tell()


@contextmanager
def _staged(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, BinaryIO, str]]:
    """Yield files for a model and its data, and the data's name; move both into place at last."""
    target, data_target = real_path(path), f"{real_path(path)}.data"
    if why := obstacle(target) or obstacle(data_target):
        raise ModelError(why)
    try:
        with part_of(data_target) as data, part_of(target) as model:
            yield model.file, data.file, os.path.basename(data_target)
            data.finish()
            model.finish()
            data.become(data_target)
            model.become(target)
    except OSError as error:
        raise ModelError(
            f"cannot write {os.fspath(path)}: {reason(error)}; check the folder and its free space"
        ) from error
