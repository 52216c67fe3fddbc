"""A reader of the protobuf wire format, as far as a substitution file uses it.

A message is a sequence of (key, value); a key holds the field's number and the kind of the value: 0
is a variable-length integer, 2 is a length and as many bytes. Nested messages are bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_opt.errors import RuleError

__all__ = ["Message", "parse"]

_VARINT, _BYTES = 0, 2
_VARINT_BYTES = 10
"""Most bytes of an integer: 64 bits in groups of seven."""


@dataclass(frozen=True)
class Message:
    """A message as values by field number.

    Attributes:
        name: description of the message, for errors.
        fields: values in the order of the file; integers are signed.
    """

    name: str
    fields: Mapping[int, tuple[int | bytes, ...]]

    def integer(self, number: int) -> int:
        """Return the one integer of a field.

        Raises:
            RuleError: there is not exactly one.
        """
        values = self.fields.get(number, ())
        if len(values) != 1 or not isinstance(values[0], int):
            raise RuleError(f"{self.name} needs one integer in field {number}")
        return values[0]

    def messages(self, number: int, name: str) -> list[Message]:
        """Return the nested messages of a field, which errors call ``name`` and a number.

        Raises:
            RuleError: a value is not a message.
        """
        found = []
        for i, value in enumerate(self.fields.get(number, ())):
            if not isinstance(value, bytes):
                raise RuleError(f"{self.name} needs messages in field {number}")
            found.append(parse(value, f"{self.name}, {name} {i}"))
        return found


def parse(data: bytes, name: str) -> Message:
    """Parse one message.

    Raises:
        RuleError: ``data`` ends early or is not a message of this format.
    """
    fields: dict[int, list[int | bytes]] = defaultdict(list)
    position = 0
    while position < len(data):
        key, position = _varint(data, position, name)
        number, kind = key >> 3, key & 7
        if number < 1:
            raise RuleError(f"{name} has a field {number}; this is not a substitution file")
        if kind == _VARINT:
            value, position = _varint(data, position, name)
            fields[number].append(value - (1 << 64) if value >> 63 else value)
        elif kind == _BYTES:
            length, position = _varint(data, position, name)
            if position + length > len(data):
                raise RuleError(f"{name} ends early; fetch the file again")
            fields[number].append(data[position : position + length])
            position += length
        else:
            raise RuleError(f"{name} has a value of kind {kind}; this is not a substitution file")
    return Message(name, {number: tuple(values) for number, values in fields.items()})


def _varint(data: bytes, position: int, name: str) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(data[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >> 64:
                break
            return value, position + i + 1
    if position + _VARINT_BYTES > len(data):
        raise RuleError(f"{name} ends early; fetch the file again")
    raise RuleError(
        f"{name} holds an integer of more than 64 bits; this is not a substitution file"
    )
