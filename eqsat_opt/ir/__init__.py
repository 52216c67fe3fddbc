"""The intermediate representation: typed graphs, operators, and conversion from and to ONNX.

Modules that need onnx are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, ValueKind, attributes
from eqsat_opt.ir.values.dims import Dim, SymDim, sym
from eqsat_opt.ir.values.types import OtherType, TensorType, ValueType

if TYPE_CHECKING:
    from eqsat_opt.ir.onnx.exporter import export_model, model_proto, to_same_type
    from eqsat_opt.ir.onnx.files.load import load_model
    from eqsat_opt.ir.onnx.files.save import save_model
    from eqsat_opt.ir.onnx.import_context import identity_node
    from eqsat_opt.ir.onnx.importer import import_model

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
    "export_model": "onnx.exporter",
    "identity_node": "onnx.import_context",
    "import_model": "onnx.importer",
    "load_model": "onnx.files.load",
    "model_proto": "onnx.exporter",
    "save_model": "onnx.files.save",
    "to_same_type": "onnx.exporter",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
