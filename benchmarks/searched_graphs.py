"""Which graphs searches meet: all that there are, those at each α, those in the e-graph.

    python -m benchmarks.searched_graphs alphas [MODEL ...]       # MetaFlow, Table 3, Figure 10
    python -m benchmarks.searched_graphs represented [MODEL ...]  # share that the e-graph holds
    python -m benchmarks.searched_graphs work [MODEL ...]         # OCGGS, Figures 4 and 5
    python -m benchmarks.searched_graphs sampled [MODEL ...]      # OCGGS, η, Q and K
    python -m benchmarks.searched_graphs devices [MODEL ...]      # MetaFlow, Figure 7

Graphs cost their fused kernels on a device by its profile (`--device`, v100), the rules are
`--rules` (metaflow). `alphas` runs MetaFlow at rising α and then the exhaustive search, each for at
most `--seconds` of CPU time, on graphs of less than `--growth` times as many operators as the
original. `represented` runs MetaFlow at `--alpha` until it has seen `--graphs`
graphs, saturates the model under the same rules, and names the rules by which graphs were reached
that the e-graph does not represent. `work` counts what OCGGS's searches do on its ResNet and on
InceptionE, by blocks and by K: graphs met and left sides compared, remembered ones too. `sampled`
varies one of the sampling search's η, Q and K at a time from 1, 20 and 10. `devices`
says what the search makes of a model on each of several devices, for `--without winograd` on
such as have no kernels for that algorithm.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.representation import covered_by, visited
from eqsat_opt.api import resolve
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.egraph import Budget as Saturation
from eqsat_opt.egraph import lower
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab.comparison.engines import EqSat
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.comparison.results import totals
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, MetaFlow, PriceCache, Search
from eqsat_opt.lab.search.methods.dpp import Dpp
from eqsat_opt.lab.search.methods.enumeration import Enumeration
from eqsat_opt.lab.search.methods.exhaustive import Exhaustive
from eqsat_opt.lab.search.methods.pruning import Pruning
from eqsat_opt.lab.search.methods.sampling import Sampling
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile

_ALPHAS = (1.0, 1.02, 1.05, 1.08, 1.12)
_MODELS = ("alexnet", "vgg16", "inception_e", "resnet18")


def _graph(name: str) -> Graph:
    return normalise(import_model(load_model(resolve(f"zoo:{name}"))), numerics=Numerics.REFACTOR)


def _rules(given: argparse.Namespace) -> tuple[Rule, ...]:
    found = load_rules(given.rules, Numerics.REFACTOR)
    return tuple(rule for rule in found if rule.phase is not Phase.DERIVATION)


def _profile(name: str, given: argparse.Namespace) -> DeviceProfile:
    found = load_profile(name)
    kept = {name: one for name, one in found.multipliers.items() if name not in given.without}
    return replace(found, multipliers=kept)


def _frame(graph: Graph, given: argparse.Namespace, device: str = "") -> Frame:
    profile = _profile(device or given.device, given)
    pricer = ProfilePricer(profile)
    return Frame(
        operator_graph(lower(graph)),
        _rules(given),
        PriceCache.of(BackendPricer(pricer)),
        given.level,
        profile=profile,
        backends=pricer.backends,
    )


def _alphas(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | search | cost, µs | graphs | tried | CPU, s | ended |"
    yield "|---|---|--:|--:|--:|--:|---|"
    budget = Budget(0, cpu_s=given.seconds)
    for name in given.models or _MODELS:
        searches: list[tuple[str, Search]] = [
            (f"α = {alpha:g}", MetaFlow(alpha=alpha, growth=given.growth)) for alpha in _ALPHAS
        ]
        for title, search in (*searches, ("exhaustive", Exhaustive(growth=given.growth))):
            found = search.run(_frame(_graph(name), given), budget, 0)
            yield (
                f"| {name} | {title} | {found.original.value:.2f} → {found.value:.2f} | "
                f"{found.graphs} | {found.tried} | {found.cpu_s:.2f} | "
                f"{'; '.join((found.stopped_by, *found.notes))} |"
            )


def _represented(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | graphs | represented | the others were reached by |"
    yield "|---|--:|--:|---|"
    for name in given.models or _MODELS:
        graph = _graph(name)
        budget = Budget(given.graphs, cpu_s=given.seconds)
        _, terms, states = visited(MetaFlow(alpha=given.alpha), _frame(graph, given), budget)
        found = covered_by(EqSat().saturate(graph, _rules(given), Saturation()), terms, states)
        left = ", ".join(f"{rule} ({count})" for rule, count in found.left_by.items())
        share = found.represented / found.graphs
        yield f"| {name} | {found.graphs} | {share:.1%} | {left} |"


_BLOCKS, _LENGTHS = (1, 2, 3, 4), (1, 2, 3, 4)
_SEQUENCES = ("ocggs_resnet", "inception_e")


def _work(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | blocks | K | search | cost, µs | graphs | tried | compared | CPU, s | ended |"
    yield "|---|--:|--:|---|--:|--:|--:|--:|--:|---|"
    budget = Budget(0, cpu_s=given.seconds)
    for name in given.models or _SEQUENCES:
        sizes = [(n, given.length) for n in _BLOCKS]
        sizes += [(2, length) for length in _LENGTHS if length != given.length]
        for blocks, length in sizes:
            graph = _graph(f"{name}@n={blocks}")
            for search in (Enumeration(length), Pruning(length), Dpp(length), Sampling(length)):
                found = search.run(_frame(graph, given), budget, 0)
                yield (
                    f"| {name} | {blocks} | {length} | {search.name} | {found.value:.2f} | "
                    f"{found.graphs} | {found.tried} | {found.compared} | {found.cpu_s:.2f} | "
                    f"{found.stopped_by} |"
                )


_SAMPLINGS = (
    *(Sampling(rises=rises) for rises in (0, 1, 2, 3)),
    *(Sampling(samples=samples) for samples in (2, 6, 60)),
    *(Sampling(length=length) for length in (5, 15, 20, 25)),
)


def _sampled(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | η | Q | K | cost, µs | graphs | tried | CPU, s | ended |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    budget = Budget(0, cpu_s=given.seconds)
    for name in given.models or _SEQUENCES:
        graph = _graph(name)
        for search in _SAMPLINGS:
            found = search.run(_frame(graph, given), budget, 0)
            yield (
                f"| {name} | {search.rises} | {search.samples} | {search.length} | "
                f"{found.value:.2f} | {found.graphs} | {found.tried} | {found.cpu_s:.2f} | "
                f"{found.stopped_by} |"
            )


_DEVICES = ("v100", "p100", "k80")


def _devices(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | device | cost, µs | kernels | MB | GFLOP | substitutions |"
    yield "|---|---|--:|--:|--:|--:|---|"
    budget = Budget(given.graphs, cpu_s=given.seconds)
    for name in given.models or ("inception_e",):
        graph = _graph(name)
        for device in _DEVICES:
            found = MetaFlow(alpha=given.alpha).run(_frame(graph, given, device), budget, 0)
            before, after = totals(found.original), totals(found.outcome)
            steps = ", ".join(f"{rule} ({n})" for rule, n in Counter(found.steps).items())
            yield (
                f"| {name} | {device} | {found.original.value:.1f} → {found.value:.1f} | "
                f"{len(found.original.kernels)} → {len(found.outcome.kernels)} | "
                f"{before['bytes'] / 1e6:.1f} → {after['bytes'] / 1e6:.1f} | "
                f"{before['flops'] / 1e9:.3f} → {after['flops'] / 1e9:.3f} | {steps or 'none'} |"
            )


_COMMANDS = {
    "alphas": _alphas,
    "represented": _represented,
    "work": _work,
    "sampled": _sampled,
    "devices": _devices,
}


def main() -> None:
    """Run a benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=tuple(_COMMANDS))
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", default="v100")
    parser.add_argument("--rules", default="metaflow")
    parser.add_argument("--alpha", type=float, default=1.12)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--growth", type=float, default=2.0, help="of graphs that are followed")
    parser.add_argument("--level", default="kernels", choices=("operators", "kernels"))
    parser.add_argument("--length", type=int, default=3, help="OCGGS's K where blocks vary")
    parser.add_argument("--without", action="append", default=[], help="algorithm of no kernel")
    given = parser.parse_args()
    for line in _COMMANDS[given.what](given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
