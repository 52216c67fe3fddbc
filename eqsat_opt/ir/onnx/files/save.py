"""Writing of a model whole or not at all, without holding all its weights in memory.

External data go to a file whose name contains a digest of its contents, so that data of other
models are never overwritten: first the data are written under that name, then the model that reads
them. A process that is killed between the two leaves the old model with its old data, and a note of
the new data in the name of the unfinished model file, by which the next writer removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import onnx_ir

from eqsat_opt.common.files import abandoned_parts, folder_lock, part_of
from eqsat_opt.common.paths import obstacle, real_path, same_file, short_name
from eqsat_opt.errors import ModelError, reason
from eqsat_opt.ir.onnx.files.content import constant_bytes
from eqsat_opt.ir.onnx.files.external import (
    TensorSlot,
    external_files,
    files_read_by,
    has_external,
    placed_in_file,
    tensor_slots,
)
from eqsat_opt.ir.onnx.files.streaming import write_serialised

__all__ = [
    "DataFile",
    "is_saved_external",
    "remove_abandoned",
    "save_model",
    "save_with_data",
    "target_obstacle",
]

_INLINE_BYTES = 2**31 - 2**24
"""Limit of the weights in a model file. Protobuf refuses messages above 2 GiB; the margin is for
all other data.
"""

_EXTERNAL_BYTES = 1024
"""Tensors below this stay in the model file even if the others are external."""

_ALIGNMENT = 4096

_DIGEST_LETTERS = 12


def is_saved_external(model: onnx_ir.Model) -> bool:
    """Return whether a model is saved with a data file: if it had one, or is too large without."""
    return has_external(model) or constant_bytes(model) > _INLINE_BYTES


def save_model(model: onnx_ir.Model, path: str | os.PathLike[str]) -> frozenset[str]:
    """Write ``model`` to ``path``, with a data file if it has external data or exceeds 2 GB.

    The model is unchanged after the call; external tensors in it still refer to the files that they
    came from. No file but ``path`` is changed: data go to ``NAME.DIGEST.data``.

    Returns:
        The data files that the model at ``path`` read before and no longer reads. Another model may
            read them, so they stay.

    Raises:
        ModelError: the file cannot be written; nothing is left behind.
    """
    given = os.fspath(path)
    if why := target_obstacle(model, path):
        raise ModelError(why)
    target = real_path(path)
    before = files_read_by(target)
    remove_abandoned(target)
    try:
        if is_saved_external(model):
            _save_external(model, target)
        else:
            _save_inline(model, target)
    except OSError as error:
        raise ModelError(
            f"cannot write {given}: {reason(error)}; make room or choose another place"
        ) from error
    return before - files_read_by(target) if before else before


def target_obstacle(model: onnx_ir.Model, path: str | os.PathLike[str]) -> str:
    """Return why a model cannot be saved there, as a sentence; empty if no reason is known."""
    if why := obstacle(path):
        return why
    target = real_path(path)
    for file in external_files(model):
        if same_file(file, target):
            return f"{os.fspath(path)} holds data of the model; give another name"
    folder = real_path(os.path.dirname(os.path.abspath(path)))
    if os.path.dirname(target) != folder and is_saved_external(model):
        return (
            f"{os.fspath(path)} is a link into another folder, where the runtime would not look "
            f"for the external data; write to {target}"
        )
    return ""


def save_with_data(model: onnx_ir.Model, path: str, data: DataFile) -> None:
    """Write ``model`` to ``path`` and its weights to ``data``, which is in the same folder.

    It is for scratch folders: the data file may serve many models, and nothing is made durable.
    """
    moved = list(_moved_slots(model))
    places = [data.append(slot.tensor) for slot in moved]
    data.flush()
    with _located(moved, places, data.name), open(path, "wb") as file:
        write_serialised(model, file)


class DataFile:
    """A file that tensors are written to, each at the beginning of a page, and none twice.

    Args:
        file: the file, open for writing.
        name: the name by which models refer to it.
        is_digested: whether to keep a digest of all data written.
    """

    def __init__(self, file: BinaryIO, name: str = "", *, is_digested: bool = False) -> None:
        self.name = name
        self._file = file
        self._state = hashlib.sha256() if is_digested else None
        self._places: dict[tuple[str | int, ...], tuple[int, int]] = {}
        self._written: list[Any] = []

    @property
    def digest(self) -> str:
        assert self._state is not None
        return self._state.hexdigest()

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        """Write bytes and note their digest."""
        assert self._state is not None
        self._state.update(data)
        return self._file.write(data)

    def append(self, tensor: Any) -> tuple[int, int]:
        """Write a tensor; return its offset and its length in bytes."""
        key: tuple[str | int, ...] = (id(tensor),)
        if isinstance(tensor, onnx_ir.ExternalTensor):
            key = (os.path.realpath(tensor.path), tensor.offset or 0, tensor.nbytes)
        if key in self._places:
            return self._places[key]
        sink: Any = self._file if self._state is None else self
        sink.write(b"\0" * (-self.size % _ALIGNMENT))
        offset = self.size
        tensor.tofile(sink)
        place = (offset, self.size - offset)
        self._places[key] = place
        self._written.append(tensor)  # kept alive, so that no other tensor gets its id
        return place

    def flush(self) -> None:
        """Flush the data, so that other processes see them."""
        self._file.flush()


def _save_inline(model: onnx_ir.Model, target: str) -> None:
    with part_of(target) as part:
        write_serialised(model, part.file)
        part.finish()
        part.become(target)


def _save_external(model: onnx_ir.Model, target: str) -> None:
    folder = os.path.dirname(target)
    with part_of(target) as data:
        content = DataFile(data.file, is_digested=True)
        moved = list(_moved_slots(model))
        places = [content.append(slot.tensor) for slot in moved]
        data.finish()
        with folder_lock(folder) as is_alone:
            mark, is_there = _free_mark(target, content)
            for _ in abandoned_parts(target, mark):
                pass  # the data that such a note names are about to be read
            # The note guarantees that no other model can read a file of this name yet.
            is_ours = is_alone and not is_there
            name = _data_name(target, mark)
            with (
                _located(moved, places, name),
                part_of(target, mark if is_ours else "") as part,
            ):
                write_serialised(model, part.file)
                part.finish()
                try:
                    if not is_there:
                        data.become(os.path.join(folder, name))
                    part.become(target)
                except BaseException:
                    # Ctrl-C may come after the model has taken its place.
                    if is_ours and os.path.lexists(part.path):
                        with contextlib.suppress(OSError):
                            os.unlink(os.path.join(folder, name))
                    raise


def _data_name(target: str, mark: str) -> str:
    ending = f".{mark}.data"
    return short_name(os.path.basename(target), len(ending)) + ending


def _free_mark(target: str, content: DataFile) -> tuple[str, bool]:
    """Return the digest that names the data file, and whether such a file already exists."""
    digest = content.digest[:_DIGEST_LETTERS]
    for count in itertools.count(1):
        mark = digest if count == 1 else f"{digest}-{count}"
        path = os.path.join(os.path.dirname(target), _data_name(target, mark))
        if not os.path.lexists(path):
            return mark, False
        if _holds(path, content):
            break
    return mark, True


def _holds(path: str, content: DataFile) -> bool:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size != content.size:
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == content.digest


def remove_abandoned(path: str | os.PathLike[str]) -> None:
    """Remove the files that killed writers of a model left, with data that no model reads."""
    target = real_path(path)
    read = files_read_by(target)
    with folder_lock(os.path.dirname(target)) as is_alone:
        for mark in abandoned_parts(target, None if is_alone else ""):
            path = os.path.join(os.path.dirname(target), _data_name(target, mark))
            if mark and path not in read:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _numeric_slots(model: onnx_ir.Model) -> Iterator[TensorSlot]:
    slots = tensor_slots(model)
    return (slot for slot in slots if slot.tensor.dtype != onnx_ir.DataType.STRING)


def _moved_slots(model: onnx_ir.Model) -> Iterator[TensorSlot]:
    """Yield the tensors for the data file: all external ones, and initializers above a size."""
    for slot in _numeric_slots(model):
        large = slot.is_initializer and slot.tensor.nbytes >= _EXTERNAL_BYTES
        if large or slot.is_external:
            yield slot


@contextlib.contextmanager
def _located(
    slots: Sequence[TensorSlot], places: Sequence[tuple[int, int]], name: str
) -> Iterator[None]:
    """Make tensors refer to a data file during the block."""
    with contextlib.ExitStack() as undo:
        for slot, (offset, length) in zip(slots, places, strict=True):
            undo.callback(slot.replace, slot.tensor)
            slot.replace(placed_in_file(slot.tensor, name, offset, length))
        yield
