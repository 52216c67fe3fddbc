"""Small typed instances of a rule's left side, for the checker.

Independent random shapes are seldom well typed. So each operator proposes operands that fit those
it already has, conditions of the form ``x.dim(i) == …`` are solved where one side is known, and
what still does not type is thrown away. Sizes come from a pool of two or three per instance, which
makes them agree by chance as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat_opt.ir.graph import attributes
from eqsat_opt.ir.ops import OPS, IllTyped, get_op
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, bind_attr, holds, operator, size, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = ["Sampler"]

Shape = tuple[int, ...]
Known = list[Shape | None]
Draft = dict[str, Any]
"""Attribute values; ``None`` is for the proposer to choose."""

_DYADIC = (0.25, 0.5, 1.0, 2.0)
"""Float attributes: exact in binary, so that no domain rounds them."""
_NARROW = 1e-9
"""Tolerance up to which the checker cannot tell a rounded constant from the exact one."""
_FUNCTIONS = (
    ("Relu", attributes()),
    ("Tanh", attributes()),
    ("LeakyRelu", attributes(alpha=0.25)),
    ("HardSwish", attributes()),
)


class Sampler:
    """Draws instances of one rule; equal seeds draw equal instances."""

    def __init__(self, rule: Rule, seed: int) -> None:
        """Look at ``rule`` once for what its operators say about ranks."""
        self.rule = rule
        self.rng = np.random.default_rng(seed)
        self.kinds = dict(rule.kinds)
        used = {t.op for root in rule.lhs for t in root.walk() if isinstance(t, Apply)}
        self._spatial = bool(used & {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LRN"})
        self._matrix = "MatMul" in used
        self._ranks = [
            int(side.args[0])
            for condition in rule.when
            if condition.kind == "==" and condition.args[0].kind == "rank"
            for side in condition.args
            if side.kind == "literal"
        ]
        # What a reshape spells out axis by axis must be known before its attributes are.
        self._reshaped = {
            term.args[0].name
            for root in rule.lhs
            for term in root.walk()
            if isinstance(term, Apply)
            and term.op == "Reshape"
            and isinstance(term.attrs["shape"], tuple)
            and isinstance(term.args[0], Var)
        }
        self.bindings = Bindings()
        self.pool: tuple[int, ...] = (2,)
        self.rank = 2
        self.axes = 2
        self.dtype = "float32"

    # Random choices ------------------------------------------------------------------------------

    def choice(self, *options: Any) -> Any:
        """One of ``options``; repeat one to make it likelier."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def size(self) -> int:
        """A size of the pool."""
        return int(self.choice(*self.pool))

    def shape(self, rank: int | None = None) -> Shape:
        """A shape of the instance's usual rank."""
        return tuple(self.size() for _ in range(self.rank if rank is None else rank))

    def partner(self, shape: Shape) -> Shape:
        """A shape that broadcasts with ``shape``; mostly the same."""
        if self.chance(0.7):
            return shape
        if self.chance(0.2):
            return ()
        thinned = tuple(1 if self.chance(0.4) else d for d in shape)
        widened = tuple(self.size() if d == 1 and self.chance(0.3) else d for d in thinned)
        return widened[self.between(0, len(shape)) :] if self.chance(0.3) else widened

    # One instance --------------------------------------------------------------------------------

    def draw(self) -> Bindings | None:
        """One try: bindings under which the left side types and the conditions hold, if any."""
        self.bindings = Bindings()
        self.pool = tuple(dict.fromkeys(self.between(1, 4) for _ in range(3)))
        self.axes = 1 if self.chance(0.15) else 2
        if self._ranks and self.chance(0.9):
            self.rank = int(self.choice(*self._ranks))
        elif self._spatial:
            self.rank = self.axes + 2
        elif self._matrix:
            self.rank = int(self.choice(2, 2, 2, 2, 3, 1))
        else:
            self.rank = self.between(1, 4)
        self.dtype = self.choice(*("float32",) * 12, "float64", "int64")
        for name in self._reshaped:
            self.bindings.types[name] = TensorType(self.dtype, self.shape(self.rank))
        try:
            for root in self.rule.lhs:
                self._term(root)
        except (IllTyped, Undefined):
            return None
        if all(holds(c, self.bindings, lambda *_: True) for c in self.rule.when):
            return self.bindings
        return None

    def _term(self, term: Term) -> TensorType:
        assert isinstance(term, Apply)
        known: Known = []
        values: Draft = {}
        for arg in term.args:
            if isinstance(arg, Apply):
                known.append(self._static(self._term(arg)))
            elif isinstance(arg, Var) and arg.name in self.bindings.types:
                known.append(self._static(self.bindings.types[arg.name]))
            else:
                known.append(None)
        if term.op == MAP:
            function = term.attrs["f"]
            assert isinstance(function, Expr)
            self.bindings.attrs.setdefault(function.args[0], self.choice(*_FUNCTIONS))
            shapes = [known[0] or self.shape()]
        else:
            draft = {key: self._draft(pattern) for key, pattern in term.attrs.items()}
            shapes, values = _PROPOSERS.get(term.op, _anything)(self, known, draft)
        for key, value in values.items():
            if not bind_attr(term.attrs[key], value, self.bindings):
                raise IllTyped(f"{key}={value} does not fit the pattern")
        for arg, shape in zip(term.args, shapes, strict=True):
            if isinstance(arg, Var) and arg.name not in self.bindings.types:
                fitted = self._fitted(arg.name, shape)
                self.bindings.types[arg.name] = TensorType(self.dtype, fitted)
        op, attrs = operator(term, self.bindings)
        return get_op(op).type_fn([type_of(arg, self.bindings) for arg in term.args], attrs)

    @staticmethod
    def _static(type_: TensorType) -> Shape:
        return type_.static_shape()

    def _draft(self, pattern: AttrPattern) -> Any:
        if isinstance(pattern, tuple):
            parts = [self._draft(part) for part in pattern]
            return None if any(part is None for part in parts) else tuple(parts)
        try:
            return size(pattern, self.bindings)
        except Undefined:
            return self._solved(lambda side: side.kind == "attr" and side.args == pattern.args)

    def _solved(self, asked: Callable[[Expr], bool]) -> Any:
        """The value that an equation gives to the side that ``asked`` recognises."""
        for condition in self.rule.when:
            if condition.kind == "<" and asked(condition.args[0]) and _is_zero(condition.args[1]):
                return -self.choice(*_DYADIC)
            if condition.kind not in ("==", "near"):
                continue
            left, right = condition.args[:2]
            for side, other in ((left, right), (right, left)):
                if asked(side):
                    try:
                        found = size(other, self.bindings)
                    except Undefined:
                        continue
                    return self._about(found, condition)
        return None

    def _about(self, value: Any, condition: Condition) -> Any:
        """A value as a condition wants it: a narrow tolerance is drawn from, a wide one is not."""
        if condition.kind != "near" or condition.args[2] > _NARROW or self.chance(0.5):
            return value
        return value * (1.0 + 0.5 * condition.args[2])

    def _fitted(self, name: str, shape: Shape) -> Shape:
        """``shape`` as the conditions want it."""
        rank = self._solved(lambda side: side.kind == "rank" and side.args[0] == name)
        if rank is not None and rank != len(shape):
            shape = self.shape(rank)
        for condition in self.rule.when:
            partner = _partner(condition, name)
            if partner in self.bindings.types:
                return self._static(self.bindings.types[partner])
        sizes = list(shape)
        for axis in range(len(shape)):

            def asked(side: Expr, axis: int = axis) -> bool:
                return side.kind == "dim" and side.args[0] == name and self._is(side.args[1], axis)

            solved = self._solved(asked)
            if solved is not None:
                sizes[axis] = solved
        if any(d < 1 for d in sizes):
            raise IllTyped("an empty tensor")
        return tuple(sizes)

    def _is(self, expression: Expr, value: int) -> bool:
        try:
            return bool(size(expression, self.bindings) == value)
        except Undefined:
            return False


