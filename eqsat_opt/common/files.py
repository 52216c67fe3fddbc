"""Atomic writes: files are written whole or not at all, and no temporary file is left behind.

A file that is being written has a temporary name beside its target, ``.NAME.eqsat-….tmp``, and the
writing process holds a lock on it. A process that is killed cannot remove its temporary file, but
its locks end with it: the next process that writes the same target removes those that are not
locked. Scratch folders are handled the same way.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import BinaryIO

from eqsat_opt.common.paths import real_path, short_name, shown
from eqsat_opt.errors import EqsatError, reason

try:
    import fcntl
except ImportError:  # no such locks on this system, so no file can be known to be abandoned
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Part",
    "Scratch",
    "abandoned_parts",
    "folder_lock",
    "part_of",
    "remove_unfinished",
    "replacing",
    "write_whole",
]

_FOREIGN_AGE_S = 24 * 3600.0
"""Age from which files of another machine are removed; its locks may be invisible here."""

_SCRATCH = "eqsat-opt-"

_NO_SURPRISE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_unfinished: dict[str, int] = {}
"""Temporary files and folders to the process that made them, for an end that skips clean-up."""


# ** writing **


class Part:
    """A file beside its target that takes the target's place when it is complete.

    Attributes:
        path: its present, temporary name.
        file: the open file to write to.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self.file = file

    def finish(self) -> None:
        """Flush everything written so far to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def become(self, target: str) -> None:
        """Replace ``target`` by this file, durably; :meth:`finish` must have been called."""
        if os.name == "nt":
            self.file.close()  # an open file cannot be renamed there
        os.replace(self.path, target)
        _unfinished.pop(self.path, None)
        _sync_folder(os.path.dirname(target))


@contextmanager
def part_of(target: str, note: str = "", mode: int = 0o666) -> Iterator[Part]:
    """Provide a temporary file, which is removed after the block unless it became its target.

    Args:
        target: path as :func:`real_path` returns it.
        note: a word in the temporary name, for the process that finds the file.
        mode: permissions of a new file; a file that is replaced keeps its own.
    """
    part = _new_part(target, note, mode)
    try:
        yield part
    finally:
        with suppress(OSError):  # a full disk refuses what the buffer still holds
            part.file.close()
        if part.path in _unfinished:
            _remove(part.path)


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file that replaces ``path`` when the block ends, and is removed if the block fails.

    A link stays a link. Temporary files that killed processes left of this target are removed.

    Raises:
        OSError: the file cannot be written; the previous file is unchanged.
    """
    target = real_path(path)
    for _ in abandoned_parts(target, ""):
        pass
    with part_of(target, mode=mode) as part:
        yield part.file
        part.finish()
        part.become(target)


def write_whole(
    path: str | os.PathLike[str],
    data: bytes | str,
    error: type[EqsatError] = EqsatError,
    mode: int = 0o666,
) -> None:
    """Write a file whole or not at all.

    Args:
        path: path of the file.
        data: the contents; a text is encoded in UTF-8.
        error: the type of the error to raise.
        mode: permissions of a new file; a file that is replaced keeps its own.

    Raises:
        EqsatError: the file cannot be written (of the type ``error``); nothing is left behind.
    """
    try:
        with replacing(path, mode) as file:
            file.write(data.encode() if isinstance(data, str) else data)
    except (OSError, ValueError) as cause:
        name = shown(os.fspath(path))
        raise error(f"cannot write {name}: {reason(cause)}; choose another place") from cause


def _new_part(target: str, note: str, mode: int) -> Part:
    folder, name = os.path.split(target)
    ending = f"-{note}.tmp" if note else ".tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f"{_part_start(name)}{_host()}-{secrets.token_hex(6)}{ending}")
        _unfinished[path] = os.getpid()
        try:
            handle = os.open(path, flags, mode)
        except BaseException as error:
            _unfinished.pop(path, None)
            if isinstance(error, FileExistsError):
                continue
            raise
        try:
            file = os.fdopen(handle, "wb")
        except BaseException:
            os.close(handle)
            _remove(path)
            raise
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            with suppress(OSError):  # a file that is replaced keeps its permissions
                os.chmod(path, stat.S_IMODE(os.stat(target).st_mode))
            return Part(path, file)
        # Another process took it for abandoned in the moment before it was locked.
        file.close()
        _remove(path)


