"""The page of a run or of an explanation: its sections, and the text of the whole file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.text import (
    count_text,
    counted,
    race_text,
    sizes_text,
    stage_text,
    time_text,
)
from eqsat_opt.cost.metrics import METRICS, TIME
from eqsat_opt.cost.roofline import DEFAULT_ROOFLINE, Roofline
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.page.charts import race_chart, trace_chart
from eqsat_opt.pipeline.page.drawing import drawn_graphs
from eqsat_opt.pipeline.page.head import facts_of
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.tables import end_text
from eqsat_opt.racing.entrants import ALTERNATIVE
from eqsat_opt.rules.near_misses import NearMiss, near_misses
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.assignment import PlacedGraph
from eqsat_opt.select.why import KernelUse, RuleFate, kernel_uses

if TYPE_CHECKING:
    from jinja2 import Environment

    from eqsat_opt.pipeline.report.explanation import Explanation
    from eqsat_opt.pipeline.run import Result

__all__ = ["explanation_page", "page_text", "require_pages", "result_page"]

_MOST_ROWS = 200
"""Most rows of a table; the JSON has all."""

_MISSES_S = 1.0
"""Seconds for finding near misses for the page of a run."""

_LEAST_S = 0.005
"""Least duration of a stage that is listed, s."""

_REPEATED = re.compile(r"\b(\w+)(?:\+\1\b)+")
"""Operators of one name in a row, in the name of a kernel."""

_HEADLESS = "the page is made with jinja2, which is not installed: pip install 'eqsat-opt[html]'"


@dataclass(frozen=True)
class _Row:
    """A rule in the table of a page."""

    rule: str
    matches: int
    chosen: int
    made: int | None = None
    reason: str = ""


def require_pages() -> None:
    """Check before any work that pages can be made.

    Raises:
        OptionError: jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401  (an extra, which only pages need)
    except ImportError as error:
        raise OptionError(_HEADLESS) from error


def result_page(result: Result) -> str:
    """Return the page of a run; near misses are looked for in a second at most.

    Raises:
        OptionError: jinja2 is not installed.
    """
    proposal = result.proposal
    if proposal is None:
        return page_text(result.report, None)
    graphs = (proposal.saturation.lowered.graph, proposal.best)
    misses = near_misses(graphs, proposal.rules, time_limit_s=_MISSES_S)
    return page_text(result.report, proposal, misses=misses)


def explanation_page(explanation: Explanation) -> str:
    """Return the page of an explanation.

    Raises:
        OptionError: jinja2 is not installed.
    """
    found = explanation
    return page_text(found.report, found.proposal, fates=found.rules, misses=found.misses)


def page_text(
    report: Report,
    proposal: Proposal | None,
    *,
    fates: Sequence[RuleFate] = (),
    misses: Sequence[NearMiss] = (),
) -> str:
    """Return a page of HTML with its styles and scripts inside; it loads nothing.

    Args:
        report: all numbers of the run.
        proposal: the search; ``None`` where there was none.
        fates: the outcome of each rule, of an explanation.
        misses: near misses, of an explanation.

    Raises:
        OptionError: jinja2 is not installed.
    """
    require_pages()
    graphs = None
    kernels: Sequence[KernelUse] = ()
    peaks = None
    if proposal is not None:
        peaks = proposal.choice.peaks
        after, title = _result_graph(report, proposal)
        graphs = [asdict(one) for one in drawn_graphs(proposal, after)]
        kernels = kernel_uses(proposal)
    rules = [*_rules(report, fates)]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            place=os.path.split(report.model),
            title=title if proposal is not None else "",
            graphs=graphs,
            facts=[*facts_of(report)],
            race=race_chart(report.race),
            trace=None if proposal is None else _trace(report, proposal),
            kernels=[*_kernels(kernels, peaks)][:_MOST_ROWS],
            peaks=peaks,
            hidden_kernels=max(0, len(kernels) - _MOST_ROWS),
            rules=rules,
            has_reasons=any(row.reason for row in rules),
            misses=misses[:_MOST_ROWS],
            settings=[*_settings(report)],
            stages=[
                (stage_text(name), seconds)
                for name, seconds in report.stages_s.items()
                if seconds >= _LEAST_S
            ],
        )
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("eqsat_opt.pipeline.page", "assets"),
        autoescape=True,  # names of a model may look like HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(time=time_text, count=count_text)
    made.globals["asset"] = _asset
    return made


def _asset(name: str) -> str:
    """Return a file of this folder, which is not escaped."""
    from markupsafe import Markup

    text = files("eqsat_opt.pipeline.page").joinpath("assets", name).read_text(encoding="utf-8")
    return Markup(text)


