"""Generic instances of a rule: its most general typing at extents that agree only where they must.

The extents of all variables start as unknowns. Operators, conditions and the equality of both sides
tie them by linear equations, which are solved by elimination. What stays free gets large random
numbers, so two extents are equal in the instance only if the rule's typing makes them equal, up to
coincidence. Ranks, axes, groups, strides and the like are chosen first; each choice is a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat_opt.egraph.derivation.frames import PADS, Frame, frames
from eqsat_opt.egraph.derivation.unknowns import NoTyping, Unknowns
from eqsat_opt.ir.dims import Dim, SymDim, evaluate_dim, sym
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.linear import window_size
from eqsat_opt.ir.types import TensorType
from eqsat_opt.proving.typing.closure import closure
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, operator, size, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["generic_instances"]

_EXTENTS = 1 << 10, 1 << 15
"""Range of free extents: products of four stay within 64 bits."""
_DRAWS = 30
Shape = tuple[Dim, ...]


class _Typing:
    """One frame of one rule."""

    def __init__(self, rule: Rule, frame: Frame) -> None:
        self.rule = closure(rule)
        self.unknowns = Unknowns()
        self.bindings = Bindings(
            {
                name: TensorType(
                    "float32",
                    tuple(
                        1 if (name, i) in frame.ones else sym(f"{name}.{i}") for i in range(rank)
                    ),
                )
                for name, rank in frame.ranks.items()
            },
            dict(frame.attrs),
        )

    def solve(self) -> None:
        """Tie the extents together.

        Raises:
            NoTyping: if they cannot be.
            IllTyped: likewise.
            Undefined: if a condition reads what does not exist.
        """
        self.conditions()
        left = [self.shape(root) for root in self.rule.lhs]
        self.conditions()
        right = [self.shape(root) for root in self.rule.rhs]
        for one, other in zip(left, right, strict=True):
            self.equal(one, other)
        self.conditions()

    def conditions(self) -> None:
        for condition in self.rule.when:
            args = condition.args
            if condition.kind == "same-shape":
                self.equal(*(self.bindings.types[name].shape for name in args))
            elif condition.kind == "==":
                left, right = (size(arg, self.bindings) for arg in args)
                if isinstance(left, float) or isinstance(right, float):
                    if left != right:
                        raise NoTyping
                else:
                    self.unknowns.equate(left, right)

    def equal(self, a: Shape, b: Shape) -> None:
        if len(a) != len(b):
            raise NoTyping
        for one, other in zip(a, b, strict=True):
            self.unknowns.equate(one, other)

    def broadcast(self, a: Shape, b: Shape) -> Shape:
        rank = max(len(a), len(b))
        left, right = ((1,) * (rank - len(shape)) + shape for shape in (a, b))
        result: list[Dim] = []
        for one, other in zip(map(self.unknowns.resolve, left), right, strict=True):
            resolved = self.unknowns.resolve(other)
            if 1 not in (one, resolved):
                self.unknowns.equate(one, resolved)
            result.append(resolved if one == 1 else one)
        return tuple(result)

    def shape(self, term: Term) -> Shape:
        """The shape of a term, with the equations that its operators need."""
        if isinstance(term, Var):
            return self.bindings.types[term.name].shape
        assert isinstance(term, Apply)
        shapes = [self.shape(arg) for arg in term.args]
        op, attrs = operator(term, self.bindings)
        rule = _SHAPES.get(op)
        if rule is None and get_op(op).kind == "pointwise" and len(shapes) == 2:
            return self.broadcast(*shapes)
        if rule is not None:
            return rule(self, shapes, attrs)
        types = [TensorType("float32", tuple(map(self.unknowns.resolve, s))) for s in shapes]
        return get_op(op).type_fn(types, attrs).shape

    def draws(self, rng: np.random.Generator) -> Iterator[Bindings]:
        """Numbers for what is free, where both sides then type and the conditions hold."""
        types = {name: self.resolved(t.shape) for name, t in self.bindings.types.items()}
        attrs = {name: self.resolved_attr(value) for name, value in self.bindings.attrs.items()}
        for _ in range(_DRAWS):
            drawn = self.draw(types, attrs, _Draws(rng))
            if drawn is not None:
                yield drawn

    def draw(
        self, types: Mapping[str, Shape], attrs: Mapping[str, Any], sizes: _Draws
    ) -> Bindings | None:
        try:
            bindings = Bindings(
                {
                    name: TensorType("float32", tuple(evaluate_dim(d, sizes) for d in shape))
                    for name, shape in types.items()
                },
                {name: _evaluated(value, sizes) for name, value in attrs.items()},
            )
            if any(d < 1 for t in bindings.types.values() for d in t.static_shape()):
                return None
            for left, right in zip(self.rule.lhs, self.rule.rhs, strict=True):
                if type_of(left, bindings) != type_of(right, bindings):
                    return None
        except (IllTyped, Undefined, ArithmeticError, LookupError, TypeError, ValueError):
            # The registry checks types; attributes without sense fail in its arithmetic.
            return None
        if all(holds(c, bindings, lambda *_: True) for c in self.rule.when):
            return bindings
        return None

    def resolved(self, shape: Shape) -> Shape:
        return tuple(map(self.unknowns.resolve, shape))

    def resolved_attr(self, value: Any) -> Any:
        return self.unknowns.resolve(value) if isinstance(value, SymDim) else value


class _Draws(dict[str, int]):
    """Random extents; pads that nothing ties are small."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng

    def __missing__(self, name: str) -> int:
        low, high = (0, 4) if name.startswith(PADS) else _EXTENTS
        self[name] = int(self.rng.integers(low, high))
        return self[name]


