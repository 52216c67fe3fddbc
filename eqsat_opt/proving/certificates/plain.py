"""Checks of JSON objects from untrusted files: their keys, and the kind of each value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from eqsat_opt.common.paths import shown

__all__ = ["check_fields"]

_MOST = 1 << 63
"""Exclusive upper bound on integers; no count comes near it."""


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
