"""Which graphs searches meet: all that there are, those at each α, those in the e-graph.

    python -m benchmarks.searched_graphs alphas [MODEL ...]       # MetaFlow, Table 3, Figure 10
    python -m benchmarks.searched_graphs represented [MODEL ...]  # share that the e-graph holds

Graphs cost their fused kernels on a device by its profile (`--device`, v100), the rules are
`--rules` (metaflow). `alphas` runs MetaFlow at rising α and then the exhaustive search, each for at
most `--seconds` of CPU time. `represented` runs MetaFlow at `--alpha` until it has seen `--graphs`
graphs, saturates the model under the same rules, and names the rules by which graphs were reached
that the e-graph does not represent.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from eqsat_opt.api import resolve
from eqsat_opt.comparison.engines import EqSat
from eqsat_opt.comparison.operators import operator_graph
from eqsat_opt.comparison.representation import covered_by, visited
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.egraph import Budget as Saturation
from eqsat_opt.egraph import lower
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.numerics import Numerics
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.search import Budget, Frame, MetaFlow, Offered, Prices, Search
from eqsat_opt.search.exhaustive import Exhaustive

_ALPHAS = (1.0, 1.02, 1.05, 1.08, 1.12)
_MODELS = ("alexnet", "vgg16", "inception_e", "resnet18")


def _graph(name: str) -> Graph:
    return normalise(import_model(load_model(resolve(f"zoo:{name}"))), numerics=Numerics.REFACTOR)


def _rules(given: argparse.Namespace) -> tuple[Rule, ...]:
    found = load_rules(given.rules, Numerics.REFACTOR)
    return tuple(rule for rule in found if rule.phase is not Phase.DERIVATION)


def _frame(graph: Graph, given: argparse.Namespace) -> Frame:
    profile = load_profile(given.device)
    pricer = ProfilePricer(profile)
    return Frame(
        operator_graph(lower(graph)),
        _rules(given),
        Prices.of(Offered(pricer)),
        "kernels",
        profile=profile,
        backends=pricer.backends,
    )


def _alphas(given: argparse.Namespace) -> Iterator[str]:
    yield "| model | search | cost, µs | graphs | tried | CPU, s | ended |"
    yield "|---|---|--:|--:|--:|--:|---|"
    budget = Budget(0, cpu_s=given.seconds)
    for name in given.models or _MODELS:
        searches: list[tuple[str, Search]] = [
            (f"α = {alpha:g}", MetaFlow(alpha=alpha)) for alpha in _ALPHAS
        ]
        for title, search in (*searches, ("exhaustive", Exhaustive())):
            found = search.run(_frame(_graph(name), given), budget, 0)
            yield (
                f"| {name} | {title} | {found.original.value:.2f} → {found.value:.2f} | "
                f"{found.graphs} | {found.tried} | {found.cpu_s:.2f} | {found.stopped_by} |"
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


def main() -> None:
    """Run a benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("alphas", "represented"))
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", default="v100")
    parser.add_argument("--rules", default="metaflow")
    parser.add_argument("--alpha", type=float, default=1.12)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    for line in (_alphas if given.what == "alphas" else _represented)(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
