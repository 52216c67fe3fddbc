"""Ten steps of training, compared with PyTorch: losses, parameters and statistics."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.training.joint import TrainingGraph, TrainingOptions, training_graph
from eqsat_opt.training.optimisers import OptimiserSettings

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
nn: Any = torch.nn
Module: Any = nn.Module

SETTINGS = OptimiserSettings(weight_decay=0.01)
RATE = 0.01


class Block(Module):  # type: ignore[misc]  # torch has no types here
    """A transformer block with two heads, of which the first token is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).reshape(4, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(4, 6, 16))
        x = x + self.narrow(nn.functional.gelu(self.wide(self.last(x))))
        return self.head(x[:, 0])


class Recurrent(Module):  # type: ignore[misc]  # torch has no types here
    """An LSTM, whose last state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 8, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][-1])


class GivenMask(Module):  # type: ignore[misc]  # torch has no types here
    """A dropout with a given mask."""

    def __init__(self, mask: Any, share: float) -> None:
        super().__init__()
        self.mask, self.share = mask, share

    def forward(self, x: Any) -> Any:
        return x * self.mask / (1 - self.share)


def mlp() -> Any:
    return nn.Sequential(
        nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 16), nn.Tanh(),
        nn.Linear(16, 5),
    )  # fmt: skip


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4), nn.AvgPool2d(2),
        nn.Conv2d(8, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


KINDS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (mlp, (4, 12)),
    "cnn": (cnn, (4, 3, 16, 16)),
    "block": (Block, (4, 6, 16)),
    "lstm": (Recurrent, (7, 4, 6)),
}
OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, RATE, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, RATE, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.01),
}


def exported(module: Any, x: Any) -> onnx.ModelProto:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that keeps batch normalisations is old
        torch.onnx.export(
            module, (x,), file, dynamo=False, do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, opset_version=20, input_names=["x"],
            output_names=["logits"],
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def first_state(graph: TrainingGraph) -> dict[str, np.ndarray]:
    values = graph.model.graph.initializers
    held = {name: values[name].const_value for name in graph.updates if name in values}
    state = {name: value.numpy() for name, value in held.items() if value is not None}
    return state | {
        n: np.zeros(tuple(map(literal, t.shape)), t.dtype) for n, t in graph.zeros.items()
    }


def steps(
    graph: TrainingGraph, data: Mapping[str, np.ndarray], count: int
) -> tuple[list[float], dict[str, np.ndarray]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model_proto(graph.model).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    wanted = {one.name for one in (*session.get_inputs(), *session.get_overridable_initializers())}
    state, losses = first_state(graph), []
    for number in range(count):
        given = {**data, **state, "learning_rate": np.float32(RATE), "step": np.float32(number + 1)}
        feeds = {n: np.asarray(v) for n, v in given.items() if n in wanted}
        found = dict(zip(names, session.run(None, feeds), strict=True))
        losses.append(float(found["loss"]))
        state = {old: found[new] for old, new in graph.updates.items()}
    return losses, state


@pytest.mark.parametrize(
    ("kind", "optimiser"),
    [("mlp", "sgd"), ("mlp", "adamw"), ("cnn", "momentum"), ("block", "adam"), ("lstm", "adam")],
)
def test_steps_are_those_of_torch(kind: str, optimiser: str) -> None:
    torch.manual_seed(0)
    build, shape = KINDS[kind]
    module, x = build(), torch.randn(shape)
    target = torch.tensor([0, 3, 1, 4])
    model = exported(module, x)
    graph = training_graph(model, TrainingOptions(optimiser=optimiser, settings=SETTINGS))
    data = {"x": x.numpy(), "target": target.numpy()}
    for mask in graph.masks:
        kept = torch.rand(4, 16) > mask.ratio
        data[mask.input] = kept.numpy().astype(np.float32)
        module[2] = GivenMask(kept, mask.ratio)
    losses, state = steps(graph, data, 10)
    assert kind != "mlp" or graph.masks

    step = OPTIMISERS[optimiser](module.parameters())
    expected = []
    for _ in range(10):
        step.zero_grad()
        loss = nn.functional.cross_entropy(module(x), target)
        loss.backward()
        step.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=2e-4)
    named = {n: p.detach().numpy() for n, p in module.named_parameters()}
    named |= {n: p.numpy() for n, p in module.named_buffers() if n.endswith("running_mean")}
    compared = 0
    for name, value in named.items():
        if name in state:  # an LSTM's are stored in another order
            np.testing.assert_allclose(state[name], value, rtol=2e-3, atol=2e-4, err_msg=name)
            compared += 1
    assert compared >= 2
