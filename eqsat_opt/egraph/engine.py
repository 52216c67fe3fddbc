"""The only place that touches ``egglog.bindings``: run text, read sizes, take the tables out.

Facts about the engine that shape this module (measured on 13.2): text is parsed in small chunks because every parsed
span copies its source; a Rust panic surfaces as a ``BaseException``; an engine may be used by one thread only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from egglog.bindings import EggSmolError, EGraph

from eqsat_opt.errors import SaturationError

__all__ = ["Engine"]

_CHUNK = 40


class Engine:
    """An e-graph of the engine and the folder that it reads tables from."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="eqsat-")
        self._egraph = EGraph(fact_directory=self._folder.name)
        self._tables = 0

    def run(self, commands: Sequence[str]) -> list[Any]:
        """Run commands in order.

        Raises:
            SaturationError: with the engine's message; the e-graph must not be used afterwards.
        """
        results: list[Any] = []
        for start in range(0, len(commands), _CHUNK):
            text = "\n".join(commands[start : start + _CHUNK])
            try:
                results += self._egraph.run_program(*self._egraph.parse_program(text))
            except EggSmolError as error:
                raise SaturationError(f"e-graph engine: {str(error).splitlines()[0]}") from error
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise
                raise SaturationError(f"e-graph engine failed: {error}") from error
        return results

    def load_table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], action: str
    ) -> list[str]:
        """Commands that read ``rows`` from a file and run ``action`` on each; columns are called ``a0, a1, …``."""
        self._tables += 1
        relation = f"row{self._tables}"
        path = Path(self._folder.name, f"{relation}.tsv")
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
        names = " ".join(f"a{i}" for i in range(len(columns)))
        return [
            f"(relation {relation} ({' '.join(columns)}))",
            f'(input {relation} "{path.name}")',
            f"(rule (({relation} {names})) ({action}) :ruleset load)",
        ]

    def sizes(self) -> dict[str, int]:
        """Function name to number of rows."""
        return dict(self.run(["(print-size)"])[0].sizes)

    def tables(self) -> dict[str, Any]:
        """Function name to rows; fetched once because each access copies."""
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

    def close(self) -> None:
        """Remove the tables' folder."""
        self._folder.cleanup()
