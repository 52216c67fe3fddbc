"""Explanation of the cheapest graph: the effect of each rule, and the cost of a graph with it.

A rule that matched but was not chosen is forced: every candidate that covers one of its e-nodes
moves to a class of its own, which the candidate's former class may still use at no cost, and one
more root requires at least one of these classes. One extraction then finds the cheapest of all
graphs with the rule.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.cost.quotes import Source
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction, Problem, extract
from eqsat_opt.extract.extraction import active_order
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.graph.plain_names import plain_kernel, plain_operator, plain_sizes
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.forms import ConvertedValue, Placed
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.raising import rules_used
from eqsat_opt.select.tiling.candidates import CONSTANT, Selection

__all__ = ["KernelUse", "Rewrite", "RuleFate", "kernel_uses", "rewrites", "rule_fates"]

_TIE = 1e-6  # relative difference of cost up to which costs count as equal
_MIN_SHARE_S = 0.1
_KNOWN = "what it derives was in the graph already"
_CONSTANT = "it only changes constants, which are folded beforehand"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RuleFate:
    """The effect of one rule on the result, or the reason why it has none.

    Attributes:
        rule: its name.
        matches: number of its matches; 0 for a merge of siblings, which is offered, not matched,
            and for a rule of recognition, which matches in windows of its own.
        made: number of e-nodes that it was the first to make.
        chosen: number of nodes of the result that it made.
        cost: objective of the best graph found that uses it; None if it is chosen or no graph can.
        increase: ``cost`` relative to the result's, less 1; None without ``cost``.
        reason: why it was not chosen; empty if it was.
    """

    rule: str
    matches: int
    made: int
    chosen: int
    cost: float | None = None
    increase: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A node of the result that rules made.

    Attributes:
        node: its name, or that of its output.
        op: its operator, in words where ONNX has none like it.
        rules: the rules.
        inputs: names of its inputs.
    """

    node: str
    op: str
    rules: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class KernelUse:
    """A kernel, the number of its runs, and its price.

    Attributes:
        kernel: operators and operand types; ``!`` marks constants.
        by: its backend, and its algorithm where it is not the usual one.
        before, after: number of its runs in the original and in the result.
        time_us: price of one run, µs.
        source: the source of the price.
        flops: floating point operations of one run.
        bytes: bytes that one run reads and writes.
    """

    kernel: str
    by: str
    before: int
    after: int
    time_us: float
    source: Source
    flops: float = 0.0
    bytes: float = 0.0


def rule_fates(
    proposal: Proposal, objective: AnyObjective, *, time_limit_s: float = 10.0, seed: int = 0
) -> tuple[RuleFate, ...]:
    """Return the fate of every rule that took part in the search, chosen ones first.

    Args:
        proposal: the results of the search.
        objective: the objective that it minimised.
        time_limit_s: seconds for forcing rules, shared evenly.
        seed: random seed of the extractions.
    """
    deadline = time.perf_counter() + time_limit_s
    eclasses = proposal.saturation.eclasses
    made = Counter(eclasses.rule_of(node) for node in np.flatnonzero(eclasses.origin).tolist())
    users = _users(proposal)
    chosen = rules_used(proposal.best)
    to_force = len(users.keys() - chosen.keys())
    fates = []
    matches = proposal.saturation.report.matches
    for rule in sorted({*matches, *users, *chosen}):
        fate = RuleFate(rule, matches.get(rule, 0), made[rule], chosen.get(rule, 0))
        if not fate.chosen and rule in users:
            share_s = max(_MIN_SHARE_S, (deadline - time.perf_counter()) / to_force)
            fate = _forced_fate(
                proposal, objective, fate=fate, users=users[rule], time_limit_s=share_s, seed=seed
            )
            to_force -= 1
        elif not fate.chosen:
            fate = replace(fate, reason=_CONSTANT if fate.made else _KNOWN)
        fates.append(fate)
    return tuple(
        sorted(fates, key=lambda f: (-f.chosen, f.increase is None, f.increase, -f.matches))
    )


def _users(proposal: Proposal) -> dict[str, Mask]:
    """Return by rule, `[nodes of the problem]`, which candidates cover an e-node that it made."""
    index, eclasses = proposal.choice.problem.index, proposal.saturation.eclasses
    users: dict[str, Mask] = defaultdict(lambda: np.zeros(len(index), dtype=np.bool_))
    for node, item in enumerate(index):
        if item < 0:  # only a value in another form
            continue
        candidate = proposal.candidates.items[item]
        if candidate.kind in CONSTANT:  # folded at compile time, however it is spelled
            continue
        for covered in candidate.nodes:
            rule = eclasses.rule_of(covered)
            if rule is not None:
                users[rule][node] = True
    return dict(users)


