"""Outputs that are rounded more coarsely than their own element type suggests.

A model converted to float16 often keeps float32 at its ends: its outputs carry the rounding of
float16, and are judged by it. A sigmoid is computed near 1, so its results of 1e-7 have one digit.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from eqsat_opt.validation.noise import NARROW, absolute_error, element_types, is_exact

__all__ = ["coarse_outputs", "narrow_outputs"]


def narrow_outputs(model: onnx.ModelProto) -> Mapping[str, str]:
    """Return the coarsest narrow float type in which each output is computed, by output.

    Only outputs of a wider type are listed. Weights that are stored in a narrow type round nothing,
    and neither do inputs.
    """
    types = element_types(model)
    stored = {tensor.name for tensor in model.graph.initializer}
    stored |= {name for node in model.graph.node if not node.input for name in node.output}
    behind: dict[str, int] = {}  # nodes come after what they read
    for node in model.graph.node:
        is_stored = stored.issuperset(node.input)
        if is_stored:
            stored.update(node.output)
            continue
        own = [types[name] for name in node.output if types.get(name) in NARROW]
        found = [*own, *(behind[name] for name in node.input if name in behind)]
        if found:
            # bfloat16 has fewer digits than float16, the other narrow type.
            coarsest = TensorProto.BFLOAT16 if TensorProto.BFLOAT16 in found else found[0]
            behind.update(dict.fromkeys(node.output, coarsest))
    return {
        output.name: helper.tensor_dtype_to_np_dtype(behind[output.name]).name
        for output in model.graph.output
        if output.name in behind and types.get(output.name) not in NARROW
    }


def coarse_outputs(model: onnx.ModelProto) -> Mapping[str, float]:
    """Return the absolute difference of outputs that are results of functions computed near 1.

    Two results may be off, in either direction. Operators that only move or choose such results add
    no error of their own. Other outputs are not listed.
    """
    types = element_types(model)
    errors: dict[str, float] = {}  # nodes come after what they read
    for node in model.graph.node:
        error = absolute_error(node, types.get(node.output[0], 0)) if node.output else 0.0
        if not error and is_exact(node):
            error = max((errors.get(name, 0.0) for name in node.input), default=0.0)
        if error:
            errors.update(dict.fromkeys(node.output, error))
    return {one.name: 2.0 * errors[one.name] for one in model.graph.output if one.name in errors}
