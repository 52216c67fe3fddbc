"""One export of one module by one of PyTorch's exporters, compared with PyTorch."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks.exported.module import Exportable

__all__ = ["EXPORTERS", "export", "opset_of"]

EXPORTERS = ("legacy", "dynamo")
_OPSETS = {"legacy": (17, 14, 11, 16, 18, 13, 20, 15, 12, 19), "dynamo": (18, 20, 21, 19, 22)}
_TOLERANCE = 1e-3


def opset_of(exporter: str, index: int) -> int:
    """The opset of the model of that number: they take turns."""
    turns = _OPSETS[exporter]
    return turns[index % len(turns)]


def export(model: Exportable, exporter: str, opset: int, path: str) -> str:
    """Write a model; return a remark on its outputs beside PyTorch's, "" if they agree.

    Raises:
        Exception: whatever the exporter or the runtime raises.
    """
    warnings.simplefilter("ignore")
    # The fused attention of evaluation has no ONNX operator.
    torch.backends.mha.set_fastpath_enabled(False)
    # Wrappers are made for training, and exporters restore that mode inside of them too.
    model.module.eval()
    arguments = tuple(model.inputs.values())
    common: dict[str, Any] = {
        "input_names": list(model.inputs),
        "output_names": list(model.outputs),
        "opset_version": opset,
        "verbose": False,
    }
    with torch.no_grad():
        if exporter == "legacy":
            torch.onnx.export(
                model.module,
                arguments,
                path,
                dynamo=False,
                dynamic_axes={**_named(model.axes), **_named(model.output_axes)},
                **common,
            )
        else:
            torch.onnx.export(
                model.module,
                arguments,
                path,
                dynamo=True,
                external_data=False,
                dynamic_shapes=_shapes(model),
                **common,
            )
        expected = model.module(*arguments)
    if isinstance(expected, torch.Tensor):
        expected = (expected,)
    return _remark(path, model, [value.numpy() for value in expected])


def _named(axes: Mapping[str, Mapping[int, str]]) -> dict[str, dict[int, str]]:
    return {name: dict(of) for name, of in axes.items() if of}


def _shapes(model: Exportable) -> Any:
    """The symbolic axes as torch.export takes them: expressions follow from the names in them."""
    dims = []
    for name, value in model.inputs.items():
        own = model.axes.get(name, {})
        dims.append(
            {
                axis: torch.export.Dim.DYNAMIC if "+" in own[axis] else own[axis]
                for axis in range(value.dim())
                if axis in own
            }
        )
    # Variable arguments are one tuple in the eyes of torch.export.
    parameters = inspect.signature(model.module.forward).parameters.values()
    own_names = sum(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)
    if own_names == len(parameters):
        return tuple(dims)
    return (*dims[:own_names], tuple(dims[own_names:]))


def _remark(path: str, model: Exportable, expected: list[Any]) -> str:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    feeds = {name: value.numpy() for name, value in model.inputs.items() if name in names}
    actual = session.run(None, feeds)
    worst = 0.0
    for want, got in zip(expected, actual, strict=True):
        if want.shape != got.shape:
            return f"shape {got.shape} for {want.shape}"
        scale = float(np.abs(want).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(got - want.astype(got.dtype)).max(initial=0.0)) / scale)
    return "" if worst < _TOLERANCE else f"differs by {worst:.1e} in {os.path.basename(path)}"
