"""The numeric e-class check: every e-node is evaluated and compared with its class.

A class represents one value. The first evaluated node of a class sets it (a term of the model where
there is one), and every other node must agree, computed from the values of its operand classes. A
wrong union therefore shows where it was made and nowhere else, and the node that disagrees names
the rule that made it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.saturation.saturate import Saturation
from eqsat_opt.egraph.terms import LEAF, OUT, TermNode
from eqsat_opt.ir.graph.graph import OPAQUE, Attr, Attrs, index_of, sized
from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import FLOATS, TensorType, numpy_dtype

__all__ = ["BadClass", "EClassReport", "check_eclasses"]

_FREE = (LEAF, OUT)
"""Operators whose value is drawn at random, since only its type is known."""
_DEFAULT_SIZE = 3


@dataclass(frozen=True)
class BadClass:
    """A member of a class that does not compute the value of the class.

    Attributes:
        eclass: number of the class.
        node: number of the e-node; -1 for a loop, which reads its own class.
        op: operator of the member.
        rule: the rule that made it; for a term of the model the rules that united members of its
            class.
        error: greatest difference relative to the class's greatest magnitude.
    """

    eclass: int
    node: int
    op: str
    rule: str | None
    error: float

    def __str__(self) -> str:
        member = f"{self.op}, put there by {self.rule},"
        return f"e-class {self.eclass}: {member} is off by {self.error:.1e}"


@dataclass(frozen=True)
class EClassReport:
    """The result of the check.

    Attributes:
        equalities: number of members that were compared with the value of their class.
        skipped: number of e-nodes that were never reached: an operand, or the model's own term of
            their class, has no value (it is not a tensor, or its operator refused its operands). An
            e-node that refuses its own operands is counted in neither.
        bad: members that disagree, in the order in which they were made.
        suspects: rules that united members of bad classes, likeliest first: few of the classes that
            a wrong rule touched are good, while a right rule is in bad classes only where a wrong
            one was, too. A saturation of one round gives the shortest list.
    """

    equalities: int
    skipped: int
    bad: tuple[BadClass, ...]
    suspects: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.equalities} equalities compared, {self.skipped} e-nodes skipped, "
        return "\n".join(
            [head + (f"{len(self.bad)} bad" if self.bad else "none bad"), *map(str, self.bad)]
        )


class _Evaluator:
    """Values of classes, freed after their last use."""

    def __init__(self, saturation: Saturation, seed: int, sizes: Mapping[str, int]) -> None:
        self.saturation = saturation
        self.eclasses: EClasses = saturation.eclasses
        self.seed = seed
        self.sizes = _Sizes(sizes)
        self.values: dict[int, Array] = {}

    # Drawn values --------------------------------------------------------------------------------

    def draw(self, eclass: int, leaf: int | None) -> Array:
        """Draw a random value of the class's type; weights are scaled to keep results small."""
        type_ = self.eclasses.types[eclass]
        assert isinstance(type_, TensorType)
        shape = tuple(evaluate_dim(d, self.sizes) for d in type_.shape)
        lowered = self.saturation.lowered
        name = lowered.leaf_names[leaf] if leaf is not None else ""
        handle = lowered.constants.get(name)
        if handle is not None and type_.dtype not in FLOATS:
            return np.asarray(handle.load())  # Indices, masks and shapes keep their values.
        if handle is not None:
            # A view has the values of the constant that it views.
            base = lowered.view_of.get(name, name)
            return self._weight(base, lowered.constants[base].type).reshape(shape)
        rng = np.random.default_rng([self.seed, eclass])
        if type_.dtype in FLOATS:
            return rng.standard_normal(shape)
        if type_.dtype == "bool":
            return rng.random(shape) < 0.5
        return rng.integers(0, self._bound(eclass), size=shape).astype(numpy_dtype(type_.dtype))

    def _weight(self, name: str, type_: TensorType) -> Array:
        shape = tuple(evaluate_dim(d, self.sizes) for d in type_.shape)
        drawn = np.random.default_rng([self.seed, *name.encode()]).standard_normal(shape)
        if len(shape) > 1:
            drawn /= math.sqrt(max(shape[0] if len(shape) == 2 else math.prod(shape[1:]), 1))
        return drawn

    def _bound(self, eclass: int) -> int:
        """Return the bound for the integers of a class: the least extent that they index."""
        extents = [8]
        for node in self.eclasses.parents[eclass]:
            if self.eclasses.op[node] == "Gather":
                data = self.eclasses.types[self.eclasses.children(node)[0]]
                if isinstance(data, TensorType):
                    attrs: dict[str, Any] = dict(self.eclasses.attrs[node])
                    extents.append(evaluate_dim(data.shape[attrs["axis"]], self.sizes))
        return min(extents)

    # Computed values -----------------------------------------------------------------------------

    def compute(
        self, op: str, attrs: Attrs, children: tuple[int, ...], eclass: int
    ) -> Array | None:
        """Return the value of one member, ``None`` if it has none."""
        if not isinstance(self.eclasses.types[eclass], TensorType) or op == OPAQUE:
            return None
        if op in _FREE:
            return self.draw(eclass, index_of(attrs) if op == LEAF else None)
        operands = [self.values.get(child) for child in children]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        values = {key: _in_double(key, value) for key, value in sized(attrs, self.sizes)}
        try:
            with np.errstate(all="ignore"):
                return get_op(op).eval_fn(FLOAT, known, values)
        except (IndexError, TypeError, ValueError):
            return None


