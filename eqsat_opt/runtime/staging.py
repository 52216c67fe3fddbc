"""Models in a form that the runtime can load: in memory, or in files where weights are large."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import onnx
import onnx_ir

from eqsat_opt.ir.onnx_export import model_proto
from eqsat_opt.ir.onnx_save import save_model
from eqsat_opt.runtime.source import ModelSource

__all__ = ["Staging"]

_LARGE_BYTES = 64 << 20
"""A race builds a dozen sessions; each would serialise the weights of a model in memory anew."""


class Staging:
    """Makes runnable forms and removes their files in the end.

    Args:
        model: the loaded original; its size decides for all.
        given: what it was loaded from; a path is run as it is, so that its weights stay mapped.
    """

    def __init__(
        self, model: onnx_ir.Model, given: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model
    ) -> None:
        tensors = (value.const_value for value in model.graph.initializers.values())
        self._large = sum(tensor.nbytes for tensor in tensors if tensor is not None) > _LARGE_BYTES
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0
        self.original: ModelSource
        if isinstance(given, onnx_ir.Model):
            self.original = self.of(given)
        elif isinstance(given, onnx.ModelProto) and self._large:
            path = self._path()
            Path(path).write_bytes(given.SerializeToString())
            self.original = path
        else:
            self.original = given

    def of(self, model: onnx_ir.Model) -> ModelSource:
        """A runnable form of ``model``."""
        if not self._large:
            return model_proto(model)
        path = self._path()
        save_model(model, path)
        return path

    def _path(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="eqsat-")
        self._count += 1
        return os.path.join(self._folder.name, f"{self._count}.onnx")

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
