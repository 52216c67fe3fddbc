"""How well times of kernels are expected before they are measured, and what a cold store costs.

    python -m benchmarks.predictions kernels MODEL... [--table FILE]
    python -m benchmarks.predictions cold MODEL... [--budget 30] [--factor 10]

Models are as in benchmarks/given.py: `bert`, `lstm:128`, `torch:resnet18`, `model.onnx`.

`kernels` optimises the models with the user's store, and expects the time of each measured kernel
from the table that ships and all other kernels. A row is a kind of kernel: the number of them, and
the factor between expected and measured time, the median and the 80th percentile; beside it the
same for lower bounds. `--table` fits a table to what was measured and writes it.

`cold` optimises each model twice from an empty store: with the budget, and with a multiple of it.
Both results are raced against the original and each other, all runs interleaved. A row has the time
of both over that of the original, and how many prices of the first answer were not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.given import given, title
from benchmarks.rows import Rows, geometric_mean
from eqsat_opt import api
from eqsat_opt.cost.metrics import LAUNCH_US
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.cost.trends import TABLE_FORMAT, Expectation, Trend, class_of, kind_of
from eqsat_opt.errors import EqsatError
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.race import race
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.inputs import random_inputs

__all__ = ["main"]

OVERHEADS_US = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
SLOWDOWNS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0)
LEAST_US = 0.3
"""Time that is added to two times before they are compared, µs; shorter ones are noise."""
FEWEST = 3
"""Number of kernels of a kind below which a table has no row for it."""

Sample = tuple[Offer, float, float]
"""A kernel, its lower bound and its measured time, µs."""


def factor(first_us: float, second_us: float) -> float:
    """Return the factor between two times, at least 1."""
    ratio = (first_us + LEAST_US) / (second_us + LEAST_US)
    return max(ratio, 1 / ratio)


def samples(
    models: Sequence[str], threads: int, budget_s: float, store: str | None
) -> list[Sample]:
    """Return all measured kernels of the searches of some models."""
    found: dict[Offer, float] = {}
    for name in models:
        options = Options(race=False, check=0, threads=threads, budget_s=budget_s, store=store)
        proposal = api.run(given(name), options).proposal
        assert proposal is not None, f"{name} was not searched"
        prices = proposal.choice.prices
        found |= {o: q.time_us - LAUNCH_US for o, q in prices.items() if q.source == "measured"}
    with ProfileStore(store) as opened:
        pricer = Pricer(opened, threads)
        pricer.calibrate()
        pricer.close()
        bound_us = pricer.roofline.bound_us
    return [
        (offer, bound_us(offer.kernel, offer.implementation.arithmetic), time_us)
        for offer, time_us in found.items()
    ]


def fitted(rows: Sequence[Sample]) -> Trend:
    """Return the trend with the least mean logarithm of the factor to measured times."""

    def error(trend: Trend) -> float:
        return statistics.fmean(
            math.log(factor(trend.time_us(bound_us), time_us)) for _, bound_us, time_us in rows
        )

    return min((Trend(*one) for one in product(OVERHEADS_US, SLOWDOWNS)), key=error)


def kinds(rows: Iterable[Sample]) -> dict[tuple[str, str], list[Sample]]:
    """Group samples by backend and kind."""
    groups: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for row in rows:
        groups[row[0].backend, kind_of(row[0].kernel)].append(row)
    return groups


def kernels(models: Sequence[str], args: argparse.Namespace) -> None:
    """Print how well the kernels of some models are expected."""
    groups = kinds(samples(models, args.threads, args.budget, args.store))
    rows = Rows("backend", "kind", "kernels", "expected", "80 %", "bound", "80 %")
    everything: list[float] = []
    for (backend, kind), own in sorted(groups.items(), key=lambda item: -len(item[1])):
        expected, bounds = [], []
        for number, (offer, bound_us, time_us) in enumerate(own):
            expectation = Expectation()
            for other in own[:number] + own[number + 1 :]:
                expectation.add(backend, other[0].kernel, *other[1:])
            guess_us = expectation.time_us(backend, offer.kernel, bound_us)
            expected.append(factor(guess_us, time_us))
            bounds.append(factor(bound_us, time_us))
        everything += expected
        rows.add(backend, kind, str(len(own)), *(
            f"{value:.2f}"
            for one in (expected, bounds)
            for value in (statistics.median(one), sorted(one)[int(0.8 * (len(one) - 1))])
        ))  # fmt: skip
    rows.show()
    print(f"all: median factor {statistics.median(everything):.2f}")
    if args.table:
        table: dict[str, dict[str, list[float]]] = defaultdict(dict)
        for (backend, kind), own in sorted(groups.items()):
            if len(own) >= FEWEST:
                trend = fitted(own)
                table[backend][kind] = [trend.overhead_us, trend.slowdown]
        classes: dict[tuple[str, str], list[Sample]] = defaultdict(list)
        for (backend, kind), own in groups.items():
            for name in ("", class_of(kind)):
                classes[backend, name] += own
        for (backend, name), own in classes.items():
            trend = fitted(own)
            table[backend][name] = [trend.overhead_us, trend.slowdown]
        document = {"format": TABLE_FORMAT, "trends": table}
        text = json.dumps(document, indent=1, sort_keys=True)
        Path(args.table).write_text(f"{text}\n", encoding="utf-8")


def cold(models: Sequence[str], args: argparse.Namespace) -> None:
    """Print what a cold store and the usual budget lose against a multiple of it."""
    rows = Rows("model", "expected", "first", "long", "first / long")
    losses = []
    for name in models:
        model = given(name)
        with tempfile.TemporaryDirectory() as folder:
            results = [
                api.run(
                    model,
                    Options(
                        budget_s=budget_s, threads=args.threads, store=str(Path(folder, f"{n}.db"))
                    ),
                )
                for n, budget_s in enumerate((args.budget, args.factor * args.budget))
            ]
        options = OrtOptions(threads=args.threads)
        try:
            found = race(
                {
                    key: partial(OrtSession, one, options)
                    for key, one in zip(
                        ("original", "first", "long"),
                        (model, *(one.model for one in results)),
                        strict=True,
                    )
                },
                "original",
                random_inputs(model, 0),
                threads=args.threads,
                time_limit_s=args.race,
            )
        except EqsatError as error:
            rows.add(title(name), str(error))
            continue
        ratios = {key: one.ratio for key, one in found.entries.items()}
        ratio = ratios["first"] / ratios["long"]
        losses.append(ratio)
        report = results[0].report
        rows.add(
            title(name),
            f"{report.kernels_unmeasured} of {sum(report.prices.values())}",
            *(f"{ratios[key]:.3f}" for key in ("first", "long")),
            f"{ratio:.3f}",
        )
    rows.show()
    if losses:
        within = sum(one <= 1.03 for one in losses)
        print(f"{within} of {len(losses)} within 3 %, mean {geometric_mean(losses):.3f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("kernels", "cold"))
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds")
    parser.add_argument("--factor", type=float, default=10.0, help="multiple of the budget")
    parser.add_argument("--race", type=float, default=10.0, help="seconds of a race")
    parser.add_argument("--store", help="store of `kernels`; the user's by default")
    parser.add_argument("--table", help="file of the fitted table")
    args = parser.parse_args(arguments)
    try:
        (kernels if args.what == "kernels" else cold)(args.models, args)
    except EqsatError as error:
        parser.exit(1, f"error: {error}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
