"""An evolutionary search over genomes of 0 and 1 (Collage, §4.3).

Each round replaces a whole population: parents are the winners of small tournaments, a pair is
crossed between two points, and genes flip. The best genome is kept aside.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Evolution", "Genome"]

Genome = tuple[bool, ...]


@dataclass(frozen=True)
class Evolution:
    """The parameters of the search.

    Attributes:
        population: genomes of a round; at least two.
        tournament: number of drawn genomes of which the best becomes a parent.
        rounds: rounds after the first population.
        crossing: probability that two parents are crossed.
        mutating: probability that a child mutates.
        flipping: probability that a gene of a mutating child flips.
    """

    population: int = 50
    tournament: int = 5
    rounds: int = 20
    crossing: float = 0.5
    mutating: float = 0.2
    flipping: float = 0.05

    def best(self, genes: int, cost: Callable[[Genome], float], seed: int) -> Genome:
        """Return the cheapest genome that was met; the cost of each is computed once.

        The genomes without and with all genes are in the first population.
        """
        rng = random.Random(seed)
        known: dict[Genome, float] = {}

        def of(genome: Genome) -> float:
            if genome not in known:
                known[genome] = cost(genome)
            return known[genome]

        here: list[Genome] = [(False,) * genes, (True,) * genes]
        while len(here) < self.population:
            here.append(tuple(rng.random() < 0.5 for _ in range(genes)))
        best = min(here, key=of)
        for _ in range(self.rounds):
            after: list[Genome] = []
            while len(after) < self.population:
                pair = [self._parent(here, of, rng) for _ in range(2)]
                if rng.random() < self.crossing:
                    pair = self._crossed(pair[0], pair[1], rng)
                after += [self._mutated(one, rng) for one in pair]
            here = after[: self.population]
            best = min((best, *here), key=of)
        return best

    def _parent(
        self, here: list[Genome], of: Callable[[Genome], float], rng: random.Random
    ) -> Genome:
        return min((rng.choice(here) for _ in range(self.tournament)), key=of)

    def _crossed(self, one: Genome, other: Genome, rng: random.Random) -> list[Genome]:
        a, b = sorted(rng.randint(0, len(one)) for _ in range(2))
        return [
            (*one[:a], *other[a:b], *one[b:]),
            (*other[:a], *one[a:b], *other[b:]),
        ]

    def _mutated(self, genome: Genome, rng: random.Random) -> Genome:
        if rng.random() >= self.mutating:
            return genome
        return tuple(gene != (rng.random() < self.flipping) for gene in genome)
