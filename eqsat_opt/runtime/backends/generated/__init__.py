"""Kernels generated from the registry's index functions, for onnxruntime, plans and GPUs."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "generated"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.generated.launcher:GeneratedLauncher"),
    generates=Lazy("eqsat_opt.runtime.backends.generated.eligible:is_eligible"),
    launches=Lazy("eqsat_opt.runtime.backends.generated.eligible:is_launched"),
    patterns=Lazy("eqsat_opt.runtime.backends.generated.patterns:generated_patterns"),
    takes_views=True,
    copies=True,
)
