"""Streams of plans on threads of this processor: what an event costs, and what streams gain.

`python -m benchmarks.streams events` lets two streams wait for each other by turns, with nothing
to do in between, and prints how long it takes from the end of a launch to the beginning of one that
waits for it: of a thread that sleeps, and of one that comes when the event is recorded already.

`python -m benchmarks.streams race MODEL …` races a plan of sessions on several streams, each on one
thread, with the model in one session of onnxruntime on one thread and on as many as there are
streams, called in turns. The plan runs twice; a model whose plan differs from itself by more than
10 % is refused.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

from eqsat_opt.ir import load_model
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison.results import MOST_NOISE
from eqsat_opt.pipeline.plans import load_plan, plan_model
from eqsat_opt.racing.race import race
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.devices.protocol import Event, Launched
from eqsat_opt.runtime.devices.threaded import ThreadedHost
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.processor import usable_cores
from eqsat_opt.runtime.source import OpenRunner


def nothing() -> None:
    """A launch that takes no time."""


def rally(hops: int, *, asleep: bool) -> Callable[[], object]:
    """Launches that wait for one of the other stream each.

    Args:
        hops: how many.
        asleep: whether the waiting thread sleeps by then; else all of one stream come first.
    """
    device = ThreadedHost()

    def queue() -> None:
        recorded: list[Event] = []
        for number in range(hops):
            stream = number % 2 if asleep else 0
            if asleep and recorded:
                device.wait(recorded[-1], stream)
            device.launch(nothing, stream)
            recorded.append(device.event())
            device.record(recorded[-1], stream)
        if not asleep:
            for event in reversed(recorded):  # the last one is waited for, the others are there
                device.wait(event, 1)
                device.launch(nothing, 1)
            last = device.event()
            device.record(last, 1)
            recorded.append(last)
        device.wait(recorded[-1], 0)

    captured = device.capture(queue)
    return partial(device.replay, captured)


def plain(hops: int) -> Callable[[], object]:
    """As many launches on one stream."""
    device = ThreadedHost()

    def queue() -> None:
        works: list[Launched] = [nothing] * hops
        for work in works:
            device.launch(work, 0)

    return partial(device.replay, device.capture(queue))


def run_events(hops: int, rounds: int) -> int:
    """Print the cost of an event, µs: the median and the least over rounds, called in turns."""
    calls = {
        "one stream": plain(hops),
        "event recorded before": rally(hops, asleep=False),
        "thread asleep": rally(hops, asleep=True),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter_ns()
            call()
            times[name].append((time.perf_counter_ns() - begin) / 1e3 / hops)
    print("| | median, µs | least, µs |\n| --- | --: | --: |")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found):.2f} | {min(found):.2f} |")
    return 0


def run_race(names: list[str], streams: int, seconds: float) -> int:
    """Race sessions and streams of models of the zoo."""
    own, one, several = f"{streams} streams", "session, 1 thread", f"session, {streams} threads"
    print(f"| model | sessions, events | {own}, µs | {one}, µs | {several}, µs | noise |")
    print("| --- | --: | --: | --: | --: | --: |")
    for name in names or ["inception_e", "nasnet_cell", "squeezenet"]:
        model = zoo.build_named(name)
        plan = plan_model(load_model(model), streams=streams)
        entrants: dict[str, OpenRunner] = {
            own: partial(load_plan, plan, model),
            one: partial(OrtSession, model, OrtOptions(1)),
            several: partial(OrtSession, model, OrtOptions(streams)),
        }
        feeds, limit_s = random_inputs(model, 0), seconds * len(entrants)
        held = race(entrants, own, feeds, threads=streams, time_limit_s=limit_s)
        size = f"{len(plan.launches)}, {sum(len(launch.records) for launch in plan.launches)}"
        cells = [f"{entry.median_us:,.0f}" for entry in held.entries.values()]
        if held.noise > MOST_NOISE:
            cells = ["refused"] * len(cells)
        print(f"| `{name}` | {size} | " + " | ".join(cells) + f" | {held.noise:.1%} |", flush=True)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    events = commands.add_parser("events")
    events.add_argument("--hops", type=int, default=200)
    events.add_argument("--rounds", type=int, default=200)
    raced = commands.add_parser("race")
    raced.add_argument("models", nargs="*", help="zoo models")
    raced.add_argument("--streams", type=int, default=usable_cores(), help="as many, at most")
    raced.add_argument("--seconds", type=float, default=5.0, help="of each entrant")
    given = parser.parse_args(arguments)
    if given.command == "events":
        return run_events(given.hops, given.rounds)
    return run_race(given.models, given.streams, given.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
