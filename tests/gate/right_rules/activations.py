"""Functions of one element: signs, fixed points, symmetries and definitions."""

from eqsat_opt.rules import Float, Numerics, Sides, Tensor, is_float, near, ops, rule


@rule("activations/relu-of-leaky")
def relu_of_leaky(x: Tensor, a: Float) -> Sides:
    """What was negative stays so; a slope of 0 would make a NaN of an infinity."""
    return ops.Relu(ops.LeakyRelu(x, alpha=a)), ops.Relu(x), a > 0.0


@rule("activations/leaky-of-relu")
def leaky_of_relu(x: Tensor, a: Float) -> Sides:
    """Nothing is negative."""
    return ops.LeakyRelu(ops.Relu(x), alpha=a), ops.Relu(x)


@rule("activations/leaky-of-leaky", numerics=Numerics.REASSOCIATE)
def leaky_of_leaky(x: Tensor, a: Float, b: Float) -> Sides:
    """Slopes are multiplied while signs stay."""
    return (
        ops.LeakyRelu(ops.LeakyRelu(x, alpha=a), alpha=b),
        ops.LeakyRelu(x, alpha=a * b),
        a > 0.0,
    )


@rule("activations/elu-of-relu")
def elu_of_relu(x: Tensor, a: Float) -> Sides:
    """Nothing is negative."""
    return ops.Elu(ops.Relu(x), alpha=a), ops.Relu(x)


@rule("activations/selu-of-relu")
def selu_of_relu(x: Tensor, a: Float, g: Float) -> Sides:
    """Nothing is negative, so only the outer factor counts."""
    return ops.Selu(ops.Relu(x), alpha=a, gamma=g), ops.Scale(ops.Relu(x), factor=g)


@rule("activations/threshold-of-relu")
def threshold_of_relu(x: Tensor, a: Float) -> Sides:
    """What is not above the threshold is 0 either way."""
    return (
        ops.ThresholdedRelu(ops.Relu(x), alpha=a),
        ops.ThresholdedRelu(x, alpha=a),
        a >= 0.0,
    )


@rule("activations/slope-of-relu")
def slope_of_relu(x: Tensor, s: Tensor) -> Sides:
    """Nothing is negative, so no slope counts."""
    return ops.PRelu(ops.Relu(x), s), ops.Relu(x)


@rule("activations/slope-spelled-out", numerics=Numerics.RELAXED)
def slope_spelled_out(x: Tensor, s: Tensor) -> Sides:
    """Positive part and scaled negative part; an infinite slope left a NaN elsewhere."""
    return (
        ops.PRelu(x, s),
        ops.Relu(x) - s * ops.Relu(ops.Neg(x)),
        is_float(x),
    )


@rule("activations/relu-of-sigmoid")
def relu_of_sigmoid(x: Tensor) -> Sides:
    """A sigmoid is not negative."""
    return ops.Relu(ops.Sigmoid(x)), ops.Sigmoid(x)


@rule("activations/magnitude-of-exponential")
def magnitude_of_exponential(x: Tensor) -> Sides:
    """An exponential is not negative."""
    return ops.Abs(ops.Exp(x)), ops.Exp(x)


@rule("activations/relu-of-root")
def relu_of_root(x: Tensor) -> Sides:
    """A root is not negative where it is defined."""
    return ops.Relu(ops.Sqrt(x)), ops.Sqrt(x)


@rule("activations/tanh-of-negative", numerics=Numerics.REASSOCIATE, bidirectional=True)
def tanh_of_negative(x: Tensor) -> Sides:
    """It is odd."""
    return ops.Tanh(ops.Neg(x)), ops.Neg(ops.Tanh(x))


@rule("activations/error-function-of-negative", numerics=Numerics.REASSOCIATE)
def error_function_of_negative(x: Tensor) -> Sides:
    """It is odd."""
    return ops.Erf(ops.Neg(x)), ops.Neg(ops.Erf(x)), is_float(x)


@rule("activations/softsign-of-negative")
def softsign_of_negative(x: Tensor) -> Sides:
    """It is odd."""
    return ops.Softsign(ops.Neg(x)), ops.Neg(ops.Softsign(x))


@rule("activations/rest-of-sigmoid", numerics=Numerics.REASSOCIATE)
def rest_of_sigmoid(x: Tensor) -> Sides:
    """1 - σ(x) = σ(-x), without the cancellation."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return one - ops.Sigmoid(x), ops.Sigmoid(ops.Neg(x))


@rule("activations/tanh-from-sigmoid", numerics=Numerics.RELAXED)
def tanh_from_sigmoid(x: Tensor) -> Sides:
    """2σ(2x) - 1 = tanh(x)."""
    return (
        ops.Shift(ops.Scale(ops.Sigmoid(ops.Scale(x, factor=2.0)), factor=2.0), offset=-1.0),
        ops.Tanh(x),
    )


@rule("activations/reflected-hard-sigmoid", numerics=Numerics.REASSOCIATE)
def reflected_hard_sigmoid(x: Tensor, a: Float, b: Float) -> Sides:
    """The sign goes into the slope."""
    return (
        ops.HardSigmoid(ops.Neg(x), alpha=a, beta=b),
        ops.HardSigmoid(x, alpha=a * -1.0, beta=b),
    )


@rule("activations/hard-swish-spelled-out", numerics=Numerics.REASSOCIATE)
def hard_swish_spelled_out(x: Tensor, a: Float) -> Sides:
    """X times its hard sigmoid."""
    return x * ops.HardSigmoid(x, alpha=a, beta=0.5), ops.HardSwish(x), near(a, 1.0 / 6.0)


@rule("activations/idle-swish", numerics=Numerics.RELAXED)
def idle_swish(x: Tensor) -> Sides:
    """σ(0) = 1/2."""
    return ops.Swish(x, alpha=0.0), ops.Scale(x, factor=0.5)


@rule("activations/softplus-difference", numerics=Numerics.RELAXED)
def softplus_difference(x: Tensor) -> Sides:
    """log(1 + eˣ) - log(1 + e⁻ˣ) = x."""
    return ops.Softplus(x) - ops.Softplus(ops.Neg(x)), x


@rule("activations/softplus-spelled-out", numerics=Numerics.RELAXED)
def softplus_spelled_out(x: Tensor) -> Sides:
    """By its definition."""
    return ops.Log(ops.Shift(ops.Exp(x), offset=1.0)), ops.Softplus(x)


@rule("activations/even-powers", numerics=Numerics.RELAXED)
def even_powers(x: Tensor) -> Sides:
    """A square of a square."""
    return (
        ops.Pow(ops.Square(x), ops.Scalar(value=2.0, dtype="float32")),
        ops.Square(ops.Square(x)),
    )


@rule("activations/powers-multiplied", numerics=Numerics.RELAXED)
def powers_multiplied(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Exponents are added where the base is positive, and wherever both powers are defined."""
    return ops.Pow(ops.Exp(x), y) * ops.Pow(ops.Exp(x), z), ops.Exp(x * (y + z))
