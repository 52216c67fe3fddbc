"""Open a model as it was raced; needs nothing of the search."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnx
import onnxruntime

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.options import Options
from eqsat_opt.runtime.backends.native.library import library_path
from eqsat_opt.runtime.backends.native.region_library import region_library
from eqsat_opt.runtime.backends.native.tuned_file import open_as_raced
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import ModelSource, read_structure

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["native_library", "session"]


def session(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model,
    *,
    threads: int = 0,
    custom_ops: tuple[str, ...] = (),
) -> onnxruntime.InferenceSession:
    """A session of onnxruntime that runs ``model`` as `optimize` raced it.

    Its graph optimisation level is the one that the model's metadata asks for, which a default
    session does not look at; operators run one after another, on the CPU. A tuned model is run with
    our kernels where it fits this machine; elsewhere the portable model in it is run, with a
    warning.

    Args:
        model: a file, a model in memory, or its serialised bytes.
        threads: within an operator; 0 means all usable cores.
        custom_ops: libraries of operators of your own.

    Raises:
        ModelError: there is no such file, or it is not a model.
        OptionError: the number of threads has no meaning, or a library cannot be loaded.
        RuntimeFailed: onnxruntime refuses the model.
    """
    options = Options(threads=threads, custom_ops=custom_ops)
    if isinstance(model, str | os.PathLike | bytes | onnx.ModelProto):
        return _opened(model, options)
    import onnx_ir

    from eqsat_opt.runtime.staging import Staging

    if not isinstance(model, onnx_ir.Model):
        raise ModelError(
            f"a value of type {type(model).__name__} is not a model; give a path, an "
            "onnx.ModelProto or an onnx_ir.Model"
        )
    with Staging(model, model) as staging:  # what the session maps outlives the files' names
        return _opened(staging.original, options)


def _opened(model: ModelSource, options: Options) -> onnxruntime.InferenceSession:
    settings = OrtOptions(options.threads, custom_ops=options.custom_ops)
    return open_as_raced(model, settings).native


def native_library(model: str | os.PathLike[str] | onnx.ModelProto | None = None) -> str:
    """Path of kernels that tuned models use, for `register_custom_ops_library`.

    A server that has only onnxruntime loads a tuned model with it, at the graph optimisation level
    ``disabled``; `session` does both.

    Args:
        model: a tuned model, for the library of the kernels that are generated for it alone, which
            is compiled unless the user's cache folder has it; without, for the library that all
            tuned models share. A model with generated kernels needs both.

    Raises:
        ModelError: the model cannot be read, or its descriptions of kernels are damaged.
        RuntimeFailed: there are none for this machine, or the model has none of its own.
    """
    if model is None:
        return library_path()
    library = region_library(read_structure(model).graph.node)
    if not library:
        raise RuntimeFailed(
            "the model has no generated kernels; native_library() without a model names the "
            "library of all others"
        )
    return library
