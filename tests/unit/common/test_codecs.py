"""Dataclasses as JSON: what is read, and where a fault is said to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from eqsat_opt.common.codecs import compact_text, value_from_json, value_to_json
from eqsat_opt.errors import StageError


@dataclass(frozen=True)
class _Part:
    size: int | float
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Whole:
    name: str
    parts: Mapping[str, _Part]
    lists: tuple[_Part, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)
    last: _Part | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))
        if self.name == "bad":
            raise ValueError("the name is bad")


WHOLE = _Whole("a", {"p": _Part(1), "q": _Part(2.0, (3,))}, (_Part(4),), {"n": 5})
GIVEN = {
    "name": "a",
    "parts": {"p": {"size": 1, "places": []}, "q": {"size": 2.0, "places": [3]}},
    "lists": [{"size": 4, "places": []}],
    "more": {"n": 5},
    "last": None,
}


def test_a_value_there_and_back() -> None:
    assert json.dumps(value_to_json(WHOLE)) == json.dumps(GIVEN)  # 1 stays 1, and 2.0 stays 2.0
    assert value_from_json(GIVEN, _Whole, "it") == WHOLE


def test_defaults_are_written_that_were_not_read() -> None:
    read = value_from_json({"name": "a", "parts": {}}, _Whole, "it")
    assert value_to_json(read) == {"name": "a", "parts": {}, "lists": [], "more": {}, "last": None}


def test_equal_values_have_one_compact_text() -> None:
    assert compact_text(_Part(1, (2, 3))) == '{"places":[2,3],"size":1}'


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "it cannot be read: Expected `str`, got `int` - at `$.name`"),
        ({"name": "bad"}, "it cannot be read: the name is bad"),
        ({"name": nested(500)}, "it cannot be read: Expected `str`, got `array`"),
        ({"parts": {"p": 1}}, "Expected `object`, got `int` - at `$.parts.p`"),
        ({"parts": {"p": {"size": 1}, "a.b": {"size": True}}}, "`bool` - at `$.parts.a.b.size`"),
        ({"parts": {"p": {"size": "1"}, "q": {"size": "1"}}}, "got `str` - at `$.parts.q.size`"),
        ({"parts": {"p": {"size": 1, "x": 1}}}, "not known - at `$.parts.p.x`"),
        ({"parts": {"p": {"size": 1, "places": [1, 2.5]}}}, "`float` - at `$.parts.p.places[1]`"),
        ({"parts": {"p": {"size": 1}, "a\nb": 1}}, "`int` - at `$.parts.a b`"),
        ({"lists": [{"size": 1}, {}]}, "missing required field `size` - at `$.lists[1]`"),
        ({"lists": [{"size": 1}, {"size": 2, "x": 3}]}, "not known - at `$.lists[1].x`"),
        ({"last": {"size": "\ud800"}}, "it cannot be read: "),
        ({"other": {}}, "it has a field that is not known - at `$.other`"),
    ],
)
def test_a_fault_has_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StageError) as caught:
        value_from_json({**GIVEN, **change}, _Whole, "it")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], 1, "a", True])
def test_what_is_no_object(value: Any) -> None:
    with pytest.raises(StageError, match="it cannot be read: Expected `object`, got "):
        value_from_json(value, _Whole, "it")


def test_fields_that_are_not_known_may_be_left_out() -> None:
    assert value_from_json({"size": 1, "x": 2}, _Part, "it", strict=False) == _Part(1)
