"""Trained models that packages ship: imported, optimised, checked, and raced with peers.

    pip download --no-deps -d WHEELS rapidocr-onnxruntime silero-vad magika
    python -m benchmarks.shipped WHEELS [--coverage] [--fixed] [--race 10] [--json found.json]

Every ONNX file below the folder is examined, also inside of wheels and other archives. Nothing is
downloaded, and only the outcomes are kept, from which a second call continues. Each file gets a
line; `--coverage` only counts operators that pass through, which is quick. `--table` writes the
ratios of races as a table for benchmarks.tables. Packages that ship models are listed in
docs/shipped.md.
"""

from __future__ import annotations

import argparse
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.outcomes import Outcome, Settings, gather, line_of, summary_lines
from benchmarks.rows import geometric_mean
from benchmarks.tables import ResultTable
from benchmarks.versus import BASE, PORTABLE, TUNED
from eqsat_opt.common.files import Scratch, write_whole

__all__ = ["main", "models_below", "race_table"]

_ARCHIVES = (".whl", ".zip")
_SOURCES = (".tar.gz", ".tgz")
_PARTS = (".onnx", ".onnx.data", ".onnx_data")


def models_below(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield the ONNX files below a folder with their names; archives are unpacked first.

    Args:
        folder: the folder.
        scratch: folder for the contents of archives.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".onnx" and path.is_file():
            yield path.relative_to(folder).as_posix(), path
        elif _is_archive(path):
            yield from _unpacked(path, folder, scratch)


def _is_archive(path: Path) -> bool:
    if path.suffix in _ARCHIVES:
        return zipfile.is_zipfile(path)
    return path.name.endswith(_SOURCES) and tarfile.is_tarfile(path)


def _unpacked(archive: Path, folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    relative = archive.relative_to(folder).as_posix()
    target = scratch / relative
    if archive.suffix in _ARCHIVES:
        with zipfile.ZipFile(archive) as packed:
            names = sorted(name for name in packed.namelist() if name.endswith(_PARTS))
            for name in names:  # extract() keeps every name below the target
                packed.extract(name, target)
    else:
        with tarfile.open(archive) as source:
            names = sorted(name for name in source.getnames() if name.endswith(_PARTS))
            for name in names:
                source.extract(name, target, filter="data")
    for name in names:
        if name.endswith(".onnx"):
            yield f"{relative}!{name}", target / name


def race_table(outcomes: Mapping[str, Outcome], command: str, machine: str) -> ResultTable:
    """Return the times of races relative to the original's, with geometric means in the last row.

    Where no tuned form won, the portable result stands for it; where no portable result took part,
    the original does.

    Args:
        outcomes: outcomes by the names of models; those without a race are left out.
        command: what made them.
        machine: what they were measured on.
    """
    rows: list[tuple[str, ...]] = []
    ratios: list[tuple[float, float, float]] = []
    for name, outcome in outcomes.items():
        times = dict(outcome.ratios)
        if not times:
            continue
        portable, tuned = times.pop(PORTABLE, None), times.pop(TUNED, None)
        best = min(times, key=times.__getitem__)
        ours = min(one for one in (portable, tuned, times[BASE]) if one is not None)
        ratios.append((portable or times[BASE], ours, ours / times[best]))
        cells = ("–" if one is None else f"{one:.2f}" for one in (portable, tuned))
        title = name.removeprefix("./").rpartition("!")[2]
        rows.append((title, *cells, f"{best}, {times[best]:.2f}", f"{ratios[-1][2]:.2f}"))
    if rows:
        means = [f"{geometric_mean(column):.3f}" for column in zip(*ratios, strict=True)]
        rows.append(("geometric mean", *means[:2], "", means[2]))
    columns = ("model", ">portable", ">tuned", "best other", ">of best other")
    return ResultTable(command, machine, columns, tuple(rows))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a model failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of wheels, or of .onnx files")
    parser.add_argument("--coverage", action="store_true", help="only count what passes through")
    parser.add_argument("--effort", default="quick", choices=("quick", "normal", "max"))
    parser.add_argument("--budget", type=float, help="seconds for ours")
    parser.add_argument("--race", type=float, default=0.0, help="seconds for a race beside peers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="make all sizes literal first")
    parser.add_argument("--json", type=Path, help="where outcomes are kept")
    parser.add_argument("--table", type=Path, help="write the ratios of races to this file")
    parser.add_argument("--machine", default="", help="what the table says of the machine")
    parser.add_argument("--again", action="store_true", help="examine again what failed")
    chosen = parser.parse_args(arguments)
    if not chosen.folder.is_dir():
        parser.error(f"{chosen.folder} is no folder; give one with wheels or .onnx files")
    settings = Settings(
        chosen.coverage, chosen.effort, chosen.budget,
        race_s=chosen.race, threads=chosen.threads, fixed=chosen.fixed,
    )  # fmt: skip
    console, outcomes = Console(), dict[str, Outcome]()
    with Scratch() as scratch:
        models = dict(models_below(chosen.folder, Path(scratch)))
        if not models:
            parser.error(f"no .onnx file below {chosen.folder}, in wheels neither")
        for name, outcome in gather(models, settings, chosen.json, again=chosen.again):
            outcomes[name] = outcome
            console.print(line_of(name, outcome), markup=False, highlight=False, soft_wrap=True)
    for line in summary_lines(outcomes):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if chosen.table is not None:
        command = (
            f"python -m benchmarks.shipped WHEELS --race {chosen.race:g} --threads {chosen.threads}"
            + (f" --budget {chosen.budget:g}" if chosen.budget else f" --effort {chosen.effort}")
        )
        table = race_table(outcomes, command, chosen.machine)
        write_whole(chosen.table, msgspec.json.format(msgspec.json.encode(table)).decode() + "\n")
    return int(any(one.failures for one in outcomes.values()))


if __name__ == "__main__":
    raise SystemExit(main())
