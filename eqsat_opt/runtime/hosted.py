"""Execution of plans on this processor: one launch at a time, or a thread for each stream."""

from __future__ import annotations

from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.threaded import ThreadedHost
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import Tensors, make_constants
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["hosted"]


def hosted(plan: Plan, tensors: Tensors) -> Executable:
    """Make a plan for the host ready to run; its threads end with the returned object.

    Args:
        plan: a plan for the host.
        tensors: the tensors that the model stores.

    Raises:
        PlanError: the plan is not safe to run, was made for other weights or another version of a
            backend, or a package is missing.
        RuntimeFailed: a backend refuses a kernel.
    """
    launchers = {one.backend: load_launcher(one.backend) for one in plan.launches}
    device = HostDevice() if plan.streams == 1 else ThreadedHost()
    return Executable(plan, make_constants(plan, tensors), device, launchers)
