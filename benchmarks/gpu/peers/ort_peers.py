"""onnxruntime on a GPU, by CUDA and by TensorRT: inputs and outputs stay on the device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.gpu.peers.graphs import PeerGraph
from benchmarks.gpu.peers.ready import Make, Ready
from eqsat_opt.errors import RuntimeFailed, reason
from eqsat_opt.runtime.plan.places import Array

__all__ = ["MAKERS"]

_STRICT: Mapping[str, Mapping[str, str]] = {
    "CUDAExecutionProvider": {"use_tf32": "0", "cudnn_conv_algo_search": "EXHAUSTIVE"},
    "TensorrtExecutionProvider": {},
}
"""What keeps float32 as it is. For TensorRT it is NVIDIA_TF32_OVERRIDE=0, set for all peers."""


def _make(
    graph: PeerGraph,
    model: bytes,
    feeds: Mapping[str, Array],
    *,
    is_on_gpu: bool,
    provider: str,
) -> Ready:
    device = "cuda" if is_on_gpu else "cpu"
    wanted: list[Any] = [(provider, dict(_STRICT[provider]))]
    if not is_on_gpu:
        wanted = ["CPUExecutionProvider"]
    elif provider not in onnxruntime.get_available_providers():
        raise RuntimeFailed(f"absent: this onnxruntime has no {provider}")
    try:
        session = onnxruntime.InferenceSession(model, providers=wanted)
    except Exception as error:
        raise RuntimeFailed(f"onnxruntime does not take it: {reason(error)}") from error
    if is_on_gpu and session.get_providers()[0] != provider:
        raise RuntimeFailed(f"absent: {provider} does not load here")
    binding = session.io_binding()
    for name in graph.inputs:
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(feeds[name]), device)
        binding.bind_ortvalue_input(name, value)
    for name in graph.outputs:
        binding.bind_output(name, device)

    def queue() -> None:
        session.run_with_iobinding(binding)

    queue()
    return Ready(
        queue,
        binding.synchronize_outputs,
        lambda: [np.asarray(y) for y in binding.copy_outputs_to_cpu()],
        f"onnxruntime {onnxruntime.__version__}",
    )


MAKERS: Mapping[str, Make] = {
    "onnxruntime CUDA": partial(_make, provider="CUDAExecutionProvider"),
    "onnxruntime TensorRT": partial(_make, provider="TensorrtExecutionProvider"),
}
