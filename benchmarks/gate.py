"""Wrong rules through the gate: how many does it let pass? And right ones: how many are refused?

    python -m benchmarks.gate wrong [--first F --count N] [--sample N --seed S] [--jobs J]
                                    [--only TEXT] [--prove-all] [--json FILE]
    python -m benchmarks.gate right [--sample N --seed S] [--jobs J] [--only TEXT] [--json FILE]

Each rule of ``tests/gate`` (natural mistakes, and what its grammar makes) goes through what
`eqsat-opt rules import` does; one that is accepted there is given to the prover as well, which says
whether it would even be called proven for all sizes. Every rule is wrong at operands that
``tests/gate`` evaluates, so any that is accepted is a hole. With --prove-all the prover sees those
that level 1 refused, too: it has to stand alone. --seed draws the sample; the gate keeps its own.
The right rules are those of ``tests/gate/right_rules`` (:mod:`benchmarks.gate_right`).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks import gate_right
from eqsat_opt.common.child_processes import end_with_parent
from eqsat_opt.lab.certification import verify
from eqsat_opt.rules import Rule
from tests.gate.cases import Case
from tests.gate.wrong_rules import all_cases

__all__ = ["Judged", "judge", "main"]

REFUSED, ACCEPTED, PROVEN, CRASHED = "refused", "accepted", "proven", "crashed"
PROVEN_ONLY = "refused, yet proven"
_PROOF_LIMIT_S = 20.0


@dataclass(frozen=True)
class Judged:
    """What became of a rule.

    Attributes:
        name: of the rule.
        verdict: refused; accepted at level 1; accepted, and proven besides; refused at level 1
            by a gate whose prover would have proven it; or crashed, which is no verdict.
        reason: why it was refused, or not proven.
        time_s: seconds, proof and all.
    """

    name: str
    verdict: str
    reason: str
    time_s: float

    @property
    def fooled(self) -> bool:
        """Whether the gate, or its prover alone, took a wrong rule for a right one."""
        return self.verdict != REFUSED


def judge(rule: Rule, *, prove_all: bool = False) -> Judged:
    """What the gate for users' rules says of a rule, and the prover where the gate accepts it."""
    start = time.perf_counter()
    try:
        verdict, reason = _judged(rule, prove_all)
    except Exception as error:  # what a user would see as a traceback
        verdict, reason = CRASHED, f"{type(error).__name__}: {error}"
    return Judged(rule.name, verdict, reason, round(time.perf_counter() - start, 2))


def _judged(rule: Rule, prove_all: bool) -> tuple[str, str]:
    outcome = verify([rule], level=1)[0]
    reason = str(outcome.error or "no exact method confirms it")
    proven = False
    if outcome.passed or prove_all:
        from eqsat_opt.proving.proof import prove

        proof = prove(rule, time_limit_s=_PROOF_LIMIT_S)
        proven = proof.status == "proven"
        reason = (proof.scope if proven else proof.reason) if outcome.passed else reason
    words = {(True, True): PROVEN, (True, False): ACCEPTED, (False, True): PROVEN_ONLY}
    return words.get((outcome.passed, proven), REFUSED), reason


def _all(cases: Sequence[Case], jobs: int, prove_all: bool) -> Iterator[Judged]:
    tried = partial(judge, prove_all=prove_all)
    rules = [case.rule for case in cases]
    if jobs == 1:
        yield from map(tried, rules)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=end_with_parent
    ) as executor:
        yield from executor.map(tried, rules)


def _chosen(options: argparse.Namespace) -> list[Case]:
    cases = [case for case in all_cases() if options.only in case.name]
    if options.sample:
        cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
    last = None if options.count is None else options.first + options.count
    return cases[options.first : last]


def _show(found: Iterable[Judged], verbose: bool) -> list[Judged]:
    seen = []
    for one in found:
        seen.append(one)
        if one.fooled or verbose:
            print(f"{one.verdict:20} {one.time_s:6.1f} s  {one.name}: {one.reason}", flush=True)
    return seen


def _right(options: argparse.Namespace) -> int:
    """The exit code: 1 if a right rule was refused."""
    names = gate_right.chosen(options.only, options.sample, options.seed)
    seen = []
    for one in gate_right.judge_all(names, options.jobs):
        seen.append(one)
        if not one.level or (options.verbose and one.level != 2):
            word = f"level {one.level}" if one.level else REFUSED
            print(f"{word:20} {one.time_s:6.1f} s  {one.name}: {one.reason}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in seen], indent=1))
    print(gate_right.summary(seen))
    return int(not all(one.level for one in seen))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a wrong rule was accepted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("what", choices=["wrong", "right"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="rules with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--prove-all", action="store_true")
    parser.add_argument(
        "--verbose", action="store_true", help="the refused ones with their reasons"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.what == "right":
        return _right(options)
    start = time.perf_counter()
    seen = _show(_all(_chosen(options), options.jobs, options.prove_all), options.verbose)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in seen], indent=1))
    counts = Counter(one.verdict for one in seen)
    words = ", ".join(f"{counts[word]} {word}" for word in (REFUSED, ACCEPTED, PROVEN, CRASHED))
    more = f", {counts[PROVEN_ONLY]} {PROVEN_ONLY}" if options.prove_all else ""
    taken = time.perf_counter() - start
    print(f"{len(seen)} wrong rules: {words}{more} ({taken:.0f} s)")
    return int(any(one.fooled for one in seen))


if __name__ == "__main__":
    raise SystemExit(main())
