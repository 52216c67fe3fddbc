"""A race of our results with those of other optimisers and runtimes, all runs interleaved.

    python -m benchmarks.versus squeezenet bert [--threads 1] [--budget 90] [--race 30]

Models are as in benchmarks/given.py: `bert`, `lstm:128`, `torch:resnet18`, `model.onnx`. Each row
is printed as soon as it is measured, and a model that fails is a row with the reason.

Peers are onnxruntime with its defaults, onnxsim, onnxslim, onnxoptimizer and onnxscript (their
results in onnxruntime), and OpenVINO; peers that are not installed are named and left out (extras
`bench` and `openvino`). Ours are the portable result and the form for this machine, as opened by
`eqsat_opt.session`. Times are relative to that of onnxruntime in the same build of sessions, and
A/A is the relative difference of its two sessions, 15 % where there was time for one build only. An
entrant is `wrong` and does not run if its outputs differ by more than 1e-4 of the maximum of an
output, and by more than differences between onnxruntime's levels of optimisation of the original
explain (`benchmarks/own_error.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import onnx
from rich.console import Console

from benchmarks.given import given, title
from benchmarks.isolated import attempt
from benchmarks.optimisers import OPTIMISERS
from benchmarks.own_error import tolerated_error
from benchmarks.rows import Rows, geometric_mean
from eqsat_opt import api
from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.registry import load_runtime
from eqsat_opt.runtime.backends.tuned_file import Execution, open_as_raced
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.source import Feeds, RaceRunner

BASE, RUNTIME = "onnxruntime", "openvino"
PORTABLE, TUNED = "eqsat-opt", "tuned"
REWRITERS = ("onnxsim", "onnxslim", "onnxoptimizer", "onnxscript")
LIMIT_S = 600.0
MOST_ERROR = 1e-4

__all__ = ["hold", "main"]

Open = Callable[[], RaceRunner]


def _rewrite(optimiser: str, source: str, target: str) -> None:
    onnx.save(OPTIMISERS[optimiser](onnx.load(source)), target)


def _entrants(
    source: Path, folder: Path, threads: int, budget_s: float
) -> tuple[dict[str, Open], dict[str, str]]:
    """Make the models of all entrants; return how to open each, and why some have no model."""
    session, failed = OrtOptions(threads), dict[str, str]()
    default = Execution("ort", threads)
    found: dict[str, Open] = {BASE: partial(default.open, source)}
    for name in REWRITERS:
        if find_spec(name) is None:
            failed[name] = "–"
            continue
        target = folder / f"{name}.onnx"
        outcome = attempt(_rewrite, name, str(source), str(target), limit_s=LIMIT_S)
        if outcome.failure:
            failed[name] = "failed"
            Console().print(f"{name}: {outcome.failure}", markup=False)
        else:
            found[name] = partial(default.open, target)
    if load_runtime(RUNTIME).missing():
        failed[RUNTIME] = "–"
    else:
        found[RUNTIME] = partial(Execution(RUNTIME, threads).open, source)
    output, tuned = folder / "out.onnx", folder / "tuned.onnx"
    options = Options(threads=threads, budget_s=budget_s, tuned=str(tuned))
    report = api.run(source, options, output=output).report
    found[PORTABLE] = partial(open_as_raced, output, session)
    assert report.tuned is not None
    Console().print(f"tuned: {report.tuned.text}", markup=False, soft_wrap=True)
    if report.tuned.won:
        found[TUNED] = partial(open_as_raced, tuned, session)
    else:
        failed[TUNED] = "none"
    return found, failed


def hold(
    source: Path, folder: Path, feeds: Feeds, threads: int, *, budget_s: float, race_s: float
) -> tuple[RaceResult, dict[str, str]]:
    """Race all entrants that compute the same; also return why others took no part.

    Args:
        source: file of the model.
        folder: folder for the models of all entrants.
        feeds: inputs of all runs.
        threads: threads of each session.
        budget_s: seconds for our optimiser.
        race_s: seconds for the race.
    """
    entrants, absent = _entrants(source, folder, threads, budget_s)
    expected = entrants[BASE]().run(feeds)
    most_error = tolerated_error(source, feeds, threads, least=MOST_ERROR)
    for peer, opener in list(entrants.items()):
        try:
            wrong = output_error(opener().run(feeds), expected) > most_error
        except EqsatError as error:
            wrong = False
            absent[peer] = "failed"
            Console().print(f"{title(str(source))}, {peer}: {error}", markup=False)
        if wrong or peer in absent:
            absent.setdefault(peer, "wrong")
            del entrants[peer]
    held = race(entrants, BASE, feeds, threads=threads, time_limit_s=race_s, extension_s=race_s / 2)
    return held, absent


def _row(name: str, source: Path, arguments: argparse.Namespace) -> tuple[list[str], float]:
    """Return a row of the table, and our time relative to that of the best peer."""
    feeds = random_inputs(source, 0)
    with tempfile.TemporaryDirectory() as folder:
        held, cells = hold(
            source,
            Path(folder),
            feeds,
            arguments.threads,
            budget_s=arguments.budget,
            race_s=arguments.race,
        )
    ratios = {peer: entry.ratio for peer, entry in held.entries.items() if not entry.note}
    cells |= {peer: f"{ratio:.2f}" for peer, ratio in ratios.items()}
    cells |= {peer: entry.note for peer, entry in held.entries.items() if entry.note}
    others = {peer: ratio for peer, ratio in ratios.items() if peer not in (PORTABLE, TUNED)}
    best = min(others, key=others.__getitem__)
    ours = next((ratios[peer] for peer in (TUNED, PORTABLE) if peer in ratios), None)
    if ours is None:
        raise RuntimeFailed(f"no result of ours took part: {cells.get(PORTABLE, 'failed')}")
    columns = (*REWRITERS, RUNTIME, PORTABLE, TUNED)
    milliseconds = f"{held.entries[BASE].median_us / 1e3:.2f}"
    texts = (cells.get(peer, "failed") for peer in columns)
    gain = ours / others[best]
    return [title(name), milliseconds, *texts, best, f"{gain:.2f}", f"{held.noise:.1%}"], gain


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="names, or files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=90.0, help="seconds for ours")
    parser.add_argument("--race", type=float, default=30.0, help="seconds for the race")
    arguments = parser.parse_args()
    missing = [name for name in REWRITERS if find_spec(name) is None]
    if why := load_runtime(RUNTIME).missing():
        missing.append(RUNTIME)
        Console().print(why, markup=False)
    if missing:
        Console().print(f"not installed, left out: {', '.join(missing)}")
    titles = ("model", "ms", *REWRITERS, RUNTIME, PORTABLE, TUNED, "best other", "ours/best", "A/A")
    rows, gains = Rows(*titles), []
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder, rows.failure(title(name)):
            source = Path(folder, "model.onnx")
            onnx.save(given(name), source)
            row, gain = _row(name, source, arguments)
            gains.append(gain)
            rows.add(*row)
    rows.show()
    if gains:
        mean = geometric_mean(gains)
        Console().print(f"{arguments.threads} thread(s); geometric mean of ours/best: {mean:.3f}")


if __name__ == "__main__":
    main()
