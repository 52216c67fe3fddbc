"""Sibling concatenation: operators that share an operand merge without two-root rules.

Two-root rules blow up because they merge every subset of a group of siblings. Instead the loader
adds, for chosen runs of siblings, their concatenation ``k`` and the valid equations ``x_i =
k[lo_i:hi_i]``. The slice laws of the rulebook then derive ``f(x_i) = f(k)[lo_i:hi_i]``, so growth
is linear in the number of runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.egraph.terms import Lowered, TermNode
from eqsat_opt.ir.graph.graph import Attrs, attributes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply

__all__ = ["NO_SEEDS", "SEED_RULE", "Seeder", "Seeds", "sibling_seeds"]

SEED_RULE = "siblings/concat"
"""Rule name under which the e-nodes made here appear."""

_ALL_RUNS = 4
"""Greatest size of groups of which every contiguous run is added; of larger ones, only the
whole."""


@dataclass(frozen=True)
class Seeds:
    """Terms added to a model and numbered after its own; the equal pairs and constants of them."""

    terms: tuple[TermNode, ...]
    equal: tuple[tuple[int, int], ...]
    constant: frozenset[int] = frozenset()


NO_SEEDS = Seeds((), ())


@dataclass
class Seeder:
    """Collector of terms that are added to those of a model, each once.

    Attributes:
        lowered: the model.
        terms: the added terms, numbered after the model's.
        index: number of each by operator, operands and attributes.
        equal: pairs of equal terms.
        constant: terms that are known at compile time.
    """

    lowered: Lowered
    terms: list[TermNode] = field(default_factory=list)
    index: dict[tuple[Any, ...], int] = field(default_factory=dict)
    equal: dict[tuple[int, int], None] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)

    @property
    def seeds(self) -> Seeds:
        """All terms and equations so far."""
        return Seeds(tuple(self.terms), tuple(self.equal), frozenset(self.constant))

    def is_constant(self, term: int) -> bool:
        """Return whether a term is known at compile time."""
        if term < len(self.lowered.terms):
            return self.lowered.constant(term) is not None
        return term in self.constant

    def type(self, term: int) -> TensorType:
        """Return the type of a term that is a tensor."""
        own = len(self.lowered.terms)
        node = self.lowered.terms[term] if term < own else self.terms[term - own]
        assert isinstance(node.type, TensorType)
        return node.type

    def apply(self, op: str, children: Sequence[int], **attrs: Any) -> int:
        """Add an operator on terms, unless it is there, and return its number.

        Raises:
            IllTyped: it is not defined on them.
        """
        key = (op, tuple(children), attributes(**attrs))
        if key not in self.index:
            result = get_op(op).type_fn([self.type(c) for c in children], attrs)
            self.index[key] = len(self.lowered.terms) + len(self.terms)
            self.terms.append(TermNode(op, key[2], tuple(children), result))
            if all(self.is_constant(c) for c in children):
                self.constant.add(self.index[key])
        return self.index[key]

    def run(self, members: Sequence[int], axis: int) -> None:
        """Add the concatenation of ``members`` as one node, and each of them as its slice.

        A nested concatenation would contain every prefix too, and the slice laws would derive each
        member from each prefix.
        """
        whole = self.apply("Concat", members, axis=axis)
        start = 0
        for member in members:
            size = self.type(member).shape[axis]
            assert isinstance(size, int)
            part = self.apply("Slice", [whole], axis=axis, lo=start, hi=start + size)
            self.equal[(member, part)] = None
            start += size

    def runs(self, group: Sequence[int], axis: int) -> None:
        count = len(group)
        if not self.stackable(group, axis) or self.is_apart(group):
            return
        if count > _ALL_RUNS:
            self.run(group, axis)
            return
        for start in range(count):
            for end in range(start + 2, count + 1):
                self.run(group[start:end], axis)

    def is_apart(self, group: Sequence[int]) -> bool:
        """Return whether the members are slices of one tensor, which is their concatenation."""
        own = self.lowered.terms
        sources = {
            own[g].children if g < len(own) and own[g].op == "Slice" else (-1, g) for g in group
        }
        return len(sources) == 1

    def stackable(self, group: Sequence[int], axis: int) -> bool:
        """Return whether all types agree, except for a positive literal extent along ``axis``.

        A member that is empty along ``axis`` cannot be a slice.
        """
        types = [self.type(g) for g in group]
        if len(group) < 2 or not all(0 <= axis < t.rank for t in types):
            return False
        rest = {(t.dtype, t.shape[:axis], t.shape[axis + 1 :]) for t in types}
        sizes = [t.shape[axis] for t in types]
        return len(rest) == 1 and all(isinstance(size, int) and size > 0 for size in sizes)


def _unique(items: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(items)))


def _weight_groups(lowered: Lowered) -> dict[tuple[str, Attrs, tuple[int, ...]], None]:
    """Return groups of weights that the same operator applies to the same data."""
    groups: dict[tuple[int, str, Attrs, object], list[int]] = defaultdict(list)
    for term in lowered.terms:
        if term.op not in ("MatMul", "Conv") or lowered.constant(term.children[1]) is None:
            continue
        data, weight = term.children
        type_ = lowered.terms[weight].type
        assert isinstance(type_, TensorType)
        is_matrix = term.op == "MatMul" and type_.rank == 2
        is_plain_conv = term.op == "Conv" and dict(term.attrs)["group"] == 1
        if is_matrix or is_plain_conv:
            groups[(data, term.op, term.attrs, type_.shape[2:])].append(weight)
    return {
        (op, attrs, _unique(g)): None for (_, op, attrs, _), g in groups.items() if len(set(g)) > 1
    }


def _bias_groups(lowered: Lowered, weights: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the constants added to the products with ``weights``, where each product has one.

    Each group is in the order of the weights.
    """
    added: dict[int, dict[int, int]] = defaultdict(dict)
    wanted = set(weights)
    product = {
        i: term.children
        for i, term in enumerate(lowered.terms)
        if term.op in ("MatMul", "Conv") and term.children[1] in wanted
    }
    for term in lowered.terms:
        if term.op != "Add":
            continue
        for value, bias in (term.children, term.children[::-1]):
            if value in product and lowered.constant(bias) is not None:
                data, weight = product[value]
                added[data][weight] = bias
    groups = {
        tuple(found[w] for w in weights) for found in added.values() if len(found) == len(weights)
    }
    return sorted(groups)


