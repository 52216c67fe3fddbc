"""PyTorch: eager, the same in a CUDA graph, and compiled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.peers.graphs import PeerGraph, walk
from benchmarks.gpu.peers.ready import Make, Ready
from benchmarks.gpu.peers.torch_operators import OPERATORS
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.plan.places import Array

__all__ = ["MAKERS", "Model"]


class Model(torch.nn.Module):
    """A graph of ours as a module; its weights are buffers, so that they are moved with it."""

    def __init__(self, graph: PeerGraph) -> None:
        super().__init__()
        self._graph = graph
        self._places = {name: f"c{number}" for number, name in enumerate(graph.constants)}
        for name, value in graph.constants.items():
            self.register_buffer(self._places[name], torch.from_numpy(np.array(value)))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """All outputs of the model, in order."""
        values = dict(zip(self._graph.inputs, inputs, strict=True))
        values.update({name: getattr(self, place) for name, place in self._places.items()})
        walk(self._graph.steps, OPERATORS, values)
        return tuple(values[name] for name in self._graph.outputs)


def _make(
    graph: PeerGraph,
    model: bytes,
    feeds: Mapping[str, Array],
    *,
    is_on_gpu: bool,
    mode: str = "",
    is_captured: bool = False,
    is_last: bool = True,
) -> Ready:
    """Weights and images with their channels last, if so said; strict float32."""
    if is_on_gpu and not torch.cuda.is_available():
        raise RuntimeFailed("absent: PyTorch sees no GPU")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = "cuda" if is_on_gpu else "cpu"
    order = torch.channels_last if is_last else torch.contiguous_format
    with torch.no_grad():
        module: Any = Model(graph).eval().to(device).to(memory_format=order)
        inputs = [torch.from_numpy(np.array(feeds[name])).to(device) for name in graph.inputs]
        inputs = [x.contiguous(memory_format=order) if x.ndim == 4 else x for x in inputs]
    if mode:
        torch.compiler.reset()  # all models share one code object, which keeps eight versions
        module = torch.compile(module, mode=mode, fullgraph=True)
    found: list[Any] = [()]

    def run() -> None:
        with torch.no_grad():
            found[0] = module(*inputs)

    wait = torch.cuda.synchronize if is_on_gpu else _nothing
    run()
    wait()
    queue = _captured(run).replay if is_captured and is_on_gpu else run
    queue()
    wait()

    def outputs() -> list[Array]:
        wait()
        return [y.cpu().numpy() for y in found[0]]

    return Ready(queue, wait, outputs, f"torch {torch.__version__}")


def _captured(run: Any) -> Any:
    """A CUDA graph of a run, after some on another stream, as PyTorch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _nothing() -> None:
    """All has run."""


MAKERS: Mapping[str, Make] = {
    "torch eager": _make,
    "torch in a CUDA graph": partial(_make, is_captured=True),
    "torch in a CUDA graph, channels first": partial(_make, is_captured=True, is_last=False),
    "torch.compile": partial(_make, mode="default"),
    "torch.compile max-autotune": partial(_make, mode="max-autotune"),
}
