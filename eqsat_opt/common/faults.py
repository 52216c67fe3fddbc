"""Internal errors cost a stage and never the run: what failed is recorded, and the work goes on.

A stage that raises what nobody expects is a fault of this package, not of the user's model. Its
result is missing then, and what was there before takes its place: the graph without rules, the
original, the portable result. Errors that speak to the user keep their way out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from eqsat_opt.common.deadline import OutOfTime
from eqsat_opt.errors import (
    EqsatError,
    InternalError,
    RuntimeFailed,
    SaturationError,
    SymbolicSizes,
    reason,
)

__all__ = ["Fault", "Faults"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TYPED = (SaturationError, RuntimeFailed)
"""Typed errors of engines and child processes, which no choice of the user causes."""

_OURS = (*_TYPED, SymbolicSizes)
"""The same, and what a stage raises that asks for sizes which nobody gave it."""

_NO_BUGS = (*_TYPED, OSError, OutOfTime)
"""Exceptions that the machine, its runtime or the budget causes: they are worth no report."""


@dataclass(frozen=True)
class Fault:
    """An internal error of one stage.

    Attributes:
        stage: where it was raised.
        error: the error, in words.
        consequence: what the run does without the stage, as the end of a sentence.
        is_bug: whether nobody expected it, so that it is worth a report.
    """

    stage: str
    error: str
    consequence: str
    is_bug: bool

    @property
    def warning(self) -> str:
        """A line for the user."""
        if not self.is_bug:
            return f"stage {self.stage!r} failed: {self.error}; {self.consequence}"
        return (
            f"internal error in stage {self.stage!r} ({self.error}); {self.consequence}; please "
            "report it with what --debug prints"
        )


def _why(error: Exception) -> str:
    """Return the cause of an exception in words, with the path where a file is the cause."""
    if isinstance(error, OutOfTime):
        return "its time was over; allow more with --budget"
    path = getattr(error, "filename", None)
    return f"{reason(error)}: {path}" if path else reason(error)


class Faults:
    """The internal errors of one run.

    Attributes:
        found: in the order in which they occurred.
        is_strict: whether the first of them ends the run.
        written: the file that is written already; empty as long as there is none.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self.found: list[Fault] = []
        self.is_strict = is_strict
        self.written = ""

    def contain(
        self,
        stage: str | Callable[[], str],
        work: Callable[[], _T],
        consequence: str,
        also: tuple[type[EqsatError], ...] = (),
    ) -> _T | None:
        """Do the work of a stage; ``None`` where it failed for a reason of ours.

        What fails for the same reason again, because the stage was tried in another way or a later
        one met the same bug, leaves one warning.

        Args:
            stage: its name, or what tells the name once it has failed.
            work: what may fail.
            consequence: what the run does without it, as the end of a sentence.
            also: typed errors that are no matter of the user here.

        Raises:
            InternalError: it failed, and the user is strict.
            EqsatError: what it raises for the user.
        """
        try:
            return work()
        except MemoryError:  # the machine's limit, which whatever comes next would meet as well
            raise
        except Exception as error:
            is_typed = isinstance(error, EqsatError)
            if is_typed and not isinstance(error, (*_OURS, *also)):
                raise
            name = stage if isinstance(stage, str) else stage()
            # Shown by --debug.
            _log.info("internal error in stage %s", name, exc_info=error)
            is_bug = not isinstance(error, _NO_BUGS)
            kind = f"{type(error).__name__}: " if is_bug and not is_typed else ""
            text = f"{kind}{_why(error)}"
            fault = Fault(name, text, consequence, is_bug=is_bug)
            if self.is_strict:
                written = (
                    f"only {self.written} is written" if self.written else "nothing is written"
                )
                raise InternalError(replace(fault, consequence=written).warning) from error
            # What fails again and again for one reason is one fault, with its last consequence.
            self.found = [*(one for one in self.found if one.error != text), fault]
            return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each."""
        return tuple(fault.warning for fault in self.found)