def _in_double(key: str, value: Attr) -> Attr:
    """Return an attribute with double precision in place of any floating-point type."""
    return "float64" if key in ("dtype", "to") and value in FLOATS else value


class _Sizes(dict[str, int]):
    """Sizes of symbolic dimensions; unnamed ones get a default."""

    def __missing__(self, name: str) -> int:
        return _DEFAULT_SIZE


def _error(expected: Array, actual: Array) -> float:
    """Return the greatest difference relative to the magnitude; infinite where shapes differ."""
    if expected.shape != actual.shape:
        return math.inf
    if expected.dtype.kind not in "f" or actual.dtype.kind not in "f":
        return 0.0 if np.array_equal(expected, actual) else math.inf
    finite = np.isfinite(expected) & np.isfinite(actual)
    with np.errstate(invalid="ignore"):
        same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    if not (finite | same).all():
        return math.inf
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(expected[finite]).max()), 1e-12)
    return float(np.abs(expected[finite] - actual[finite]).max()) / scale


@dataclass(frozen=True)
class _Member:
    """An e-node or a loop."""

    owner: int
    op: str
    attrs: Attrs
    children: tuple[int, ...]
    origin: int


def _members(eclasses: EClasses) -> list[_Member]:
    nodes = zip(
        eclasses.class_of.tolist(),
        eclasses.op,
        eclasses.attrs,
        eclasses.origin.tolist(),
        strict=True,
    )
    own = [
        _Member(owner=owner, op=op, attrs=attrs, children=eclasses.children(n), origin=origin)
        for n, (owner, op, attrs, origin) in enumerate(nodes)
    ]
    loops = [
        _Member(owner=o.eclass, op=o.op, attrs=o.attrs, children=o.children, origin=o.origin)
        for o in eclasses.loops
    ]
    return [*own, *loops]


