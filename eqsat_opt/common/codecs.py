"""Stored values as canonical JSON, and two readers whose errors name the fault and its place.

A document is an object with a ``format``, which names its kind and version. Equal values give equal
bytes: keys have a fixed order, numbers are written as Python writes them, and each entry of a long
list has a line of its own, so that files can be compared line by line.

:func:`value_from_json` reads a dataclass by its annotations. :class:`Entry` is for documents whose
numbers refer to other parts of the document, so that their limits are known only while reading.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import StageError, printable, reason

__all__ = [
    "OMITTED",
    "Document",
    "Entry",
    "compact_text",
    "document_text",
    "number_from_json",
    "number_to_json",
    "parse_json",
    "read_document",
    "record_in",
    "report_text",
    "require_format",
    "value_from_json",
    "value_to_json",
    "write_document",
]

Document = dict[str, Any]
T = TypeVar("T")

_OPEN = 2
"""Levels of nested objects whose keys are on lines of their own."""

_INFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def document_text(document: Mapping[str, Any]) -> str:
    """Return the canonical text of a document, with a newline at its end."""
    return f"{_text(document, _OPEN)}\n"


def _text(value: Any, levels: int) -> str:
    if isinstance(value, Mapping) and value and levels:
        items = (f"{_flat(key)}: {_text(item, levels - 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + "\n}"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return "[\n" + ",\n".join(map(_flat, value)) + "\n]"
    return _flat(value)


def _flat(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def write_document(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a document whole or not at all.

    Raises:
        StageError: the file cannot be written; nothing is left behind.
    """
    write_whole(path, document_text(document), StageError)


def read_document(path: str | os.PathLike[str], noun: str = "a stored stage") -> Document:
    """Return the JSON object that a file holds.

    Args:
        path: path of the file.
        noun: the expected kind of file, for messages.

    Raises:
        StageError: the file cannot be read, is not a JSON object, or gives a key twice.
    """
    name = shown(os.fspath(path))
    try:
        value = parse_json(Path(path).read_bytes())
    except OSError as error:
        raise StageError(f"cannot read {name}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise StageError(f"{name} is not JSON, so it is not {noun}: {error}") from error
    if not isinstance(value, dict):
        raise StageError(f"{name} holds no JSON object, so it is not {noun}")
    return value


def parse_json(text: str | bytes) -> Any:
    """Return the value that a JSON text holds.

    Raises:
        ValueError: it is not JSON, gives a key twice, or has a number that JSON does not have.
        RecursionError: it is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError("it is binary, or in another encoding than UTF-8") from error


def record_in(text: str) -> Document:
    """Return the object in a JSON text, such as metadata of a model; empty if there is none."""
    with suppress(ValueError, RecursionError):
        record = json.loads(text)
        return record if isinstance(record, dict) else {}
    return {}


def report_text(report: Any) -> str:
    """Return a report for other programs as indented JSON; infinities and NaN become null."""
    return json.dumps(_finite(report), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _distinct(pairs: list[tuple[str, Any]]) -> Document:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} comes twice in one object")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def number_to_json(value: float) -> Any:
    """Return a number as a JSON value.

    JSON has no infinities and no NaN, so these become objects: ``{"float": "inf"}``.
    """
    if isinstance(value, int) or math.isfinite(value):
        return value
    return {"float": str(value)}


def number_from_json(value: Any, where: str) -> float:
    """Return the number that :func:`number_to_json` wrote.

    Raises:
        StageError: the value is not a number.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, dict) and value.keys() == {"float"} and value["float"] in _INFINITE:
        return _INFINITE[value["float"]]
    raise StageError(f"{where} is {_short(value)}, which is not a number")


OMITTED = {"is_omitted": True}
"""Metadata of a field that is not written where it has its default."""


def value_to_json(value: Any) -> Any:
    """Return a dataclass as JSON values, by its fields; :func:`value_from_json` is the inverse."""
    if is_dataclass(value):
        value = {
            one.name: item
            for one in fields(value)
            if (item := getattr(value, one.name)) != one.default or one.metadata != OMITTED
        }
    if isinstance(value, Mapping):
        return {name: value_to_json(item) for name, item in value.items()}
    return list(map(value_to_json, value)) if isinstance(value, list | tuple) else value


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def compact_text(value: Any) -> str:
    """Return a dataclass as JSON in one line without spaces; equal values give equal texts."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, default=_fields)


def value_from_json(value: Any, type_: type[T], where: str, *, strict: bool = True) -> T:
    """Return a value of a dataclass, or of another type, from parsed JSON.

    An annotation ``int | float`` keeps a whole number as it is written.

    Args:
        value: the parsed JSON.
        type_: the type; a dataclass refuses values that are not valid by a `ValueError`.
        where: the place of the value in the document, for messages.
        strict: whether unknown fields are refused, which takes four times as long.

    Raises:
        StageError: a field is missing, unknown or of another type; the message has its path.
    """
    try:
        found = _converted(value, type_)
    except _FAULTS as error:
        why = str(error)
        with suppress(RecursionError):
            why = _with_names(value, type_, why)
        raise StageError(f"{where} cannot be read: {why}") from None
    if strict and isinstance(value, dict | list) and (foreign := _foreign(value, found)):
        raise StageError(f"{where} has a field that is not known - at `${foreign}`")
    return found


_FAULTS = (ValueError, RecursionError)
"""Errors of a conversion; those of msgspec, and a lone surrogate's, are of the first kind."""


