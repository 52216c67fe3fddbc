"""Unrolled recurrent networks: SRU, a classifier on it, and the searched cell NasRNN."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["nasrnn", "rnntc", "sru", "sru_step"]

# The cell ends in a tanh of a product of tanhs, so states have about this deviation. The recurrent
# weights undo it, so that a state counts as much as an input.
_NASRNN_STATE_STD = 0.1


def sru(seed: int, *, steps: int = 20, hidden: int = 512) -> ModelProto:
    """Build one layer of the simple recurrent unit over `steps` time steps.

    The model maps inputs x0 … and the first state c0, each (1, hidden), to the outputs h0 … and the
    last state. Each step has the same three weights: f = sigmoid(xW₂), r = sigmoid(xW₃), c = f·c +
    f·xW₁, h = r·c + r·x (11 operators). The source is MetaFlow `code/sru.h`; it has f where the SRU
    paper has 1 - f.
    """
    return _sru(GraphBuilder("sru", seed), steps, hidden)


def sru_step(seed: int, *, hidden: int = 1024) -> ModelProto:
    """Build a single step of `sru` (11 operators): the SRU block of OCGGS `examples/sru.py`."""
    return _sru(GraphBuilder("sru_step", seed), 1, hidden)


def _sru(b: GraphBuilder, steps: int, hidden: int) -> ModelProto:
    xs = [b.input(f"x{step}", (1, hidden)) for step in range(steps)]
    c = b.input("c0", (1, hidden))
    w_input, w_forget, w_reset = (b.projection(xs[0], hidden) for _ in range(3))
    outputs: dict[str, TracedValue] = {}
    for step, x in enumerate(xs):
        candidate = b.matmul(x, w_input)
        forget = b.sigmoid(b.matmul(x, w_forget))
        reset = b.sigmoid(b.matmul(x, w_reset))
        c = b.add(b.mul(forget, c), b.mul(forget, candidate))
        outputs[f"h{step}"] = b.add(b.mul(reset, c), b.mul(reset, x))
    return b.model({**outputs, "c": c})


def rnntc(seed: int, *, steps: int = 20, hidden: int = 1024, classes: int = 16) -> ModelProto:
    """Build a text classifier on one SRU layer: 20 embedded words (1, hidden) to probabilities.

    Per step, as the SRU paper has it: f = sigmoid(xW₂), r = sigmoid(xW₃),
    c = f·c + (1 - f)·xW₁, h = r·c + (1 - r)·x (13 operators); the mean of all h is classified.
    """
    b = GraphBuilder("rnntc", seed)
    xs = [b.input(f"x{step}", (1, hidden)) for step in range(steps)]
    c = b.input("c0", (1, hidden))
    w_input, w_forget, w_reset = (b.projection(xs[0], hidden) for _ in range(3))
    states = []
    for x in xs:
        forget = b.sigmoid(b.matmul(x, w_forget))
        reset = b.sigmoid(b.matmul(x, w_reset))
        c = _gated(b, forget, c, b.matmul(x, w_input))
        states.append(_gated(b, reset, c, x))
    mean = b.op("ReduceMean", b.concat(states, axis=0), axes=(0,), keepdims=1)
    return b.model({"probabilities": b.op("Softmax", b.linear(mean, classes), axis=-1)})


def _gated(b: GraphBuilder, gate: TracedValue, a: TracedValue, other: TracedValue) -> TracedValue:
    """Add gate · a + (1 - gate) · other, in the usual form."""
    return b.add(b.mul(gate, a), b.mul(b.op("Sub", b.scalar(1.0), gate), other))


def nasrnn(seed: int, *, steps: int = 5, hidden: int = 512) -> ModelProto:
    """Build NasRNN: inputs x0 … of (1, hidden) to the last state, 46 operators per step.

    The first state is a weight, as in TASO `examples/nasrnn.py`.
    """
    b = GraphBuilder("nasrnn", seed)
    xs = [b.input(f"x{step}", (1, hidden)) for step in range(steps)]
    state = b.initializer(b.normal((1, hidden), _NASRNN_STATE_STD), "state")
    w_inputs = [b.projection(xs[0], hidden) for _ in range(8)]
    w_states = [b.projection(state, hidden, centred=True) for _ in range(8)]
    for x in xs:
        state = _nasrnn_cell(b, x, state, w_inputs=w_inputs, w_states=w_states)
    return b.model({"state": state})


def _nasrnn_cell(
    b: GraphBuilder,
    x: TracedValue,
    state: TracedValue,
    w_inputs: list[TracedValue],
    w_states: list[TracedValue],
) -> TracedValue:
    t = [
        b.add(b.matmul(x, w_input), b.matmul(state, w_state))
        for w_input, w_state in zip(w_inputs, w_states, strict=True)
    ]
    m0 = b.add(b.relu(t[0]), b.sigmoid(t[3]))
    m1 = b.add(b.sigmoid(t[1]), b.tanh(t[2]))
    m2 = b.mul(b.sigmoid(t[4]), b.tanh(t[5]))
    m3 = b.mul(b.sigmoid(t[6]), b.relu(t[7]))
    m4 = b.add(b.sigmoid(m1), b.tanh(m2))
    m5 = b.mul(b.tanh(m0), b.tanh(m3))
    m6 = b.mul(b.tanh(m4), b.tanh(m5))
    return b.tanh(m6)
