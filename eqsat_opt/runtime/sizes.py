"""Sizes for symbolic dimensions that nobody gave, such that a model can run on them."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.ir.dims import SymDim, dim_names, evaluate_dim
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.inputs import input_specs, symbolic_sizes
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = ["runnable_sizes"]

_SCALES = (1, 2, 4, 8, 16, 32)
"""Times the smallest sizes: up to images of 1024 by 1024."""


def runnable_sizes(model: ModelSource, dims: Mapping[str, int]) -> dict[str, int]:
    """A size for each symbolic dimension of the inputs: the given one, or a small assumption.

    An image that vanishes in a network's strides does not only fail: some kernels of onnxruntime
    divide by its size and end the process. So small sizes grow until every tensor has elements.

    Raises:
        ModelError: the model cannot be read.
        OptionError: `dims` names no symbolic dimension of the inputs, or gives a negative size.
    """
    specs = input_specs(model)
    smallest = symbolic_sizes(specs, dims)
    batch = {spec.shape[0] for spec in specs if spec.shape}
    free = smallest.keys() - dims.keys() - batch
    if not free:
        return smallest
    graph = import_model(load_model(read_structure(model) if isinstance(model, bytes) else model))
    types = (type_ for type_ in graph.types.values() if isinstance(type_, TensorType))
    symbolic = [dim for type_ in types for dim in type_.shape if isinstance(dim, SymDim)]
    known = [dim for dim in symbolic if set(dim_names(dim)) <= smallest.keys()]
    for scale in _SCALES:
        sizes = {n: size * scale if n in free else size for n, size in smallest.items()}
        if all(evaluate_dim(dim, sizes) > 0 for dim in known):
            return sizes
    return smallest
