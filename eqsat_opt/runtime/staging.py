"""Models in a form that a runtime can load: in memory, or in files if weights are large."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import onnx
import onnx_ir

from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import RuntimeFailed, reason
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.content import constant_bytes
from eqsat_opt.ir.onnx.files.external import has_external
from eqsat_opt.ir.onnx.files.save import DataFile, save_with_data
from eqsat_opt.runtime.source import ModelSource

__all__ = ["Staging"]

_LARGE_BYTES = 64 << 20
"""Size of weights above which models are put in files.

A race builds a dozen sessions, and each would serialise the weights of a model in memory anew.
"""


class Staging:
    """A maker of runnable forms of models, which removes their files in the end.

    All forms share one file of data, so that tensors which several models read are written once.

    Args:
        model: the loaded original. All forms are files if it is large or has external data.
        given: the source from which it was loaded; a path is run unchanged, so that its weights
            stay mapped.

    Raises:
        RuntimeFailed: there is no room for the files.
    """

    def __init__(
        self, model: onnx_ir.Model, given: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model
    ) -> None:
        # For a model in memory, external data would be searched for in the working directory.
        self._in_files = constant_bytes(model) > _LARGE_BYTES or has_external(model)
        self._close = ExitStack()
        self._scratch: Scratch | None = None
        self._data: DataFile | None = None
        self._count = 0
        self.original: ModelSource = (
            given
            if isinstance(given, str | os.PathLike)
            or (isinstance(given, onnx.ModelProto) and not self._in_files)
            else self.of(model)
        )

    def of(self, model: onnx_ir.Model) -> ModelSource:
        """Return a runnable form of ``model``."""
        if not self._in_files:
            return model_proto(model)
        try:
            if self._scratch is None:
                self._scratch = Scratch()
                self._close.callback(self._scratch.close)
                data = Path(self._scratch.path, "data")
                self._data = DataFile(self._close.enter_context(data.open("wb")), data.name)
            assert self._data is not None
            self._count += 1
            path = os.path.join(self._scratch.path, f"{self._count}.onnx")
            save_with_data(model, path, self._data)
        except OSError as error:
            raise RuntimeFailed(
                f"cannot write temporary files: {reason(error)}; make room, or name another place "
                "by TMPDIR"
            ) from error
        return path

    def close(self) -> None:
        """Remove the files."""
        self._close.close()
        self._scratch = self._data = None

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
