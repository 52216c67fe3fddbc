"""Write the tables of the documentation and of the README from the JSON in benchmarks/results.

    python -m benchmarks.tables [--check]

Nobody types a figure: docs/results.md is `benchmarks/results/page.md`, whose lines `{{NAME}}` are
tables, other pages have a comment `table NAME` in front of a table, and each table is a file
`NAME.json` with the machine, the command, the columns and the rows as that command printed them.
The README's table is of rows of these. With `--check` nothing is written, and the exit code is 1
where a file is not as this command would write it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

__all__ = ["ResultTable", "outdated", "pages"]

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "benchmarks" / "results"
_README = _ROOT / "README.md"
_HEADLINE = re.compile(r"^\| model \| portable \| for this machine \|\n(\|.*\n)+", re.MULTILINE)
_MARKED = re.compile(r"^(<!-- table (\w+) -->\n)((?:\|.*\n)*)", re.MULTILINE)
_IN_README = (
    ("16 trained models of six packages", "shipped", "geometric mean"),
    ("sru, unrolled", "small", "sru"),
    ("alexnet", "tuned", "alexnet"),
    ("U-Net, PyTorch export", "tuned", "unet.dynamo"),
    ("ResNet-18, PyTorch export", "tuned", "resnet18.dynamo"),
    ("BERT as in TASO", "tuned", "bert_taso"),
    ("GPT-2, PyTorch export", "tuned", "gpt2.dynamo"),
)
"""Rows of the README: the title, the table, and the model there."""


@dataclass(frozen=True)
class ResultTable:
    """A table as a command printed it.

    Attributes:
        command: what makes it.
        machine: what it was measured on.
        columns: title of each column; `>` in front aligns it right.
        rows: cells.
    """

    command: str
    machine: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def read(cls, name: str) -> ResultTable:
        """Return the table of a file in benchmarks/results.

        Raises:
            ValueError: a row has another number of cells than there are columns.
        """
        found = msgspec.json.decode((_RESULTS / f"{name}.json").read_bytes(), type=cls)
        for row in found.rows:
            if len(row) != len(found.columns):
                raise ValueError(f"{name}.json: {row[0]} has {len(row)} cells; give one per column")
        return found

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table in Markdown."""
        yield _line(column.removeprefix(">") for column in self.columns)
        yield f"|{'|'.join('--:' if column[0] == '>' else '---' for column in self.columns)}|"
        yield from map(_line, self.rows)

    def row(self, model: str) -> Mapping[str, str]:
        """Return the cells of a model by the titles of their columns.

        Raises:
            KeyError: there is no such model.
        """
        for row in self.rows:
            if row[0] == model:
                titles = (column.removeprefix(">") for column in self.columns)
                return dict(zip(titles, row, strict=True))
        raise KeyError(model)


def pages() -> dict[Path, str]:
    """Return the pages with tables, by their paths, as they should be."""
    template = (_RESULTS / "page.md").read_text(encoding="utf-8")
    results = re.sub(r"^\{\{(\w+)\}\}$", lambda found: _table(found[1]), template, flags=re.M)
    docs = {path: path.read_text(encoding="utf-8") for path in (_ROOT / "docs").glob("*.md")}
    marked = {
        path: _MARKED.sub(lambda found: f"{found[1]}{_table(found[2])}\n", text)
        for path, text in docs.items()
        if _MARKED.search(text)
    }
    readme = _HEADLINE.sub(lambda _: _headline(), _README.read_text(encoding="utf-8"))
    return {**marked, _ROOT / "docs" / "results.md": results, _README: readme}


def outdated() -> list[Path]:
    """Return the pages that are not as they should be."""
    return [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]


def _table(name: str) -> str:
    return "\n".join(ResultTable.read(name).lines())


def _headline() -> str:
    rows = []
    for title, table, model in _IN_README:
        row = ResultTable.read(table).row(model)
        rows.append((title, *(f"{1 / float(row[form]):.1f}×" for form in ("portable", "tuned"))))
    shown = ResultTable("", "", ("model", ">portable", ">for this machine"), tuple(rows))
    return "\n".join(shown.lines()) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Write the pages, or tell which are outdated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    found = outdated()
    for path in found:
        if not check:
            path.write_text(pages()[path], encoding="utf-8")
        done = "is outdated; run python -m benchmarks.tables" if check else "written"
        print(f"{path.relative_to(_ROOT)} {done}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
