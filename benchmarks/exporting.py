"""One export of a PyTorch model, compared with PyTorch's own outputs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

__all__ = ["VARIANTS", "cores", "export", "node_count", "relative_error"]

# Exporter and its arguments, by the name in the file's name.
VARIANTS: dict[str, dict[str, Any]] = {
    "dynamo": {"dynamo": True, "optimize": True, "external_data": False},
    "dynamo-raw": {"dynamo": True, "optimize": False, "external_data": False},
    "legacy": {"dynamo": False},
}


def export(name: str, variant: str, path: str) -> dict[str, Any]:
    """Write one export and compare its outputs with PyTorch's."""
    import torch

    from benchmarks.torch_models import build as build_model

    model = build_model(name)
    start = time.perf_counter()
    torch.onnx.export(
        model.module,
        tuple(model.inputs.values()),
        path,
        input_names=list(model.inputs),
        output_names=["output"],
        verbose=False,
        **VARIANTS[variant],
    )
    seconds = time.perf_counter() - start
    with torch.no_grad():
        expected = [model.module(*model.inputs.values()).numpy()]
    feeds = {key: value.numpy() for key, value in model.inputs.items()}
    actual = OrtSession(path, OrtOptions(threads=cores())).run(feeds)
    return {
        "seconds": seconds,
        "bytes": os.path.getsize(path),
        "nodes": node_count(path),
        "max_rel_error": relative_error(expected, actual),
    }


def relative_error(expected: Sequence[Any], actual: Sequence[Any]) -> float:
    """Largest |difference| over largest |value|, worst output; infinite if shapes differ."""
    if len(expected) != len(actual):
        return math.inf
    worst = 0.0
    for want, got in zip(expected, actual, strict=True):
        if want.shape != got.shape:
            return math.inf
        scale = float(np.abs(want).max(initial=0.0))
        difference = float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
        worst = max(worst, difference / scale if scale else difference)
        if math.isnan(difference):
            return math.inf
    return worst


def node_count(path: str | os.PathLike[str]) -> int:
    return len(onnx.load_model(os.fspath(path), load_external_data=False).graph.node)


def cores() -> int:
    return os.cpu_count() or 1
