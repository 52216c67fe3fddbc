"""Models as commands of the benchmarks name them.

A NAME is one of the zoo (also `NAME@tiny`), `lstm:H` or `gru:H` for an unrolled layer of
that width, `torch:NAME` for an export of benchmarks/torch_models.py (with the extra `bench`), or a
file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from benchmarks import unrolled
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.lab import zoo

__all__ = ["given", "title"]


def given(name: str) -> onnx.ModelProto:
    """The model of a name.

    Raises:
        EqsatError: there is none, or it cannot be read.
    """
    kind, _, what = name.partition(":")
    if kind in ("lstm", "gru"):
        return unrolled.build(kind, int(what or 128))
    if kind == "torch":
        from benchmarks.exporting import export

        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "export.onnx"))
            export(what, "dynamo", path)
            return onnx.load_model(path)
    if not name.endswith(".onnx"):
        return zoo.build_named(name)
    load_model(name)  # refuses what is no model
    return onnx.load_model(name)


def title(name: str) -> str:
    """A name in a table: that of a file without its folders."""
    return Path(name).stem if name.endswith(".onnx") else name
