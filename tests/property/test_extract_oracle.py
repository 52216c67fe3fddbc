"""CP-SAT against an independent solver, answer set programming, where both prove their optimum."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract, read_json
from eqsat_opt.extract.instance import from_problem, strong_components
from eqsat_opt.extract.simplify.fixpoint import simplify

clingo = pytest.importorskip("clingo", reason="needs clingo, of the extra 'test'")

GYM = Path(__file__).parents[3] / "shared" / "data" / "gym"
TIME = Objective({"time": 1.0})

# An option is an e-node with one of its implementations. That a class is computed must be founded
# on options whose children are computed before, so stable models are acyclic by themselves.
_RULES = """
{x(O)} :- n(O,C), a(D) : c(O,D).
a(C) :- x(O), n(O,C).
:- r(C), not a(C).
:- l(M,L), #sum{U,O : x(O), u(O,M,U)} > L.
#minimize{W,O : x(O), w(O,W)}.
"""
_TOTAL = 1 << 29  # weights are 32-bit integers, and so is their sum


@dataclass(frozen=True)
class Oracle:
    """What clingo says: the least cost (infinite: no solution), and whether it proved that."""

    cost: float
    proven: bool


def oracle(problem: Problem, objective: Objective, *, limit_s: float = 60.0) -> Oracle:
    """Solve by answer set programming; limited metrics must be integers."""
    price = problem.impl_cost @ objective.vector(problem.metrics)
    whole = all(x == int(x) for x in price.tolist())
    scale = 1.0 if whole else _TOTAL / max(1.0, float(price.sum()))
    owner = problem.implementation_node().tolist()
    facts = [f"r({root})." for root in problem.roots]
    for option, (node, cost) in enumerate(zip(owner, price.tolist(), strict=True)):
        facts.append(f"n({option},{int(problem.node_class[node])}).")
        facts.append(f"w({option},{round(cost * scale)}).")
        facts += [f"c({option},{child})." for child in set(problem.children(node))]
        for name in objective.limits:
            used = float(problem.impl_cost[option, problem.metrics.index(name)])
            assert used == int(used)
            facts.append(f'u({option},"{name}",{int(used)}).')
    facts += [f'l("{name}",{math.floor(limit)}).' for name, limit in objective.limits.items()]
    control = clingo.Control(["--opt-strategy=usc,stratify", "--warn=none", "-t1"])
    control.add("base", [], _RULES + "\n".join(facts))
    control.ground([("base", [])])
    best = math.inf
    with control.solve(yield_=True, async_=True) as handle:
        while True:
            handle.resume()
            if not handle.wait(limit_s):
                return Oracle(best, False)
            model = handle.model()
            if model is None:
                break
            # The scaled weights only choose; the cost is that of what was chosen.
            chosen = [s.arguments[0].number for s in model.symbols(atoms=True) if s.name == "x"]
            best = math.fsum(price[chosen].tolist())
        return Oracle(best, bool(handle.get().exhausted))


def random_problem(seed: int, n_classes: int) -> Problem:
    """Much sharing and little domination, so that simplification leaves something to the solver.

    Cycles, several roots, implementations, ties and zeros; whole costs, so that both solvers
    compute with the same numbers.
    """
    rng = random.Random(seed)
    back = rng.choice((0.0, 0.1, 0.3))
    zeros = rng.choice((0.0, 0.1, 0.2))

    def rows(least: int, most: int) -> list[tuple[float, float]]:
        return [
            (0.0 if rng.random() < zeros else rng.randint(least, most), rng.randint(0, 9))
            for _ in range(rng.randint(1, 2))
        ]

    builder = ProblemBuilder(("time", "energy"))
    for _ in range(n_classes):
        builder.add_class()
    for cls in range(n_classes):
        if cls >= n_classes - n_classes // 3:
            builder.add_node(cls, (), rows(4, 9))
            continue
        for _ in range(rng.randint(2, 3)):
            pool = range(n_classes) if rng.random() < back else range(cls + 1, n_classes)
            builder.add_node(cls, rng.sample(pool, min(len(pool), rng.randint(2, 3))), rows(1, 3))
    return builder.build(rng.sample(range(n_classes // 4), rng.randint(1, n_classes // 10)))


def agree(problem: Problem, objective: Objective, where: str) -> float | None:
    """The optimum if both prove it, None if one of them does not."""
    expected = oracle(problem, objective)
    found = extract(problem, objective, method="exact", time_limit_s=60.0)
    found.check(problem)
    if not expected.proven or found.status not in ("optimal", "infeasible"):
        return None
    assert math.isinf(found.cost) == (found.status == "infeasible"), where
    assert found.cost == pytest.approx(expected.cost, rel=1e-9), where
    return expected.cost


@pytest.mark.parametrize("batch", range(4))
def test_random_egraphs(batch: int) -> None:
    proven = several = left = cyclic = 0
    for number in range(10):
        seed = batch * 10 + number
        problem = random_problem(seed, 20 + 3 * number)
        objective = TIME if seed % 2 else Objective({"time": 1.0, "energy": 2.0})
        proven += agree(problem, objective, f"seed {seed}") is not None
        several += len(problem.roots) > 1
        price = problem.impl_cost @ objective.vector(problem.metrics)
        reduction = simplify(from_problem(problem, price))
        for part in () if reduction is None else reduction.parts:
            left += part.n_options
            cyclic += len(set(strong_components(part.members, part.children))) < part.n_classes
    assert proven >= 9
    assert several >= 3
    assert left >= 100  # else simplification was tested, and not the solver
    assert cyclic >= 1


def test_limits() -> None:
    proven = tight = infeasible = 0
    for seed in range(100, 120):
        problem = random_problem(seed, 20)
        least = oracle(problem, Objective({"energy": 1.0})).cost
        limit = float(math.floor(least * random.Random(seed).choice((0.8, 1.0, 1.1, 1.3))))
        objective = Objective({"time": 1.0}, limits={"energy": limit})
        cost = agree(problem, objective, f"seed {seed}")
        proven += cost is not None
        infeasible += cost == math.inf
        tight += cost is not None and cost > oracle(problem, TIME).cost
    assert proven >= 18
    assert infeasible >= 2
    assert tight >= 5


def test_roots_that_need_themselves() -> None:
    builder = ProblemBuilder(("time",))
    a, b = builder.add_class(), builder.add_class()
    builder.add_node(a, (b,), [(0.0,)])
    builder.add_node(b, (a,), [(0.0,)])
    problem = builder.build([a])
    assert oracle(problem, TIME) == Oracle(math.inf, True)
    assert extract(problem, TIME, method="exact").status == "infeasible"


def _small(files: Iterable[Path]) -> list[Path]:
    """The largest files that still take clingo well under a second."""
    return [file for file in files if file.stat().st_size < 70_000]


@pytest.mark.skipif(not GYM.is_dir(), reason="the extraction-gym data is not beside the tree")
def test_gym_instances() -> None:
    optima = json.loads((GYM / "optima.json").read_text(encoding="utf-8"))
    by_size = sorted(_small(GYM / name for name in optima), key=lambda f: f.stat().st_size)
    for file in by_size[-8:]:
        name = file.relative_to(GYM).as_posix()
        cost = agree(read_json(file).problem, Objective({"cost": 1.0}), name)
        assert cost == pytest.approx(optima[name], rel=1e-6), name


def test_the_oracle_itself_against_brute_force() -> None:
    builder = ProblemBuilder(("time",))
    pools = [builder.add_class() for _ in range(6)]
    leaf = builder.add_class()
    builder.add_node(leaf, (), [(5.0,)])
    costs = [(3.0, 4.0), (2.0, 6.0), (7.0, 1.0), (1.0, 1.0), (0.0, 2.0), (4.0, 3.0)]
    for cls, (alone, shared) in zip(pools, costs, strict=True):
        builder.add_node(cls, (), [(alone,)])
        builder.add_node(cls, (leaf,), [(shared,)])
    problem = builder.build(pools)
    best = min(
        sum(pair[pick] for pair, pick in zip(costs, picks, strict=True)) + 5.0 * any(picks)
        for picks in itertools.product((0, 1), repeat=len(costs))
    )
    assert oracle(problem, TIME) == Oracle(best, True)