def _converted(value: Any, type_: type[T]) -> T:
    """Return a value of a type; raise one of the faults if it cannot be converted."""
    import msgspec  # about 7 ms, so that only readers wait for it

    return msgspec.convert(value, type_)


def _fault(value: Any, type_: type[Any]) -> str:
    """Return why a value cannot be converted; empty if it can."""
    try:
        _converted(value, type_)
    except _FAULTS as error:
        return str(error)
    return ""


def _with_names(value: Any, type_: type[Any], why: str) -> str:
    """Return a reason with names in its path, where msgspec writes ``[...]`` for any name.

    A name is found by removing entries until the reason is another one.
    """
    head, mark, path = why.rpartition("`$")
    rest = at = deepcopy(value)
    for name, number in re.findall(r"\.(\w+)|\[(\d+|\.{3})\]", path if mark else ""):
        entries = at
        if number == "...":
            for name in list(entries):
                at = entries.pop(name)
                if _fault(rest, type_) != why:
                    break
            entries[name] = at
        else:
            at = entries[name or int(number)]
        mark += f"[{number}]" if number.isdecimal() else f".{printable(shown(name))}"
    return f"{head}{mark}`" if mark else why


def _foreign(given: Any, read: Any) -> str:
    """Return the path within a value of a field that its type does not have; empty for none."""
    if given is read:  # the type is Any
        return ""
    parts: Iterable[tuple[Any, Any, Any]]
    if isinstance(given, list):
        parts = zip(range(len(given)), given, read, strict=True)
    else:
        known = read if isinstance(read, Mapping) else _fields(read)
        if odd := given.keys() - known.keys():
            return f".{printable(shown(min(odd)))}"
        parts = ((name, item, known[name]) for name, item in given.items())
    for place, item, other in parts:
        if isinstance(item, dict | list) and (rest := _foreign(item, other)):
            return f"{f'[{place}]' if isinstance(given, list) else f'.{place}'}{rest}"
    return ""


def require_format(document: Document, expected: str, where: str) -> None:
    """Raise an error if a document is of another kind or version."""
    found = document.get("format")
    if found != expected:
        what = "no format" if found is None else f"the format {_short(found)}"
        raise StageError(f"{where} has {what}; {expected!r} is what can be read here")


class Entry:
    """A JSON object with typed access to its fields.

    Every method raises a :class:`~eqsat_opt.errors.StageError` that names the place.

    Attributes:
        value: the object.
        where: its place in the document, for messages.
    """

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise StageError(f"{where} is {_short(value)}, which is not an object")
        self.value: Document = value

    def place(self, name: str) -> str:
        """Return the place of a field in the document, for messages."""
        return f"{name} of {self.where}"

    def require_format(self, expected: str) -> None:
        """Raise an error if the document is of another kind or version."""
        require_format(self.value, expected, self.where)

    def require_all(self, *names: str) -> None:
        """Raise an error if the object lacks one of these fields or has others."""
        self.require_fields(*names)
        for name in names:
            self.get(name)

    def require_fields(self, *known: str) -> None:
        """Raise an error if the object has other fields than these; any of these may be missing."""
        for name in self.value:
            if name not in known:
                raise StageError(f"{self.where} has the field {name!r}, which is not known")

    def get(self, name: str) -> Any:
        """Return the value of a field that must be present."""
        if name not in self.value:
            raise StageError(f"{self.where} lacks the field {name!r}")
        return self.value[name]

    def _of(self, kind: type[T], name: str, otherwise: str) -> T:
        value = self.get(name)
        if not isinstance(value, kind):
            raise StageError(f"{self.place(name)} is {_short(value)}{otherwise}")
        return value

    def text(self, name: str) -> str:
        """Return a field that is a text."""
        return self._of(str, name, ", which is not a text")

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        return self._of(bool, name, "; it is true or false")

    def number(self, name: str) -> float:
        """Return a field that is a number, infinities and NaN included."""
        return number_from_json(self.get(name), self.place(name))

    def whole(self, name: str, end: int, begin: int = 0) -> int:
        """Return a field that is an integer, at least ``begin`` and below ``end``."""
        return _whole(self.get(name), self.place(name), begin, end)

    def items(self, name: str) -> list[Any]:
        """Return a field that is a list; an absent field is an empty list."""
        value = self.value.get(name, [])
        if not isinstance(value, list):
            raise StageError(f"{self.place(name)} is {_short(value)}, which is not a list")
        return value

    def wholes(self, name: str, end: int) -> tuple[int, ...]:
        """Return a list of integers from 0 to below ``end``; empty if the field is absent."""
        items, where = self.items(name), self.place(name)
        return tuple([_whole(item, where, 0, end) for item in items])

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if the field is absent."""
        for item in self.items(name):
            if not isinstance(item, str):
                raise StageError(f"{self.place(name)} holds {_short(item)}, which is not a text")
        return tuple(self.items(name))

    def entries(self, name: str, noun: str) -> Iterator[Entry]:
        """Yield the objects in a list, named by noun and number; none if the field is absent."""
        for number, item in enumerate(self.items(name)):
            yield Entry(item, f"{noun} {number} of {self.where}")

    def mapping(self, name: str) -> Entry:
        """Return a field that is an object whose keys are names rather than known fields."""
        return Entry(self.get(name), self.place(name))


def _whole(value: Any, where: str, begin: int, end: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise StageError(f"{where} is {_short(value)}, which is not a whole number")
    if not begin <= value < end:
        allowed = f"allowed are {begin} to {end - 1}" if begin < end else "nothing is allowed there"
        raise StageError(f"{where} is {value}, which is out of range; {allowed}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
