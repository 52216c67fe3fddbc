"""The files that paths refer to, and the reasons why a file cannot be written."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress

from eqsat_opt.errors import reason

__all__ = [
    "CACHE_VARIABLE",
    "cache_folder",
    "obstacle",
    "real_path",
    "same_file",
    "short_name",
    "shown",
]

CACHE_VARIABLE = "EQSAT_OPT_CACHE"
"""Environment variable that names the folder for data that outlives a process."""

_NAME_BYTES = 255
"""Bytes that nearly all file systems allow for a name."""


_OF_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")
"""The start of a path with a drive or a server. Elsewhere it would be the name of one file."""


def cache_folder() -> str:
    """Return the folder for data that outlives a process.

    It is `$EQSAT_OPT_CACHE`, else a folder in the user's cache folder; empty if the user has no
    home.
    """
    folder = os.environ.get(CACHE_VARIABLE) or _user_folder()
    expanded = os.path.expanduser(folder)
    return "" if expanded.startswith("~") else expanded


def _user_folder() -> str:
    try:
        from platformdirs import user_cache_dir
    except ImportError:  # not needed to only run a plan; on Linux the folder is the same
        root = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        return os.path.join(root, "eqsat-opt")
    return str(user_cache_dir("eqsat-opt", appauthor=False))


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the file at the end of all links, so that a link stays and its target is replaced."""
    return os.path.realpath(os.fspath(path))


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Return whether two paths name one file: by spelling, by symbolic or by hard links."""
    if real_path(first) == real_path(second):
        return True
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return False


def obstacle(path: str | os.PathLike[str]) -> str:
    """Return why a file cannot be written there, as a sentence; empty if no reason is known."""
    given = os.fspath(path)
    if not given:
        return "the file name is empty; give one"
    if not os.path.basename(given):  # its real path would be that of a file
        return f"{shown(given)} names a folder; give a file name"
    if os.sep == "/" and _OF_WINDOWS.match(given):
        return f"{shown(given)} is a path of Windows, which names no folder here; write it with /"
    status = None
    try:
        target = real_path(path)
        folder = os.path.dirname(target)
        if not os.path.isdir(folder):
            return f"the folder {os.path.dirname(given) or folder} does not exist; create it first"
        with suppress(FileNotFoundError):
            status = os.stat(target)
    except (OSError, ValueError) as error:
        return f"cannot write {shown(given)}: {reason(error)}; give another name"
    if status is not None and stat.S_ISDIR(status.st_mode):
        return f"{given} is a folder; give a file name"
    if status is not None and not stat.S_ISREG(status.st_mode):
        return f"{given} is not an ordinary file and would be replaced; give another name"
    if not os.access(folder, os.W_OK | os.X_OK):
        return (
            f"no permission to write in {os.path.dirname(given) or folder}; choose another folder"
        )
    if status is not None and not os.access(target, os.W_OK):
        return f"{given} is write-protected; give another name"
    return ""


def shown(name: str) -> str:
    """Return a name for messages: if it is longer than 80 characters, its middle is cut out."""
    return name if len(name) <= 80 else f"{name[:60]}…{name[-16:]}"


def short_name(name: str, extra: int) -> str:
    """Return ``name``, or a shorter unique name if ``extra`` more bytes would make it too long."""
    data = os.fsencode(name)
    if len(data) + extra <= _NAME_BYTES:
        return name
    mark = hashlib.sha256(data).hexdigest()[:12]
    room = _NAME_BYTES - extra - len(mark) - 1
    return f"{data[:room].decode(errors='ignore')}~{mark}"
