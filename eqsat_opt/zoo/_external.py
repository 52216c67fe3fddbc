"""Models whose weights lie in a file beside them."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eqsat_opt.errors import ModelError
from eqsat_opt.zoo._evaluate import IR_VERSION, OPSET
from eqsat_opt.zoo._tracer import Array

__all__ = ["save_external", "synthetic_large"]

# External tensors start on a page, so that a reader can map each of them.
_ALIGNMENT = 4096
_CHUNK_BYTES = 4 << 20


def save_external(model: ModelProto, path: str | os.PathLike[str]) -> None:
    """Write `model` to `path` and its weights of 1 KiB and more to `path` + ".data".

    Raises:
        ModelError: the files cannot be written; none is left behind.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    with _staged(Path(path)) as (staged_model, staged_data):
        onnx.save_model(
            copy,
            staged_model,
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location=staged_data.name,
            size_threshold=1024,
        )


def synthetic_large(
    path: str | os.PathLike[str],
    bytes: int = 1_500_000_000,
    *,
    width: int = 4096,
    batch: int = 4,
    seed: int = 0,
) -> None:
    """Write a rectified chain x ← relu(xW + b) with at least `bytes` of external weights.

    Weights are drawn and written in pieces, so memory does not grow with the model. The weights
    lie in `path` + ".data"; input `x` and output `y` have shape (batch, width).

    Raises:
        ModelError: the files cannot be written; none is left behind.
    """
    n_layers = max(1, math.ceil(bytes / (4 * width * width)))
    rng = np.random.default_rng(seed)
    nodes: list[NodeProto] = []
    initializers: list[TensorProto] = []
    with _staged(Path(path)) as (staged_model, staged_data):
        value = "x"
        with staged_data.open("wb") as data:
            for layer in range(n_layers):
                offset = _pad_to(data.tell(), _ALIGNMENT)
                data.seek(offset)
                for chunk in _he_rows(rng, width):
                    data.write(chunk.data)
                weight = _external_tensor(
                    f"weight_{layer}", (width, width), staged_data.name, offset
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
            producer_name="eqsat_opt.zoo",
        )
        staged_model.write_bytes(model.SerializeToString(deterministic=True))


def _he_rows(rng: np.random.Generator, width: int) -> Iterator[Array]:
    """Rows of a (width, width) weight that keeps the deviation through a rectifier."""
    rows = max(1, _CHUNK_BYTES // (4 * width))
    scale = np.float32((2 / width) ** 0.5)
    for start in range(0, width, rows):
        chunk = rng.standard_normal((min(rows, width - start), width), dtype=np.float32)
        chunk *= scale
        yield chunk


def _external_tensor(name: str, dims: tuple[int, ...], location: str, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    length = 4 * math.prod(dims)
    for key, entry in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def _pad_to(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


@contextmanager
def _staged(path: Path) -> Iterator[tuple[Path, Path]]:
    """Names for a model and its data in a directory of their own, moved to `path` at the end."""
    data_path = path.with_name(path.name + ".data")
    try:
        for target in (path, data_path):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{target.name} is a folder")
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as staging:
            staged_model, staged_data = Path(staging, path.name), Path(staging, data_path.name)
            yield staged_model, staged_data
            if staged_data.exists():
                os.replace(staged_data, data_path)
            os.replace(staged_model, path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; check the folder and its free space"
        raise ModelError(message) from error
