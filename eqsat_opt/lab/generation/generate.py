"""Generation of a rulebook: enumeration, candidates, the rules that are kept, and their source."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eqsat_opt.lab.certification import verify
from eqsat_opt.lab.generation.candidates import candidates
from eqsat_opt.lab.generation.enumeration import enumerate_terms
from eqsat_opt.lab.generation.minimising import Kept, RuleBasis
from eqsat_opt.lab.generation.settings import settings_for
from eqsat_opt.lab.generation.siblings import siblings
from eqsat_opt.lab.generation.source import rulebook_source

__all__ = ["EnumeratedTerms", "Generated", "generate"]

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class EnumeratedTerms:
    """The terms of one setting.

    Attributes:
        setting: their kind, such as ``matrices``.
        count: number of terms.
        enumeration_s: seconds in which they were made and compared.
        equal: number of terms that are equal to an earlier one.
        candidates: number of pairs up to the names of variables.
    """

    setting: str
    count: int
    enumeration_s: float
    equal: int
    candidates: int


@dataclass(frozen=True)
class Generated:
    """The rules that were generated.

    Attributes:
        kept: rules with their certificates; those of two outputs follow those of one.
        terms: the terms that were compared, by setting.
        derived: number of candidates that followed from others.
        refused: candidates that hold at the shapes of their setting and not at others.
        unsaid: number of candidates that cannot be said as rules.
        time_s: seconds of everything.
    """

    kept: tuple[Kept, ...]
    terms: tuple[EnumeratedTerms, ...]
    derived: int
    refused: tuple[str, ...]
    unsaid: int
    time_s: float

    @property
    def summary(self) -> str:
        """The counts and times in a few lines."""
        lines = [
            f"{one.setting}: {one.count:,} terms in {one.enumeration_s:.1f} s, "
            f"{one.equal:,} of them equal to others, {one.candidates:,} candidates"
            for one in self.terms
        ]
        proven = sum(one.certificate.level == 2 for one in self.kept)
        lines.append(
            f"{len(self.kept)} rules, {proven} of them proven for all sizes; "
            f"{self.derived} candidates were derived from others, {len(self.refused)} hold at "
            f"some shapes only, {self.unsaid} cannot be said; {self.time_s:.0f} s"
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rules": [
                {
                    "name": one.rule.name,
                    "equation": str(one.rule),
                    "numerics": one.rule.numerics.name.lower(),
                    "level": one.certificate.level,
                }
                for one in self.kept
            ],
            "terms": [asdict(one) for one in self.terms],
            "derived": self.derived,
            "refused": list(self.refused),
            "unsaid": self.unsaid,
            "time_s": round(self.time_s, 3),
        }

    def source(self, about: str) -> str:
        """Return the rules as a rulebook."""
        return rulebook_source([one.rule for one in self.kept], about)


def generate(
    operators: Sequence[str], size: int, seed: int = 0, progress: Progress | None = None
) -> Generated:
    """Generate rules on some operators.

    Args:
        operators: names of :data:`~eqsat_opt.lab.generation.settings.OPERATORS`.
        size: greatest number of operators of a side.
        seed: seed of the values at which terms are compared.
        progress: called with the number of candidates done, of all of a setting, and its name.

    Raises:
        OptionError: there is no such operator.
    """
    start = time.perf_counter()
    basis, terms = RuleBasis(), []
    for setting in settings_for(operators):
        found = enumerate_terms(setting, size, seed)
        pairs = candidates(found)
        terms.append(
            EnumeratedTerms(
                setting=setting.name, count=sum(found.counts), enumeration_s=found.time_s,
                equal=len(found.equal), candidates=len(pairs),
            )
        )  # fmt: skip
        basis.extend(pairs, setting, progress)
    basis.minimise()
    single = tuple(basis.kept)
    double = [
        Kept(one.rule, one.certificate)
        for one in verify(siblings([kept.rule for kept in single]), level=2)
        if one.passed and one.certificate is not None
    ]
    return Generated(
        kept=(*single, *double), terms=tuple(terms), derived=basis.derived,
        refused=tuple(basis.refused), unsaid=basis.unsaid, time_s=time.perf_counter() - start,
    )  # fmt: skip
