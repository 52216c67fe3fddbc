"""The numeric e-class check: every e-node is evaluated and compared with its class.

A class stands for one value. The first evaluated node of a class sets it (a term of the model where there is one),
and every other node must agree, computed from the values of its operand classes. A wrong union therefore shows where
it was made and nowhere else, and the node that disagrees names the rule that made it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.lowering import LEAF, OUT, TermNode
from eqsat_opt.egraph.saturate import Saturation
from eqsat_opt.ir.dims import evaluate_dim
from eqsat_opt.ir.graph import OPAQUE, Attrs
from eqsat_opt.ir.ops import Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.types import FLOATS, TensorType, numpy_dtype

__all__ = ["BadClass", "EClassReport", "check_eclasses"]

_FREE = (LEAF, OUT)
"""Operators whose value is drawn; nothing is known about it but the type."""
_DEFAULT_SIZE = 3


@dataclass(frozen=True)
class BadClass:
    """A member of a class that does not compute what the class stands for.

    Attributes:
        eclass: number of the class.
        node: number of the e-node, -1 for a term of the model that is no e-node any more because its class took in
            its own operand.
        op: operator of the member.
        rule: the rule that made it; for a term of the model the rules that united members of its class.
        error: greatest difference relative to the class's greatest magnitude.
    """

    eclass: int
    node: int
    op: str
    rule: str | None
    error: float

    def __str__(self) -> str:
        return f"e-class {self.eclass}: {self.op}, put there by {self.rule}, is off by {self.error:.1e}"


@dataclass(frozen=True)
class EClassReport:
    """What was compared.

    Attributes:
        equalities: members that were compared with the value of their class.
        skipped: e-nodes that could not be evaluated (operands that are no tensors, indices out of range).
        bad: members that disagree, in the order in which they were made.
    """

    equalities: int
    skipped: int
    bad: tuple[BadClass, ...]

    def __str__(self) -> str:
        head = f"{self.equalities} equalities compared, {self.skipped} e-nodes skipped, "
        return "\n".join(
            [head + (f"{len(self.bad)} bad" if self.bad else "none bad"), *map(str, self.bad)]
        )


class _Evaluator:
    """Values of classes, freed once nobody needs them."""

    def __init__(self, saturation: Saturation, seed: int, sizes: Mapping[str, int]) -> None:
        self.saturation = saturation
        self.eclasses: EClasses = saturation.eclasses
        self.seed = seed
        self.sizes = _Sizes(sizes)
        self.values: dict[int, Array] = {}

    # Drawn values --------------------------------------------------------------------------------

    def draw(self, eclass: int, leaf: int | None) -> Array:
        """A random value of the class's type; weights are scaled so that results neither grow nor vanish."""
        type_ = self.eclasses.types[eclass]
        assert isinstance(type_, TensorType)
        shape = tuple(evaluate_dim(d, self.sizes) for d in type_.shape)
        lowered = self.saturation.lowered
        handle = lowered.constants.get(lowered.leaf_names[leaf]) if leaf is not None else None
        if handle is not None and type_.dtype not in FLOATS:
            return np.asarray(handle.load())  # Indices, masks and shapes mean what they are.
        rng = np.random.default_rng([self.seed, eclass])
        if type_.dtype in FLOATS:
            drawn = rng.standard_normal(shape)
            if handle is not None and len(shape) > 1:
                fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
                drawn /= math.sqrt(max(fan_in, 1))
            return drawn
        if type_.dtype == "bool":
            return rng.random(shape) < 0.5
        return rng.integers(0, self._bound(eclass), size=shape).astype(numpy_dtype(type_.dtype))

    def _bound(self, eclass: int) -> int:
        """Integers are drawn below the extents that they index."""
        extents = [8]
        for node in self.eclasses.parents[eclass]:
            if self.eclasses.op[node] == "Gather":
                data = self.eclasses.types[self.eclasses.children(node)[0]]
                if isinstance(data, TensorType):
                    axis = dict(self.eclasses.attrs[node])["axis"]
                    extents.append(evaluate_dim(data.shape[int(str(axis))], self.sizes))
        return min(extents)

    # Computed values -----------------------------------------------------------------------------

    def compute(
        self, op: str, attrs: Attrs, children: tuple[int, ...], eclass: int
    ) -> Array | None:
        """The value of one member, ``None`` if it has none."""
        if not isinstance(self.eclasses.types[eclass], TensorType) or op == OPAQUE:
            return None
        if op in _FREE:
            return self.draw(eclass, int(str(attrs[0][1])) if op == LEAF else None)
        operands = [self.values.get(child) for child in children]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        values = {key: self._attr(key, value) for key, value in attrs}
        try:
            with np.errstate(all="ignore"):
                return get_op(op).eval_fn(FLOAT, known, values)
        except (IndexError, TypeError):
            return None

    def _attr(self, key: str, value: Any) -> Any:
        """Symbolic sizes get numbers; whatever is floating point is computed in double precision."""
        if key in ("dtype", "to") and value in FLOATS:
            return "float64"
        if isinstance(value, tuple):
            return tuple(evaluate_dim(d, self.sizes) for d in value)
        return value