def _result_graph(report: Report, proposal: Proposal) -> tuple[PlacedGraph, str]:
    """Return the graph to show beside the original, and its title."""
    best, *others, _original = proposal.placed
    if report.winner.startswith(ALTERNATIVE):
        number = int(report.winner.removeprefix(ALTERNATIVE))
        if number <= len(others):
            return others[number - 1], "result"
    if report.winner == "best":
        return best, "result"
    return best, "cheapest graph found, which is not the result"


def _trace(report: Report, proposal: Proposal) -> Any:
    points = [(one.time_s, one.cost, one.lower_bound) for one in proposal.choice.extraction.trace]
    return trace_chart(points, METRICS[TIME].unit if report.goal == TIME else "")


def _counted(repeated: re.Match[str]) -> str:
    return f"{repeated[1]}×{repeated[0].count('+') + 1}"


def _kernels(uses: Sequence[KernelUse], peaks: Roofline | None) -> Iterator[Mapping[str, Any]]:
    """Yield the kernels with their share of the predicted time of each graph, and their rates.

    ``roofline`` is the least time at the rates that probes reached, as a share of the price; 0
    where it is not known.
    """
    totals = [math.fsum(getattr(u, side) * u.time_us for u in uses) for side in ("before", "after")]
    for use in uses:
        shares = [
            count * use.time_us / total if total else 0.0
            for count, total in zip((use.before, use.after), totals, strict=True)
        ]
        yield {
            "use": replace(use, kernel=_REPEATED.sub(_counted, use.kernel)),
            "shares": shares,
            "gflops": use.flops / use.time_us / 1e3 if use.time_us else 0.0,
            "gbytes": use.bytes / use.time_us / 1e3 if use.time_us else 0.0,
            "limit": _limit(use, DEFAULT_ROOFLINE if peaks is None else peaks),
            "roofline": _least_us(use, peaks) / use.time_us if use.time_us else 0.0,
        }


def _least_us(use: KernelUse, peaks: Roofline | None) -> float:
    """Return the time of a kernel at the rates that probes reached; 0 where there are none."""
    if peaks is None:
        return 0.0
    return max(use.flops / peaks.flops_per_us, use.bytes / peaks.bytes_per_us)


def _limit(use: KernelUse, roofline: Roofline) -> str:
    """Return what a roofline says to limit a kernel; empty for one without work."""
    by_arithmetic = use.flops / roofline.flops_per_us > use.bytes / roofline.bytes_per_us
    return ("arithmetic" if by_arithmetic else "memory") if use.bytes else ""


def _rules(report: Report, fates: Sequence[RuleFate]) -> Iterator[_Row]:
    if fates:
        for fate in fates:
            yield _Row(
                fate.rule,
                fate.matches,
                fate.chosen,
                made=fate.made,
                reason=fate.reason,
            )
        return
    names = sorted(
        {*report.rules, *report.matches},
        key=lambda name: (-report.rules.get(name, 0), -report.matches.get(name, 0), name),
    )
    for name in names:
        yield _Row(name, report.matches.get(name, 0), report.rules.get(name, 0))


def _settings(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the assumptions on which a report rests, by title."""
    yield "objective", METRICS[report.goal].title if report.goal in METRICS else report.goal
    if report.limits:
        yield "limits", ", ".join(report.limits)
    yield "target", report.target
    yield "threads", str(report.threads)
    if text := sizes_text(report.sizes):
        yield "sizes", text
    if report.coverage:
        yield "coverage", report.coverage
    if report.prices:
        yield "prices", ", ".join(f"{count} {source}" for source, count in report.prices.items())
    yield "optimality", report.optimality
    if report.enodes_loaded:
        yield (
            "e-graph",
            f"{count_text(report.enodes_loaded)} → {count_text(report.enodes)} e-nodes in "
            f"{counted(report.iterations, 'iteration')}; {end_text(report.stopped_by)}",
        )
    if report.errors:
        agree = f"{counted(len(report.errors), 'output')} agree{'s' * (len(report.errors) == 1)}"
        worst = max(report.errors, key=lambda one: one.max_rel)
        yield (
            "check",
            f"{agree}; largest absolute difference "
            f"{report.max_abs_error:.1e}, {worst.max_rel:.1e} beyond rounding where "
            f"{worst.tolerance:.1e} is allowed",
        )
    else:
        yield "check", "outputs were not compared"
    if report.race:
        yield "race", race_text(report.race, decides=True)
    if report.energy:
        yield "energy", report.energy
