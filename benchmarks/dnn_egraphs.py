"""Synthetic e-graphs that look like neural networks after saturation, of any size.

What rules leave behind in real ones, and so what is generated here: weights and their
concatenations (free), fused and unfused forms of an operator, siblings that may be merged into one
wide operator and cut again by slices (contiguous runs, as real rules do), concatenations of slices
that are the merged tensor again (cycles), element-wise operators that move through slices, sums in
every association, products in both associations, operators in two layouts with a conversion each
way (cycles), and kernels of several prices for one e-node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from eqsat_opt.extract import Problem, ProblemBuilder

__all__ = ["dnn_egraph"]

_LAUNCH = 5.0  # cost of starting a kernel, µs
_SKIPS = 0.2  # share of blocks whose result is joined with that of an earlier block
_TWO_LAYOUTS = 0.5  # share of blocks whose result may be left in another layout
_STAYS = 0.8  # share of operators that can leave their result in the other layout
_MOVE = 0.15  # cost of a copy relative to the operator whose result it copies


def dnn_egraph(nodes: int, *, seed: int = 0) -> Problem:
    """A network of as many random blocks as give at least `nodes` e-nodes.

    Args:
        nodes: e-nodes to reach; the last block may overshoot by some dozens.
        seed: of the blocks and the costs.
    """
    network = _Network(random.Random(seed))
    blocks: tuple[Callable[[int], int], ...] = (
        network.residual,
        network.inception,
        network.attention,
        network.gates,
        network.layouts,
    )
    recent = [network.leaf()]
    while network.n_nodes < nodes:
        kind = network.rng.choice(blocks)
        for _ in range(network.rng.randint(1, 3)):
            if len(recent) > 1 and network.rng.random() < _SKIPS:
                value = network.joined(kind(recent[-1]), network.rng.choice(recent[:-1]))
            else:
                value = kind(recent[-1])
            if network.rng.random() < _TWO_LAYOUTS:
                network.convert(value)
            recent = [*recent[-3:], value]
    return network.builder.build([value])


class _Network:
    """Adds blocks; each takes the class of its input and returns the class of its output."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.builder = ProblemBuilder(("time_us",))
        self.n_nodes = 0
        self.layout: dict[int, int] = {}  # class to the same value in another layout

    def add(self, cls: int, children: Sequence[int], *costs: float) -> None:
        self.builder.add_node(cls, children, [(round(cost, 3),) for cost in costs])
        self.n_nodes += 1

    def new(self, children: Sequence[int], *costs: float) -> int:
        cls = self.builder.add_class()
        self.add(cls, children, *costs)
        return cls

    def leaf(self) -> int:
        """An input or a weight."""
        return self.new((), 0.0)

    def work(self) -> float:
        """Run time of an operator without its launch, µs."""
        return self.rng.lognormvariate(2.5, 1.0)

    def kernels(self, work: float) -> list[float]:
        """Prices of the kernels of one operator."""
        return [
            _LAUNCH + work * self.rng.uniform(0.9, 1.6) for _ in range(self.rng.choice((1, 1, 2)))
        ]

    def product(self, x: int, weight: int, work: float) -> int:
        """A matmul or convolution of a value in any of its layouts."""
        result = self.new((x, weight), *self.kernels(work))
        if x in self.layout:
            self.add(result, (self.layout[x], weight), *self.kernels(work))
            if self.rng.random() < _STAYS:
                self.add(self.convert(result), (self.layout[x], weight), *self.kernels(work))
        return result

    def operator(self, x: int, work: float) -> int:
        """A matmul or convolution with an activation: fused, or one after the other."""
        weight = self.leaf()
        plain = self.product(x, weight, work)
        result = self.new((plain,), _LAUNCH + work * _MOVE)
        self.add(result, (x, weight), *self.kernels(work * 1.03))
        if plain in self.layout:
            self.add(self.convert(result), (self.layout[plain],), _LAUNCH + work * _MOVE)
        return result

    def convert(self, x: int) -> int:
        """The value in another layout: converted, or made in it from others in that layout."""
        if x not in self.layout:
            price = _LAUNCH + self.work() * _MOVE
            self.layout[x] = self.new((x,), price)
            self.add(x, (self.layout[x],), price)
        return self.layout[x]

    def joined(self, x: int, y: int) -> int:
        """Sum of two values, in each layout that both have."""
        price = _LAUNCH + self.work() * _MOVE
        result = self.new((x, y), price)
        if x in self.layout and y in self.layout:
            self.add(self.convert(result), (self.layout[x], self.layout[y]), price)
        return result

    def siblings(self, x: int, count: int) -> tuple[list[int], int]:
        """Operators on one input, and the concatenation of their results.

        Every run of neighbours may be computed as one, and its parts cut out of it.
        """
        works = [self.work() for _ in range(count)]
        weights = [self.leaf() for _ in range(count)]
        alone = [self.product(x, w, v) for w, v in zip(weights, works, strict=True)]
        runs = {(k, k + 1): c for k, c in enumerate(alone)}
        joint = {(k, k + 1): c for k, c in enumerate(weights)}
        for length in range(2, count + 1):
            for begin in range(count - length + 1):
                end = begin + length
                work = sum(works[begin:end])
                weight = joint[begin, end] = self.new(weights[begin:end], 0.0)
                merged = self.product(x, weight, work * self.rng.uniform(0.6, 1.0))
                runs[begin, end] = merged
                for cut in range(begin + 1, end):
                    parts = (runs[begin, cut], runs[cut, end])
                    self.add(merged, parts, _LAUNCH + work * _MOVE)
                    self.add(weight, (joint[begin, cut], joint[cut, end]), 0.0)
                for (b, e), run in list(runs.items()):
                    if begin <= b and e <= end and (b, e) != (begin, end):
                        self.add(run, (merged,), 1.0 + sum(works[b:e]) * _MOVE)
        return alone, runs[0, count]

    def activated(self, parts: Sequence[int], whole: int) -> tuple[list[int], int]:
        """An element-wise operator on each part, or on their concatenation and then cut."""
        work = self.work() * _MOVE
        wide = self.new((whole,), _LAUNCH + work * len(parts))
        results = []
        for part in parts:
            result = self.new((part,), _LAUNCH + work)
            self.add(result, (wide,), 1.0 + work * _MOVE)
            results.append(result)
        self.add(wide, results, _LAUNCH + work)
        return results, wide

    def total(self, terms: Sequence[int]) -> int:
        """Sum of some terms in every association of neighbours."""
        sums = {(k, k + 1): c for k, c in enumerate(terms)}
        work = self.work() * _MOVE
        for length in range(2, len(terms) + 1):
            for begin in range(len(terms) - length + 1):
                end = begin + length
                cls = self.builder.add_class()
                sums[begin, end] = cls
                for cut in range(begin + 1, end):
                    self.add(cls, (sums[begin, cut], sums[cut, end]), _LAUNCH + work)
        return sums[0, len(terms)]

    def residual(self, x: int) -> int:
        """Two operators and the sum with the input, which the second may take in."""
        inner = self.operator(x, self.work())
        work, weight = self.work(), self.leaf()
        result = self.joined(self.product(inner, weight, work), x)
        self.add(result, (inner, weight, x), *self.kernels(work * 1.05))
        return result

    def inception(self, x: int) -> int:
        """Branches of different depth, concatenated."""
        parts, whole = self.siblings(x, self.rng.randint(2, 4))
        parts, _ = self.activated(parts, whole)
        for k in range(len(parts)):
            for _ in range(self.rng.randint(0, 2)):
                parts[k] = self.operator(parts[k], self.work())
        return self.new(parts, _LAUNCH + self.work() * _MOVE)

    def attention(self, x: int) -> int:
        """Query, key and value from one input, then products in both associations."""
        (q, k, v), _ = self.siblings(x, 3)
        work = self.work()
        scores = self.new((q, k), *self.kernels(work))
        context = self.new((scores, v), *self.kernels(work))
        other = self.new((k, v), *self.kernels(work * self.rng.uniform(0.5, 2.0)))
        self.add(context, (q, other), *self.kernels(work))
        return self.new((self.operator(context, self.work()), x), _LAUNCH + self.work() * _MOVE)

    def gates(self, x: int) -> int:
        """A recurrent cell: many siblings, element-wise operators, sums of several terms."""
        parts, whole = self.siblings(x, self.rng.randint(4, 6))
        parts, _ = self.activated(parts, whole)
        return self.total(parts)

    def layouts(self, x: int) -> int:
        """A run of operators, each in either of two layouts with conversions between them."""
        value = (x, self.convert(x))
        for _ in range(self.rng.randint(3, 12)):
            work, price = self.work(), _LAUNCH + self.work() * _MOVE
            value = (self.operator(value[0], work), self.operator(value[1], work))
            self.add(value[0], (value[1],), price)
            self.add(value[1], (value[0],), price)
            self.layout[value[0]], self.layout[value[1]] = value[1], value[0]
        return value[0]
