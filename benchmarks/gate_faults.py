"""Faults seeded into the gate and the prover, one at a time: does a test catch each of them?

    python -m benchmarks.gate_faults [--only TEXT] [--jobs J] [--no-baseline] [--json FILE]

A fault is a small edit of one module: a sign, a bound, a case that is dropped, two things that are
exchanged, a check that is skipped. It is made while a child process imports the module, so that no
file changes; the child runs the tests that the table names, and one of them has to fail. Without
any fault all of these tests must pass, which is tried first. An edit whose text is not in its
module exactly once is an error, as is one after which the tests cannot be collected.

The table is :mod:`benchmarks.gate_fault_table`.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from benchmarks.gate_fault_table import FAULTS, Fault

__all__ = ["Outcome", "main", "source_of", "tried", "validated"]

CAUGHT, SURVIVED, BROKEN = "caught", "survived", "broken"
_VERDICTS = {0: SURVIVED, 1: CAUGHT}
"""Exit codes of pytest; by any other one, nothing was tested."""
_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Outcome:
    """What the tests made of a fault.

    Attributes:
        fault: the edit.
        verdict: caught, survived, or broken where no test could run.
        shown: the test that failed, or the end of what pytest printed.
        time_s: seconds.
    """

    fault: Fault
    verdict: str
    shown: str
    time_s: float


# The edit --------------------------------------------------------------------------------------


def source_of(module: str) -> str:
    """The text of a module, which is not imported.

    Raises:
        LookupError: it has none.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"no source of {module}")
    return Path(spec.origin).read_text(encoding="utf-8")


def validated(faults: Iterable[Fault]) -> list[Fault]:
    """The faults, all of which can be made.

    Raises:
        ValueError: the text of one is not there exactly once, or it changes nothing or no code.
    """
    found = []
    for fault in faults:
        text = source_of(fault.module)
        count = text.count(fault.old)
        if count != 1:
            raise ValueError(f"{fault}: its text is there {count} times, not once")
        if fault.old == fault.new or not fault.tests:
            raise ValueError(f"{fault}: it changes nothing, or no test is named")
        compile(text.replace(fault.old, fault.new), fault.module, "exec", dont_inherit=True)
        found.append(fault)
    return found


class _Edited(importlib.machinery.SourceFileLoader):
    """Loads a module with a fault, and leaves no bytecode of it."""

    def __init__(self, name: str, path: str, fault: Fault) -> None:
        super().__init__(name, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text(encoding="utf-8")
        text = text.replace(self._fault.old, self._fault.new)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the edited module before anything else does."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if fullname != self._fault.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Edited(fullname, spec.origin, self._fault)
        return spec


def _child(fault: Fault | None, tests: Sequence[str]) -> int:
    """Run tests in this process, under a fault; pytest's exit code."""
    if fault is not None:
        sys.meta_path.insert(0, _Finder(fault))
    import pytest

    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]))


# Children --------------------------------------------------------------------------------------


def _run(fault: Fault | None, tests: Sequence[str], folder: Path | None) -> tuple[int, str]:
    order = json.dumps({"fault": None if fault is None else asdict(fault), "tests": tests})
    command = [sys.executable, "-m", "benchmarks.gate_faults", "--child", order]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=environment,
            timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"no verdict within {_PATIENCE_S:g} s"
    return done.returncode, done.stdout + done.stderr


def tried(fault: Fault, folder: Path | None = None) -> Outcome:
    """What the tests of a fault make of it, in a process of its own.

    Args:
        fault: the edit.
        folder: from which the tests are named; here by default.
    """
    start = time.perf_counter()
    code, text = _run(fault, fault.tests, folder)
    failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
    shown = failed[0] if failed else text[-2000:]
    verdict = _VERDICTS.get(code, BROKEN)
    return Outcome(fault, verdict, shown, round(time.perf_counter() - start, 1))


def _baseline(faults: Sequence[Fault]) -> None:
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    code, text = _run(None, tests, None)
    if code != 0:
        raise SystemExit(f"the tests fail without any fault:\n{text[-3000:]}")
    print(f"without a fault: {text.strip().splitlines()[-1]}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 unless every fault was caught."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate_faults", description=__doc__)
    parser.add_argument("--only", default="", help="faults with this in their module")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-baseline", action="store_true", help="trust that the tests pass")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        order = json.loads(options.child)
        fault = order["fault"] and Fault(**{**order["fault"], "tests": ()})
        return _child(fault, order["tests"])
    faults = validated(one for one in FAULTS if options.only in one.module)
    if not options.no_baseline:
        _baseline(faults)
    seen = []
    with ThreadPoolExecutor(options.jobs) as executor:
        for one in executor.map(partial(tried, folder=None), faults):
            seen.append(one)
            print(f"{one.verdict:9} {one.time_s:6.1f} s  {one.fault}", flush=True)
            if one.verdict != CAUGHT:
                print(one.shown, flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in seen], indent=1))
    counts = Counter(one.verdict for one in seen)
    words = ", ".join(f"{counts[word]} {word}" for word in (CAUGHT, SURVIVED, BROKEN))
    print(f"{len(seen)} faults in {len({f.module for f in faults})} modules: {words}")
    return int(counts[CAUGHT] != len(seen))


if __name__ == "__main__":
    raise SystemExit(main())
