"""The optimisation level that a model asks onnxruntime for, kept in the model's own metadata.

A default session of onnxruntime does not look there, unless the environment variable
``ORT_LOAD_CONFIG_FROM_MODEL`` is 1; `eqsat_opt.session` does.
"""

from __future__ import annotations

import json
import os
from typing import Any, get_args

from eqsat_opt.runtime.backends.ort.session import READS_CONFIG, OptimizationLevel
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = ["ORT_CONFIG", "default_level", "level_in", "level_of", "with_level"]

ORT_CONFIG = "ort_config"
"""Metadata key that onnxruntime defines."""

_CODES = {"disabled": 0, "basic": 1, "extended": 2, "all": 99}
_OPTIONS = "session_options"
_LEVEL = "graph_optimization_level"


def with_level(level: str, value: str = "") -> str:
    """Return a value of :data:`ORT_CONFIG` that asks for a level and keeps all other requests."""
    config = _parse(value)
    return json.dumps({**config, _OPTIONS: {**config.get(_OPTIONS, {}), _LEVEL: _CODES[level]}})


def level_in(model: ModelSource) -> OptimizationLevel:
    """Return the level that a model asks for; ``all`` if it asks for none."""
    properties = {entry.key: entry.value for entry in read_structure(model).metadata_props}
    return level_of(properties.get(ORT_CONFIG, ""))


def level_of(value: str) -> OptimizationLevel:
    """Return the level that a value of :data:`ORT_CONFIG` asks for; ``all`` if it asks for none."""
    code = _parse(value).get(_OPTIONS, {}).get(_LEVEL)
    for level in get_args(OptimizationLevel):
        if _CODES.get(level) == code:
            return level  # type: ignore[no-any-return]
    return "all"


def default_level(model: ModelSource) -> OptimizationLevel:
    """Return the level at which a session without options runs a model."""
    return level_in(model) if os.environ.get(READS_CONFIG) == "1" else "all"


def _parse(value: str) -> dict[str, Any]:
    """Parse a configuration; text that is not a configuration asks for nothing."""
    try:
        config = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(config, dict) or not isinstance(config.get(_OPTIONS, {}), dict):
        return {}
    return config
