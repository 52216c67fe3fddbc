"""Plans: mutants that must be noticed, arenas, and what a plan adds to its session.

`python -m benchmarks.plans mutants --count 1000` changes plans of random graphs (drops a wait,
moves a buffer, swaps launches, shrinks a workspace, alters a stride, moves a launch to another
stream) and says what became of each kind: refused, harmless (every byte that is read is shown to be
the same), or an output changed. Exit code 1 if one was missed.

`python -m benchmarks.plans arena` prints, for each model of the zoo, the arena of its plan operator
by operator relative to the lower bound. `python -m benchmarks.plans overhead MODEL …` times a plan
of one segment beside its session.

`python -m benchmarks.plans same` compares plans of all tiny models of the zoo in all placements,
and of random graphs by backends drawn at random, with the original; and twenty orders of each bit
by bit. Exit code 1 if one is wrong.

`python -m benchmarks.plans small` optimises small models, where calls count, for this machine, and
times their plan beside their tuned form and the portable result, called in turns on one thread; and
says how much of the time the launches take by themselves.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import process_time_ns, thread_time_ns
from typing import Any, Literal

import numpy as np
import onnx

from benchmarks.plan_oracle import MUTATIONS, branching_graph, judge, mutants
from eqsat_opt import api
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import PlanError
from eqsat_opt.ir import import_model, load_model
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.graphs import evaluate
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.plans import differences, load_plan, plan_model
from eqsat_opt.runtime.backends.openvino.runtime import OpenVinoRuntime
from eqsat_opt.runtime.backends.ort.launcher import Segment
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import launcher_names, load_launcher
from eqsat_opt.runtime.backends.tuned_file import open_as_raced
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import Tensors, make_constants
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.select.rebuilding.planning import placements

_VERDICTS = ("refused", "harmless", "changes an output", "missed")
_PER_PLAN = 4 * len(MUTATIONS)


def tensors_of(graph: Graph) -> Tensors:
    """The constants of a graph that was made by hand."""
    return {name: constant.load for name, constant in graph.constants.items()}


def mixed(seed: int) -> Callable[[Node], str]:
    """A backend for each node, drawn at random."""
    generator = np.random.default_rng(seed)
    return lambda node: str(generator.choice(["numpy", "numpy", "ort"]))


def mixed_all(seed: int) -> Callable[[Node], str]:
    """The same of all backends, two of which take only what they have kernels for."""
    generator = np.random.default_rng(seed)
    return lambda node: str(generator.choice(["numpy", "ort", "native", "generated", "generated"]))


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
        choose = (mixed, mixed_all)[number % 2](number)
        plan = make_plan(
            graph,
            tensors_of(graph),
            choose,
            is_strided=lambda node: True,  # so that much can go wrong
            streams=1 + number % 4,
        )
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


def run_overhead(names: list[str], rounds: int, scale: Literal["tiny", "full"]) -> int:
    """Processor times of a plan of one segment, of its session, and of two others of the model.

    Two sessions of one model differ by where their weights happen to lie, so what a plan adds is
    told by its own session, called without the plan. It is the same for all sizes, and the smaller
    a model the better it is seen.
    """
    heads = ("session, µs", "another one, µs", "that of the plan, µs", "plan, µs", "plan adds, µs")
    print("| model | " + " | ".join(heads) + " |\n| --- |" + " --: |" * len(heads))
    for name in names or ["sru", "linear_attention", "squeezenet"]:
        model = zoo.build(name, scale=scale, seed=0)
        feeds = random_inputs(model, 0)
        options = OrtOptions(threads=1, spinning=False)
        executable = load_plan(plan_model(model), model)
        plan = executable.bind(feeds)
        (segment,) = executable._works
        assert isinstance(segment, Segment)
        calls: dict[str, Callable[[], object]] = {
            "one": OrtSession(model, options).bind(feeds),
            "other": OrtSession(model, options).bind(feeds),
            "own": partial(segment._native.run_with_iobinding, segment._binding),
            "plan": plan,
        }
        times: dict[str, list[float]] = {what: [] for what in calls}
        for one in range(rounds):
            for what in sorted(calls, reverse=bool(one % 2)):
                begin = thread_time_ns()
                calls[what]()
                times[what].append((thread_time_ns() - begin) / 1e3)
        best = [min(times[what]) for what in calls]  # interference only adds
        added = float(np.median(np.subtract(times["plan"], times["own"])))
        cells = " | ".join(f"{time_us:.1f}" for time_us in best)
        print(f"| {name} | {cells} | {added:+.1f} |", flush=True)
    return 0


_EXTENSIONS = 20
"""Orders of each plan that must give the same bits."""


def wrong_orders(plan: Plan, constants: Mapping[str, Any], feeds: Mapping[str, Any]) -> str:
    """Which order of the launches changes a bit, in words; empty if none does."""
    first = interpret(plan, constants, feeds)
    for seed in range(_EXTENSIONS):
        for name, value in interpret(plan, constants, feeds, seed=seed).items():
            if value.tobytes() != first[name].tobytes():
                return f"order {seed} changes {name!r}"
    return ""


def executable_of(plan: Plan, constants: Mapping[str, Any]) -> Executable:
    """The plan on this machine."""
    launchers = {one.backend: load_launcher(one.backend) for one in plan.launches}
    return Executable(plan, constants, HostDevice(), launchers)


def judged(plan: Plan, tensors: Tensors, feeds: Mapping[str, Any], wanted: Sequence[Any]) -> str:
    """What is wrong with a plan, in words; empty if nothing is."""
    constants = make_constants(plan, tensors)
    runner = executable_of(plan, constants)
    names = [port.name for port in plan.outputs]
    expected = {
        port.name: np.asarray(want).astype(plan.buffer_of[port.buffer].dtype)
        for port, want in zip(plan.outputs, wanted, strict=True)
    }
    found = differences(dict(zip(names, runner.run(feeds), strict=True)), expected)
    return "; ".join(found) or wrong_orders(plan, constants, feeds)


def run_same(count: int, seed: int) -> int:
    """Plans of the tiny zoo with all backends, and of random graphs; 1 if one is wrong."""
    wrong, plans = [], 0
    backends = tuple(
        name for name in launcher_names() if name != "openvino" or not OpenVinoRuntime().missing()
    )
    for name in zoo.names():
        model = zoo.build(name, scale="tiny", seed=0)
        graph, tensors = import_model(load_model(model)), stored_tensors(model)
        feeds = random_inputs(model, 0)
        wanted = OrtSession(model, OrtOptions(threads=1)).run(feeds)
        for placement in placements(graph, backends):
            try:
                plan = make_plan(graph, tensors, placement.backend_of, streams=2)
            except PlanError as error:
                print(f"{name} has no plan: {error}", flush=True)
                break
            plans += 1
            if why := judged(plan, tensors, feeds, wanted):
                wrong.append(f"{name}, {placement.name}: {why}")
    print(f"zoo: {plans} plans of {len(zoo.names())} models by {', '.join(backends)}", flush=True)
    for number in range(seed, seed + count):
        graph = branching_graph(number)
        weights = tensors_of(graph)
        plan = make_plan(graph, weights, mixed_all(number), streams=1 + number % 4)
        draw = np.random.default_rng(number)
        feeds = {
            port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype("f4")
            for port in plan.inputs
        }
        if why := judged(plan, weights, feeds, evaluate(graph, dict(feeds))):
            wrong.append(f"graph {number}: {why}")
    print(f"random graphs: {count} plans, {_EXTENSIONS} orders of each; {len(wrong)} wrong in all")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


_SMALL = ("sru", "nasrnn", "linear_attention", "mlp")


def mlp(depth: int = 4, width: int = 256) -> onnx.ModelProto:
    """Products with biases and Relu between them, of one row."""
    draw = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(depth):
        for name, shape in ((f"w{i}", (width, width)), (f"b{i}", (width,))):
            value = (draw.standard_normal(shape) / np.sqrt(width)).astype(np.float32)
            weights.append(onnx.numpy_helper.from_array(value, name))
        product = onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"])
        total = onnx.helper.make_node("Add", [f"p{i}", f"b{i}"], [f"s{i}"])
        nodes += [product, total, onnx.helper.make_node("Relu", [f"s{i}"], [f"x{i + 1}"])]
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, width])
        for name in ("x0", f"x{depth}")
    ]
    graph = onnx.helper.make_graph(nodes, "mlp", ports[:1], ports[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_small(names: list[str], rounds: int, budget_s: float) -> int:
    """Plans of small models beside their tuned forms."""
    print("| model | plan | launches, µs | plan, µs | tuned, µs | portable, µs | tuned / plan |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    for name in names or _SMALL:
        model = mlp() if name == "mlp" else zoo.build(name, scale="full", seed=0)
        feeds = random_inputs(model, 0)
        with Scratch() as folder:
            tuned, planned = os.path.join(folder, "t.onnx"), os.path.join(folder, "p.json")
            options = Options(
                threads=1,
                budget_s=budget_s,
                tuned=tuned,
                plan=planned,
                backends=("ort", "native", "numpy", "generated"),
            )
            result = api.run(model, options)
            assert result.plan is not None
            assert result.report.planned is not None
            executable = load_plan(result.plan, model)
            runners = {
                "plan": executable,
                "tuned": open_as_raced(tuned, OrtOptions(threads=1)),
                "portable": OrtSession(result.model, OrtOptions(threads=1)),
            }
            calls = {what: runner.bind(feeds) for what, runner in runners.items()}
            times: dict[str, list[float]] = {what: [] for what in calls}
            for one in range(rounds):
                for what in sorted(calls, reverse=bool(one % 2)):
                    calls[what]()
                    begin = process_time_ns()
                    calls[what]()
                    times[what].append((process_time_ns() - begin) / 1e3)
            best = {what: min(values) for what, values in times.items()}
            alone = sum(executable.launch_times_us(feeds, rounds))
            print(
                f"| {name} | {result.report.planned.placement} | {alone:.1f} | {best['plan']:.1f} "
                f"| {best['tuned']:.1f} | {best['portable']:.1f} "
                f"| {best['tuned'] / best['plan']:.2f} |",
                flush=True,
            )
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
    overhead.add_argument("--scale", choices=["tiny", "full"], default="full")
    same = commands.add_parser("same")
    same.add_argument("--count", type=int, default=500, help="random graphs")
    same.add_argument("--seed", type=int, default=0, help="of the first graph")
    small = commands.add_parser("small")
    small.add_argument("models", nargs="*", help="of the zoo, or mlp")
    small.add_argument("--rounds", type=int, default=400)
    small.add_argument("--budget", type=float, default=60.0, help="seconds for each model")
    chosen = parser.parse_args(arguments)
    if chosen.command == "mutants":
        return run_mutants(chosen.count, chosen.seed)
    if chosen.command == "same":
        return run_same(chosen.count, chosen.seed)
    if chosen.command == "small":
        return run_small(chosen.models, chosen.rounds, chosen.budget)
    if chosen.command == "arena":
        return run_arena(chosen.models, chosen.streams)
    return run_overhead(chosen.models, chosen.rounds, chosen.scale)


if __name__ == "__main__":
    sys.exit(main())
