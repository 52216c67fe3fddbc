"""Kernels of a device that need not be present, modelled from its profile."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "analytic"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.analytic.launcher:AnalyticLauncher"),
    generates=Lazy("eqsat_opt.runtime.backends.analytic.launcher:is_generated"),
    is_modelled=True,
    takes_views=True,
    copies=True,
)
