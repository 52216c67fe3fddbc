"""`eqsat-opt rules import --format`: a verdict on each rule of another system."""

from __future__ import annotations

from pathlib import Path

from eqsat_opt.cli.rules.workers import checked_jobs, workers
from eqsat_opt.cli.session import output_console, stage_progress, write_json
from eqsat_opt.errors import RuleError

__all__ = ["import_foreign"]


def import_foreign(
    path: Path, format_name: str, jobs: int, *, json: str | None, quiet: bool
) -> None:
    """Judge the rules of a file, and show each with its verdict.

    Raises:
        RuleError: the file is not intact, or a rule is wrong.
    """
    from eqsat_opt.lab.imports.formats import read_foreign
    from eqsat_opt.lab.imports.judging import judge_all

    rules = read_foreign(path, format_name)
    processes = min(checked_jobs(jobs), len(rules))
    with stage_progress(quiet or json == "-") as show, workers(processes) as executor:
        found = judge_all(rules, executor, lambda done, of, what: show(f"{done} of {of}", what))
    if json is not None:
        write_json(found.to_json(), json)
    if not quiet and json != "-":
        console = output_console()
        console.print(str(found), markup=False, soft_wrap=True)
        for one in found.verdicts:
            if one.status == "refuted":
                console.print(f"\n{one.code}", markup=False, soft_wrap=True)
    refuted = [one for one in found.verdicts if one.status == "refuted"]
    if refuted:
        raise RuleError(
            f"{len(refuted)} of {len(rules)} rules of {path} are wrong, the first is "
            f"{refuted[0].rule.name} at {refuted[0].reason}"
        )
