"""What each rule of the book is worth: redundancy and growth.

    python -m benchmarks.rule_book redundancy        # which rules follow from the others
    python -m benchmarks.rule_book growth            # e-nodes per rule on the tiny zoo
    python -m benchmarks.rule_book growth --json -   # the same as JSON
    python -m benchmarks.rule_book equations         # what each of the 23 is for
    python -m benchmarks.rule_book generated --rulebook found.py     # beside TASO and the book

Growth has two readings. *made* counts the e-nodes that a rule was the first to make. *without* says
how many e-nodes fewer there are if the rule is left out; it differs where others make the same, or
where what the rule makes is what others grow from.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eqsat_opt.egraph import Budget, Saturation, saturate
from eqsat_opt.egraph.derivation.derive import Prover
from eqsat_opt.egraph.loading.siblings import SEED_RULE
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.redundancy import redundant
from eqsat_opt.proving.taso import to_rule
from eqsat_opt.proving.taso.equations import published_rules
from eqsat_opt.rules.axioms import EQUATIONS, axioms
from eqsat_opt.rules.library import book, families
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.rulebooks import read_rulebook

OFF = (Phase.SIBLINGS, Phase.DERIVATION)
"""Phases that saturation does not run."""


@dataclass(frozen=True)
class Growth:
    """One rule on one model.

    Attributes:
        model, rule: names.
        matches: in all rounds; those of recognition, which runs before, are not counted.
        made: e-nodes that it was the first to make.
        without: e-nodes fewer if it is left out.
    """

    model: str
    rule: str
    matches: int
    made: int
    without: int


def _graph(name: str) -> Graph:
    return normalise(import_model(load_model(zoo.build(name, scale="tiny"))))


def _made(saturation: Saturation) -> Counter[str]:
    """E-nodes by the rule that made them first; both directions of an equation are one."""
    eclasses = saturation.eclasses
    makers = (eclasses.rule_at(int(origin)) for origin in eclasses.origin if origin)
    return Counter(_base(maker) for maker in makers if maker is not None)


def _base(name: str) -> str:
    return name.removesuffix("-reversed")


def growth_of(model: str, rules: Sequence[Rule], budget: Budget) -> tuple[Saturation, list[Growth]]:
    """Saturate with all rules, then once without each rule that matched or was recognised by."""
    graph = _graph(model)
    full = saturate(graph, rules, budget)
    made = _made(full)
    matches: Counter[str] = Counter()
    for name, count in full.report.matches.items():
        matches[_base(name)] += count
    rows = []
    for rule in rules:
        if not matches[rule.name] and not made[rule.name]:
            continue
        rest = [other for other in rules if other.name != rule.name]
        without = full.report.enodes - saturate(graph, rest, budget).report.enodes
        rows.append(Growth(model, rule.name, matches[rule.name], made[rule.name], without))
    return full, rows


def _rules(numerics: Numerics) -> list[Rule]:
    return [
        rule
        for rules in families().values()
        for rule in rules
        if rule.phase not in OFF and rule.numerics <= numerics
    ]


def _write(payload: object, path: str) -> None:
    text = json.dumps(payload, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def _growth(chosen: argparse.Namespace) -> int:
    rules = _rules(Numerics.parse(chosen.numerics))
    budget = Budget(nodes=chosen.nodes)
    models, rows = [], []
    for name in chosen.models or zoo.names():
        full, found = growth_of(name, rules, budget)
        report = full.report
        models.append({
            "model": name, "loaded": report.enodes_loaded, "enodes": report.enodes,
            "stopped_by": report.stopped_by, "seeds": _made(full)[SEED_RULE],
        })  # fmt: skip
        rows += found
        print(f"{name}: {report}", file=sys.stderr)
    if chosen.json:
        _write({"models": models, "growth": [asdict(row) for row in rows]}, chosen.json)
        return 0
    fired = [rule.name for rule in rules if any(row.rule == rule.name for row in rows)]
    width = max(map(len, fired), default=0)
    print(f"{'rule':<{width}}{'models':>8}{'matches':>10}{'made':>8}{'without':>9}")
    for name in fired:
        mine = [row for row in rows if row.rule == name]
        totals = (sum(getattr(row, key) for row in mine) for key in ("matches", "made", "without"))
        matches, made, without = totals
        print(f"{name:<{width}}{len(mine):>8}{matches:>10}{made:>8}{without:>9}")
    print(f"{len(rules) - len(fired)} of {len(rules)} rules neither matched nor made anything")
    total = sum(int(str(model["enodes"])) for model in models)
    loaded = sum(int(str(model["loaded"])) for model in models)
    cut = [
        f"{m['model']} ({m['stopped_by']})"
        for m in models
        if m["stopped_by"] not in ("saturated", "algebra")
    ]
    if cut:
        print(f"cut off, so that 'without' compares unfinished e-graphs: {', '.join(cut)}")
    print(f"{len(models)} models: {loaded} e-nodes loaded, {total} at the end")
    return 0


def _redundancy(chosen: argparse.Namespace) -> int:
    rules = [rule for book in families().values() for rule in book]

    def progress(done: int, total: int, name: str) -> None:
        print(f"\r{done}/{total} {name:<40}", end="", file=sys.stderr, flush=True)

    report = redundant(rules, progress=progress)
    print(file=sys.stderr)
    if chosen.json:
        _write(report.to_json(), chosen.json)
    else:
        print(report)
        print(f"{report.time_s:.1f} s")
    return 0


def _equations(chosen: argparse.Namespace) -> int:
    """How many of TASO's rules are not derived without each equation."""
    goals = [to_rule(rule) for rule in published_rules()]
    table: dict[str, list[str]] = {}
    with_all = _derived(goals, axioms())
    for equation, names in EQUATIONS.items():
        if names:
            rest = axioms([other for other in EQUATIONS if other != equation])
            found = _derived(goals, rest)
            table[equation] = [name for name in with_all if name not in found]
    if chosen.json:
        _write({"rules": len(goals), "derived": with_all, "lost_without": table}, chosen.json)
        return 0
    for equation, lost in table.items():
        print(f"{equation:<36}{len(lost):>4} lost")
    print(f"{len(with_all)} of {len(goals)} rules derived from all equations")
    return 0


