"""Aligned columns of plain text, one line per row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

__all__ = ["aligned"]

_WIDEST = 48
"""Characters up to which a cell widens its column; a longer cell only shifts its own row."""


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Iterator[str]:
    """Yield the header and the rows in columns; those in ``right`` are aligned right.

    The last column is not padded, and no line ends with spaces.
    """
    table = [header, *rows]
    widths = [
        max((len(row[i]) for row in table if len(row[i]) <= _WIDEST), default=0)
        for i in range(len(header))
    ]
    for row in table:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
