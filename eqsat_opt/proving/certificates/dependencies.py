"""The code that verdicts depend on, found by following names through the sources.

The gate and the prover consist of their modules and everything that these use, down to the number
domains and the meaning of conditions. An operator consists of its functions and everything that
these use, its entries in tables of the gate, the prover and the number domains, its traits, and the
operators that it is composed of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.certificates import sources
from eqsat_opt.proving.certificates.sources import PACKAGE, Statement
from eqsat_opt.proving.certificates.syntax import Piece

__all__ = ["Foundations", "Unreadable", "computed"]

_PROVING = f"{PACKAGE}.proving."
_GATE, _PROVER = f"{_PROVING}gate", f"{_PROVING}proof.driver"
"""The entry modules of the verifier at level 1, and in addition at level 2."""
_RECORDS = ("certificate", "dependencies", "foundations", "cache", "plain", "semantics",
            "sources", "syntax")  # fmt: skip
"""Modules of certificates that store and compare verdicts but reach none."""
_READERS = tuple(f"{_PROVING}certificates.{name}" for name in ("dependencies", "sources", "syntax"))
"""Modules that compute these hashes."""
_ELSEWHERE = frozenset(
    {
        *(f"{_PROVING}certificates.{name}" for name in _RECORDS),
        *(f"{PACKAGE}.{n}" for n in ("errors", "common.files", "common.paths")),
    }
)
"""Modules that the verifiers use but that do not affect a verdict."""
_Place = tuple[str, int]
"""A module, and the number of a statement in it."""
_ALL = -1
"""The statement number that means all statements of a module, and everything it imports."""


class Unreadable(Exception):
    """The error of a missing source file, as in some frozen applications."""


@dataclass(frozen=True)
class Foundations:
    """Hashes of the code that verdicts depend on.

    Attributes:
        verifiers: hash of the verifier at level 1, and at level 2.
        operators: operator to its hashes, at level 1 and at level 2.
        modules: modules that the hashes were computed from, and those that compute them.
    """

    verifiers: tuple[str, str]
    operators: dict[str, tuple[str, str]]
    modules: tuple[str, ...]


# Reachable statements ----------------------------------------------------------------------------


def computed() -> Foundations | None:
    """Compute the foundations of the package as it is; ``None`` if its sources cannot be read."""
    try:
        gate, prover = _judges()
        said = {name: (_operator(name, gate), _operator(name, prover)) for name in sorted(OPS)}
        verifiers = _digest(_text(gate)), _digest(_text(prover))
    except Unreadable:
        return None
    modules = {place[0] for place in prover}
    modules.update(*(part.modules for parts in said.values() for part in parts))
    operators = {name: (_digest(one.text), _digest(two.text)) for name, (one, two) in said.items()}
    return Foundations(verifiers, operators, tuple(sorted({*modules, *_READERS})))


def _judges() -> tuple[set[_Place], set[_Place]]:
    """Return the statements that judge rules at level 1, and those at level 2."""
    gate = _reach([(_GATE, _ALL)])
    return gate, gate | _reach([(_PROVER, _ALL)])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _statement(place: _Place) -> Statement:
    return _module(place[0]).statements[place[1]]


def _module(name: str) -> sources.Module:
    found = sources.module(name)
    if found is None:
        raise Unreadable(name)
    return found


def _pieces(place: _Place, operators: Iterable[str]) -> Iterator[Piece]:
    """Yield the common piece of a statement, and its entries for some operators."""
    statement = _statement(place)
    yield statement.common
    for operator in operators:
        yield from statement.entries.get(operator, ())


def _text(places: Iterable[_Place], operators: Iterable[str] = ()) -> str:
    chosen = sorted(operators)
    return "\n".join(
        f"{place[0]}: {piece.text}" for place in sorted(places) for piece in _pieces(place, chosen)
    )


def _reach(
    start: Iterable[_Place], operators: Iterable[str] = (), known: Set[_Place] = frozenset()
) -> set[_Place]:
    """Return the statements that are reachable from some statements, except known ones.

    The result includes the statements in ``start``.
    """
    found: set[_Place] = set()
    whole: set[str] = set()
    todo = list(start)
    while todo:
        place = todo.pop()
        if place[1] == _ALL and place[0] not in whole:
            whole.add(place[0])
            module = _module(place[0])
            todo += [(place[0], index) for index in range(len(module.statements))]
            for source, name in module.imports.values():
                todo += _imported(source, name)
        elif place[1] != _ALL and place not in known and place not in found:
            found.add(place)
            for piece in _pieces(place, operators):
                todo += _uses(place[0], piece)
    return found


def _uses(inside: str, piece: Piece) -> list[_Place]:
    module = _module(inside)
    found: list[_Place] = []
    for name, attribute in piece.names:
        if name in module.by_name and name not in piece.imports:
            found += [(inside, index) for index in module.by_name[name]]
        elif name in piece.imports or name in module.imports:
            source, original = piece.imports.get(name) or module.imports[name]
            inner = f"{source}.{original}"
            is_read_from = attribute and _is_module(inner)
            found += _imported(inner, attribute) if is_read_from else _imported(source, original)
    return found


@cache
def _is_module(name: str) -> bool:
    return sources.read(name) is not None


def _imported(source: str, name: str) -> list[_Place]:
    """Return the statements that an import brings in.

    An imported module brings in all of its statements. So does a name from a module of the
    verifier; any other name brings in only its definitions.
    """
    inner = f"{source}.{name}"
    if not f"{source}.".startswith(f"{PACKAGE}.") or inner in _ELSEWHERE or source in _ELSEWHERE:
        return []
    if _is_module(inner):
        return [(inner, _ALL)]
    if source.startswith(_PROVING):
        return [(source, _ALL)]
    module = _module(source)
    if name in module.by_name:
        return [(source, index) for index in module.by_name[name]]
    return _imported(*module.imports[name]) if name in module.imports else []


# Operators ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """The text that defines an operator, and the modules that it was read from."""

    text: str
    modules: frozenset[str]


def _operator(name: str, judge: Set[_Place]) -> _Said:
    """Collect the definition of an operator, beyond the statements that judge every rule.

    Operators that it is composed of are added until none is new.
    """
    operators: list[str] = []
    parts = {name}
    while len(parts) > len(operators):
        operators = sorted(parts)
        start, held = _functions(operators)
        entries = [
            (place[0], operator, piece)
            for place in sorted(judge)
            for operator in operators
            for piece in _statement(place).entries.get(operator, ())
        ]
        start += [used for inside, _, piece in entries for used in _uses(inside, piece)]
        reached = _reach(start, operators, judge)
        pieces = [piece for place in reached for piece in _pieces(place, operators)]
        pieces += [piece for _, _, piece in entries]
        parts = {*operators, *held, *(string for piece in pieces for string in piece.strings)}
        parts &= OPS.keys()
    said = [f"{inside}: {operator} {piece.text}" for inside, operator, piece in entries]
    text = "\n".join([*map(_signature, operators), *held, *said, _text(reached, operators)])
    return _Said(f"{name}\n{text}", frozenset(place[0] for place in reached))


def _signature(name: str) -> str:
    op = OPS[name]
    said = [op.arity, op.attrs, op.kind, op.commutative, op.traits, op.element_types, op.choices]
    said += [op.result_types] if op.result_types else []
    return " ".join([name, *map(_plain, said)])


def _plain(value: Any) -> str:
    """Return a text of a value that is the same in every process, whatever order a record has."""
    ordered = value.items() if isinstance(value, Mapping) else value
    return ascii(sorted(ordered) if isinstance(value, Mapping | frozenset) else value)


def _functions(operators: Iterable[str]) -> tuple[list[_Place], list[str]]:
    """Return where the functions of operators are defined, and the plain values that they hold."""
    places: list[_Place] = []
    held: list[str] = []
    for name in sorted(operators):
        op = OPS[name]
        for function in (op.type_fn, op.eval_fn, op.index_fn, op.exact):
            _follow(function, places, held)
    return places, held


def _follow(value: Any, places: list[_Place], held: list[str]) -> None:
    """Add the place of a function, and those of the values that it was made with.

    Plain values, such as defaults and closed-over numbers, are added to ``held``.
    """
    if isinstance(value, FunctionType):
        places.extend(_place_of(value))
        for inner in (
            *(value.__defaults__ or ()),
            *(cell.cell_contents for cell in value.__closure__ or ()),
        ):
            _follow(inner, places, held)
    elif isinstance(value, partial):
        for inner in (value.func, *value.args, *value.keywords.values()):
            _follow(inner, places, held)
    elif isinstance(value, tuple | list):
        for inner in value:
            _follow(inner, places, held)
    elif isinstance(value, str):
        held.append(value)
    elif value is None or isinstance(value, bool | int | float | frozenset):
        held.append(ascii(sorted(value) if isinstance(value, frozenset) else value))
    else:
        held.append(getattr(value, "__name__", type(value).__name__))


def _place_of(function: Callable[..., Any]) -> list[_Place]:
    assert isinstance(function, FunctionType)
    code: CodeType = function.__code__
    name = function.__module__
    if not name.startswith(f"{PACKAGE}."):
        return []
    module = _module(name)
    by_name = module.by_name.get(code.co_qualname.split(".")[0])
    if by_name:
        return [(name, index) for index in by_name]
    line = module.at(code.co_firstlineno)
    return [] if line is None else [(name, line)]
