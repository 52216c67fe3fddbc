"""Executor of plans: it allocates memory and builds kernels once, and a run only launches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import PlanError
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.devices.protocol import Device
from eqsat_opt.runtime.plan.feeds import checked_feeds
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Executable"]


_CALLS = 100
"""Number of calls of a clock by which the cost of a call is measured."""


class Executable:
    """A plan with its memory, as a runner of a model. Not for several threads at once.

    Attributes:
        plan: the plan that it runs.

    Raises:
        PlanError: the plan is not safe to run, a workspace is too small for its backend, or a
            backend has another version than when the plan was made.
        RuntimeFailed: a backend cannot run a launch, or memory does not suffice.
    """

    def __init__(
        self,
        plan: Plan,
        constants: Mapping[str, Array],
        device: Device,
        launchers: Mapping[str, Launcher],
    ) -> None:
        check_plan(plan)
        self.plan = plan
        self._device = device
        self._constants = dict(constants)
        arena = device.alloc(plan.arena_bytes)
        self._buffers = device.views(plan, arena, constants)
        self._works = []
        for name in dict.fromkeys(launch.backend for launch in plan.launches):
            launcher = launchers[name]
            _require_version(plan, name, launcher)
            own = [launch for launch in plan.launches if launch.backend == name]
            launcher.prepare(own, plan.buffer_of)
        for launch in plan.launches:
            launcher = launchers[launch.backend]
            space = launch.workspace
            needed = launcher.workspace_bytes(launch, plan.buffer_of)
            if space.size_bytes < needed:
                raise PlanError(
                    f"launch {launch.name!r} has a workspace of {space.size_bytes} bytes; "
                    f"{launch.backend} needs {needed}"
                )
            bound = Bound(
                tuple(self._buffers[name] for name in launch.reads),
                tuple(self._buffers[name] for name in launch.writes),
                arena[space.offset : space.offset + space.size_bytes],
            )
            self._works.append(launcher.build(launch, bound))
        self._captured = device.capture(self._queue)
        self._inputs = [(port.buffer, self._buffers[port.buffer]) for port in plan.inputs]
        self._outputs = [self._buffers[port.buffer] for port in plan.outputs]

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""
        return tuple(port.name for port in self.plan.inputs)

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""
        return tuple(port.name for port in self.plan.outputs)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the plan and return all outputs in order, as new arrays.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a kernel failed.
        """
        values = checked_feeds(self.plan, feeds)
        for name, buffer in self._inputs:
            self._device.upload(buffer, values[name])
        self._device.replay(self._captured)
        self._device.synchronize()
        return [self._device.download(buffer) for buffer in self._outputs]

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """Fix the inputs; return a function that runs the plan on them and returns nothing.

        A run on other inputs in between replaces the fixed ones.

        Raises:
            RuntimeFailed: an input is missing or does not fit.
        """
        values = checked_feeds(self.plan, feeds)
        for name, buffer in self._inputs:
            self._device.upload(buffer, values[name])
        overwritten = _overwritten(self.plan)
        again = [(buffer, values[name]) for name, buffer in self._inputs if name in overwritten]
        upload, replay, wait = self._device.upload, self._device.replay, self._device.synchronize

        def run_bound() -> None:
            for buffer, value in again:
                upload(buffer, value)
            replay(self._captured)
            wait()

        return run_bound

    def replay(self) -> None:
        """Queue a run on the current contents of the inputs, without waiting for it."""
        self._device.replay(self._captured)

    def wait(self) -> None:
        """Wait until all queued runs are done."""
        self._device.synchronize()

    def launch_times_us(
        self,
        feeds: Mapping[str, Any],
        rounds: int = 7,
        clock: Callable[[], float] | None = None,
        span_s: float = 0.0,
    ) -> list[float]:
        """Return the shortest time of each launch, measured in runs of the whole plan, µs.

        Args:
            feeds: inputs of the model.
            rounds: least number of runs.
            clock: clock in µs; that of the device by default.
            span_s: least duration of all runs; the first runs of a short plan are all slow.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a kernel failed.
        """
        values = checked_feeds(self.plan, feeds)
        clock, times = clock or self._device.clock, [float("inf")] * len(self._works)
        call_us = min(-(clock() - clock()) for _ in range(_CALLS))
        deadline, ran = Deadline.after(span_s), 0
        while ran < rounds or not deadline.expired:
            ran += 1
            for name, buffer in self._inputs:
                self._device.upload(buffer, values[name])
            for number, work in enumerate(self._works):
                begin = clock()
                work()
                times[number] = min(times[number], clock() - begin)
        return [max(0.0, time_us - call_us) for time_us in times]

    def values_of(
        self, feeds: Mapping[str, Any], launches: Collection[str]
    ) -> dict[str, tuple[list[Array], list[Array]]]:
        """Return copies of the values that some launches read and write in a run, by launch.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a kernel failed.
        """
        values = checked_feeds(self.plan, feeds)
        for name, buffer in self._inputs:
            self._device.upload(buffer, values[name])
        found = {}

        def copies(names: Sequence[str]) -> list[Array]:
            return [self._device.download(self._buffers[name]) for name in names]

        for launch, work in zip(self.plan.launches, self._works, strict=True):
            is_wanted = launch.name in launches
            read = copies(launch.reads) if is_wanted else []
            work()
            if is_wanted:
                found[launch.name] = read, copies(launch.writes)
        return found

    def reference(self, feeds: Mapping[str, Any]) -> list[Array]:
        """Return all outputs by the reference interpreter of plans, which is slow.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a kernel cannot be evaluated on
                the given values.
        """
        outputs = interpret(self.plan, self._constants, feeds)
        return [outputs[name] for name in self.output_names]

    def _queue(self) -> None:
        """Queue all launches with their events.

        Further streams begin after stream 0, and stream 0 waits for them in the end.
        """
        plan, device = self.plan, self._device
        events = {e: device.event() for launch in plan.launches for e in launch.records}
        streams = {number: device.stream(number) for number in range(plan.streams)}
        if plan.streams > 1:
            begin = device.event()
            device.record(begin, streams[0])
            for number in range(1, plan.streams):
                device.wait(begin, streams[number])
        for launch, work in zip(plan.launches, self._works, strict=True):
            for event in launch.waits:
                device.wait(events[event], streams[launch.stream])
            device.launch(work, streams[launch.stream])
            for event in launch.records:
                device.record(events[event], streams[launch.stream])
        for event in plan.joins:
            device.wait(events[event], streams[0])


def _require_version(plan: Plan, backend: str, launcher: Launcher) -> None:
    made_with, here = plan.versions.get(backend), launcher.version()
    if made_with != here:
        raise PlanError(
            f"the plan was made with {made_with or 'no version'} as {backend}; here is "
            f"{here}: plan again"
        )


def _overwritten(plan: Plan) -> set[str]:
    """Return the buffers of inputs whose memory is reused later in a run."""
    spans = [
        (launch.workspace.offset, launch.workspace.offset + launch.workspace.size_bytes)
        for launch in plan.launches
    ]
    spans += [
        (buffer.offset, buffer.offset + buffer.span_bytes)
        for name in {plan.root_of(name).name for one in plan.launches for name in one.writes}
        for buffer in (plan.buffer_of[name],)
    ]
    found = set()
    for port in plan.inputs:
        buffer = plan.buffer_of[port.buffer]
        begin, end = buffer.offset, buffer.offset + buffer.span_bytes
        if any(low < end and begin < high for low, high in spans):
            found.add(port.buffer)
    return found
