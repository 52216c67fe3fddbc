"""The optimisers that are compared, each as a function of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

from benchmarks.comparison import OURS
from eqsat_opt.errors import RuntimeFailed

__all__ = ["OPTIMISERS"]


def _onnxsim(model: onnx.ModelProto) -> Any:
    import onnxsim

    simplified, valid = onnxsim.simplify(model)
    if not valid:
        raise RuntimeFailed("onnxsim's own check failed")
    return simplified


def _onnxoptimizer(model: onnx.ModelProto) -> Any:
    import onnxoptimizer

    return onnxoptimizer.optimize(model, onnxoptimizer.get_fuse_and_elimination_passes())


def _onnxscript(model: onnx.ModelProto) -> Any:
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(model)


def _eqsat_opt(model: onnx.ModelProto) -> Any:
    import eqsat_opt

    return eqsat_opt.optimize(model)


def _onnxslim(model: onnx.ModelProto) -> Any:
    import onnxslim

    return onnxslim.slim(model)


OPTIMISERS: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "onnxsim": _onnxsim,
    "onnxslim": _onnxslim,
    "onnxoptimizer": _onnxoptimizer,
    "onnxscript": _onnxscript,
    OURS: _eqsat_opt,
}
