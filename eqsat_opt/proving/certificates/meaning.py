"""The meaning of values as text: functions and classes by their syntax, all others by content.

A function is its syntax together with the values of the names in it, of the variables that it
encloses and of its defaults. So the text is found by value, and no name is looked up in a source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from importlib import import_module
from types import EllipsisType, FunctionType, MethodType, ModuleType, UnionType
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import OPS, Op
from eqsat_opt.ir.ops.functions import ScalarFunction
from eqsat_opt.proving.certificates.syntax import Definition, Syntax

__all__ = ["PACKAGE", "Meaning"]

PACKAGE = "eqsat_opt"
_SILENT = (f"{PACKAGE}.proving", f"{PACKAGE}.errors")
"""Modules whose values are only named: the verifier, which is written whole, and messages."""
_IDLE = {
    Op: ("flops", "onnx", "doc"),
    ScalarFunction: ("flops", "since", "defaults"),
}
"""Fields of records that no verdict depends on."""
_REGISTRIES = {(f"{PACKAGE}.ir.values.dims", "_ATOMS")}
"""Variables that a process fills; they count as empty, which they are at its start."""
_Plain = bool | int | float | complex | bytes | Fraction | np.dtype | EllipsisType


class Meaning:
    """A text of values, in which each function, class and record occurs once, with a number.

    A mapping or a set with names of operators is a *table*: each entry belongs to its operator, so
    that a new operator changes nothing for the others.

    Attributes:
        strings: strings that occurred.
        tables: tables that occurred.
    """

    def __init__(self, syntax: Syntax, operators: Iterable[str] = ()) -> None:
        """Begin an empty text, which has the entries of ``operators`` in tables."""
        self.strings: set[str] = set()
        self._syntax = syntax
        self._operators = frozenset(operators)
        self._tables: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._numbered: list[Any] = []

    @property
    def tables(self) -> tuple[Any, ...]:
        """Tables that occurred."""
        return tuple(self._tables.values())

    def of_modules(self, modules: Iterable[str]) -> str:
        """Return the text of whole modules, and of all values that they import and use."""
        return self._completed([f"{name}: {self._module(name)}" for name in modules])

    def of_values(self, values: Iterable[object]) -> str:
        """Return the text of values, and of all that they use."""
        return self._completed([self._named(value) for value in values])

    def _completed(self, lines: list[str]) -> str:
        lines.extend(map(self._described, self._numbered))  # which grows
        return "\n".join(lines)

    def _named(self, value: Any) -> str:
        """Return a plain value as text, and the number of any other, which is described later."""
        if isinstance(value, str):
            self.strings.add(value)
        if value is None or isinstance(value, str | _Plain):
            return f"{type(value).__name__} {value!a}"
        if isinstance(value, np.generic | np.ndarray):
            return f"{type(value).__name__} {value.dtype} {value.tolist()!a}"
        if isinstance(value, tuple | list):
            return f"{type(value).__name__} ({', '.join(map(self._named, value))})"
        if isinstance(value, Mapping | Set):
            return self._table(value)
        if name := _foreign(value):
            return name
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbered)
            self._numbered.append(value)
        return f"#{self._numbers[id(value)]}"

    def _table(self, value: Mapping[Any, Any] | Set[Any]) -> str:
        """Return the text of a mapping or a set, whatever its order, without other operators."""
        others = {key for key in value if isinstance(key, str) and key in OPS} - self._operators
        if others:
            self._tables[id(value)] = value
        keys = sorted((key for key in value if key not in others), key=ascii)
        entries = [(key, value[key]) for key in keys] if isinstance(value, Mapping) else keys
        return f"{type(value).__name__} {{{', '.join(map(self._named, entries))}}}"

    def _described(self, value: Any) -> str:
        if isinstance(value, ModuleType):
            return self._module(value.__name__)
        if isinstance(value, type):
            found = self._syntax.classes(value.__name__, value.__module__)
            if found:
                return self._defined(found, value.__module__)
        elif isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
            found = self._syntax.functions(value.__code__, value.__module__)
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            held = dict(zip(value.__code__.co_freevars, cells, strict=True))
            # A text that is another one at every start makes no certificate valid.
            text = self._defined(found, value.__module__) or f"unknown {id(value)}"
            return f"{text} {self._named([held, value.__defaults__, value.__kwdefaults__])}"
        # Python 3.14 has another name for the type of `X | Y`.
        kind = "UnionType" if isinstance(value, UnionType) else type(value).__name__
        return f"{kind} {self._named(_content(value))}"

    def _defined(self, found: Iterable[Definition], module: str) -> str:
        return " or ".join(self._spelled(one, vars(sys.modules[module])) for one in found)

    def _module(self, name: str) -> str:
        return self._spelled(self._syntax.tree(name), {})

    def _spelled(self, tree: ast.AST, known: Mapping[str, Any]) -> str:
        """Return the text of a tree, with the values of the names in it."""
        spelling = self._syntax.spelling(tree)
        self.strings.update(spelling.strings)
        home = known.get("__name__")
        values = [
            f"{one} = {self._named({} if (home, one) in _REGISTRIES else known[one])}"
            for one in spelling.names
            if one in known
        ]
        values += [
            f"{name} = {self._imported(source, original)}"
            for name, source, original in spelling.imports
            if name in spelling.names
        ]
        return " ".join([spelling.text, *values])

    def _imported(self, source: str, name: str) -> str:
        inner = f"{source}.{name}"
        if not inner.startswith(f"{PACKAGE}.") or inner.startswith(_SILENT):
            return inner
        home = import_module(source)
        is_module = not hasattr(home, name)
        return self._named(import_module(inner.strip(".")) if is_module else getattr(home, name))


def _content(value: Any) -> object:
    """Return what a value was made of."""
    match value:
        case partial():
            return value.func, value.args, value.keywords
        case MethodType():
            return value.__func__, value.__self__
        case UnionType():
            return value.__args__
        case re.Pattern():
            return value.pattern, value.flags
        case Enum():
            return type(value), value.name
        case type():  # made by a call
            own = {name: one for name, one in vars(value).items() if not name.startswith("__")}
            return type(value), value.__bases__, own
    if hasattr(value, "__wrapped__"):  # whose definition names what wraps it
        return value.__wrapped__
    # A field that is no parameter is a cache, as that of a hash, which a process fills.
    names = [f.name for f in fields(value) if f.init] if is_dataclass(value) else vars(value)
    idle = _IDLE.get(type(value), ())
    return type(value), {name: getattr(value, name) for name in names if name not in idle}


def _foreign(value: Any) -> str:
    """Return the name of a value that is only named; empty for any other."""
    if isinstance(value, partial | MethodType | UnionType | re.Pattern):
        return ""
    if hasattr(value, "__args__"):
        return "a name of a type"
    own = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    home = own or type(value).__module__
    if home.startswith(f"{PACKAGE}.") and not home.startswith(_SILENT):
        return ""
    return f"{home.split('.')[0].lstrip('_')}.{getattr(value, '__name__', type(value).__name__)}"
