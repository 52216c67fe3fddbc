"""OpenVINO, as a runtime of whole models."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "openvino"

BACKEND = BackendRecord(
    name=NAME,
    runtime=Lazy("eqsat_opt.runtime.backends.openvino.runtime:OpenVinoRuntime"),
    runs_models=True,
    launcher=Lazy("eqsat_opt.runtime.backends.openvino.launcher:OpenVinoLauncher"),
    launches=Lazy("eqsat_opt.runtime.backends.openvino.launcher:is_launched"),
)
