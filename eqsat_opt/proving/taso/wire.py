"""Protobuf messages with names for errors, as a substitution file nests them."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.common.wire_format import Fields, fields_of
from eqsat_opt.errors import RuleError

__all__ = ["Message", "parse"]


@dataclass(frozen=True)
class Message:
    """A message as values by field number.

    Attributes:
        name: description of the message, for errors.
        fields: values in the order of the file; integers are signed.
    """

    name: str
    fields: Fields

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
            if isinstance(value, int):
                raise RuleError(f"{self.name} needs messages in field {number}")
            found.append(parse(value, f"{self.name}, {name} {i}"))
        return found


def parse(data: memoryview, name: str) -> Message:
    """Parse one message.

    Raises:
        RuleError: ``data`` ends early or is not a message.
    """
    try:
        return Message(name, fields_of(data))
    except ValueError as error:
        raise RuleError(f"{name} cannot be read: {error}; fetch the file again") from error
