"""Outputs that are computed in narrower floats than those in which they are returned.

A model converted to float16 often keeps float32 at its ends. Its outputs then carry the rounding of
float16, and are judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from eqsat_opt.validation.noise import NARROW, element_types

__all__ = ["narrow_outputs"]


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
