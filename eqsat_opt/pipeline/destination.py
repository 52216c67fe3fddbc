"""The destination of a result: checks before the work begins, and writing after it."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import BinaryIO

import onnx_ir

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import obstacle, real_path, same_file
from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.ir.onnx.files.external import external_files
from eqsat_opt.ir.onnx.files.load import LEFT_OUT
from eqsat_opt.ir.onnx.files.save import (
    is_saved_external,
    remove_abandoned,
    save_model,
    target_obstacle,
)
from eqsat_opt.ir.onnx.files.streaming import write_serialised

__all__ = ["Destination", "Output"]

Output = str | os.PathLike[str] | BinaryIO


@dataclass(frozen=True)
class Destination:
    """A file or a stream for the result of optimising a model.

    Attributes:
        output: a path, or a binary stream.
        source: the file that the model comes from; ``None`` for a model in memory.
        overwrite: whether that file may be replaced.
    """

    output: Output
    source: str | os.PathLike[str] | None = None
    overwrite: bool = False

    @property
    def earlier(self) -> str | None:
        """The file of an earlier result, which this one replaces; ``None`` if there is none.

        The file of the model itself does not count.
        """
        if not isinstance(self.output, str | os.PathLike) or self._is_source():
            return None
        return os.fspath(self.output) if os.path.exists(self.output) else None

    def prepare(self) -> None:
        """Refuse outputs that are known to fail, and remove files that killed runs left there.

        Raises:
            ModelError: the file cannot be written.
            OptionError: the output is the model itself, or neither a path nor a binary stream.
        """
        if not isinstance(self.output, str | os.PathLike):
            is_text = isinstance(self.output, io.TextIOBase)
            if is_text or not callable(getattr(self.output, "write", None)):
                raise OptionError(f"output is {self.output!r}; give a path, or a binary stream")
            return
        if why := obstacle(self.output):
            raise ModelError(why)
        if self._is_source() and not self.overwrite:
            raise OptionError(
                f"{os.fspath(self.output)} is the model itself; give another name, or allow to "
                "replace it with --overwrite (overwrite=True)"
            )
        remove_abandoned(self.output)

    def check_for(self, model: onnx_ir.Model) -> None:
        """Refuse a loaded model that the output cannot hold.

        Raises:
            ModelError: the output cannot hold its data.
        """
        if isinstance(self.output, str | os.PathLike):
            if why := target_obstacle(model, self.output):
                raise ModelError(why)
        elif is_saved_external(model):
            raise ModelError(
                "the model's weights lie in another file, which a stream cannot hold; give a file "
                "name"
            )

    def write(self, model: onnx_ir.Model, given: onnx_ir.Model) -> tuple[str, ...]:
        """Write ``model``, whole or not at all.

        Args:
            model: the result.
            given: the model that was optimised.

        Returns:
            Notes for the user, as sentences.

        Raises:
            ModelError: the model cannot be written.
        """
        left_out = given.meta.get(LEFT_OUT)
        notes = (f"not written: {left_out}",) if left_out else ()
        if not isinstance(self.output, str | os.PathLike):
            self.check_for(model)
            write_serialised(model, self.output)
            self.output.flush()
            return notes
        # Data files that the input still reads must not be removed.
        kept = set() if self._is_source() else external_files(given)
        unread = sorted(save_model(model, self.output) - kept)
        folder = os.path.dirname(real_path(self.output))
        return notes + tuple(
            f"{os.path.relpath(file, folder)} beside it is no longer read by "
            f"{os.fspath(self.output)}; delete it if no other model reads it"
            for file in unread
        )

    def write_bytes(self, data: bytes) -> None:
        """Write a model that is encoded already, whole or not at all.

        Raises:
            ModelError: the model cannot be written.
        """
        assert isinstance(self.output, str | os.PathLike)
        write_whole(self.output, data, ModelError)

    def _is_source(self) -> bool:
        if self.source is None or not isinstance(self.output, str | os.PathLike):
            return False
        return same_file(self.source, self.output)