def _part_start(name: str) -> str:
    return f".{short_name(name, 64)}.eqsat-"


def _sync_folder(folder: str) -> None:
    """Make a renaming durable; where the system cannot, it is as durable as the system makes it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: str) -> None:
    with suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    _unfinished.pop(path, None)


def remove_unfinished() -> None:
    """Remove every temporary file and folder of this process, for an end without clean-up."""
    for path, owner in list(_unfinished.items()):
        if owner == os.getpid():
            _remove(path)


# ** files that killed processes left **


def _lock(handle: int) -> bool | None:
    """Lock an open file; return false if another holds the lock, ``None`` if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def folder_lock(folder: str, wait_s: float = 5.0) -> Iterator[bool]:
    """Lock a folder against other users of this lock; yield false if the lock was not obtained."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        end = time.monotonic() + wait_s
        while (got := _lock(handle)) is False and time.monotonic() < end:
            time.sleep(0.01)
        yield got is True
    finally:
        os.close(handle)


@cache
def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def abandoned_parts(target: str, note: str | None = None) -> Iterator[str]:
    """Yield the notes of the temporary files that killed processes left of ``target``.

    Each file is removed after its note is yielded.

    Args:
        target: path as :func:`real_path` returns it.
        note: consider only files with this note; empty for files without a note.
    """
    folder, name = os.path.split(target)
    start = _part_start(name)
    try:
        names = [n for n in os.listdir(folder) if n.startswith(start) and n.endswith(".tmp")]
    except OSError:
        return
    for found in names:
        host, _, rest = found.removeprefix(start).removesuffix(".tmp").partition("-")
        carried = rest.partition("-")[2]
        if note is None or carried == note:
            path = os.path.join(folder, found)
            with _abandoned(path, host) as is_abandoned:
                if is_abandoned:
                    yield carried
                    _remove(path)


@contextmanager
def _abandoned(path: str, host: str) -> Iterator[bool]:
    """Yield whether a temporary file or folder is abandoned; it stays locked during the block."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        handle = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | _NO_SURPRISE)
    except OSError:
        yield False
        return
    try:
        age_s = datetime.now(UTC).timestamp() - os.fstat(handle).st_mtime
        is_ours = host == _host() or age_s > _FOREIGN_AGE_S
        yield is_ours and path not in _unfinished and _lock(handle) is True
    finally:
        os.close(handle)


# ** scratch folders **


class Scratch:
    """A folder for temporary files, removed when it is closed or no longer referred to.

    Folders that killed processes left are removed first, once per process.

    Raises:
        EqsatError: no folder can be made.
    """

    def __init__(self) -> None:
        try:
            base = tempfile.gettempdir()
            _sweep_scratch(base)
            self.path, handle = _new_scratch(base)
        except OSError as error:
            raise EqsatError(
                f"no temporary folder can be made ({reason(error)}); make room, or name another "
                "place by TMPDIR"
            ) from error
        self._finalizer = weakref.finalize(self, _end_scratch, self.path, handle, os.getpid())

    def close(self) -> None:
        """Remove the folder and everything in it."""
        self._finalizer()

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _new_scratch(base: str) -> tuple[str, int]:
    while True:
        path = os.path.join(base, f"{_SCRATCH}{_host()}-{secrets.token_hex(6)}")
        _unfinished[path] = os.getpid()
        try:
            os.mkdir(path, 0o700)
        except BaseException as error:
            _unfinished.pop(path, None)
            if isinstance(error, FileExistsError):
                continue
            raise
        if os.name == "nt":
            return path, -1  # folders cannot be opened there, nor locked
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY)
            if _lock(handle) is not False and os.path.exists(path):
                return path, handle
            os.close(handle)
        _remove(path)


def _end_scratch(path: str, handle: int, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has a copy of the object, but does not own the folder
        return
    _remove(path)
    if handle >= 0:
        os.close(handle)


@cache
def _sweep_scratch(base: str) -> None:
    own = os.getuid() if hasattr(os, "getuid") else None
    with os.scandir(base) as entries:
        found = [e.path for e in entries if e.name.startswith(_SCRATCH) and e.is_dir()]
    for path in found:
        host = os.path.basename(path).removeprefix(_SCRATCH).partition("-")[0]
        with suppress(OSError):
            if own is None or os.lstat(path).st_uid == own:
                with _abandoned(path, host) as is_abandoned:
                    if is_abandoned:
                        _remove(path)