def _is_zero(side: Expr) -> bool:
    return side.kind == "literal" and isinstance(side.args[0], float) and side.args[0] == 0.0


def _partner(condition: Condition, name: str) -> str | None:
    """The variable whose shape ``name`` must have."""
    if condition.kind == "same-shape" and name in condition.args:
        first, second = condition.args
        return str(second if first == name else first)
    return None


# What each operator proposes ---------------------------------------------------------------------

Proposal = tuple[list[Shape], Draft]


def _anything(s: Sampler, known: Known, draft: Draft) -> Proposal:
    """Operators without a proposer of their own: same shapes, attributes by chance."""
    first = next((shape for shape in known if shape is not None), s.shape())
    return [shape if shape is not None else first for shape in known], {
        key: (s.choice(*_DYADIC) if value is None else value) for key, value in draft.items()
    }


def _elementwise(s: Sampler, known: Known, draft: Draft) -> Proposal:
    shapes: list[Shape] = []
    for i, shape in enumerate(known):
        other = next((o for o in (*shapes, *known[i + 1 :]) if o is not None), None)
        if shape is not None:
            shapes.append(shape)
        else:
            free = other is None or (not other and s.chance(0.8))
            shapes.append(s.shape() if free or other is None else s.partner(other))
    return _anything(s, list(shapes), draft)


def _signed(s: Sampler, known: Known, draft: Draft) -> Proposal:
    """Constant factors and addends, of both signs."""
    signed = {
        key: s.choice(-1.0, 1.0, 1.0) * s.choice(*_DYADIC) if value is None else value
        for key, value in draft.items()
    }
    return _anything(s, known, signed)


