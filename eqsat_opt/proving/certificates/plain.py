"""Untrusted JSON files: their contents, and the keys and kinds of values of objects in them."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from eqsat_opt.common.paths import shown

__all__ = ["check_fields", "content_of"]

_MOST_BYTES = 1 << 26
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)
_MOST = 1 << 63
"""Exclusive upper bound on integers; no count comes near it."""


def content_of(path: Path | Traversable) -> bytes:
    """Return the contents of an ordinary file; refuse pipes and devices, which might block."""
    if not isinstance(path, Path):
        return path.read_bytes()
    with open(path, "rb", opener=_opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not an ordinary file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return content


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_WAITING)


def _is_line(value: Any) -> bool:
    return type(value) is str and (value.isprintable() or not value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_number(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": _is_line,
    "int": _is_count,
    "float": _is_number,
    "int | None": lambda value: value is None or _is_count(value),
    "float | None": lambda value: value is None or _is_number(value),
    "tuple[str, ...]": lambda value: type(value) is list and all(map(_is_line, value)),
}
"""Checks of a value, by annotation; a value of any other annotation must be a list."""


def check_fields(value: Any, of: type, what: str) -> None:
    """Check that a parsed object has the fields of a dataclass, each with its kind of value.

    Raises:
        ValueError: a field is missing, unknown or of another kind; the message is one line that
            names the first.
    """
    kinds = _kinds(of)
    if type(value) is not dict:
        raise ValueError(f"{what} is not an object")
    if value.keys() != kinds.keys():
        key = min(value.keys() ^ kinds.keys())
        fault = "has an unknown" if key in value else "lacks the"
        raise ValueError(f"{what} {fault} key {shown(ascii(key))}")
    for key, fits in kinds.items():
        if not fits(value[key]):
            raise ValueError(f"{key} of {what} is {shown(ascii(value[key]))}")


@cache
def _kinds(of: type) -> dict[str, Callable[[Any], bool]]:
    return {one.name: _KINDS.get(str(one.type), _is_list) for one in fields(of)}


def _is_list(value: Any) -> bool:
    return type(value) is list