def _generated(chosen: argparse.Namespace) -> int:
    """Which of TASO's rules generated ones derive, and which of these the book does not."""
    if chosen.rulebook is None:
        print("error: give what eqsat-opt rules generate wrote, --rulebook FILE", file=sys.stderr)
        return 1
    found = read_rulebook(Path(chosen.rulebook))
    goals = [to_rule(rule) for rule in published_rules()]
    of_taso = _derived(goals, found)
    of_book = set(_derived(found, [*book().values()]))
    new = [rule for rule in found if rule.name not in of_book]
    if chosen.json:
        known = {"rules": len(found), "of_taso": of_taso, "new": {r.name: str(r) for r in new}}
        _write(known, chosen.json)
        return 0
    missing = [goal.name for goal in goals if goal.name not in of_taso]
    print(f"{len(of_taso)} of TASO's {len(goals)} rules derived; not {', '.join(missing)}")
    print(f"{len(new)} of {len(found)} generated rules are not derived from the book")
    for rule in new:
        print(f"  {rule.name}: {rule}")
    return 0


def _derived(goals: Sequence[Rule], equations: Sequence[Rule]) -> list[str]:
    prover = Prover(equations, iterations=4, most=1)
    return [goal.name for goal in goals if prover.derive(goal, minimise=False) is not None]


def main(arguments: list[str] | None = None) -> int:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("redundancy", "growth", "equations", "generated"))
    parser.add_argument("--json", metavar="FILE", help="write JSON; - for standard output")
    parser.add_argument("--rulebook", metavar="FILE", help="generated rules")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="of the zoo; all by default")
    parser.add_argument("--nodes", type=int, default=20_000, help="limit of e-nodes per model")
    parser.add_argument(
        "--numerics",
        default="refactor",
        choices=[kind.name.lower() for kind in Numerics],
        help="greatest class of rules",
    )
    chosen = parser.parse_args(arguments)
    tables = {
        "redundancy": _redundancy, "growth": _growth, "equations": _equations,
        "generated": _generated,
    }  # fmt: skip
    try:
        return tables[chosen.table](chosen)
    except EqsatError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
