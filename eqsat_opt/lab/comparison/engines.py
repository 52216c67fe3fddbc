"""The methods that work on an e-graph: ours, and TENSAT's on the same engine and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

from eqsat_opt.egraph import NO_SEEDS, Budget, Saturation, lower, saturate, saturate_terms
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.products import Products, of_several_roots
from eqsat_opt.proving.selection import standings
from eqsat_opt.rules import Rule

__all__ = ["ENGINES", "IN_PLACE_OF", "EGraphMethod", "EqSat", "Extractor", "Tensat", "laws_of"]

Extractor = Literal["exact", "greedy"]


class EGraphMethod(Protocol):
    """A method on an e-graph: a frozen dataclass of its parameters.

    Attributes:
        name: name on the command line.
        exact: whether the method proves its result unless its budget is spent.
        extract: the method of extraction.
        trials: substitutions that are tried after extraction where the objective is no sum.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    exact: ClassVar[bool]

    @property
    def extract(self) -> Extractor: ...

    @property
    def trials(self) -> int: ...

    def saturate(self, graph: Graph, rules: Sequence[Rule], budget: Budget) -> Saturation:
        """Saturate the e-graph of a model."""


def _check_extractor(extract: str) -> None:
    if extract not in ("exact", "greedy"):
        raise OptionError(f"unknown extraction {extract!r}; choose exact or greedy")


IN_PLACE_OF: Mapping[str, tuple[str, ...]] = {
    "conv/enlarge-crossed-kernels": ("conv/use-padded-kernel",),
    "conv/enlarge-kernel": ("conv/use-padded-kernel",),
    "conv/merge-siblings": ("conv/slice-filters",),
    "matmul/batch-steps": ("matmul/slice-rows",),
    "matmul/merge-operands": ("concat/add-slices",),
    "matmul/merge-weights": ("matmul/slice-columns",),
}
"""Rule that merges siblings to the laws that do the same with the loader's equations."""


def laws_of(rules: Sequence[Rule]) -> list[Rule]:
    """Return the laws that replace rules that merge siblings and are not among the rules."""
    known, given = standings(), {rule.base for rule in rules}
    names = dict.fromkeys(law for rule in rules for law in IN_PLACE_OF.get(rule.base, ()))
    return [known[name].rule for name in names if name not in given and not known[name].obstacle]


@dataclass(frozen=True)
class EqSat:
    """Equality saturation and exact extraction.

    Attributes:
        extract: ``exact``; or ``greedy``, without search and without the model as an incumbent.
        seeds: whether siblings can merge by equations of the loader; rules of several roots that
            merge siblings do not run.
        trials: substitutions that are tried from the best extracted graph and from the original on
            streams, where no sum that is extracted for models how kernels share a device. 0 for
            none.
    """

    name: ClassVar[str] = "eqsat"
    exact: ClassVar[bool] = True

    extract: Extractor = "exact"
    seeds: bool = True
    trials: int = 300

    def __post_init__(self) -> None:
        _check_extractor(self.extract)
        if self.trials < 0:
            raise OptionError(f"trials is {self.trials}; give a count, or 0 for none")

    def saturate(self, graph: Graph, rules: Sequence[Rule], budget: Budget) -> Saturation:
        """Saturate with all rules.

        If siblings may merge, equations of the loader and laws of slices replace the rules that
        merge them.
        """
        if not self.seeds:
            return saturate(graph, rules, budget, seeds=NO_SEEDS)
        return saturate(graph, [*rules, *laws_of(rules)], budget)


@dataclass(frozen=True)
class Tensat:
    """Equality saturation with rules of several roots by products (Yang et al., MLSys 2021).

    Attributes:
        rounds: rounds in which products are taken: the paper's k.
        filter: whether products that would close a cycle are left out.
        extract: ``exact``, as the paper's integer program, or ``greedy``.
    """

    name: ClassVar[str] = "tensat"
    exact: ClassVar[bool] = True
    trials: ClassVar[int] = 0

    rounds: int = 1
    filter: bool = True
    extract: Extractor = "exact"

    def __post_init__(self) -> None:
        _check_extractor(self.extract)
        if self.rounds < 0:
            raise OptionError(f"rounds is {self.rounds}; give a number of rounds, or 0 for none")

    def saturate(self, graph: Graph, rules: Sequence[Rule], budget: Budget) -> Saturation:
        """Saturate with single-root rules, then alternate between products and saturation."""
        lowered = lower(graph)
        joint, others = of_several_roots(rules)
        products = Products(lowered, joint, most=budget.nodes, filters=self.filter)
        eclasses, report = saturate_terms(lowered, others, budget, seeds=NO_SEEDS)
        for _ in range(self.rounds):
            if not products.extend(eclasses, budget.deadline):
                break
            eclasses, report = saturate_terms(lowered, others, budget, seeds=products.seeds)
        else:
            # The loop did not end early, so a further round might find more.
            if joint and report.stopped_by == "saturated":
                report = replace(report, stopped_by="iterations")
        matches = {**report.matches, **products.applied}
        return Saturation(lowered, eclasses, replace(report, matches=matches))


ENGINES: Mapping[str, type[EGraphMethod]] = {EqSat.name: EqSat, Tensat.name: Tensat}
"""Name to class of each method on an e-graph."""
