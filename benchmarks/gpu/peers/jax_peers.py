"""JAX: one compiled function; weights are arguments, which are on the device already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.gpu.peers.graphs import PeerGraph, walk
from benchmarks.gpu.peers.jax_operators import OPERATORS
from benchmarks.gpu.peers.ready import Make, Ready
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.plan.places import Array

__all__ = ["MAKERS"]


def _make(graph: PeerGraph, model: bytes, feeds: Mapping[str, Array], *, is_on_gpu: bool) -> Ready:
    """Strict float32; memory is taken as needed, since others are on the device."""
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        device = jax.devices("gpu" if is_on_gpu else "cpu")[0]
    except RuntimeError as error:
        raise RuntimeFailed(f"absent: JAX sees no GPU: {error}") from error

    @jax.jit
    def compiled(constants: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[Any]:
        values = walk(graph.steps, OPERATORS, {**constants, **inputs})
        return [values[name] for name in graph.outputs]

    constants, inputs = (
        {name: jax.device_put(value, device) for name, value in part.items()}
        for part in (graph.constants, {name: feeds[name] for name in graph.inputs})
    )
    found: list[Any] = [()]

    def queue() -> None:
        found[0] = compiled(constants, inputs)

    def wait() -> None:
        jax.block_until_ready(found[0])

    queue()
    wait()
    return Ready(
        queue, wait, lambda: [np.asarray(y) for y in found[0]], f"jax {jax.__version__}"
    )  # fmt: skip


MAKERS: Mapping[str, Make] = {"jax.jit": _make}