def _matmul(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x, y = known
    if x is None:
        inner = s.size() if y is None or not y else y[-2] if len(y) > 1 else y[0]
        rank = s.choice(2, 2, 2, 2, 3, 1) if s.rank < 3 else s.rank
        x = (*s.shape(rank - 1), inner)
    if y is None:
        batch = s.partner(x[:-2]) if len(x) > 2 and s.chance(0.5) else ()
        y = (*batch, x[-1], s.size()) if s.chance(0.9) and x else (x[-1:] or (1,))
    return [x, y], draft


def _windows(s: Sampler, kernel: Shape, draft: Draft, *, inside: bool) -> Draft:
    """Strides, pads and dilations; ``inside`` bounds the pads of pools by the kernel."""
    axes = len(kernel)
    dilations = draft["dilations"] or (1 if s.chance(0.75) else 2,) * axes
    strides = draft["strides"] or s.choice(
        (1,) * axes, (1,) * axes, (2,) * axes, tuple(s.between(1, 3) for _ in range(axes))
    )
    half = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilations, strict=False))
    most = [k if inside else 2 for k in kernel]
    pads = draft["pads"] or s.choice(
        half * 2, half * 2, (0,) * 2 * axes, tuple(s.between(0, m) for m in most) * 2,
        tuple(s.between(0, m) for m in most * 2),
    )  # fmt: skip
    if inside:
        pads = tuple(min(p, m) for p, m in zip(pads, most * 2, strict=False))
    return {**draft, "dilations": dilations, "strides": strides, "pads": pads}


def _spatial_rank(s: Sampler, known: Known, draft: Draft) -> int:
    for shape in known:
        if shape is not None:
            return max(len(shape) - 2, 1)
    return len(draft["strides"] or draft["dilations"] or (1,) * s.axes)