def _step_groups(lowered: Lowered) -> list[tuple[int, ...]]:
    """Return groups of independent data that are multiplied by the same weight.

    Values are grouped by the number of products with that weight on the longest path to them: of
    two values with equal numbers, neither is computed from a product of the other.
    """
    uses = Counter(
        t.children[1] for t in lowered.terms if t.op == "MatMul" and lowered.constant(t.children[1])
    )
    shared = {weight for weight, count in uses.items() if count > 1}
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    below: list[dict[int, int]] = []
    for term in lowered.terms:
        counts: dict[int, int] = {}
        for child in term.children:
            for weight, count in below[child].items():
                counts[weight] = max(counts.get(weight, 0), count)
        if term.op == "MatMul" and term.children[1] in shared:
            data, weight = term.children
            if lowered.constant(data) is None:
                groups[(weight, counts.get(weight, 0))].append(data)
            counts = {**counts, weight: counts.get(weight, 0) + 1}
        below.append(counts)
    return sorted({_unique(group) for group in groups.values()})


_SMALL_KERNELS = ((1, 1), (1, 3), (3, 1), (3, 3))
"""Kernel extents that are worth padding with zeros, so that such kernels merge with each other."""


def _mixed_kernels(seeder: Seeder) -> None:
    """Add runs of small filters of several extents on the same data, padded to one extent."""
    lowered = seeder.lowered
    by_data: dict[tuple[int, object], dict[int, tuple[int, int]]] = defaultdict(dict)
    for term in lowered.terms:
        if term.op != "Conv" or lowered.constant(term.children[1]) is None:
            continue
        attrs: dict[str, Any] = dict(term.attrs)
        kernel: Any = seeder.type(term.children[1]).shape[2:]
        pads = attrs["pads"]
        if attrs["group"] != 1 or len(kernel) != 2 or any(d != 1 for d in attrs["dilations"]):
            continue
        if kernel in _SMALL_KERNELS and pads == tuple(k // 2 for k in kernel) * 2:
            by_data[(term.children[0], attrs["strides"])][term.children[1]] = kernel
    for weights in by_data.values():
        if len(set(weights.values())) < 2:
            continue
        height, width = (max(kernel[axis] for kernel in weights.values()) for axis in (0, 1))
        padded = []
        for w, kernel in sorted(weights.items()):
            more = (0, 0, (height - kernel[0]) // 2, (width - kernel[1]) // 2) * 2
            padded.append(seeder.apply("Pad", [w], pads=more, value=0.0) if any(more) else w)
        seeder.runs(padded, 0)
        for biases in _bias_groups(lowered, sorted(weights)):
            if len(set(biases)) == len(biases):
                seeder.runs(biases, 1)


def sibling_seeds(lowered: Lowered, rules: Sequence[Rule]) -> Seeds:
    """Return the terms and equations to add to the model, for the rules that will run."""
    if not rules:
        return NO_SEEDS
    seeder = Seeder(lowered)
    for op, _, weights in _weight_groups(lowered):
        seeder.runs(weights, 1 if op == "MatMul" else 0)
        for biases in _bias_groups(lowered, weights):
            axis = 1 if op == "Conv" else seeder.type(biases[0]).rank - 1
            if len(set(biases)) == len(biases):
                seeder.runs(biases, axis)
    for data in _step_groups(lowered):
        if all(seeder.type(d).rank == 2 for d in data):
            seeder.runs(data, 0)
    if any(_takes_padded(rule) for rule in rules):
        _mixed_kernels(seeder)
    return seeder.seeds


def _takes_padded(rule: Rule) -> bool:
    """Return whether a rule lets operators use padded constants in place of the original ones.

    Without such a rule, only the largest of several kernels would merge, with zeros that no
    operator reads.
    """
    pads = [isinstance(root, Apply) and root.op == "Pad" for root in rule.lhs]
    return any(pads) and not all(pads)
