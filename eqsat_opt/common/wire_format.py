"""The wire format of protobuf, read without a description of the messages.

A message is a sequence of (key, value); a key holds the number of a field and the wire type of the
value: 0 is a variable-length integer, 1 and 5 are eight and four bytes, 2 is a length and as many
bytes. The bytes of values stay where they are, so a mapped file of gigabytes is not loaded.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Fields", "fields_of", "message_of"]

Fields: TypeAlias = dict[int, list[int | memoryview]]
"""Values by field number, in the order of the message."""

_LENGTHS = {1: 8, 5: 4}
_VARINT_BYTES = 10
"""Most bytes of an integer: 64 bits in groups of seven."""


def fields_of(data: memoryview) -> Fields:
    """Return values by field number: signed integers, or views of the bytes of longer values.

    Raises:
        ValueError: the bytes end early, or are no message.
    """
    found: Fields = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        value: int | memoryview
        if kind == 0:
            value, position = _varint(data, position)
            value = value - (1 << 64) if value >> 63 else value
        elif kind in (1, 2, 5):
            length, position = _varint(data, position) if kind == 2 else (_LENGTHS[kind], position)
            value, position = data[position : position + length], position + length
        else:
            raise ValueError(f"a value has the unknown wire type {kind}")
        if number < 1 or position > len(data):
            raise ValueError("it ends early" if number else "it has a field 0")
        found.setdefault(number, []).append(value)
    return found


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + _VARINT_BYTES, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, place + 1
        shift += 7
    is_whole = position + _VARINT_BYTES <= len(data)
    raise ValueError("an integer has more than 64 bits" if is_whole else "it ends early")


def message_of(value: int | memoryview) -> memoryview:
    """Return the bytes of a value that is a message.

    Raises:
        ValueError: the value is an integer.
    """
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value
