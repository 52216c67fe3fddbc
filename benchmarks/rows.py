"""Tables that take long: each row is printed when it is known, and all of them at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eqsat_opt.errors import EqsatError

__all__ = ["Rows", "examined", "geometric_mean"]

_WIDTH = 160
"""Of a console that is a file."""


class Rows:
    """A table that grows."""

    def __init__(self, *titles: str) -> None:
        self._table = Table(*titles, box=None)
        self._console = Console(width=_WIDTH)
        self._print(titles)

    def add(self, *cells: str) -> None:
        """One row, printed at once."""
        self._print(cells)
        self._table.add_row(*map(escape, cells))

    @contextmanager
    def failure(self, name: str) -> Iterator[None]:
        """What fails inside becomes a row with the reason, and the next one follows."""
        try:
            yield
        except EqsatError as error:
            self.add(name, f"failed: {error}")

    def show(self) -> None:
        """All rows, their columns below each other."""
        self._console.print(self._table)

    def _print(self, cells: Sequence[str]) -> None:
        self._console.print("  ".join(cells), markup=False, highlight=False, soft_wrap=True)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of at least one positive number."""
    return float(np.exp(np.log(ratios).mean()))


def examined(
    models: Sequence[str], kept: Path | None, examine: Callable[[str, Path], tuple[str, bool]]
) -> bool:
    """Examine models in a folder for each, print a line for each, and return whether all are right.

    Args:
        models: the models.
        kept: folder that keeps the folders of the models; ``None`` keeps none.
        examine: returns the line of a model, and whether it is right, and may write to its folder.
    """
    right = []
    for model in models:
        with TemporaryDirectory() as temporary:
            folder = Path(temporary) if kept is None else kept / model
            folder.mkdir(parents=True, exist_ok=True)
            try:
                line, is_right = examine(model, folder)
            except EqsatError as error:
                line, is_right = f"{model}: {error}", False
        print(line, flush=True)
        right.append(is_right)
    return all(right)
