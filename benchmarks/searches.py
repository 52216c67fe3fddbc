"""Equality saturation against published searches, on the zoo.

    python -m benchmarks.searches compare [--tiny] [MODEL ...]  # cost, bound and time
    python -m benchmarks.searches throughput [MODEL ...]        # substitutions tried per second
    python -m benchmarks.searches engine [MODEL ...]            # time inside the e-graph engine
    python -m benchmarks.searches kernels [MODEL ...]           # time of a trial with fused kernels
    python -m benchmarks.searches streams [MODEL ...]           # methods for several streams
    python -m benchmarks.searches ranks [MODEL ...]             # predicted beside measured

Both methods read the same rules, start from the same graph and price every operator as a kernel of
its own by the roofline. Every run has a fresh process that is warmed up on a tiny model, so
libraries are loaded and rules are compiled for both. Times are CPU seconds. `throughput` gives the
best of several runs in seconds of that process, since other processes may share the core. `engine`
says how much of the e-graph's time passes inside calls of egglog, and how much of that in copying
its compiled rules: no answer can come sooner.

`streams` simulates a device: what Nimble, TASO + Nimble, IOS, AutoGraph without and with its
dynamic program, and the e-graph reach within a number of CPU seconds each, beside all kernels of
the original on one stream.

`ranks` races the results of both methods against the original in onnxruntime, with its fused
kernels predicted by the roofline, and tells by Spearman's coefficient how alike the predicted and
the measured numbers rank: times of all models, and times relative to the original of all results
that are another graph. `--json` keeps the rows, which `--add` takes up again, so that a zoo can be
measured in pieces.

MetaFlow proves nothing and ends when it has seen enough graphs. The e-graph has three times beside
it: until it has a graph that is as cheap as MetaFlow's last, until it has its own last one, and
until this one is proven to be the cheapest that it holds (or, marked by `>`, its time is up).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.isolated import fresh
from benchmarks.swept import is_equal
from eqsat_opt.api import resolve
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.egraph import Budget, lower
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.comparison.saturated import saturated
from eqsat_opt.lab.search import BackendPricer, Frame, MetaFlow, PriceCache
from eqsat_opt.lab.search import Budget as SearchBudget
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.devices.profile import load_profile

_RUNS = 3

_TURNS = 30

_NOISE = 1e-9
"""Relative difference of costs that is a rounding."""


def _python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments[:4])} … failed: {done.stderr.strip()}")
    return done.stdout


def _normal(name: str) -> Graph:
    return normalise(import_model(load_model(resolve(name))))


def _measured_throughput(name: str, n_graphs: int) -> dict[str, Any]:
    """Graphs and substitutions of one search, and the least seconds of several runs."""
    graph = operator_graph(lower(_normal(name)))
    turns = []
    for _ in range(_RUNS):
        start, wall = time.process_time(), time.perf_counter()
        frame = Frame(graph, tuple(default_rules()), PriceCache.of())
        found = MetaFlow().run(frame, SearchBudget(n_graphs))
        turns.append((time.process_time() - start, time.perf_counter() - wall))
    cpu_s, wall_s = min(turns)
    return {
        "operators": len(graph.nodes),
        "graphs": found.graphs,
        "tried": found.tried,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
    }


def _measured_engine(name: str) -> list[float]:
    """Least seconds of MetaFlow, of the e-graph, of its engine, and of copying its rules."""
    spent: dict[str, float] = {}

    def timed(call: Callable[..., Any], method: str) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            result = call(*arguments, **named)
            spent[method] = spent.get(method, 0.0) + time.perf_counter() - start
            return result

        return run

    for method in ("run", "tables", "push", "pop"):
        setattr(Engine, method, timed(getattr(Engine, method), method))
    graph = _normal(name)
    rules = [rule for rule in default_rules() if rule.phase is not Phase.DERIVATION]
    turns = []
    for _ in range(_TURNS):
        spent.clear()
        start = time.perf_counter()
        saturated(graph, rules, PriceCache.of(), Budget())
        half = time.perf_counter()
        frame = Frame(operator_graph(lower(graph)), tuple(rules), PriceCache.of())
        MetaFlow().run(frame, SearchBudget())
        times = time.perf_counter() - half, half - start
        turns.append((*times, spent["run"] + spent["tables"], spent["push"] + spent["pop"]))
    return [min(column) for column in zip(*turns, strict=True)]


def _measured_kernels(name: str) -> list[float]:
    """Milliseconds of a trial at level kernels: median, 95 % and greatest, and of a whole cover."""
    pricer = ProfilePricer(load_profile("v100"))
    prices = PriceCache.of(BackendPricer(pricer))
    graph = operator_graph(lower(_normal(name)))
    rules = tuple(rule for rule in default_rules() if rule.phase is not Phase.DERIVATION)
    frame = Frame(graph, rules, prices, "kernels", backends=pricer.backends)
    state, spent = frame.start, []
    for one in frame.substitutions(state):
        begun = time.perf_counter()
        frame.attempt(state, one)
        spent.append(1e3 * (time.perf_counter() - begun))
    spent.sort()
    begun = time.perf_counter()
    frame.covering.cover(state.graph)
    whole = 1e3 * (time.perf_counter() - begun)
    return [len(spent), spent[len(spent) // 2], spent[len(spent) * 95 // 100], spent[-1], whole]


def _kernels(arguments: argparse.Namespace) -> None:
    print("| model | trials | median, ms | 95 %, ms | greatest, ms | whole cover, ms |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in arguments.models or ["squeezenet", "resnet50"]:
        n_trials, *spent = _measured_kernels(f"zoo:{name}")
        print(f"| {name} | {n_trials} | " + " | ".join(f"{one:.2f}" for one in spent) + " |")


_PARALLEL: Sequence[tuple[str, tuple[str, ...]]] = (
    ("nimble", ()),
    ("nimble", ("nimble.after=taso",)),
    ("ios", ()),
    ("autograph", ("autograph.dp=false",)),
    ("autograph", ()),
    ("eqsat", ()),
)


def _streams(arguments: argparse.Namespace) -> None:
    print(
        "| model | one stream, µs | Nimble | TASO + Nimble | IOS | AutoGraph, no DP | AutoGraph "
        "| e-graph | bound | CPU s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for name in arguments.models or ["nasnet_cell", "inception_e", "squeezenet@tiny", "sru_step"]:
        given = [
            "-m", "eqsat_opt", "compare", f"zoo:{name}", "--json", "-", "--check", "0",
            "--device", arguments.device, "--numerics", arguments.numerics,
            "--budget", f"graphs=0,cpu={arguments.cpu:g}",
        ]  # fmt: skip
        alone = json.loads(_python(*given, "--level", "kernels", "--methods", "nimble"))
        costs, seconds, bound = [alone["original_cost"]], [], ""
        for method, settings in _PARALLEL:
            sets = [part for one in settings for part in ("--set", one)]
            row = json.loads(_python(*given, "--level", "streams", "--methods", method, *sets))
            (found,) = row["results"]
            costs.append(found["cost"])
            seconds.append(f"{found['cpu_s']:.1f}")
            bound = "" if found["lower_bound"] is None else f"{found['lower_bound']:.2f}"
        cells = (*(f"{cost:.2f}" for cost in costs), bound, ", ".join(seconds))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _names() -> list[str]:
    return list(zoo.names())


def _compare(arguments: argparse.Namespace) -> None:
    rows = []
    for name in arguments.models or _names():
        model = f"zoo:{name}@tiny" if arguments.tiny else f"zoo:{name}"
        command = [
            "-m", "eqsat_opt", "compare", model, "--json", "-", "--threads", "1",
            "--set", f"metaflow.alpha={arguments.alpha}", "--budget",
            f"graphs={arguments.budget},cpu={arguments.time_limit}", "--rules", arguments.rules,
            "--numerics", arguments.numerics, "--check", str(arguments.check),
            "--seeds", str(arguments.seeds),
        ]  # fmt: skip
        rows.append(json.loads(_python(*command)))
        print(_row(rows[-1]) if len(rows) > 1 else f"{_HEAD}\n{_row(rows[-1])}", flush=True)
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    worse = [row["model"] for row in rows if _verdict(row) == "costlier"]
    later = [row["model"] for row in rows if _as_cheap_after(row) > _methods(row)[1]["cpu_s"]]
    slower = [row["model"] for row in rows if _times(row)[0] > _times(row)[1]]
    print(
        f"\ndearer: {', '.join(worse) or 'none'}"
        f"; as cheap later than MetaFlow ends: {', '.join(later) or 'none'}"
        f"; ended later: {', '.join(slower) or 'none'}"
    )


_HEAD = (
    "| model | operators | original, µs | MetaFlow, µs | e-graph, µs | bound, µs | e-graph is "
    "| graphs | substitutions | e-nodes | MetaFlow, s | its best after, s | e-graph as cheap, s "
    "| its best after, s | proven after, s | outputs |\n"
    "|---|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def _methods(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    found = {result["method"]: result for result in row["results"]}
    return found["eqsat"], found["metaflow"]


def _times(row: dict[str, Any]) -> tuple[float, float]:
    eqsat, search = _methods(row)
    return eqsat["cpu_s"], search["cpu_s"]


def _as_cheap_after(row: dict[str, Any]) -> float:
    """When the e-graph had a graph that costs no more than MetaFlow's; infinite if never."""
    found = _methods(row)[0]["as_cheap_after_s"]
    return math.inf if found is None else float(found)


