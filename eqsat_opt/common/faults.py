"""Internal errors, which cost a stage but never the run: each is recorded, and the run goes on.

A stage that raises an unexpected exception is a fault of this package, not of the user's model. Its
result is then missing, and an earlier result takes its place: the graph without rules, the
original, the portable result. Errors that are meant for the user are raised as usual.
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
"""The same, and the error of a stage that needs a size which is still symbolic."""

_NO_BUGS = (*_TYPED, OSError, OutOfTime)
"""Exceptions caused by the machine, its runtime or the budget: they are not worth a bug report."""


@dataclass(frozen=True)
class Fault:
    """An internal error of one stage.

    Attributes:
        stage: the stage that raised the error.
        error: the text of the error.
        consequence: the effect on the run, as the end of a sentence.
        is_bug: whether the error is unexpected, so that it is worth a report.
    """

    stage: str
    error: str
    consequence: str
    is_bug: bool

    @property
    def warning(self) -> str:
        """The warning for the user, one line."""
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
        found: the errors in the order in which they occurred.
        is_strict: whether the first error ends the run.
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
        """Run the work of a stage; return ``None`` if it fails for an internal reason.

        Repeated failures for the same reason leave one warning: the stage may be tried in another
        way, or a later stage may meet the same bug.

        Args:
            stage: the name of the stage, or a function that returns it once the stage has failed.
            work: the function that may fail.
            consequence: the effect on the run, as the end of a sentence.
            also: further typed errors that are internal here, not the user's.

        Raises:
            InternalError: the work failed, and ``is_strict`` is set.
            EqsatError: the work raised an error that is meant for the user.
        """
        try:
            return work()
        except MemoryError:  # a limit of the machine, which any later work would meet as well
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
            # Repeated failures for one reason count as one fault, with the last consequence.
            self.found = [*(one for one in self.found if one.error != text), fault]
            return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings for the user, a line for each fault."""
        return tuple(fault.warning for fault in self.found)
