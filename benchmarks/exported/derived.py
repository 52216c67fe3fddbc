"""Forms that onnxruntime's tools make of an export: half precision, integers, 4 bits, fused."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

__all__ = ["TREATMENTS", "treat"]

Feeds = Mapping[str, np.ndarray[Any, Any]]
Treatment = Callable[[Path, Path, Feeds], None]
_CALIBRATION_INPUTS = 2


class _Feeds:
    """What calibrates: a few inputs near the example."""

    def __init__(self, feeds: Feeds) -> None:
        self._left = self._make(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)

    @staticmethod
    def _make(feeds: Feeds) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(0)
        for _ in range(_CALIBRATION_INPUTS):
            yield {
                name: (value + 0.1 * rng.standard_normal(value.shape)).astype(value.dtype)
                if value.dtype.kind == "f"
                else value
                for name, value in feeds.items()
            }


def _half(source: Path, target: Path, feeds: Feeds) -> None:
    """Float16 inside; float32 stays at the ends, as those deploy it who keep their callers."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(model, target)


def _half_ends(source: Path, target: Path, feeds: Feeds) -> None:
    """Float16 throughout, its inputs and outputs included."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=False), target)


def _dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    """8-bit weights; activations are quantised as they come."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(_prepared(source, target), target, per_channel=True)


def _static(source: Path, target: Path, feeds: Feeds) -> None:
    """8 bits throughout, as QuantizeLinear and DequantizeLinear around every operator."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    reader = type("_Reader", (_Feeds, CalibrationDataReader), {})
    quantize_static(
        _prepared(source, target),
        target,
        reader(feeds),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
    )


def _four_bits(source: Path, target: Path, feeds: Feeds) -> None:
    """Weights of products in 4 bits, in blocks."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=4, block_size=32)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def _fused(source: Path, target: Path, feeds: Feeds) -> None:
    """Attention, normalisations and activations as operators of onnxruntime's own."""
    from onnxruntime.transformers.optimizer import optimize_model

    kind = "gpt2" if "gpt" in source.name else "vit" if "vit" in source.name else "bert"
    fused = optimize_model(str(source), model_type=kind, num_heads=4, hidden_size=64, opt_level=0)
    onnx.save(fused.model, target)


def _runtime_fused(source: Path, target: Path, feeds: Feeds) -> None:
    """What a session of onnxruntime writes after its own portable passes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


TREATMENTS: Mapping[str, Treatment] = {
    "fp16": _half,
    "fp16_ends": _half_ends,
    "int8": _dynamic,
    "qdq": _static,
    "q4": _four_bits,
    "fused": _fused,
    "ort": _runtime_fused,
}
"""What makes another file of an export, by its name in the file's name."""


def treat(name: str, source: Path, target: Path, feeds: Feeds) -> None:
    """Write what a treatment makes of an export, and run it once."""
    import onnxruntime

    logging.disable(logging.WARNING)
    TREATMENTS[name](source, target, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    types = {value.name: value.type for value in session.get_inputs()}
    session.run(
        None,
        {
            key: value.astype(np.float16) if types[key] == "tensor(float16)" else value
            for key, value in feeds.items()
            if key in types
        },
    )


def _prepared(source: Path, target: Path) -> Path:
    """The export with shapes inferred, as the quantiser wants it, or as it is where that fails."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = Path(tempfile.mkdtemp(dir=target.parent), "prepared.onnx")
    try:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    except Exception:
        return source
    return prepared
