"""Values of a report: latencies, errors of outputs, and hints on further runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


__all__ = [
    "Hint",
    "Latency",
    "OutputError",
]


@dataclass(frozen=True)
class Latency:
    """Time of one run of a model.

    Attributes:
        time_us: best time, µs.
        median_us: median over sessions, µs.
        spread: (worst - best) / best over sessions.
        energy_uj: mean energy of a run, µJ; ``None`` without a meter.
    """

    time_us: float
    median_us: float
    spread: float
    energy_uj: float | None = None


@dataclass(frozen=True)
class OutputError:
    """The largest difference of one output from the original's, over all random inputs."""

    name: str
    max_abs: float
    max_rel: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the relative error is within the tolerance."""
        return self.max_rel <= self.tolerance


@dataclass(frozen=True)
class Hint:
    """A hint on a further run.

    Attributes:
        kind: ``fixed_sizes``, ``numerics``, ``tuned``, ``nodes`` or ``time``.
        why: the reason for the hint, as a sentence without a period.
        flags: options of the command line to add to those of this run.
        gain: the largest share of the cost that the run might save; ``None`` if it is not known.
    """

    kind: str
    why: str
    flags: tuple[str, ...]
    gain: float | None = None

    def text(self, command: Sequence[str]) -> str:
        """Return one line with the reason and the whole command.

        Args:
            command: command of this run; options that the hint replaces are left out of it.
        """
        return f"{self.why}: {shlex.join([*_without(command, self.flags), *self.flags])}"


def _without(command: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a command without options that ``flags`` replace.

    Options that can be repeated stay.
    """
    given = {flag for flag in flags if flag.startswith("--")} - {"--fix-shape"}
    is_value = False
    for part in command:
        name, equals, _ = part.partition("=")
        if not is_value and name not in given:
            yield part
        is_value = not is_value and name in given and not equals
