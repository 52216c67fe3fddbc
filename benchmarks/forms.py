"""Extraction over two layouts and four algorithms of convolutions, for time and for energy.

`python -m benchmarks.forms --energy 60 7 35` makes the problem of each model for a device of a
profile (`--device`, H200) and extracts it for time, for energy, and for energy with at most 1.05
times the least time. It prints what could be chosen, the share of tensor classes of several forms
that the pre-pass settles, and how near to the optimum each extraction is proven to be, in how much
time. `--open` leaves out the pre-pass.

Prices are those of the profile's model, which is analytic: nothing is measured. Energy follows from
the three figures on the command line (static power in W, pJ per operation, pJ per byte), which are
whatever one wants to try: no device's figures are known here. Those make the fastest algorithm the
one of least energy, mostly; `--powers 1:420 1.1:330 1.3:260 2.2:210` makes time and energy a
trade-off instead: every convolution and product has as many algorithms, each by its time relative
to the profile's and its power in W. `--plain 1.15` lets convolutions run as ONNX orders tensors,
too, in 1.15 times the time, so that the pre-pass can settle nothing. Exit code 1 if a gap of time
or energy is above 0.1 % after 20 s, or one of energy under a limit is above 2 % after 120 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import ENERGY, TIME, WORKSPACE
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.runtime.backends.analytic.backend import AnalyticBackend
from eqsat_opt.runtime.backends.protocol import Implementation, Offer
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile
from eqsat_opt.select import PricedCandidates, tile
from eqsat_opt.select.choosing.form_search import FormSearch, form_search
from eqsat_opt.select.choosing.priced_problem import PricedProblem

_MODELS = ("squeezenet", "resnet50", "inception_v3", "nasnet_a", "bert")
_LIMITED = ("squeezenet",)
_PROVEN, _NEAR = 1e-3, 2e-2
_LIMIT_S, _LIMITED_S = 20.0, 120.0
_SLACK = 1.05
_SATURATION_S = 30.0


@dataclass(frozen=True)
class Row:
    """One extraction; `gap` is infinite where nothing was found."""

    what: str
    cost: float
    gap: float
    seconds: float
    is_enough: bool


class MadeUpBackend(AnalyticBackend):
    """More ways to convolve and to multiply than the profile tells.

    Args:
        profile: of the device.
        powers: algorithms: time relative to the profile's to power, W; those of the profile if
            there are none.
        plain: time of convolutions as ONNX orders tensors, relative to that in the layout of the
            device; ``None`` for none.
    """

    def __init__(
        self, profile: DeviceProfile, powers: Mapping[float, float], plain: float | None
    ) -> None:
        super().__init__(profile)
        self.powers = {f"x{factor:g}": (factor, watts) for factor, watts in powers.items()}
        self.plain = plain

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """One for each power, in one or both layouts."""
        found = super().implementations(kernel)
        op = kernel.steps[0].op if kernel.steps else ""
        if self.powers and op in ("Conv", "MatMul"):
            found = tuple(replace(found[0], algorithm=name) for name in self.powers)
        if self.plain is not None and op == "Conv":
            found = (*found, *(replace(one, reads=(), writes=()) for one in found if one.writes))
        return found


class MadeUpPricer(ProfilePricer):
    """Scales the times of the profile.

    Args:
        backend: what is made up.
        energy: of what has no powers.
    """

    def __init__(self, backend: MadeUpBackend, energy: EnergyModel | None) -> None:
        super().__init__(backend.profile, energy=energy)
        self.backends = (backend,)
        self.made_up = backend

    def price(self, offer: Offer) -> Quote:
        """Time by the factors of algorithm and layout, energy by its power."""
        how, known = offer.implementation, self.made_up.powers.get(offer.implementation.algorithm)
        if known is None:
            quote = super().price(offer)
        else:
            factor, watts = known
            plain = replace(offer, implementation=replace(how, algorithm="direct"))
            time_us = factor * super().price(plain).time_us
            quote = Quote({TIME: time_us, ENERGY: watts * time_us, WORKSPACE: 0.0}, "analytic")
        kernel = offer.kernel
        is_slow = (
            kernel.steps
            and kernel.steps[0].op == "Conv"
            and kernel.operands[0].type.rank == 4
            and not how.writes
        )
        if self.made_up.plain is None or not is_slow:
            return quote
        times = {
            name: self.made_up.plain * quote.metrics[name]
            for name in (TIME, ENERGY)
            if name in quote.metrics
        }
        return Quote({**quote.metrics, **times}, quote.source)


def priced_model(name: str, pricer: ProfilePricer) -> PricedCandidates:
    """Everything that could be chosen for a model of the zoo."""
    numerics = Numerics.parse("reassociate")
    graph = normalise(import_model(load_model(zoo.build(name))), numerics=numerics)
    budget = Budget(deadline=Deadline.after(_SATURATION_S))
    found = saturate(graph, load_rules("default", numerics), budget)
    candidates = tile(found.eclasses, pricer.backends)
    classes, value = found.eclasses.term_class, found.lowered.value
    roots = tuple(dict.fromkeys(int(classes[value[one]]) for one in graph.outputs))
    return PricedCandidates.of(
        candidates,
        pricer.backends,
        roots,
        max_constant_bytes=1 << 30,
        interface=pricer.interface,
    )


def settled_share(priced: PricedCandidates, problem: PricedProblem) -> str:
    """Of the classes between whose forms something converts, those that are left with one."""
    several = {one.cls for one in priced.conversions}
    numbers = map(problem.conversion_number, range(problem.problem.n_nodes))
    still = {priced.conversions[number].cls for number in numbers if number is not None}
    return f"{len(several - still)} of {len(several)}"


def extractions(
    search: Callable[[Objective], FormSearch], metrics: Sequence[str], limited: bool
) -> Iterator[Row]:
    """For time, for energy if there is a model of it, and for energy under a limit on time."""
    least: dict[str, float] = {}
    for metric in (TIME, ENERGY):
        if metric not in metrics:
            continue
        start = time.perf_counter()
        found = search(Objective({metric: 1.0}))(time_limit_s=_LIMIT_S, gap=_PROVEN)
        seconds = time.perf_counter() - start
        least[metric] = found.cost
        yield Row(metric, found.cost, found.gap, seconds, found.gap <= _PROVEN)
    if not limited or ENERGY not in least:
        return
    objective = Objective({ENERGY: 1.0}, limits={TIME: _SLACK * least[TIME]})
    start = time.perf_counter()
    try:
        found = search(objective)(time_limit_s=_LIMITED_S, gap=_PROVEN)
        cost, gap = found.cost, found.gap
    except ExtractionError:
        cost, gap = float("inf"), float("inf")
    seconds = time.perf_counter() - start
    yield Row(f"{ENERGY}, time <= {_SLACK} least", cost, gap, seconds, gap <= _NEAR)


def run(names: Sequence[str], pricer: ProfilePricer, settled: bool) -> int:
    """Print a table; 1 if something was not proven."""
    print(
        f"prices: analytic, {pricer.profile.title}\n\n"
        "| model | classes | implementations | settled | objective | cost | gap | s |\n"
        "| --- | --: | --: | --: | --- | --: | --: | --: |"
    )
    missed = 0
    for name in names:
        priced = priced_model(name, pricer)
        quoted = partial(
            PricedCandidates.problem, price=pricer.price, given=pricer.metrics, settled=settled
        )
        problem = quoted(priced)
        search = partial(form_search, priced, problem, quoted)
        sizes = (
            f"{problem.problem.n_classes} | {problem.problem.n_implementations} | "
            f"{settled_share(priced, problem)}"
        )
        for row in extractions(search, pricer.metrics, name in _LIMITED):
            print(
                f"| {name} | {sizes} | {row.what} | {row.cost:.1f} | {row.gap:.4%} | "
                f"{row.seconds:.1f} |",
                flush=True,
            )
            missed += not row.is_enough
    return 1 if missed else 0


def _power(text: str) -> tuple[float, float]:
    factor, watts = text.split(":")
    return float(factor), float(watts)


def main(arguments: Sequence[str]) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"of the zoo; {', '.join(_MODELS)} by default")
    parser.add_argument("--device", default="h200", help="a profile, by name or file")
    parser.add_argument(
        "--energy",
        nargs=3,
        type=float,
        metavar=("W", "PJ_PER_FLOP", "PJ_PER_BYTE"),
        help="made-up figures of energy; without them only time is extracted",
    )
    parser.add_argument("--open", action="store_true", help="without the pre-pass")
    parser.add_argument(
        "--powers",
        nargs="+",
        type=_power,
        metavar="FACTOR:W",
        help="made-up algorithms: time relative to the profile's, and power",
    )
    parser.add_argument(
        "--plain",
        type=float,
        metavar="FACTOR",
        help="convolutions as ONNX orders tensors too, in so many times the time",
    )
    given = parser.parse_args(arguments)
    energy = None
    if given.energy is not None:
        static, flop, byte = (Figure(value, "given on the command line") for value in given.energy)
        energy = EnergyModel(static, {"fp32": flop}, byte)
    if given.powers and energy is None:
        parser.error("--powers needs --energy, for what they do not tell")
    backend = MadeUpBackend(load_profile(given.device), dict(given.powers or ()), given.plain)
    pricer = MadeUpPricer(backend, energy)
    return run(given.models or _MODELS, pricer, not given.open)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