def _evaluated(value: Any, sizes: Mapping[str, int]) -> Any:
    return evaluate_dim(value, sizes) if isinstance(value, SymDim) else value


# Shapes ------------------------------------------------------------------------------------------


def _matmul(t: _Typing, shapes: Sequence[Shape], _attrs: Mapping[str, Any]) -> Shape:
    x, y = shapes
    if len(x) < 2 or len(y) < 2:
        raise NoTyping
    t.unknowns.equate(x[-1], y[-2])
    return (*t.broadcast(x[:-2], y[:-2]), x[-2], y[-1])


def _conv(t: _Typing, shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    x, w = shapes[:2]
    axes = len(x) - 2
    fits = len(attrs["strides"]) == len(attrs["dilations"]) == axes
    if axes < 1 or len(w) != len(x) or not fits or len(attrs["pads"]) != 2 * axes:
        raise NoTyping
    group = _group(t, attrs["group"])
    if group is not None:
        t.unknowns.equate(x[1], w[1] * group)
        t.unknowns.equate(w[0], t.unknowns.fresh() * group)
    windows = (
        window_size(
            x[2 + i], w[2 + i], attrs["strides"][i], attrs["pads"][i], attrs["pads"][axes + i],
            attrs["dilations"][i],
        )
        for i in range(axes)
    )  # fmt: skip
    return (x[0], w[0], *windows)


def _group(t: _Typing, group: Dim) -> int | None:
    """The number of groups, if the extents known by now give it."""
    resolved = t.unknowns.resolve(group)
    return None if isinstance(resolved, SymDim) else resolved


def _concat(t: _Typing, shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    first, axis = shapes[0], attrs["axis"]
    if not 0 <= axis < len(first) or any(len(s) != len(first) for s in shapes):
        raise NoTyping
    total: Dim = 0
    for shape in shapes:
        total = total + shape[axis]
        t.equal(_without(shape, axis), _without(first, axis))
    return (*first[:axis], total, *first[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _slice(t: _Typing, shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    (x,) = shapes
    axis, lo, hi = attrs["axis"], attrs["lo"], attrs["hi"]
    if not 0 <= axis < len(x):
        raise NoTyping
    # Differences instead of inequalities, so that draws seldom fail.
    for low, high in ((lo, hi), (hi, x[axis])):
        if isinstance(t.unknowns.resolve(high - low), SymDim):
            t.unknowns.equate(high, low + t.unknowns.fresh())
    return (*x[:axis], hi - lo, *x[axis + 1 :])


def _reshape(_t: _Typing, _shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    return tuple(attrs["shape"])


def _identity_kernel(_t: _Typing, _shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    return (attrs["channels"], attrs["channels"], attrs["height"], attrs["width"])


_SHAPES: Mapping[str, Callable[[_Typing, Sequence[Shape], Mapping[str, Any]], Shape]] = {
    "MatMul": _matmul, "Conv": _conv, "Concat": _concat, "Slice": _slice, "Reshape": _reshape,
    "IdentityKernel": _identity_kernel,
}  # fmt: skip


def generic_instances(rule: Rule, *, seed: int = 0, most: int = 4) -> list[Bindings]:
    """Up to ``most`` typed instances of both sides of ``rule``, each of another frame.

    Args:
        rule: read left to right; its conditions hold in each instance.
        seed: equal seeds give equal instances.
        most: frames.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Bindings] = {}
    seen: set[str] = set()
    for frame in frames(rule, rng):
        if frame.key in seen:
            continue
        seen.add(frame.key)
        typing = _Typing(rule, frame)
        try:
            typing.solve()
        except (NoTyping, IllTyped, Undefined, ArithmeticError, LookupError, TypeError, ValueError):
            continue
        drawn = next(typing.draws(rng), None)
        if drawn is not None:
            found[frame.key] = drawn
        if len(found) == most:
            break
    return list(found.values())
