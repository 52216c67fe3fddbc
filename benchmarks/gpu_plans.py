"""Plans for GPUs of all models of the zoo, made here and run nowhere.

`python -m benchmarks.gpu_plans squeezenet nasnet_a --targets h200,t4 --streams 1,4` optimises each
model for each target and writes a row for each plan: seconds, launches by backend, what became of
concatenations, and the time that the profile predicts. Hazards are checked whenever a plan is made.
With `--scale tiny --interpret` each plan is also evaluated as its operators are defined, in several
orders that its streams allow, and compared with the original in onnxruntime.

Exit code 1 if a launch is on the host, a library does not take one on the memory of the plan,
planning takes more than `--limit` seconds of this process, an output differs, or something is
copied into a concatenation that its kernel could have written there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import eqsat_opt
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import load_launcher, record_of
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.joins import concatenations
from eqsat_opt.runtime.plan.plan import Buffer, Plan
from eqsat_opt.runtime.plan.streams import makespan_us, schedule_of

TARGETS = "h200,a100,l4,t4,b200"
ON_GPU = {"cudnn", "cublaslt", "cuda"}
_ORDERS = 3
_CLOSE = 1e-3


def faults(plan: Plan) -> list[str]:
    """What is wrong with the launches of a plan."""
    found = []
    for launch in plan.launches:
        if launch.backend not in ON_GPU:
            found.append(f"{launch.name} is run by {launch.backend}")
            continue
        try:
            load_launcher(launch.backend).prepare([launch], plan.buffer_of)
        except RuntimeFailed as error:
            found.append(str(error))
    given = {port.buffer for port in plan.inputs} | plan.constants.keys()
    for launch in plan.launches:
        source, place = launch.reads[0], plan.buffer_of[launch.writes[0]]
        is_copy = not launch.body.steps and bool(place.base)
        if is_copy and plan.root_of(source).name not in given and _is_taken(plan, source, place):
            found.append(f"{source} is copied into {place.name}")
    return found


def _is_taken(plan: Plan, source: str, place: Buffer) -> bool:
    """Whether all that touches a value of its own would take it in its place.

    A part of a larger value may lie elsewhere for many reasons; those are counted, not judged.
    """
    touching = (one for one in plan.launches if source in (*one.reads, *one.writes))
    return not plan.buffer_of[source].base and all(
        place.offset % record_of(one.backend).alignment_bytes == 0 for one in touching
    )


def differences(plan: Plan, path: Path) -> list[str]:
    """How the plan differs from the model in onnxruntime, in several orders of its launches."""
    feeds = random_inputs(path, 0)
    wanted = OrtSession(path, OrtOptions(threads=1)).run(feeds)
    constants = make_constants(plan, stored_tensors(path))
    found = []
    for seed in (None, *range(_ORDERS)):
        outputs = interpret(plan, constants, feeds, seed)
        for port, want in zip(plan.outputs, wanted, strict=True):
            error = np.abs(outputs[port.name] - want).max(initial=0.0)
            if not error <= max(_CLOSE, plan.precision.share) * np.abs(want).max(initial=1e-30):
                found.append(f"{port.name} differs by {error:.1e} in order {seed}")
    return found


def rows(options: argparse.Namespace, name: str, folder: Path) -> bool:
    """Print a row for each plan of a model; whether all is well."""
    path = folder / f"{name}.onnx"
    path.write_bytes(zoo.build(name, scale=options.scale).SerializeToString())
    is_good = True
    for target in options.targets.split(","):
        for streams in map(int, options.streams.split(",")):
            start = time.process_time()
            result = eqsat_opt.optimize(
                path, target=target, plan=folder / "plan.json", streams=streams, report=True,
                effort=options.effort, budget_s=options.budget, check=0, store="",
                precision=options.precision,
            )  # fmt: skip
            took_s, plan = time.process_time() - start, result.plan
            wrong = faults(plan)
            wrong += differences(plan, path) if options.interpret else []
            wrong += [f"planning took {took_s:.0f} s"] if took_s > options.limit else []
            print(row(name, target, plan, took_s), flush=True)
            for one in wrong:
                print(f"  {one}")
            is_good &= not wrong
    return is_good


def row(name: str, target: str, plan: Plan, took_s: float) -> str:
    counts = Counter(launch.backend for launch in plan.launches)
    launches = ", ".join(f"{count} {backend}" for backend, count in sorted(counts.items()))
    joined, profile = concatenations(plan), load_profile(target)
    times = profile.launch_times_us(plan.launches)
    end_us = makespan_us(schedule_of(plan), times, profile.event_us.value)
    return (
        f"| {name} | {target} | {plan.streams} | {took_s:.1f} | {launches} | {joined.views} "
        f"| {joined.in_place} | {joined.copied} | {joined.computed} | {end_us:.0f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--streams", default="1")
    parser.add_argument("--precision", default="strict-fp32")
    parser.add_argument("--scale", default="full", choices=["full", "tiny"])
    parser.add_argument("--effort", default="quick", choices=["quick", "normal"])
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds")
    parser.add_argument("--interpret", action="store_true")
    options = parser.parse_args(arguments)
    print("| model | target | streams | s | launches | views | in place | copied | computed | µs |")
    print("|---|---|--:|--:|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        good = [rows(options, name, Path(folder)) for name in options.models or zoo.names()]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
