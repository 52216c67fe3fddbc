"""The optimisation level that a model asks onnxruntime for, kept in the model's own metadata.

onnxruntime reads the entry itself when the environment variable ``ORT_LOAD_CONFIG_FROM_MODEL`` is
1; everyone else may read it here.
"""

from __future__ import annotations

import json
from typing import get_args

from eqsat_opt.runtime.ort import OptimizationLevel
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = ["ORT_CONFIG", "level_in", "level_metadata"]

ORT_CONFIG = "ort_config"
"""Metadata key that onnxruntime defines."""

_CODES = {"disabled": 0, "basic": 1, "extended": 2, "all": 99}


def level_metadata(level: str) -> str:
    """The value of :data:`ORT_CONFIG` for an optimisation level."""
    return json.dumps({"session_options": {"graph_optimization_level": _CODES[level]}})


def level_in(model: ModelSource) -> OptimizationLevel:
    """The level that a model asks for, ``all`` if it asks for none."""
    for entry in read_structure(model).metadata_props:
        if entry.key == ORT_CONFIG:
            try:
                code = json.loads(entry.value)["session_options"]["graph_optimization_level"]
            except (ValueError, KeyError, TypeError):
                return "all"
            for level in get_args(OptimizationLevel):
                if _CODES.get(level) == code:
                    return level  # type: ignore[no-any-return]
    return "all"