class _Sizes(dict[str, int]):
    """Sizes of symbolic dimensions; unnamed ones get a default."""

    def __missing__(self, name: str) -> int:
        return _DEFAULT_SIZE


def _error(expected: Array, actual: Array) -> float:
    """Greatest difference relative to the greatest magnitude; infinite where shapes differ."""
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


class _Check:
    """One pass over all members; each is evaluated once, as soon as its operands have values."""

    def __init__(self, evaluator: _Evaluator, rtol: float) -> None:
        self.evaluator = evaluator
        self.eclasses = evaluator.eclasses
        self.lowered = evaluator.saturation.lowered
        self.rtol = rtol
        self.bad: list[BadClass] = []
        self.equalities = 0
        self.computed: set[int] = set()
        self.pending = [len(set(self.eclasses.children(n))) for n in range(self.eclasses.n_nodes)]
        # A value is needed by the nodes that read its class and by those that are compared with it.
        self.needed = [
            len(self.eclasses.parents[c]) + len(self.eclasses.nodes_of[c])
            for c in range(self.eclasses.n_classes)
        ]
        self.terms_left = np.bincount(
            self.eclasses.term_class, minlength=self.eclasses.n_classes
        ).tolist()

    # The model's terms come first: they are right by definition ----------------------------------

    def run(self) -> None:
        """Evaluate everything."""
        readers = [0] * self.eclasses.n_classes
        for term in self.lowered.terms:
            for child in dict.fromkeys(term.children):
                readers[int(self.eclasses.term_class[child])] += 1
        for eclass, count in enumerate(readers):
            self.needed[eclass] += count + self.terms_left[eclass]
        made = self.eclasses.origin.tolist()
        self.drain(sorted((made[n], n) for n, count in enumerate(self.pending) if not count))
        for number, term in enumerate(self.lowered.terms):
            self.term(term, int(self.eclasses.term_class[number]))

    def term(self, term: TermNode, eclass: int) -> None:
        children = tuple(int(self.eclasses.term_class[child]) for child in term.children)
        self.terms_left[eclass] -= 1
        drawn = term.op in _FREE and eclass in self.evaluator.values
        value = self.evaluator.compute(term.op, term.attrs, children, eclass)
        if eclass not in self.evaluator.values:
            if value is not None:
                self.settle(eclass, value)
        elif value is not None:
            # A drawn value is equal to no other, whatever the numbers say.
            node = self.node_of(term, children, eclass)
            self.compare(eclass, node, term.op, math.inf if drawn else None, value)
        for child in {int(self.eclasses.term_class[c]) for c in term.children}:
            self.release(child)
        self.release(eclass)

    def node_of(self, term: TermNode, children: tuple[int, ...], eclass: int) -> int:
        """The e-node of a term; -1 if its class is its own operand, for then it was dropped."""
        for node in self.eclasses.nodes_of[eclass]:
            same = self.eclasses.op[node] == term.op and self.eclasses.attrs[node] == term.attrs
            if same and self.eclasses.children(node) == children:
                return node
        return -1

    # Members -------------------------------------------------------------------------------------

    def settle(self, eclass: int, value: Array) -> None:
        """Give a class its value and evaluate all nodes that waited for it."""
        self.evaluator.values[eclass] = value
        ready: list[tuple[int, int]] = []
        self.arrived(eclass, ready)
        self.drain(ready)

    def drain(self, ready: list[tuple[int, int]]) -> None:
        """Evaluate nodes whose operands have values, earliest made first, and those that follow."""
        while ready:
            _, node = heapq.heappop(ready)
            owner = int(self.eclasses.class_of[node])
            if node in self.computed:
                continue
            if owner not in self.evaluator.values and self.terms_left[owner]:
                continue  # The model's own term will set it, and come back for this node.
            self.computed.add(node)
            fresh = owner not in self.evaluator.values
            if self.member(node, owner) and fresh:
                self.arrived(owner, ready)
            for child in set(self.eclasses.children(node)):
                self.release(child)
            self.release(owner)

    def arrived(self, eclass: int, ready: list[tuple[int, int]]) -> None:
        for node in self.eclasses.parents[eclass]:
            self.pending[node] -= 1
            if not self.pending[node]:
                heapq.heappush(ready, (int(self.eclasses.origin[node]), node))
        for node in self.eclasses.nodes_of[eclass]:
            if not self.pending[node] and node not in self.computed:
                heapq.heappush(ready, (int(self.eclasses.origin[node]), node))

    def member(self, node: int, owner: int) -> bool:
        """Evaluate an e-node: set its class, or compare with it; whether it has a value."""
        op = self.eclasses.op[node]
        if not self.eclasses.origin[node]:
            return owner in self.evaluator.values  # Compared as a term of the model.
        children = self.eclasses.children(node)
        value = self.evaluator.compute(op, self.eclasses.attrs[node], children, owner)
        if value is None:
            return False
        if owner in self.evaluator.values:
            self.compare(owner, node, op, None, value)
        else:
            self.evaluator.values[owner] = value
        return True

    def compare(self, eclass: int, node: int, op: str, error: float | None, value: Array) -> None:
        self.equalities += 1
        if error is None:
            error = _error(self.evaluator.values[eclass], value)
        if error > self.rtol:
            rule = self.eclasses.rule_of(node) if node >= 0 else None
            rule = rule or self.suspects(eclass)
            self.bad.append(BadClass(eclass, node, op, rule, error))

    def suspects(self, eclass: int) -> str | None:
        """The rules that united members of a class."""
        return " or ".join(self.eclasses.united_by.get(eclass, ())) or None

    def release(self, eclass: int) -> None:
        self.needed[eclass] -= 1
        if not self.needed[eclass]:
            self.evaluator.values.pop(eclass, None)


def check_eclasses(
    saturation: Saturation,
    *,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    rtol: float = 1e-6,
) -> EClassReport:
    """Evaluate every e-node in double precision and compare it with its class.

    Inputs, floating point constants and outputs of opaque nodes are drawn at random, so no weight is read.

    Args:
        saturation: the e-graph.
        seed: of the drawn values.
        dims: sizes of symbolic dimensions; 3 for those not named.
        rtol: greatest accepted difference relative to the greatest magnitude in the class.
    """
    check = _Check(_Evaluator(saturation, seed, dims or {}), rtol)
    check.run()
    skipped = saturation.eclasses.n_nodes - len(check.computed)
    # What was made first is the likelier culprit; the rest may follow from it.
    made = saturation.eclasses.origin
    bad = tuple(sorted(check.bad, key=lambda one: int(made[one.node]) if one.node >= 0 else 0))
    return EClassReport(check.equalities, skipped, bad)
