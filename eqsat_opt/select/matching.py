"""Matching kernel patterns on the frozen e-graph: instruction selection over all spellings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from eqsat_opt.egraph import EClasses
from eqsat_opt.ir.graph import Attrs
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.backends.patterns import (
    Anything,
    Const,
    KernelPattern,
    Literal,
    OpPattern,
    Pattern,
)

__all__ = ["Match", "match_at"]

_STATES = 64
"""Ways to match a pattern's operand that are followed: classes of many e-nodes multiply them."""


@dataclass(frozen=True)
class Match:
    """One occurrence: the covered e-node of each inner class; all else they read is an operand."""

    root: int
    covered: dict[int, int] = field(default_factory=dict)


@dataclass
class _State:
    """What one attempt has bound so far."""

    bindings: dict[str, int] = field(default_factory=dict)
    covered: dict[int, int] = field(default_factory=dict)
    attrs: dict[str, Attrs] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.bindings), dict(self.covered), dict(self.attrs))


def _bind(state: _State, name: str, cls: int) -> _State | None:
    known = state.bindings.get(name)
    if known is None:
        bound = state.copy()
        bound.bindings[name] = cls
        return bound
    return state if known == cls else None


def _attempt(
    eclasses: EClasses, pattern: Pattern, cls: int, state: _State, root: TensorType
) -> Iterator[_State]:
    match pattern:
        case Anything(name):
            bound = _bind(state, name, cls)
            if bound is not None:
                yield bound
        case Const(name, fits):
            own = eclasses.types[cls]
            if eclasses.is_const[cls] and isinstance(own, TensorType) and fits(own, root):
                bound = _bind(state, name, cls)
                if bound is not None:
                    yield bound
        case Literal(value):
            found = eclasses.scalar(cls)
            if found is not None and math.isclose(found, value, rel_tol=1e-6):
                yield state
        case OpPattern():
            if eclasses.is_const[cls]:
                return
            if cls in state.covered:
                candidates: Iterator[int] = iter((state.covered[cls],))
            else:
                candidates = iter(eclasses.nodes_of[cls])
            for node in candidates:
                yield from _attempt_node(
                    eclasses, pattern, cls=cls, node=node, state=state, root=root
                )


def _attempt_node(
    eclasses: EClasses, pattern: OpPattern, cls: int, node: int, state: _State, root: TensorType
) -> Iterator[_State]:
    op = eclasses.op[node]
    if op not in pattern.ops or not pattern.where(eclasses.attrs[node]):
        return
    children = eclasses.children(node)
    if len(children) != len(pattern.operands):
        return
    if pattern.same and state.attrs.get(pattern.same, eclasses.attrs[node]) != eclasses.attrs[node]:
        return
    orders = [children]
    if is_known(op) and get_op(op).commutative and children[0] != children[1]:
        orders.append(children[::-1])
    for order in orders:
        started = state.copy()
        started.covered[cls] = node
        if pattern.same:
            started.attrs[pattern.same] = eclasses.attrs[node]
        partial = [started]
        for operand, child in zip(pattern.operands, order, strict=True):
            further = (
                s
                for p in partial
                for s in _attempt(eclasses, operand, cls=child, state=p, root=root)
            )
            partial = list(islice(further, _STATES))
            if not partial:
                break
        yield from partial


def match_at(eclasses: EClasses, pattern: KernelPattern, node: int) -> Iterator[Match]:
    """Distinct matches of ``pattern`` rooted at e-node ``node``; inner values are no operands."""
    cls = int(eclasses.class_of[node])
    root = eclasses.types[cls]
    if not isinstance(root, TensorType) or not pattern.where(root):
        return
    seen: set[tuple[tuple[int, int], ...]] = set()
    for state in _attempt_node(
        eclasses, pattern.pattern, cls=cls, node=node, state=_State(), root=root
    ):
        if not state.covered.keys().isdisjoint(state.bindings.values()):
            continue  # a fused kernel cannot read what it computes itself
        key = tuple(sorted(state.covered.items()))
        if key not in seen:
            seen.add(key)
            yield Match(cls, state.covered)
