"""Equality saturation for neural-network graphs in ONNX.

The public names are loaded when first used (PEP 562), so that the import costs next to nothing::

    import eqsat_opt

    eqsat_opt.optimize("model.onnx")
"""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING

from eqsat_opt.common.deferral import defer_imports

if TYPE_CHECKING:
    from eqsat_opt.api import Result, bench, explain, optimize
    from eqsat_opt.errors import (
        CheckFailed,
        EqsatError,
        InternalError,
        ModelError,
        OptionError,
        PlanError,
        RuleError,
        RuntimeFailed,
    )
    from eqsat_opt.pipeline.options import Options
    from eqsat_opt.pipeline.plans import load_plan, plan_model
    from eqsat_opt.pipeline.reduction.reduce import reduce_model
    from eqsat_opt.pipeline.report.report import Report
    from eqsat_opt.pipeline.serving import native_library, session
    from eqsat_opt.pipeline.viewing.difference import compare_graphs
    from eqsat_opt.pipeline.viewing.inspection import inspect_model

__all__ = [
    "CheckFailed",
    "EqsatError",
    "InternalError",
    "ModelError",
    "OptionError",
    "Options",
    "PlanError",
    "Report",
    "Result",
    "RuleError",
    "RuntimeFailed",
    "__version__",
    "bench",
    "compare_graphs",
    "explain",
    "inspect_model",
    "load_plan",
    "native_library",
    "optimize",
    "plan_model",
    "reduce_model",
    "session",
]

__version__ = "0.1.0"
LOADED_NS = time.time_ns()
"""Time before any module of the package was loaded, to compare with times of files."""

defer_imports()

# onnxruntime reads this when it is loaded. Unless it is told otherwise it reports the names, sizes
# and digests of the models it runs to its makers, from threads that would disturb a race.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "CheckFailed": "eqsat_opt.errors",
    "EqsatError": "eqsat_opt.errors",
    "InternalError": "eqsat_opt.errors",
    "ModelError": "eqsat_opt.errors",
    "OptionError": "eqsat_opt.errors",
    "Options": "eqsat_opt.pipeline.options",
    "PlanError": "eqsat_opt.errors",
    "Report": "eqsat_opt.pipeline.report.report",
    "Result": "eqsat_opt.api",
    "RuleError": "eqsat_opt.errors",
    "RuntimeFailed": "eqsat_opt.errors",
    "bench": "eqsat_opt.api",
    "compare_graphs": "eqsat_opt.pipeline.viewing.difference",
    "explain": "eqsat_opt.api",
    "inspect_model": "eqsat_opt.pipeline.viewing.inspection",
    "load_plan": "eqsat_opt.pipeline.plans",
    "native_library": "eqsat_opt.pipeline.serving",
    "optimize": "eqsat_opt.api",
    "plan_model": "eqsat_opt.pipeline.plans",
    "reduce_model": "eqsat_opt.pipeline.reduction.reduce",
    "session": "eqsat_opt.pipeline.serving",
}

if not TYPE_CHECKING:  # a visible __getattr__ would make every misspelt name type-check

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
