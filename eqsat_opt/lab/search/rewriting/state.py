"""A graph of a search, and the substitutions that led to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from eqsat_opt.cost.operators import STEPS
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.rewriting import RewriteTrial, Rewritten, Workbench, rewritten
from eqsat_opt.lab.search.rewriting.terms import TermGraph, Terms

__all__ = ["Identity", "Site", "State"]

Site = tuple[int, tuple[bytes, ...]]
"""Identity of a substitution: number of its rule, and terms that the left side's roots match."""

Identity = tuple[int, int]
"""Identity of a node: number of the step that created it, and its place in that graph."""


class State:
    """A graph that is built when its terms are asked for.

    Attributes:
        key: canonical key; two states of one key have one graph.
        value: objective value.
        size: number of operators that run.
        length: number of substitutions from the original.
        parent, step: the state before, and the last substitution; ``None`` for the original.
    """

    def __init__(
        self,
        terms: Terms,
        trial: RewriteTrial,
        parent: State | None = None,
        step: Substitution | None = None,
    ) -> None:
        self.key, self.value, self.size = trial.key, trial.value, trial.size
        self.length: int = 0 if parent is None else parent.length + 1
        self.parent, self.step = parent, step
        self._terms = terms

    @cached_property
    def _made(self) -> Rewritten:
        if self.parent is None or self.step is None:
            return Rewritten(self._terms.start(), {}, {})
        made = rewritten(self._terms, self.parent.graph, self.step)
        self._terms.remember(made.new.values())
        return made

    @cached_property
    def graph(self) -> TermGraph:
        """The graph."""
        return self._made.graph

    @property
    def is_result(self) -> bool:
        """Whether the graph can be written as it is priced, without a step of recognition."""
        return not any(self._terms.known[key].op in STEPS for key in self.graph.order)

    @cached_property
    def bench(self) -> Workbench:
        """The index for trials of substitutions."""
        return Workbench(self._terms, self.graph)

    def forget(self) -> None:
        """Drop caches that can be rebuilt, after the substitutions of the graph have been tried."""
        for name in ("bench", "_made"):
            self.__dict__.pop(name, None)

    @property
    def moved(self) -> Mapping[bytes, bytes]:
        """Key before the last substitution to key after, for all terms whose key it changed."""
        return self._made.moved

    @cached_property
    def identities(self) -> Mapping[bytes, Identity]:
        """Key to identity: a node keeps it while substitutions below give it other operands.

        Where nodes become equal, the identity of the oldest one stays.
        """
        order = self.graph.order
        found: dict[bytes, Identity] = {}
        if self.parent is not None and self.step is not None:
            consumed, live = set(self.step.consumed), set(order)
            for key, identity in self.parent.identities.items():
                now = key if key in consumed else self.moved.get(key, key)
                if now in live:
                    found[now] = min(identity, found.get(now, identity))
        for number, key in enumerate(order):
            found.setdefault(key, (self.length, number))
        return found

    def image(self, site: Site) -> Site:
        """Return a site of the graph before as the last substitution has moved it."""
        number, keys = site
        return number, tuple(self._made.moved.get(key, key) for key in keys)

    def images(self, sites: Iterable[Site]) -> Iterator[Site]:
        """Return sites as the last substitution has moved them, without those no longer live."""
        live = set(self.graph.order)
        return (one for one in map(self.image, sites) if live.issuperset(one[1]))

    @property
    def touched(self) -> frozenset[bytes]:
        """Terms that the last substitution made, or to which it made other terms equal."""
        assert self.parent is not None
        assert self.step is not None
        before, images = set(self.parent.graph.order), set[bytes]()
        met = {term.key for term in self.step.made}.union(self.step.results)
        for key, image in self._made.moved.items():
            if key not in self.step.consumed and (image in images or image in before):
                met.add(image)
            images.add(image)
        if not self.step.is_plain:  # the set of constants has changed, on which rules may depend
            met |= images
        return frozenset(met)

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the rules, in order."""
        names: list[str] = []
        state = self
        while state.parent is not None and state.step is not None:
            names.append(state.step.rule)
            state = state.parent
        return tuple(reversed(names))
