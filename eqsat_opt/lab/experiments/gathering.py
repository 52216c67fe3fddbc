"""Work of many parts on any executor: each part is stored when it comes back, and none waits."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

from eqsat_opt.common.files import folder_lock
from eqsat_opt.errors import ModelError, OptionError, reason
from eqsat_opt.ir.onnx.files.external import files_read_by

__all__ = ["claimed", "gathered_parts", "model_digest"]

P = TypeVar("P")
R = TypeVar("R")

_WAIT_S = 3.0
"""Seconds to wait for the lock of a folder.

A process that was killed may have been starting another one, which may still hold the lock.
"""


def gathered_parts(
    parts: Iterable[P],
    submit: Callable[[P], Future[R]],
    take: Callable[[P, R], None],
    end: Callable[[], None],
) -> list[tuple[P, str]]:
    """Compute parts, and take each result as soon as it is there.

    Args:
        parts: the parts.
        submit: gives a part to an executor.
        take: takes the result of a part, in this process and one at a time.
        end: ends what runs, when this process is interrupted or a result cannot be taken.

    Returns:
        The parts that did not come back, with the reasons.
    """
    waiting: dict[Future[R], P] = {}
    lost: list[tuple[P, str]] = []
    try:
        for part in parts:
            waiting[submit(part)] = part
        # Waiting for several futures by Python's own locks does not survive an interruption.
        finished = SimpleQueue[Future[R]]()
        for future in waiting:
            future.add_done_callback(finished.put)
        for _ in waiting:
            future = finished.get()
            try:
                result = future.result()
            except Exception as error:  # a worker was lost, or could start no process
                lost.append((waiting[future], str(error) or type(error).__name__))
                continue
            take(waiting[future], result)
    except BaseException:
        for future in waiting:
            future.cancel()
        end()
        raise
    return lost


@contextmanager
def claimed(folder: str, noun: str) -> Iterator[None]:
    """Work in a folder in which nobody else works.

    Args:
        folder: the folder.
        noun: noun for such work in the message.

    Raises:
        OptionError: another process works in it.
    """
    with folder_lock(folder, _WAIT_S) as is_ours:
        if not is_ours and os.name != "nt":  # Windows has no such locks
            raise OptionError(f"another {noun} works in {folder}; wait for it, or give another one")
        yield


def model_digest(path: str) -> str:
    """Return a digest of a model and the files of its data.

    Raises:
        ModelError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for file in (path, *sorted(files_read_by(path))):
            with open(file, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError as error:
        raise ModelError(f"cannot read {path}: {reason(error)}") from error
    return digest.hexdigest()
