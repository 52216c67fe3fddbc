"""Values of a report: latencies, errors of outputs, and what a further run might add."""

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
        time_us: best time.
        median_us: median over sessions.
        spread: (worst - best) / best over sessions.
        energy_uj: mean energy of a run, where a meter told it.
    """

    time_us: float
    median_us: float
    spread: float
    energy_uj: float | None = None


@dataclass(frozen=True)
class OutputError:
    """How far one output moved, over all random inputs."""

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
    """What a further run might add.

    Attributes:
        kind: ``fixed_sizes``, ``numerics``, ``tuned``, ``nodes`` or ``time``.
        why: what this run tells of it, as a sentence without a period.
        flags: options of the command line that bring it about, beside those of this run.
        gain: the share of the cost that it might save, at most; ``None`` where that is not known.
    """

    kind: str
    why: str
    flags: tuple[str, ...]
    gain: float | None = None

    def text(self, command: Sequence[str]) -> str:
        """One line, with the whole command.

        Args:
            command: of this run; its values of the same options are left out.
        """
        return f"{self.why}: {shlex.join([*_without(command, self.flags), *self.flags])}"


def _without(command: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """The command without values of options of which only one can be given."""
    given = {flag for flag in flags if flag.startswith("--")} - {"--fix-shape"}
    is_value = False
    for part in command:
        name, equals, _ = part.partition("=")
        if not is_value and name not in given:
            yield part
        is_value = not is_value and name in given and not equals