def _forced_fate(
    proposal: Proposal,
    objective: AnyObjective,
    fate: RuleFate,
    users: Mask,
    time_limit_s: float,
    seed: int,
) -> RuleFate:
    problem = proposal.choice.problem.problem
    forced = _forced(problem, users)
    try:
        found = extract(
            forced, objective, time_limit_s=time_limit_s, seed=seed, deterministic=False
        )
    except ExtractionError:
        if not objective.is_limited:
            raise
        return replace(fate, reason="no graph with it within the limits was found in time")
    if found.status == "infeasible":
        which = "within the limits" if objective.is_limited else "without a cycle"
        return replace(fate, reason=f"no graph {which} can use it")
    best = proposal.choice.extraction.cost
    increase = found.cost / best - 1 if best > 0 else 0.0
    reason = _reason(found, increase, _is_used(forced, problem, found))
    return replace(fate, cost=found.cost, increase=increase, reason=reason)


def _forced(problem: Problem, users: Mask) -> Problem:
    """Return the problem that requires at least one of ``users`` (see the module's docstring)."""
    moved = np.flatnonzero(users)
    count, first = len(moved), problem.n_classes
    own = first + np.arange(count)
    node_class = problem.node_class.copy()
    node_class[moved] = own
    aliases, demands = problem.node_class[moved], np.full(count, first + count)
    rows, edges = problem.n_implementations, len(problem.child_ix)
    steps = np.arange(1, 2 * count + 1)
    return Problem(
        n_classes=first + count + 1,
        node_class=np.concatenate([node_class, aliases, demands]),
        child_ptr=np.concatenate([problem.child_ptr, edges + steps]),
        child_ix=np.concatenate([problem.child_ix, own, own]),
        impl_ptr=np.concatenate([problem.impl_ptr, rows + steps]),
        impl_cost=np.concatenate([problem.impl_cost, np.zeros((2 * count, len(problem.metrics)))]),
        metrics=problem.metrics,
        roots=(*problem.roots, first + count),
        peaks=problem.peaks,
    )


def _is_used(forced: Problem, problem: Problem, found: Extraction) -> bool:
    """Return whether the outputs read a forced candidate; otherwise it is computed in vain."""
    needed = active_order(replace(forced, roots=problem.roots), found.choice)
    return max(needed, default=0) >= problem.n_classes


def _reason(found: Extraction, increase: float, is_used: bool) -> str:
    proven = found.status == "optimal"
    if increase < -_TIE:
        return f"a graph with it may be {-increase:.2%} cheaper: the search ended too early"
    if increase <= _TIE:
        return "a graph with it costs the same"
    if not is_used:
        return f"it adds work that saves nothing: it costs {increase:.2%} more"
    best = "cheapest graph" if proven else "best graph found"
    return f"the {best} with it costs {increase:.2%} more"


def rewrites(graph: Graph) -> tuple[Rewrite, ...]:
    """Return the nodes that rules made, in order."""
    return tuple(
        Rewrite(
            node=node.name or node.outputs[0],
            op=plain_operator(node.op),
            rules=node.rules,
            inputs=node.inputs,
        )
        for node in graph.nodes
        if node.rules
    )


def kernel_uses(proposal: Proposal) -> tuple[KernelUse, ...]:
    """Return kernels of the original and of the best selection, the highest total first."""
    choice = proposal.choice
    kernels = {
        id(item): kernel
        for priced in (choice.priced, choice.own)
        for item, kernel in zip(priced.candidates.items, priced.kernels, strict=True)
    }

    def count(selection: Selection) -> Counter[Offer]:
        found = ((kernels[id(one.candidate)], one) for one in selection.values())
        return Counter(
            Offer(kernel, one.backend, one.implementation)
            for kernel, one in found
            if kernel is not None
        )

    before, after = count(choice.original), count(choice.best)
    before.update(_conversions(choice.own, choice.original_placed))
    after.update(_conversions(choice.priced, choice.placed[0]))
    uses = []
    for offer in before | after:
        price = choice.prices[offer]
        uses.append(
            KernelUse(
                kernel=_kernel_text(offer.kernel),
                by=offer.by,
                before=before[offer],
                after=after[offer],
                time_us=price.time_us,
                source=price.source,
                flops=float(literal(offer.kernel.flops)),
                bytes=float(literal(offer.kernel.bytes)),
            )
        )
    return tuple(sorted(uses, key=lambda u: (-max(u.before, u.after) * u.time_us, u.kernel, u.by)))


def _conversions(priced: PricedCandidates, placed: Placed) -> list[Offer]:
    """Return the offers that convert values, once for each value."""
    kernels = {(one.cls, one.made, one.read): one.kernel for one in priced.conversions}
    return [
        Offer(kernels[one.cls, one.made, one.form], one.backend, one.implementation)
        for one in placed
        if isinstance(one, ConvertedValue)
    ]


def _kernel_text(kernel: Kernel) -> str:
    """Return operators and operand types; for a conversion its type and forms."""
    if kernel.steps:
        return plain_kernel(str(kernel))
    (operand,) = kernel.operands
    return plain_sizes(f"{operand.type} from {operand.form} to {kernel.writes}")
