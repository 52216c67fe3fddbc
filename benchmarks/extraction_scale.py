"""Extraction against the size of the e-graph: time per stage, cost, bound, gap, memory.

    python -m benchmarks.extraction_scale                          # 1,000 to 200,000 e-nodes
    python -m benchmarks.extraction_scale --sizes 1000 10000 --plot scale.png

The e-graphs are synthetic (`benchmarks.dnn_egraphs`); each size runs in a fresh process. Stages
are the best of `--repeat` runs; the whole extraction runs once, with a time limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.dnn_egraphs import dnn_egraph
from benchmarks.isolated import attempt
from eqsat_opt.extract import Objective, Problem, extract
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import from_problem
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy

__all__ = ["Measurement", "measure"]

_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
_PROCESS_S = 1800.0
T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """One e-graph.

    Attributes:
        e_nodes: e-nodes of the problem.
        classes: e-classes of the problem.
        instance_s: from the problem to the scalar instance.
        tree_s: tree greedy on the whole instance.
        sharing_s: greedy with cost sets on the whole instance.
        simplify_s: simplification.
        left: options that simplification left.
        parts: independent parts that they are in.
        largest: options of the largest part.
        extract_s: the whole extraction, all of the above included.
        greedy: cost of the better greedy on the whole instance.
        cost: cost of the extraction.
        bound: lower bound of the extraction.
        gap: relative gap of the extraction.
        status: of the extraction.
        peak_mb: peak resident memory of the process.
    """

    e_nodes: int
    classes: int
    instance_s: float
    tree_s: float
    sharing_s: float
    simplify_s: float
    left: int
    parts: int
    largest: int
    extract_s: float
    greedy: float
    cost: float
    bound: float
    gap: float
    status: str
    peak_mb: float


def measure(nodes: int, seed: int, time_limit_s: float, repeat: int) -> Measurement:
    """Build one e-graph, time the stages and extract."""
    problem = dnn_egraph(nodes, seed=seed)
    objective = Objective({"time_us": 1.0})
    stages = _stages(problem, objective, repeat)
    start = time.perf_counter()
    found = extract(problem, objective, time_limit_s=time_limit_s, deterministic=False)
    extract_s = time.perf_counter() - start
    found.check(problem)
    return Measurement(
        e_nodes=problem.n_nodes,
        classes=problem.n_classes,
        **stages,
        extract_s=extract_s,
        cost=found.cost,
        bound=found.lower_bound,
        gap=found.gap,
        status=found.status,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    )


def _stages(problem: Problem, objective: Objective, repeat: int) -> dict[str, Any]:
    cost = price(problem, objective)
    instance_s, instance = _best(lambda: from_problem(problem, cost), repeat)
    tree_s, tree = _best(lambda: tree_greedy(instance), repeat)
    sharing_s, sharing = _best(lambda: sharing_greedy(instance), repeat)
    simplify_s, reduction = _best(lambda: simplify(instance), repeat)
    sizes = [part.n_options for part in reduction.parts] if reduction is not None else []
    return {
        "instance_s": instance_s,
        "tree_s": tree_s,
        "sharing_s": sharing_s,
        "simplify_s": simplify_s,
        "greedy": min(instance.evaluate(c) for c in (tree, sharing) if c is not None),
        "left": sum(sizes),
        "parts": len(sizes),
        "largest": max(sizes, default=0),
    }


def _best(task: Callable[[], T], repeat: int) -> tuple[float, T]:
    best_s = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = task()
        best_s = min(best_s, time.perf_counter() - start)
    return best_s, result


def _print_row(cells: Sequence[object]) -> None:
    print(" ".join(f"{_text(cell):>10}" for cell in cells), flush=True)


def _text(cell: object) -> str:
    if isinstance(cell, int) or (isinstance(cell, float) and cell >= 1000):
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def _plot(found: Sequence[Measurement], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    found = sorted(found, key=lambda m: m.e_nodes)
    figure, (gaps, times) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    sizes = [m.e_nodes for m in found]
    gaps.plot(sizes, [100 * m.gap for m in found], marker="o", label="gap to the bound")
    above = [100 * (m.greedy / m.cost - 1) if m.cost else 0.0 for m in found]
    gaps.plot(sizes, above, marker="s", label="best greedy above the result")
    gaps.set(xscale="log", xlabel="e-nodes", ylabel="%", title="cost")
    for name in ("tree_s", "sharing_s", "simplify_s", "extract_s"):
        seconds = [getattr(m, name) for m in found]
        times.plot(sizes, seconds, marker="o", label=name.removesuffix("_s"))
    times.set(xscale="log", yscale="log", xlabel="e-nodes", ylabel="s", title="time")
    for axes in (gaps, times):
        axes.legend()
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(file, dpi=150)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=60.0, help="of each extraction, s")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each stage")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="needs the extra 'plot'")
    arguments = parser.parse_args()
    _print_row([field.name for field in dataclasses.fields(Measurement)])
    found: list[Measurement] = []
    for nodes in arguments.sizes:
        done = attempt(
            measure,
            nodes,
            arguments.seed,
            arguments.time_limit,
            arguments.repeat,
            limit_s=_PROCESS_S,
        )
        if done.failure:
            print(f"{nodes:,} e-nodes: {done.failure}", flush=True)
            continue
        found.append(done.value)
        _print_row(dataclasses.astuple(done.value))
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(m) for m in found], indent=1))
    if arguments.plot and found:
        _plot(found, arguments.plot)


if __name__ == "__main__":
    main()
