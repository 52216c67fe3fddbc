"""The backend that runs every kernel as the operator registry defines it, in NumPy."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "numpy"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.numpy.launcher:NumpyLauncher"),
    runs_all=True,
    launches=Lazy("eqsat_opt.runtime.backends.numpy.launcher:is_launched"),
    takes_views=True,
    copies=True,
)
