"""The driver of the engine: the only module that runs commands, reads sizes and reads tables.

Facts about the engine that shape this module (measured on 13.2): a Rust panic surfaces as a
``BaseException``; an engine may be used by one thread only.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.files import Scratch
from eqsat_opt.egraph.engine.library import engine_library
from eqsat_opt.errors import SaturationError

if TYPE_CHECKING:
    from egglog.bindings import EGraph

__all__ = ["Engine", "compiled_engine"]

_CHUNK = 400
"""Greatest number of characters per call of the parser, unless one command is longer.

Each expression of a text keeps a copy of the whole text.
"""
_KEPT_ENGINES = 4
"""Number of compiled programs that a thread keeps: a few rulebooks times a few operator sets."""


class Engine:
    """An e-graph of the engine and the folder that it reads tables from."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self._library = engine_library()
        self._egraph: EGraph = self._library.EGraph(fact_directory=self._folder)
        self._tables = 0
        _engines.add(self)

    def run(self, commands: Sequence[str]) -> list[Any]:
        """Run commands in order.

        Raises:
            SaturationError: with the engine's message; the e-graph must not be used afterwards.
        """
        results: list[Any] = []
        for text in _chunks(commands):
            try:
                results += self._egraph.run_program(*self._egraph.parse_program(text))
            except self._library.EggSmolError as error:
                raise SaturationError(f"e-graph engine: {str(error).splitlines()[0]}") from error
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise
                raise SaturationError(f"e-graph engine failed: {error}") from error
        return results

    def load_table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], action: str
    ) -> list[str]:
        """Write ``rows`` to a file; return commands that run ``action`` on each (``a0 a1 …``)."""
        self._tables += 1
        relation = f"row{self._tables}"
        path = Path(self._folder, f"{relation}.tsv")
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
        names = " ".join(f"a{i}" for i in range(len(columns)))
        return [
            f"(relation {relation} ({' '.join(columns)}))",
            f'(input {relation} "{path.name}")',
            f"(rule (({relation} {names})) ({action}) :ruleset load)",
        ]

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each function, by name."""
        return dict(self.run(["(print-size)"])[0].sizes)

    def tables(self) -> dict[str, Any]:
        """Return the rows of each function, by name; each access copies, so fetch them once."""
        return dict(self._egraph.freeze().functions)

    def i64(self, value: Any) -> int:
        """Decode an integer."""
        return self._egraph.value_to_i64(value)

    def f64(self, value: Any) -> float:
        """Decode a float."""
        return self._egraph.value_to_f64(value)

    def string(self, value: Any) -> str:
        """Decode a string."""
        return self._egraph.value_to_string(value)

    def vector(self, value: Any) -> list[Any]:
        """Decode a vector into its element values."""
        return list(self._egraph.value_to_vec(value))

    def push(self) -> None:
        """Save the state."""
        self.run(["(push)"])

    def pop(self) -> None:
        """Restore the state that was saved last, and forget the tables read since."""
        self.run(["(pop)"])
        for path in Path(self._folder).iterdir():
            path.unlink()
        self._tables = 0

    def close(self) -> None:
        """Remove the folder of the tables."""
        self._scratch.close()


def _chunks(commands: Sequence[str]) -> Iterator[str]:
    chunk: list[str] = []
    for command in commands:
        if chunk and sum(map(len, chunk)) + len(command) > _CHUNK:
            yield "\n".join(chunk)
            chunk = []
        chunk.append(command)
    if chunk:
        yield "\n".join(chunk)


class _Kept(threading.local):
    """Idle engines by program; an engine is used by one thread only."""

    def __init__(self) -> None:
        self.engines: OrderedDict[tuple[str, ...], Engine] = OrderedDict()


_kept = _Kept()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_held: list[Engine] = []


def _hold_engines() -> None:
    """Hold all engines before a fork: the child would lose objects of other threads."""
    _held[:] = _engines


def _forget_engines() -> None:
    """Forget the parent's engines in a child: they wait for threads that it does not have.

    Even their destructors would wait, so each engine gets a reference that is never released.
    """
    global _kept
    for engine in _held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    _kept = _Kept()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_engines, after_in_parent=_held.clear, after_in_child=_forget_engines
    )


@contextmanager
def compiled_engine(program: Sequence[str]) -> Iterator[Engine]:
    """Yield an engine that has run only ``program``, compiled once per thread.

    Changes by the caller are undone afterwards; an engine that failed is not used again.
    """
    key = tuple(program)
    engine = _kept.engines.pop(key, None) or _compiled(program)
    try:
        engine.push()
        yield engine
        engine.pop()
    except BaseException:
        engine.close()
        raise
    _kept.engines[key] = engine
    while len(_kept.engines) > _KEPT_ENGINES:
        _kept.engines.popitem(last=False)[1].close()


def _compiled(program: Sequence[str]) -> Engine:
    engine = Engine()
    try:
        engine.run(program)
    except BaseException:
        engine.close()
        raise
    return engine