class _Check:
    """One pass over all members; each is evaluated once, as soon as its operands have values."""

    def __init__(self, evaluator: _Evaluator, rtol: float) -> None:
        self.evaluator = evaluator
        self.values = evaluator.values
        self.eclasses = evaluator.eclasses
        self.lowered = evaluator.saturation.lowered
        self.rtol = rtol
        self.bad: list[tuple[int, BadClass]] = []
        self.equalities = 0
        self.computed: set[int] = set()
        self.members = _members(self.eclasses)
        self.pending = [len(set(member.children)) for member in self.members]
        classes = range(self.eclasses.n_classes)
        self.readers: list[list[int]] = [[] for _ in classes]
        self.owned: list[list[int]] = [[] for _ in classes]
        for number, member in enumerate(self.members):
            self.owned[member.owner].append(number)
            for child in set(member.children):
                self.readers[child].append(number)
        self.term_class: list[int] = self.eclasses.term_class.tolist()
        self.terms_left = [0] * len(classes)
        # A value is needed by the members that read it and by those that are compared with it.
        self.needed = [len(self.readers[c]) + len(self.owned[c]) for c in classes]
        for term, eclass in zip(self.lowered.terms, self.term_class, strict=True):
            self.terms_left[eclass] += 1
            for needed in (eclass, *{self.term_class[child] for child in term.children}):
                self.needed[needed] += 1

    def run(self) -> None:
        """Evaluate everything; the model's terms come first, for they are right by definition."""
        without_operands = [n for n, count in enumerate(self.pending) if not count]
        self.drain(sorted((self.members[n].origin, n) for n in without_operands))
        for term, eclass in zip(self.lowered.terms, self.term_class, strict=True):
            self.term(term, eclass)

    def term(self, term: TermNode, eclass: int) -> None:
        children = tuple(self.term_class[child] for child in term.children)
        self.terms_left[eclass] -= 1
        value = self.evaluator.compute(term.op, term.attrs, children, eclass)
        if value is not None and eclass in self.values:
            # A drawn value is equal to no other, whatever the numbers are.
            error = math.inf if term.op in _FREE else self.error(eclass, value)
            self.compare(
                _Member(owner=eclass, op=term.op, attrs=term.attrs, children=children, origin=0),
                error,
            )
        elif value is not None:
            self.values[eclass] = value
            ready: list[tuple[int, int]] = []
            self.arrived(eclass, ready)
            self.drain(ready)
        for needed in (eclass, *set(children)):
            self.release(needed)

    def drain(self, ready: list[tuple[int, int]]) -> None:
        """Evaluate members whose operands have values, earliest made first, and their readers."""
        while ready:
            _, number = heapq.heappop(ready)
            member = self.members[number]
            if number in self.computed:
                continue
            if member.owner not in self.values and self.terms_left[member.owner]:
                continue  # The model's own term sets the value, and then queues this member again.
            self.computed.add(number)
            fresh = member.owner not in self.values
            if member.origin:  # The model's own nodes are compared as terms.
                self.evaluate(member)
            if fresh and member.owner in self.values:
                self.arrived(member.owner, ready)
            for needed in (member.owner, *set(member.children)):
                self.release(needed)

    def arrived(self, eclass: int, ready: list[tuple[int, int]]) -> None:
        for number in self.readers[eclass]:
            self.pending[number] -= 1
        for number in (*self.readers[eclass], *self.owned[eclass]):
            if not self.pending[number] and number not in self.computed:
                heapq.heappush(ready, (self.members[number].origin, number))

    def evaluate(self, member: _Member) -> None:
        """Set the value of a member's class, or compare with it."""
        value = self.evaluator.compute(member.op, member.attrs, member.children, member.owner)
        if value is None:
            return
        if member.owner in self.values:
            self.compare(member, self.error(member.owner, value))
        else:
            self.values[member.owner] = value

    def error(self, eclass: int, value: Array) -> float:
        return _error(self.values[eclass], value)

    def compare(self, member: _Member, error: float) -> None:
        self.equalities += 1
        if error <= self.rtol:
            return
        rule = self.eclasses.rule_at(member.origin)
        if rule is None:
            rule = " or ".join(self.eclasses.united_by.get(member.owner, ())) or None
        # The earliest member is the likeliest culprit; later ones, and the model's own, may be
        # wrong because of it.
        made = member.origin or 1 << 62
        self.bad.append(
            (
                made,
                BadClass(
                    eclass=member.owner,
                    node=self.node_of(member),
                    op=member.op,
                    rule=rule,
                    error=error,
                ),
            )
        )

    def node_of(self, member: _Member) -> int:
        for node in self.eclasses.nodes_of[member.owner]:
            same = (self.eclasses.op[node], self.eclasses.attrs[node])
            if (
                same == (member.op, member.attrs)
                and self.eclasses.children(node) == member.children
            ):
                return node
        return -1

    def release(self, eclass: int) -> None:
        self.needed[eclass] -= 1
        if not self.needed[eclass]:
            self.values.pop(eclass, None)


def check_eclasses(
    saturation: Saturation,
    *,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    rtol: float = 1e-6,
) -> EClassReport:
    """Evaluate every e-node in double precision and compare it with its class.

    Inputs, floating point constants and outputs of opaque nodes are drawn at random, so no weight
    is read.

    Args:
        saturation: the e-graph.
        seed: seed of the drawn values.
        dims: sizes of symbolic dimensions; 3 for those not named.
        rtol: greatest accepted difference relative to the greatest magnitude in the class.
    """
    check = _Check(_Evaluator(saturation, seed, dims or {}), rtol)
    check.run()
    bad = [one for _, one in sorted(check.bad, key=lambda pair: pair[0])]
    skipped = len(check.members) - len(check.computed)
    return EClassReport(check.equalities, skipped, tuple(bad), _suspects(saturation.eclasses, bad))


def _suspects(eclasses: EClasses, bad: Sequence[BadClass]) -> tuple[str, ...]:
    wrong = {one.eclass for one in bad}
    united: Counter[str] = Counter()
    spoilt: Counter[str] = Counter()
    for eclass, rules in eclasses.united_by.items():
        united.update(rules)
        spoilt.update(rules if eclass in wrong else ())
    first = {one.rule: -i for i, one in reversed(list(enumerate(bad)))}

    def likelihood(rule: str) -> tuple[float, float]:
        return spoilt[rule] / united[rule], first.get(rule, -math.inf)

    return tuple(sorted(spoilt, key=likelihood, reverse=True))
