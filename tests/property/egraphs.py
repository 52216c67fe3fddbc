"""Random e-graphs small enough to look at every solution."""

from __future__ import annotations

import random
from collections.abc import Iterator

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Problem, ProblemBuilder
from eqsat_opt.extract.extraction import Choice, active_order

__all__ = ["hard_problem", "random_problem", "solutions", "two_metrics"]


def random_problem(seed: int, *, implementations: int = 2) -> Problem:
    """Up to 7 classes; edges in all directions; costs from few values, so that ties are common."""
    rng = random.Random(seed)
    fractional = rng.random() < 0.3

    def cost() -> float:
        if rng.random() < 0.2:
            return 0.0
        return rng.uniform(0.1, 5.0) if fractional else float(rng.randint(1, 6))

    builder = ProblemBuilder(("time", "energy"))
    n_classes = rng.randint(3, 7)
    for _ in range(n_classes):
        builder.add_class()
    cyclic = rng.choice((0.1, 0.4, 0.8))
    for cls in range(n_classes):
        for _ in range(rng.randint(1, 3)):
            pool = range(n_classes) if rng.random() < cyclic else range(cls + 1, n_classes)
            children = rng.sample(pool, min(len(pool), rng.randint(0, 3)))
            count = rng.randint(1, implementations)
            builder.add_node(cls, children, [(cost(), cost()) for _ in range(count)])
    return builder.build([rng.randrange(n_classes) for _ in range(rng.randint(1, 3))])


def hard_problem(seed: int, n_classes: int, *, back: float) -> Problem:
    """Much sharing and few dominated e-nodes, so that simplification leaves something.

    Args:
        seed: of everything random.
        n_classes: size; each class has two or three e-nodes, the last few are leaves.
        back: share of e-nodes whose children may be any class, so that cycles appear.
    """
    rng = random.Random(seed)
    builder = ProblemBuilder(("time",))
    for _ in range(n_classes):
        builder.add_class()
    leaves = n_classes // 3
    for cls in range(n_classes):
        if cls >= n_classes - leaves:
            builder.add_node(cls, (), [(rng.randint(4, 9),)])
            continue
        for _ in range(2 if n_classes < 15 else rng.randint(2, 3)):
            pool = range(n_classes) if rng.random() < back else range(cls + 1, n_classes)
            builder.add_node(cls, rng.sample(pool, min(len(pool), 2)), [(rng.randint(1, 3),)])
    return builder.build(range(1 + n_classes // 8))


def solutions(problem: Problem) -> Iterator[Choice]:
    """All acyclic choices of one implementation for each class that the roots need, each once."""
    options: list[list[tuple[int, int]]] = [[] for _ in range(problem.n_classes)]
    for node in range(problem.n_nodes):
        for impl in range(int(problem.impl_ptr[node + 1] - problem.impl_ptr[node])):
            options[int(problem.node_class[node])].append((node, impl))
    children = [problem.children(node) for node in range(problem.n_nodes)]

    def extend(choice: dict[int, tuple[int, int]], waiting: list[int]) -> Iterator[Choice]:
        while waiting and waiting[-1] in choice:
            waiting = waiting[:-1]
        if not waiting:
            try:
                active_order(problem, choice)
            except ExtractionError:
                return
            yield choice
            return
        for node, impl in options[waiting[-1]]:
            yield from extend(
                {**choice, waiting[-1]: (node, impl)}, [*waiting[:-1], *children[node]]
            )

    return extend({}, list(problem.roots))


def two_metrics(problem: Problem, seed: int, *, implementations: int = 2) -> Problem:
    """The same e-graph with time and energy, where what is faster takes more energy."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time", "energy"))
    for _ in range(problem.n_classes):
        builder.add_class()
    for node, cls in enumerate(problem.node_class.tolist()):
        base = float(problem.impl_cost[problem.impl_ptr[node], 0])
        rows = []
        for _ in range(rng.randint(1, implementations)):
            speed = rng.choice((0.5, 0.75, 1.0, 1.5, 2.0))
            rows.append((base * speed, base / speed))
        builder.add_node(cls, problem.children(node), rows)
    return builder.build(problem.roots)
