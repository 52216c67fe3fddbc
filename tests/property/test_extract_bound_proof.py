"""Bounds with a proof: none is above the optimum, whatever is written; most meet it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from eqsat_opt.checking.bound import BoundProof, CheckedBound, Row, check_bound
from eqsat_opt.extract import Objective, Problem, extract
from eqsat_opt.extract.bound_proof import prove_bound
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import from_problem
from eqsat_opt.extract.solve.greedy import tree_greedy
from tests.property.egraphs import hard_problem, random_problem
from tests.sampling import sampled

TIME = Objective({"time": 1.0})


def has_solution(problem: Problem) -> bool:
    """Whether the roots have derivations."""
    instance = from_problem(problem, price(problem, TIME))
    return math.isfinite(instance.evaluate(tree_greedy(instance)))


PROBLEMS = [
    *(hard_problem(seed, 14, back=0.3) for seed in range(6)),
    *(one for one in map(random_problem, range(12)) if has_solution(one)),
]


def proof_of(problem: Problem) -> tuple[float, BoundProof]:
    """The optimum of a problem, and a proof of a bound."""
    found = extract(problem, TIME)
    assert found.status == "optimal"
    return found.cost, prove_bound(problem, TIME, found.choice, time_limit_s=10.0)


@pytest.mark.parametrize("number", sampled(range(len(PROBLEMS)), 2))
def test_a_bound_meets_the_optimum_and_none_is_above_it(number: int) -> None:
    optimum, proof = proof_of(PROBLEMS[number])
    found = check_bound(proof)
    assert found.cost == pytest.approx(optimum, rel=1e-12)
    assert optimum * (1 - 1e-6) <= found.lower_bound <= found.cost
    draw, accepted = random.Random(number), 0
    for _ in range(60):
        try:
            bound = check_bound(changed(proof, draw)).lower_bound
        except ValueError:
            continue
        accepted += 1
        assert bound <= optimum * (1 + 1e-12)
    assert accepted > 10


def changed(proof: BoundProof, draw: random.Random) -> BoundProof:
    """A proof about the same problem with other rows, multipliers or cases."""
    classes = sorted({cls for cls, _, _ in proof.options})

    def row() -> Row:
        within = tuple(draw.sample(classes, draw.randint(1, len(classes))))
        needed = (*draw.choices(classes, k=draw.randint(0, 1)), draw.choice(within))
        return within, needed if draw.random() < 0.8 else ()

    rows = (*(row() if draw.random() < 0.3 else one for one in proof.rows), row())
    largest = max(cost for _, cost, _ in proof.options)

    def case(splits: int) -> list[int | tuple[tuple[int, float], ...]]:
        if splits:
            return [draw.randrange(len(proof.options)), *case(splits - 1), *case(splits - 1)]
        count = draw.randint(0, len(rows))
        return [tuple((draw.randrange(len(rows)), draw.random() * largest) for _ in range(count))]

    tree = proof.tree if draw.random() < 0.5 else tuple(case(draw.randint(0, 3)))
    return replace(proof, rows=rows, tree=tree)


# A class of two options, of which one reads a class with one option and the other itself.
CYCLE = (
    (0, 1.0, (1,)),
    (1, 5.0, (2,)),
    (1, 0.5, (0,)),
    (2, 2.0, ()),
)
PROOF = BoundProof(
    roots=(0,),
    options=CYCLE,
    chosen=(0, 1, 3),
    rows=(((0, 1), ()), ((2,), (1, 2))),
    tree=(((0, 7.0), (1, 2.0)),),
)


def test_a_cut_forbids_a_cycle() -> None:
    assert check_bound(PROOF) == CheckedBound(8.0, 8.0, options=4, classes=3)
    without = replace(PROOF, tree=((),))
    assert check_bound(without).lower_bound == 1.0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"roots": ()}, "no class must"),
        ({"chosen": (0, 1)}, "is not computed"),
        ({"chosen": (0, 2)}, "needs itself"),
        ({"chosen": (0, 1, 2, 3)}, "not the only one"),
        ({"chosen": (0, 1, 3, 4)}, "is none"),
        ({"options": (*CYCLE, (3, 1.0, ())), "chosen": (0, 1, 3, 4)}, "nothing needs"),
        ({"options": ((0, -1.0, (1,)), *CYCLE[1:])}, "costs -1"),
        ({"options": ((0, math.inf, (1,)), *CYCLE[1:])}, "costs inf"),
        ({"rows": (((1,), ()), PROOF.rows[1])}, "does not hold"),
        ({"rows": (((0, 1), (2,)), PROOF.rows[1])}, "does not hold"),
        ({"rows": (((0, 1), (1, 0, 1)), PROOF.rows[1])}, "does not hold"),
        ({"tree": (((0, -1.0),),)}, "multiplier -1"),
        ({"tree": (((0, math.nan),),)}, "multiplier nan"),
        ({"tree": (((2, 1.0),),)}, "is none"),
        ({"tree": (((-1, 1.0),),)}, "is none"),
        ({"tree": ()}, "has no bound"),
        ({"tree": (1, ())}, "has no bound"),
        ({"tree": ((), ())}, "more cases"),
        ({"tree": (4, (), ())}, "which is none"),
    ],
)  # fmt: skip
def test_a_faulty_proof_is_refused(other: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_bound(replace(PROOF, **other))


def test_cases_bound_each_choice() -> None:
    assert check_bound(replace(PROOF, tree=(1, (), ()))).lower_bound == 1.0
    split = replace(PROOF, tree=(1, ((1, 2.0),), ((0, 7.0),)))
    assert check_bound(split).lower_bound == 8.0
    taken = replace(PROOF, tree=(2, (), ((0, 5.0), (1, 2.0))))
    assert check_bound(taken).lower_bound == 1.5, "a choice that takes it costs both"
