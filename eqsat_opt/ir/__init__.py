"""The intermediate representation: typed graphs, operators, and the way from and to ONNX.

What needs onnx is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eqsat_opt.ir.dims import Dim, SymDim, sym
from eqsat_opt.ir.graph import OPAQUE, Constant, Graph, Node, ValueKind, attributes
from eqsat_opt.ir.types import OtherType, TensorType, ValueType

if TYPE_CHECKING:
    from eqsat_opt.ir.import_context import identity_node
    from eqsat_opt.ir.onnx_export import export_model, model_proto, to_same_type
    from eqsat_opt.ir.onnx_import import import_model
    from eqsat_opt.ir.onnx_load import load_model
    from eqsat_opt.ir.onnx_save import save_model

__all__ = [
    "OPAQUE",
    "Constant",
    "Dim",
    "Graph",
    "Node",
    "OtherType",
    "SymDim",
    "TensorType",
    "ValueKind",
    "ValueType",
    "attributes",
    "export_model",
    "identity_node",
    "import_model",
    "load_model",
    "model_proto",
    "save_model",
    "sym",
    "to_same_type",
]

_LAZY = {
    "export_model": "onnx_export",
    "identity_node": "import_context",
    "import_model": "onnx_import",
    "load_model": "onnx_load",
    "model_proto": "onnx_export",
    "save_model": "onnx_save",
    "to_same_type": "onnx_export",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
