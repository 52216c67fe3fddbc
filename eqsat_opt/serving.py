"""Open a model as it was raced; needs nothing of the search."""

from __future__ import annotations

import os

import onnx
import onnxruntime

from eqsat_opt.options import Options
from eqsat_opt.runtime.ort import OrtOptions, OrtSession
from eqsat_opt.runtime.ort_config import level_in

__all__ = ["session"]


def session(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    threads: int = 0,
    custom_ops: tuple[str, ...] = (),
) -> onnxruntime.InferenceSession:
    """A session of onnxruntime that runs ``model`` as `optimize` raced it.

    Its graph optimisation level is the one that the model's metadata asks for, which a default
    session does not look at; operators run one after another, on the CPU.

    Args:
        model: a file, or a model in memory.
        threads: within an operator; 0 means all usable cores.
        custom_ops: libraries of operators of your own.

    Raises:
        ModelError: there is no such file, or it is not ONNX.
        OptionError: the number of threads has no meaning, or a library cannot be loaded.
        RuntimeFailed: onnxruntime refuses the model.
    """
    options = Options(threads=threads, custom_ops=custom_ops)
    settings = OrtOptions(options.threads, level_in(model), custom_ops=options.custom_ops)
    return OrtSession(model, settings).native
