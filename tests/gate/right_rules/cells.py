"""The algebra of gated cells, and what sines and cosines of sums are."""

from eqsat_opt.rules import Numerics, Sides, Tensor, Term, is_float, ops, rule

_R, _F, _RELAXED = Numerics.REASSOCIATE, Numerics.REFACTOR, Numerics.RELAXED


def _rest(z: Term) -> Term:
    return ops.Shift(ops.Neg(z), offset=1.0)


@rule("cells/gate-joined", numerics=_F)
def gate_joined(z: Tensor, n: Tensor, h: Tensor) -> Sides:
    """(1 - z) n + z h, with one product less."""
    return _rest(z) * n + z * h, n + z * (h - n), is_float(z)


@rule("cells/gate-spread", numerics=_F)
def gate_spread(z: Tensor, n: Tensor, h: Tensor) -> Sides:
    """A mixture n + z (h - n), spelled as a choice."""
    return n + z * (h - n), _rest(z) * n + z * h, is_float(z)


@rule("cells/gate-of-same", numerics=_F)
def gate_of_same(z: Tensor, n: Tensor) -> Sides:
    """A mixture of a number with itself."""
    return _rest(z) * n + z * n, n, is_float(z), z.shape == n.shape


@rule("cells/gate-opened", numerics=_F)
def gate_opened(z: Tensor, n: Tensor) -> Sides:
    """What a gate leaves."""
    return n - z * n, _rest(z) * n, is_float(z), z.shape == n.shape


@rule("cells/two-gates", numerics=_F)
def two_gates(z: Tensor, r: Tensor) -> Sides:
    """Both closed: neither, but what both took twice."""
    return _rest(z) * _rest(r), _rest(z + r) + z * r, is_float(z)


@rule("cells/gates-in-turn", numerics=_R)
def gates_in_turn(z: Tensor, r: Tensor, h: Tensor) -> Sides:
    """Factors are associative."""
    return z * (r * h), (z * r) * h, is_float(z)


@rule("cells/closed-sigmoid", numerics=_R)
def closed_sigmoid(x: Tensor) -> Sides:
    """1 - sigmoid(x) is the sigmoid of the opposite, which keeps its digits."""
    return _rest(ops.Sigmoid(x)), ops.Sigmoid(ops.Neg(x))


@rule("cells/common-gate", numerics=_R)
def common_gate(z: Tensor, n: Tensor, h: Tensor) -> Sides:
    """One gate of a sum."""
    return z * n + z * h, z * (n + h), is_float(z)


@rule("cells/sine-of-sum", numerics=_RELAXED)
def sine_of_sum(x: Tensor, y: Tensor) -> Sides:
    """The addition theorem."""
    return ops.Sin(x) * ops.Cos(y) + ops.Cos(x) * ops.Sin(y), ops.Sin(x + y)


@rule("cells/cosine-of-sum", numerics=_RELAXED)
def cosine_of_sum(x: Tensor, y: Tensor) -> Sides:
    """The addition theorem."""
    return ops.Cos(x) * ops.Cos(y) - ops.Sin(x) * ops.Sin(y), ops.Cos(x + y)


@rule("cells/sine-of-double", numerics=_RELAXED)
def sine_of_double(x: Tensor) -> Sides:
    """Sine of a double: sin 2x = 2 sin x cos x."""
    half = ops.Sin(x) * ops.Cos(x)
    return ops.Scale(half, factor=2.0), ops.Sin(ops.Scale(x, factor=2.0))


@rule("cells/cosine-of-double", numerics=_RELAXED)
def cosine_of_double(x: Tensor) -> Sides:
    """Cosine of a double: cos 2x = cos² x - sin² x."""
    double = ops.Cos(ops.Scale(x, factor=2.0))
    return ops.Square(ops.Cos(x)) - ops.Square(ops.Sin(x)), double


@rule("cells/rotated-back", numerics=_RELAXED)
def rotated_back(x: Tensor, y: Tensor, t: Tensor) -> Sides:
    """A rotation and its inverse."""
    c, s = ops.Cos(t), ops.Sin(t)
    turned = x * c - y * s, x * s + y * c
    return turned[0] * c + turned[1] * s, x, x.shape == y.shape, x.shape == t.shape