def _conv(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x, w, *bias = known
    axes = _spatial_rank(s, [x, w], draft)
    group = draft["group"]
    if x is None:
        group = group or s.choice(1, 1, 1, 2)
        channels = s.size() * group if w is None or len(w) < 2 else w[1] * group
        x = (s.between(1, 2), channels, *s.shape(axes))
    if len(x) < 3:
        raise IllTyped("convolution of a matrix")
    if group is None:
        group = s.choice(*(g for g in (1, 1, x[1], 2, 3) if x[1] % g == 0))
    if w is None:
        kernel = tuple(s.choice(1, 1, 2, 3, 3) for _ in range(axes))
        if s.chance(0.7):
            kernel = kernel[:1] * axes
        outputs = x[1] if s.chance(0.4) else s.size() * group
        w = (outputs, max(x[1] // group, 1), *kernel)
    shapes = [x, w, *(b if b is not None else (w[0],) for b in bias)]
    return shapes, {**_windows(s, w[2:], draft, inside=False), "group": group}


def _pool(s: Sampler, known: Known, draft: Draft) -> Proposal:
    axes = _spatial_rank(s, known, draft)
    x = known[0] if known[0] is not None else (s.between(1, 2), s.size(), *s.shape(axes))
    kernel = draft["kernel"] or (s.choice(1, 2, 3),) * axes
    flags = {
        key: s.choice(0, 1) if value is None else value
        for key, value in draft.items()
        if key in ("ceil", "count_include_pad")
    }
    return [x], {**_windows(s, kernel, draft, inside=True), **flags, "kernel": kernel}


def _concat(s: Sampler, known: Known, draft: Draft) -> Proposal:
    first = next((shape for shape in known if shape is not None), None)
    if first is None:
        axis = draft["axis"]
        first = s.shape(max(s.rank, 1 if axis is None else axis + 1))
    if not first:
        raise IllTyped("concatenation of scalars")
    axis = s.between(0, len(first) - 1) if draft["axis"] is None else draft["axis"]
    shapes = [
        shape if shape is not None else (*first[:axis], s.size(), *first[axis + 1 :])
        for shape in known
    ]
    return shapes, {"axis": axis}


def _slice(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape(max(s.rank, (draft["axis"] or 0) + 1))
    if not x:
        raise IllTyped("slice of a scalar")
    axis = s.between(0, len(x) - 1) if draft["axis"] is None else draft["axis"]
    if known[0] is None:
        x = (*x[:axis], s.between(1, 6), *x[axis + 1 :])
    extent = x[axis] if axis < len(x) else 0
    hi = draft["hi"]
    lo = draft["lo"]
    if lo is None:
        lo = 0 if s.chance(0.3) else s.between(0, max((hi or extent) - 1, 0))
    if hi is None:
        hi = extent if s.chance(0.3) or lo >= extent else s.between(lo + 1, extent)
    return [x], {"axis": axis, "lo": lo, "hi": hi}


def _transpose(s: Sampler, known: Known, draft: Draft) -> Proposal:
    perm = draft["perm"]
    x = known[0] if known[0] is not None else s.shape(None if perm is None else len(perm))
    return [x], {"perm": perm or tuple(int(p) for p in s.rng.permutation(len(x)))}


def _reshape(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape()
    flat = (int(np.prod(x)),)
    return [x], {"shape": draft["shape"] or s.choice(flat, x[::-1], (*x, 1), (1, *flat))}


def _repeat(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape()
    axis = s.between(0, max(len(x) - 1, 0)) if draft["axis"] is None else draft["axis"]
    return [x], {"axis": axis, "repeats": draft["repeats"] or s.between(1, 3)}


def _expand(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape()
    wide = tuple(s.size() if d == 1 and s.chance(0.7) else d for d in x)
    return [x], {"shape": draft["shape"] or wide}


def _attend(s: Sampler, known: Known, draft: Draft) -> Proposal:
    """Operands that fit those that are known, with heads that divide."""
    q, k, v, *mask = known
    b, h, t, d, r = s.between(1, 2), s.between(1, 2), s.size(), s.size(), s.size()
    for one in (k, v):
        b, h, t = (one[0], one[1], one[2]) if one is not None and len(one) == 4 else (b, h, t)
    d = k[3] if k is not None and len(k) == 4 else d
    q = q if q is not None else (b, h * s.between(1, 2), r, d)
    shapes = [q, k or (b, h, t, d), v or (b, h, t, s.size())]
    shapes += [one if one is not None else s.partner((*q[:3], t)) for one in mask]
    scale = s.choice(*_DYADIC) if draft["scale"] is None else draft["scale"]
    return shapes, {"scale": scale}


def _pad(s: Sampler, known: Known, draft: Draft) -> Proposal:
    pads = draft["pads"]
    x = known[0] if known[0] is not None else s.shape(None if pads is None else len(pads) // 2)
    value = 0.0 if draft["value"] is None else draft["value"]
    return [x], {"pads": pads or tuple(s.between(0, 2) for _ in (*x, *x)), "value": value}


def _lrn(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape(4)
    width = draft["size"] or s.between(1, 5)
    rest = {k: s.choice(*_DYADIC) if v is None else v for k, v in draft.items() if k != "size"}
    return [x], {**rest, "size": width}


def _along_axis(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape(max(s.rank, (draft["axis"] or 0) + 1))
    axis = s.between(0, max(len(x) - 1, 0)) if draft["axis"] is None else draft["axis"]
    epsilon = (
        {"epsilon": 0.25 if draft["epsilon"] is None else draft["epsilon"]}
        if "epsilon" in draft
        else {}
    )
    shapes = [x, *(p if p is not None else x[axis:] for p in known[1:])]
    return shapes, {"axis": axis, **epsilon}


def _channelwise(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else (s.between(1, 2), *s.shape(s.axes + 1))
    shapes = [x, *(p if p is not None else x[1:2] for p in known[1:])]
    return shapes, {"epsilon": 0.25 if draft["epsilon"] is None else draft["epsilon"]}


def _reduce(s: Sampler, known: Known, draft: Draft) -> Proposal:
    x = known[0] if known[0] is not None else s.shape()
    axes = draft["axes"] or tuple(i for i in range(len(x)) if s.chance(0.5)) or (0,)
    chosen = {"axes": axes, "keepdims": s.choice(0, 1), "epsilon": s.choice(*_DYADIC)}
    return [x], {key: chosen[key] if value is None else value for key, value in draft.items()}


def _literal(s: Sampler, _known: Known, draft: Draft) -> Proposal:
    chosen = {
        "value": s.choice(*_DYADIC),
        "dtype": s.dtype,
        "channels": s.size(),
        "height": 3,
        "width": 3,
    }
    return [], {key: chosen[key] if value is None else value for key, value in draft.items()}


_PROPOSERS: dict[str, Callable[[Sampler, Known, Draft], Proposal]] = {
    **{name: _elementwise for name, op in OPS.items() if op.kind == "pointwise"},
    **{name: _reduce for name in OPS if name.startswith("Reduce")},
    **dict.fromkeys(("Center", "RmsN"), _reduce),
    **dict.fromkeys(("Scale", "Shift"), _signed),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"), _along_axis
    ),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _channelwise),
    "MatMul": _matmul, "Conv": _conv, "MaxPool": _pool, "AveragePool": _pool, "Concat": _concat,
    "Slice": _slice, "Transpose": _transpose, "Reshape": _reshape, "Pad": _pad, "LRN": _lrn,
    "Scalar": _literal, "IdentityKernel": _literal, "Fill": _literal, "Repeat": _repeat,
    "Expand": _expand, "Attention": _attend, "MaskedAttention": _attend,
}  # fmt: skip