def _seconds(time_s: float) -> str:
    return "never" if math.isinf(time_s) else f"{time_s:.3f}" if time_s < 1 else f"{time_s:.2f}"


def _verdict(row: dict[str, Any]) -> str:
    return _beside(*_methods(row))


def _beside(eqsat: dict[str, Any], search: dict[str, Any]) -> str:
    difference = eqsat["cost"] / search["cost"] - 1 if search["cost"] else 0.0
    if is_equal(eqsat, search):
        return "equal"
    return "costlier" if difference > 0 else f"{-difference:.2%} cheaper"


def _row(row: dict[str, Any]) -> str:
    eqsat, search = _methods(row)
    errors = [result["max_error"] for result in row["results"]]
    outputs = "not checked" if None in errors else "agree"
    if any(result["why"] for result in row["results"]):
        outputs = "differ"
    cells = (
        row["model"].removeprefix("zoo:"), str(row["operators"]),
        f"{row['original_cost']:.2f}", f"{search['cost']:.2f}", f"{eqsat['cost']:.2f}",
        f"{eqsat['lower_bound']:.2f}", _verdict(row),
        f"{search['graphs']}{'' if search['status'] == 'exhausted' else ' ' + search['status']}",
        str(search["tried"]), str(eqsat["enodes"]), _seconds(search["cpu_s"]),
        _seconds(search["best_after_s"]), _seconds(_as_cheap_after(row)),
        _seconds(eqsat["best_after_s"]),
        f"{'' if eqsat['status'].endswith('optimal') else '>'}{_seconds(eqsat['cpu_s'])}", outputs,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _ranks(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    if arguments.add is not None:
        rows = json.loads(Path(arguments.add).read_text(encoding="utf-8"))
    print("| model | graph | predicted, µs | measured, µs | predicted, of original | measured |")
    print("|---|---|--:|--:|--:|--:|")
    for name in arguments.models:
        command = [
            "-m", "eqsat_opt", "compare", f"zoo:{name}", "--json", "-", "--threads", "1",
            "--check", "0", "--level", "kernels", "--rules", arguments.rules, "--run",
            "--budget", f"graphs={arguments.budget},cpu={arguments.time_limit}",
        ]  # fmt: skip
        found = json.loads(_python(*command))
        entries = found["race"]["entries"]
        known = {"original": found["original_cost"]}
        known |= {result["method"]: result["cost"] for result in found["results"]}
        for graph, predicted in known.items():
            row = {"model": name, "graph": graph, "predicted_us": predicted}
            row |= {"measured_us": entries[graph]["median_us"], "ratio": entries[graph]["ratio"]}
            rows.append({**row, "predicted_ratio": predicted / known["original"]})
    for row in rows:
        print(
            f"| {row['model']} | {row['graph']} | {row['predicted_us']:.1f} "
            f"| {row['measured_us']:.1f} | {row['predicted_ratio']:.3f} | {row['ratio']:.3f} |"
        )
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    times = [(row["predicted_us"], row["measured_us"]) for row in rows]
    gains = [
        (row["predicted_ratio"], row["ratio"])
        for row in rows
        if abs(row["predicted_ratio"] - 1) > _NOISE and row["graph"] != "original"
    ]
    print(f"\nrank correlation: times {_spearman(times)}, times of original's {_spearman(gains)}")


def _spearman(pairs: Sequence[tuple[float, float]]) -> str:
    """Of the ranks of two columns, equal numbers sharing the mean of theirs."""
    ranks = [
        [sum(y < x for y in column) + sum(y == x for y in column) / 2 for x in column]
        for column in zip(*pairs, strict=True)
    ]
    if len(pairs) < 3 or any(len(set(column)) == 1 for column in ranks):
        return f"– of {len(pairs)}"
    return f"{statistics.correlation(*ranks):.2f} of {len(pairs)}"


def _throughput(arguments: argparse.Namespace) -> None:
    print("| model | operators | graphs | substitutions | CPU s | wall s | per CPU second |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name in arguments.models or ["resnet50"]:
        found = fresh(_measured_throughput, f"zoo:{name}", arguments.budget)
        rate = found["tried"] / found["cpu_s"]
        print(
            f"| {name} | {found['operators']} | {found['graphs']} | {found['tried']} "
            f"| {found['cpu_s']:.2f} | {found['wall_s']:.2f} | {rate:.0f} |"
        )


def _engine(arguments: argparse.Namespace) -> None:
    print("| model | MetaFlow, ms | e-graph, ms | in the engine, ms | of it copying, ms |")
    print("|---|--:|--:|--:|--:|")
    for name in arguments.models or ["linear_attention", "weight_chain"]:
        seconds = fresh(_measured_engine, f"zoo:{name}")
        print(f"| {name} | {' | '.join(f'{1e3 * one:.2f}' for one in seconds)} |")


def main() -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("compare", help="cost, bound and time of each method")
    compare.add_argument("models", nargs="*", help="names of the zoo; all by default")
    compare.add_argument("--tiny", action="store_true", help="the small variants")
    compare.add_argument("--alpha", type=float, default=1.05)
    compare.add_argument("--budget", type=int, default=1_000, help="graphs")
    compare.add_argument("--time-limit", type=float, default=60.0, help="seconds of the search")
    compare.add_argument("--rules", default="default")
    compare.add_argument("--numerics", default="reassociate")
    compare.add_argument("--check", type=int, default=1, help="random inputs")
    compare.add_argument("--seeds", type=int, default=1, help="runs of each method")
    compare.add_argument("--json", default=None, help="write all numbers to a file")
    compare.set_defaults(run=_compare)
    throughput = commands.add_parser("throughput", help="substitutions tried per second")
    throughput.add_argument("models", nargs="*", help="names of the zoo; resnet50 by default")
    throughput.add_argument("--budget", type=int, default=50, help="graphs")
    throughput.set_defaults(run=_throughput)
    kernels = commands.add_parser("kernels", help="time of a trial with fused kernels")
    kernels.add_argument("models", nargs="*")
    kernels.set_defaults(run=_kernels)
    streams = commands.add_parser("streams", help="methods for several streams of a device")
    streams.add_argument("models", nargs="*", help="names of the zoo")
    streams.add_argument("--device", default="rtx2080ti")
    streams.add_argument("--numerics", default="reassociate")
    streams.add_argument("--cpu", type=float, default=30.0, help="seconds of each search")
    streams.set_defaults(run=_streams)
    ranks = commands.add_parser("ranks", help="how alike predicted and measured times rank")
    ranks.add_argument("models", nargs="*", help="names of the zoo")
    ranks.add_argument("--budget", type=int, default=100, help="graphs")
    ranks.add_argument("--time-limit", type=float, default=20.0, help="seconds of the search")
    ranks.add_argument("--rules", default="default")
    ranks.add_argument("--add", default=None, help="rows of an earlier run's --json")
    ranks.add_argument("--json", default=None, help="write all numbers to a file")
    ranks.set_defaults(run=_ranks)
    engine = commands.add_parser("engine", help="how much of the e-graph's time egglog takes")
    engine.add_argument("models", nargs="*", help="names of the zoo; the two smallest by default")
    engine.set_defaults(run=_engine)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
