"""`eqsat-opt rules check`: evidence of proofs, checked by code that shares none with the prover."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.rules.workers import checked_jobs, workers
from eqsat_opt.cli.session import check_writable, output_console, stage_progress, write_json
from eqsat_opt.common.text import counted
from eqsat_opt.errors import RuleError

if TYPE_CHECKING:
    from eqsat_opt.checking.folder import Checked

__all__ = ["check_evidence"]


def check_evidence(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder that `rules verify --emit` wrote.", show_default=False
        ),
    ],
    seed: Annotated[
        int, typer.Option(metavar="N", help="What sizes and elements are drawn from.")
    ] = 0,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes; 0 is one per usable core.")
    ] = 0,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Replay the trace of each proof and have cvc5 confirm the claims of z3, without the prover."""
    from concurrent.futures import as_completed

    from eqsat_opt.checking.folder import Checked, check_rule, rules_in
    from eqsat_opt.proving.certificates.semantics import rule_text
    from eqsat_opt.rules.library import named_rules

    check_writable(json)
    rules = {name: rule_text(named_rules(name)[0]) for name in rules_in(folder)}
    start = perf_counter()
    found = Checked()
    with (
        stage_progress(quiet or json == "-") as show,
        workers(min(checked_jobs(jobs), max(1, len(rules)))) as executor,
    ):
        pending = [executor.submit(check_rule, folder, *one, seed) for one in rules.items()]
        for number, done in enumerate(as_completed(pending), 1):
            found.add(done.result())
            show(f"{number} of {len(rules)}", "rules checked")
    taken = perf_counter() - start
    if json is not None:
        write_json(_values(found, len(rules), taken), json)
    if not quiet and json != "-":
        output_console().print(_summary(found, len(rules), taken), markup=False, soft_wrap=True)
    if found.refused:
        name, why = min(found.refused.items())
        more = f"; {len(found.refused)} are refused" if len(found.refused) > 1 else ""
        raise RuleError(f"the evidence of {name} is refused: {why}{more}")


def _summary(found: Checked, rules: int, taken: float) -> str:
    steps, claims = found.replayed, found.claims
    lines = [
        f"{counted(rules, 'rule')}, {len(found.refused)} refused, in {taken:.0f} s",
        f"replayed: {counted(steps.claims, 'sum')} brought to nothing in "
        f"{counted(steps.steps, 'step')}, {steps.exact} of them in a prime field, "
        f"at extents up to {steps.largest}; {steps.untried} had no point to try",
        f"cvc5: {claims.unsat} of {claims.unsat + len(claims.others)} claims confirmed",
    ]
    return "\n".join(lines)


def _values(found: Checked, rules: int, taken: float) -> dict[str, Any]:
    steps, claims = found.replayed, found.claims
    return {
        "rules": rules,
        "refused": found.refused,
        "replayed": {
            "sums": steps.claims,
            "steps": steps.steps,
            "in_prime_field": steps.exact,
            "without_a_point": steps.untried,
            "largest_extent": steps.largest,
        },
        "cvc5": {"confirmed": claims.unsat, "others": len(claims.others)},
        "time_s": round(taken, 1),
    }
