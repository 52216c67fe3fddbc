"""Plans: mutants that must be noticed, arenas, and what a plan adds to its session.

`python -m benchmarks.plans mutants --count 1000` changes plans of random graphs (drops a wait,
moves a buffer, swaps launches, shrinks a workspace, alters a stride, moves a launch to another
stream) and says what became of each kind: refused, harmless (every byte that is read is shown to be
the same), or an output changed. Exit code 1 if one was missed.

`python -m benchmarks.plans arena` prints, for each model of the zoo, the arena of its plan operator
by operator relative to the lower bound. `python -m benchmarks.plans overhead MODEL …` times a plan
of one segment beside its session.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from time import process_time_ns

import numpy as np

from eqsat_opt import zoo
from eqsat_opt.ir import import_model, load_model
from eqsat_opt.ir.graph import Graph, Node
from eqsat_opt.ir.stored_tensors import stored_tensors
from eqsat_opt.plans import load_plan, plan_model
from eqsat_opt.runtime.backends.launching import load_launcher
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import Tensors, make_constants
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.testing.plans import MUTATIONS, branching_graph, judge, mutants

_VERDICTS = ("refused", "harmless", "changes an output", "missed")
_PER_PLAN = 4 * len(MUTATIONS)


def tensors_of(graph: Graph) -> Tensors:
    """The constants of a graph that was made by hand."""
    return {name: constant.load for name, constant in graph.constants.items()}


def mixed(seed: int) -> Callable[[Node], str]:
    """A backend for each node, drawn at random."""
    generator = np.random.default_rng(seed)
    return lambda node: str(generator.choice(["numpy", "numpy", "ort"]))


def workspace_bytes(plan: Plan, number: int) -> int:
    """What a launch needs."""
    launch = plan.launches[number]
    return load_launcher(launch.backend).workspace_bytes(launch, plan.buffer_of)


def run_mutants(count: int, seed: int) -> int:
    """Judge mutants of plans of random graphs; 1 if one was missed."""
    found: Counter[tuple[str, str]] = Counter()
    number = seed
    while found.total() < count:
        graph = branching_graph(number)
        plan = make_plan(graph, tensors_of(graph), mixed(number), streams=1 + number % 4)
        constants = make_constants(plan, tensors_of(graph))
        feeds = []
        for one in range(3):
            draw = np.random.default_rng([number, one])
            feeds.append(
                {
                    port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype("f4")
                    for port in plan.inputs
                }
            )
        for kind, mutant in mutants(plan, _PER_PLAN, number):
            verdict = judge(plan, mutant, constants, feeds, workspace_bytes)
            found[kind, verdict] += 1
            if verdict == "missed":
                print(f"missed: {kind}, graph {number}")
        number += 1
    print(f"{found.total()} mutants of {number - seed} plans\n")
    print("| mutation | " + " | ".join(_VERDICTS) + " |\n| --- |" + " --: |" * len(_VERDICTS))
    for kind in MUTATIONS:
        print(f"| {kind} | " + " | ".join(str(found[kind, v]) for v in _VERDICTS) + " |")
    return 1 if any(verdict == "missed" for _, verdict in found) else 0


def run_arena(names: list[str], streams: list[int]) -> int:
    """Print arenas relative to their lower bounds."""
    columns = " | ".join(f"arena, MB, streams ≤ {n} | / bound" for n in streams)
    print(f"| model | launches | {columns} |\n| --- | --: |" + " --: | --: |" * len(streams))
    for name in names or zoo.names():
        model = zoo.build(name, scale="full", seed=0)
        graph, tensors = import_model(load_model(model)), stored_tensors(model)
        cells = []
        for limit in streams:
            plan = make_plan(graph, tensors, lambda node: "numpy", streams=limit)
            ratio = plan.arena_bytes / max(1, plan.lower_bound_bytes)
            cells += [f"{plan.arena_bytes / 1e6:.2f}", f"{ratio:.3f}"]
        print(f"| {name} | {len(plan.launches)} | " + " | ".join(cells) + " |", flush=True)
    return 0


def run_overhead(names: list[str], rounds: int) -> int:
    """Processor times of a plan of one segment and of its session, called in turns."""
    print("| model | session, µs | plan, µs | plan − session, µs |\n| --- | --: | --: | --: |")
    for name in names or ["sru", "linear_attention", "squeezenet"]:
        model = zoo.build(name, scale="full", seed=0)
        feeds = random_inputs(model, 0)
        session = OrtSession(model, OrtOptions(threads=1, spinning=False)).bind(feeds)
        executable = load_plan(plan_model(model), model).bind(feeds)
        times: dict[str, list[float]] = {"session": [], "plan": []}
        for one in range(rounds):
            calls = [("session", session), ("plan", executable)]
            for what, call in calls if one % 2 else reversed(calls):
                begin = process_time_ns()
                call()
                times[what].append((process_time_ns() - begin) / 1e3)
        a, b = (min(times[what]) for what in ("session", "plan"))  # interference only adds
        print(f"| {name} | {a:.1f} | {b:.1f} | {b - a:+.1f} |", flush=True)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    changed = commands.add_parser("mutants")
    changed.add_argument("--count", type=int, default=1000, help="how many")
    changed.add_argument("--seed", type=int, default=0, help="of the first graph")
    arena = commands.add_parser("arena")
    arena.add_argument("models", nargs="*", help="of the zoo; all by default")
    arena.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    overhead = commands.add_parser("overhead")
    overhead.add_argument("models", nargs="*", help="of the zoo")
    overhead.add_argument("--rounds", type=int, default=400)
    chosen = parser.parse_args(arguments)
    if chosen.command == "mutants":
        return run_mutants(chosen.count, chosen.seed)
    if chosen.command == "arena":
        return run_arena(chosen.models, chosen.streams)
    return run_overhead(chosen.models, chosen.rounds)


if __name__ == "__main__":
    sys.exit(main())
