"""What other frameworks take for the models whose plans are compared: a unit for each of both.

A framework that is not installed, or does not compile a model in 90 s, is reported as such. Weights
and inputs are those of the plans, in strict float32, and outputs are checked.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.gpu.peers.graphs import PeerGraph, peer_graph
from benchmarks.gpu.peers.ready import Ready, imported_error
from benchmarks.gpu.prepared import (
    Scale,
    model_inputs,
    model_of,
    model_outputs,
    read_prepared,
)
from benchmarks.gpu.timing import Timed
from benchmarks.gpu.unit import Bench, Task, Unit
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.plan.places import Array

__all__ = ["PEERS", "compared", "run", "units"]

STEP = "compare"

PEERS: Mapping[str, str] = {
    "torch eager": "torch_peers",
    "torch in a CUDA graph": "torch_peers",
    "torch in a CUDA graph, channels first": "torch_peers",
    "jax.jit": "jax_peers",
    "torch.compile": "torch_peers",
    "torch.compile max-autotune": "torch_peers",
    "onnxruntime CUDA": "ort_peers",
    "onnxruntime TensorRT": "ort_peers",
}
"""By name, the module that makes it; what compiles fast comes first."""

COMPILED_S = 90.0
_LEAST_S = {"jax.jit": 20.0, "torch.compile": 45.0, "torch.compile max-autotune": 60.0}
"""With less time left none of these compiles anything."""

_REST_S = 30.0
"""To build the model, to check outputs, to take samples."""

_CLOSE = 1e-4
"""Outputs may differ so much from their definition, as a share of their maximum."""

_VALUES = {"squeezenet": 2.5, "inception_v3": 2.5, "resnet50": 2.5, "nasnet_a": 2.5, "bert": 2.5,
           "sru": 2.5}  # fmt: skip
_ROUNDS = 15
_SAMPLE_US = 10_000.0
"""Of a sample: beside it what one wait for the device takes is little."""


def units(task: Task) -> Sequence[Unit]:
    """One for each model of full size, and each peer; tiny ones where there is none else.

    Peers compute in strict float32, so plans of another precision have none.
    """
    known = read_prepared(task.folder).of(task.models).plans
    plans = [one for one in known if one.plan.precision is Precision.STRICT]
    scale: Scale = "full" if any(one.scale == "full" for one in plans) else "tiny"
    models = dict.fromkeys(one.model for one in plans if one.scale == scale)
    return tuple(
        Unit(
            STEP,
            f"{model}: {peer}",
            __name__,
            value=_VALUES.get(model, 0.5) - rank / 100,
            deadline_s=COMPILED_S + _REST_S,
            request={"model": model, "scale": scale, "peer": peer},
            least_s=_LEAST_S.get(peer, 0.0),
        )
        for model in models
        for rank, peer in enumerate(PEERS)
    )


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """The time of a model by a peer, how long that took to compile, and its largest error."""
    request, is_on_gpu = unit.request, bench.name == "gpu"
    return compared(request["model"], request["scale"], request["peer"], is_on_gpu=is_on_gpu)


def compared(model: str, scale: Scale, peer: str, *, is_on_gpu: bool) -> dict[str, Any]:
    """See `run`; without a GPU the peer runs here, and its times are invented.

    Raises:
        RuntimeFailed: the framework is not here, takes longer to compile, or computes something
            else.
    """
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        makers = import_module(f"benchmarks.gpu.peers.{PEERS[peer]}").MAKERS
    except ImportError as error:
        raise imported_error(error) from error
    graph, data = _graph(model, scale)
    feeds = model_inputs(model, scale)
    begin = time.perf_counter()
    ready: Ready = makers[peer](graph, data, feeds, is_on_gpu=is_on_gpu)
    compiled_s = time.perf_counter() - begin
    if compiled_s > COMPILED_S:
        raise RuntimeFailed(f"does not compile in {COMPILED_S:.0f} s: took {compiled_s:.0f} s")
    worst = max(map(_error, ready.outputs(), model_outputs(model, scale).values()), default=0.0)
    if not worst <= _CLOSE:
        raise RuntimeFailed(f"computes something else: an output differs by {worst:.1e} of it")
    samples = _samples_us(ready) if is_on_gpu else _invented_us(f"{model} {peer}")
    return {
        "model": model, "peer": peer, "version": ready.version, "precision": "strict-fp32",
        "compiled_s": round(compiled_s, 3), "error": worst, **Timed(tuple(samples)).to_json(),
    }  # fmt: skip


@lru_cache(maxsize=8)
def _graph(model: str, scale: Scale) -> tuple[PeerGraph, bytes]:
    built = model_of(model, scale)
    return peer_graph(built), built.SerializeToString()


def _error(found: Array, wanted: Array) -> float:
    """The largest difference, as a share of the largest value; infinite where it is no number."""
    if found.shape != wanted.shape:
        return float("inf")
    largest = float(np.abs(wanted).max(initial=0.0)) or 1.0
    error = float(np.abs(found.astype(np.float64) - wanted).max(initial=0.0)) / largest
    return error if np.isfinite(error) else float("inf")


def _samples_us(ready: Ready) -> list[float]:
    once_us = min(ready.sampler(1)() for _ in range(3))
    sample = ready.sampler(max(1, round(_SAMPLE_US / max(once_us, 1.0))))
    return [sample() for _ in range(_ROUNDS)]


def _invented_us(name: str) -> list[float]:
    draw = random.Random(zlib.crc32(name.encode()))
    return [1000 * (1 + draw.random()) for _ in range(_ROUNDS)]
