"""Right rules through the gate: how many does it accept, and how many are proven?

    python -m benchmarks.gate right [--only TEXT] [--sample N --seed S] [--jobs J] [--json FILE]

The rules of ``tests/gate/right_rules`` are none of the book, and each docstring says why its rule
holds. Every refusal is printed with its reason, and with --verbose what keeps a rule from level 2.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from eqsat_opt.common.child_processes import end_with_parent
from eqsat_opt.lab.certification import verify
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rulebooks import read_rulebook

__all__ = ["RIGHT_RULES", "Admitted", "admit", "chosen", "judge_all", "right_rules", "summary"]

RIGHT_RULES = Path(__file__).resolve().parents[1] / "tests" / "gate" / "right_rules"


@dataclass(frozen=True)
class Admitted:
    """What became of a rule.

    Attributes:
        name: of the rule.
        level: of its certificate; 0 if it was refused.
        reason: why it was refused, or not proven.
        time_s: seconds, proof and all.
    """

    name: str
    level: int
    reason: str
    time_s: float


@cache
def right_rules() -> dict[str, Rule]:
    """All right rules by name."""
    books = map(read_rulebook, sorted(RIGHT_RULES.glob("*.py")))
    return {rule.name: rule for book in books for rule in book}


def admit(name: str, *, level: int = 2) -> Admitted:
    """What the gate says of a right rule, up to a level of verification."""
    start = time.perf_counter()
    outcome = verify([right_rules()[name]], level=level)[0]
    certificate = outcome.certificate
    if certificate is None or not outcome.passed:
        reached, reason = 0, str(outcome.error or "no exact method confirms it")
    else:
        reached, reason = certificate.level, certificate.unproven
    return Admitted(name, reached, reason, round(time.perf_counter() - start, 2))


def judge_all(names: Sequence[str], jobs: int) -> Iterator[Admitted]:
    """Each of the rules, in order."""
    if jobs == 1:
        yield from map(admit, names)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=end_with_parent
    ) as executor:
        yield from executor.map(admit, names)


def chosen(only: str, sample: int, seed: int) -> list[str]:
    """Names of some of the rules."""
    names = [name for name in right_rules() if only in name]
    return random.Random(seed).sample(names, min(sample, len(names))) if sample else names


def summary(seen: Sequence[Admitted]) -> str:
    """Counts by level, in one line."""
    levels = Counter(one.level for one in seen)
    accepted = len(seen) - levels[0]

    def share(count: int) -> str:
        return f"{count} ({100 * count / max(len(seen), 1):.1f} %)"

    return (
        f"{len(seen)} right rules: {share(accepted)} accepted, {share(levels[2])} proven for all "
        f"sizes, {levels[0]} refused"
    )
