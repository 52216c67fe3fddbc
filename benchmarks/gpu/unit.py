"""What all steps have in common: a unit of work, what it is done on, and what it returns.

A step module has `units(task)`, which lists its units without touching a device; it runs in the
process that keeps time. The module that a unit names has `run(unit, bench)`, which runs in a
child and returns JSON values. An exception there is a result as well: its first line is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from eqsat_opt.runtime.backends.cudnn.oracle import CudnnChoice
    from eqsat_opt.runtime.backends.cudnn.spec import AnySpec
    from eqsat_opt.runtime.executor import Executable
    from eqsat_opt.runtime.plan.places import Array
    from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["FIRST", "STEPS", "Bench", "Sampler", "Task", "Unit"]

STEPS = ("probe", "correctness", "measure", "compare", "energy")
"""In their order; one file of results each."""

FIRST = ("squeezenet", "inception_v3", "resnet50", "nasnet_a", "bert", "sru")
"""Models that papers before us compare: what is of them comes first."""

Sampler = Callable[[], float]
"""Runs what it stands for a few times, and returns the time of one run on the device, µs."""


@dataclass(frozen=True)
class Unit:
    """A piece of work whose crash or hang costs nothing else.

    Attributes:
        step: that it belongs to; one of `STEPS`.
        name: the only one of that name in its step.
        module: whose function ``run(unit, bench)`` does it.
        value: units of greater value run first.
        deadline_s: after so many seconds its process is ended; what `run` is given is told how
            many there are, which may be fewer.
        least_s: with less time left it is not begun.
        request: what `run` has to know, as JSON values.
    """

    step: str
    name: str
    module: str
    value: float = 1.0
    deadline_s: float = 30.0
    request: Mapping[str, Any] = field(default_factory=dict)
    least_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The document of a unit; ``Unit(**document)`` is equal to it."""
        return asdict(self)


@dataclass(frozen=True)
class Task:
    """What a step is to look at.

    Attributes:
        folder: that holds what `prepare` wrote, and results.
        models: names of the zoo to restrict it to; all that were prepared if there are none.
    """

    folder: Path
    models: Sequence[str] = ()


class Bench(Protocol):
    """The device that units run on, or what stands for it in a rehearsal."""

    @property
    def name(self) -> str:
        """``gpu``, or ``host`` in a rehearsal, whose times are invented."""

    def facts(self) -> Mapping[str, Any]:
        """Versions of libraries, and the description of the device, as JSON values."""

    def device(self) -> str:
        """What the device calls itself; results of two are not mixed."""

    def is_sound(self) -> bool:
        """Whether the device takes more work from this process.

        After an illegal access nothing of the process runs any more, and libraries tell what they
        are refused then as if they lacked something.
        """

    def load(
        self, plan: Plan, constants: Mapping[str, Array], *, is_captured: bool = True
    ) -> Executable:
        """A plan that is ready to run; one that is not captured queues its launches each time.

        Raises:
            EqsatError: something is missing, or a launch cannot be built.
        """

    def sampler(self, executable: Executable, runs: int = 1) -> Sampler:
        """What times so many runs of a loaded plan, on what its inputs hold (`Executable.bind`).

        Inputs are not written again, so memory that a plan gives to something else after the first
        run holds that from then on. All inputs of the zoo are numbers of which no time depends.
        """

    def choices(self, spec: AnySpec, most: int) -> Sequence[CudnnChoice]:
        """What cuDNN has for a graph, best ranked first.

        Raises:
            EqsatError: cuDNN is missing.
        """
