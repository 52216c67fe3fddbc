"""Onnxruntime as a runtime of whole models, and those of its settings that are worth a race.

Its fusions mostly gain. Some lose, on some models and thread counts (for example, a fused kernel
for a residual and the normalisation after it that is slower than the two separate kernels). The
graph that onnxruntime really runs shows which fusions had an effect, so only those are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.runtime.backends.ort import NAME
from eqsat_opt.runtime.backends.ort.config import level_in
from eqsat_opt.runtime.backends.ort.session import (
    OrtOptions,
    OrtSession,
    ort_optimized,
    ort_version,
)
from eqsat_opt.runtime.source import ModelSource, Runtime, Setting, read_structure

__all__ = ["LEVEL", "WITHOUT", "OrtRuntime"]

LEVEL, WITHOUT = "level", "without"
"""Names of settings: the optimisation level, and the graph transformers that are left out."""

_FUSIONS = (
    ("SkipLayerNormalization", "SkipLayerNormFusion"),
    ("FusedMatMul", "MatMulScaleFusion"),
    ("FusedMatMul", "MatmulTransposeFusion"),
    ("Gemm", "MatMulAddFusion"),
    ("Gelu", "GeluFusionL2"),
    ("BiasGelu", "BiasGeluFusion"),
    ("QuickGelu", "QuickGeluFusion"),
)
"""Operators, and the graph transformers that make them in a model that lacks them."""

_BLOCKED, _OWN = "com.microsoft.nchwc", "com.microsoft"
"""Domains of operators: one that only the level ``all`` makes, and one that only ``extended`` and
higher levels make."""


class OrtRuntime(Runtime):
    """The runtime that every portable model is written for."""

    name = NAME

    def facts(self) -> Mapping[str, str | int]:
        """Return the version of the package."""
        return {"onnxruntime": ort_version()}

    def settings(self, model: ModelSource, custom_ops: Sequence[str] = ()) -> Sequence[Setting]:
        """Return settings that each leave out one effective fusion, and the lower levels to try.

        A level is tried if the next higher one had an effect. A model with DequantizeLinear has no
        settings: without its fusions it is computed in floats, which moves its outputs by
        quantisation steps.

        Raises:
            RuntimeFailed: onnxruntime refuses the model.
        """
        given = {node.op_type for node in read_structure(model).graph.node}
        if "DequantizeLinear" in given:
            return ()
        options = OrtOptions(1, level_in(model), custom_ops=tuple(custom_ops))
        nodes = ort_optimized(model, options).graph.node
        made = {node.op_type for node in nodes} - given
        found: list[Setting] = [
            {WITHOUT: [name]} for operator, name in _FUSIONS if operator in made
        ]
        domains = {node.domain for node in nodes}
        if _BLOCKED in domains:
            found.append({LEVEL: "extended"})
        if _OWN in domains:
            found.append({LEVEL: "basic"})
        return found

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> OrtSession:
        """Open a session at the level that the setting, or else the model's metadata, asks for.

        Raises:
            RuntimeFailed: onnxruntime refuses the model, or there is no such setting.
        """
        left_out = setting.get(WITHOUT, [])
        if not isinstance(left_out, list) or not all(isinstance(name, str) for name in left_out):
            raise RuntimeFailed(f"the setting {WITHOUT!r} is {left_out!r} and no list of names")
        try:
            options = OrtOptions(
                threads,
                setting.get(LEVEL, level_in(model)),
                disabled_optimizers=tuple(left_out),
                custom_ops=tuple(custom_ops),
            )
        except (OptionError, TypeError) as error:
            text = ", ".join(f"{name}={value}" for name, value in setting.items())
            raise RuntimeFailed(f"the setting {text} has no meaning: {error}") from error
        return OrtSession(model, options)
