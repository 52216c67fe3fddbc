"""Unrolled recurrent networks: SRU and the searched cell NasRNN."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.zoo._builder import GraphBuilder, Value

__all__ = ["nasrnn", "sru"]

# The cell's last tanh of a product of tanhs leaves states near this deviation. The recurrent
# weights undo it, so that a state counts as much as an input.
_NASRNN_STATE_STD = 0.1


def sru(seed: int, *, steps: int = 20, hidden: int = 512) -> ModelProto:
    """Build one layer of the simple recurrent unit over `steps` time steps.

    Inputs x0 … and the first state c0, each (1, hidden), to the outputs h0 … and the last state.
    Per step, with the same three weights: f = sigmoid(xW₂), r = sigmoid(xW₃), c = f·c + f·xW₁,
    h = r·c + r·x (11 operators). MetaFlow `code/sru.h`; note f where the SRU paper has 1 - f.
    """
    b = GraphBuilder("sru", seed)
    xs = [b.input(f"x{step}", (1, hidden)) for step in range(steps)]
    c = b.input("c0", (1, hidden))
    w_input, w_forget, w_reset = (b.projection(xs[0], hidden) for _ in range(3))
    outputs: dict[str, Value] = {}
    for step, x in enumerate(xs):
        candidate = b.matmul(x, w_input)
        forget = b.sigmoid(b.matmul(x, w_forget))
        reset = b.sigmoid(b.matmul(x, w_reset))
        c = b.add(b.mul(forget, c), b.mul(forget, candidate))
        outputs[f"h{step}"] = b.add(b.mul(reset, c), b.mul(reset, x))
    return b.model({**outputs, "c": c})


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
    b: GraphBuilder, x: Value, state: Value, w_inputs: list[Value], w_states: list[Value]
) -> Value:
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
