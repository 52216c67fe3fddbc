"""Check every e-class of the zoo's e-graphs: `python -m benchmarks.eclasses [MODEL …] [--tiny]`.

Each model is saturated as `optimize` does it, and every e-node is evaluated in double precision on
random inputs and compared with its class. The exit code is 1 if a class holds two values.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import onnx_ir
from rich.console import Console
from rich.table import Table

from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import default_rules


@dataclass(frozen=True)
class Row:
    """What the check saw of one model."""

    model: str
    enodes: int
    stopped_by: str
    equalities: int
    skipped: int
    bad: int
    suspects: tuple[str, ...]
    time_s: float


def check(name: str, scale: Literal["full", "tiny"], nodes: int) -> Row:
    """Saturate and check one model of the zoo."""
    start = time.perf_counter()
    model = zoo.build(name, scale=scale)
    saturation = saturate(
        normalise(import_model(onnx_ir.from_proto(model))), default_rules(), Budget(nodes=nodes)
    )
    report = check_eclasses(saturation)
    return Row(
        name,
        saturation.eclasses.n_nodes,
        saturation.report.stopped_by,
        report.equalities,
        report.skipped,
        len(report.bad),
        report.suspects,
        time.perf_counter() - start,
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows for people."""
    made = Table("model", "e-nodes", "stopped by", "equalities", "skipped", "bad", "suspects", "s")
    for row in rows:
        cells = (row.enodes, row.stopped_by, row.equalities, row.skipped, row.bad)
        made.add_row(row.model, *map(str, cells), ", ".join(row.suspects), f"{row.time_s:.1f}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the check; 0 if no class is bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="models of the zoo; all by default")
    parser.add_argument("--tiny", action="store_true", help="the small variants, for a quick look")
    parser.add_argument("--nodes", type=int, default=20_000, help="limit on e-nodes")
    parser.add_argument("--json", help="file for the numbers")
    chosen = parser.parse_args(arguments)
    rows = []
    for name in chosen.models or zoo.names():
        rows.append(check(name, "tiny" if chosen.tiny else "full", chosen.nodes))
        print(f"{name}: {rows[-1].equalities} equalities, {rows[-1].bad} bad", file=sys.stderr)
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
    return int(any(row.bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
