"""Typed errors, each with a message of one line that suggests what to do next."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CertificateError",
    "CheckFailed",
    "EqsatError",
    "ExtractionError",
    "InternalError",
    "ModelError",
    "OptionError",
    "PlanError",
    "RuleError",
    "RuleRefuted",
    "RuntimeFailed",
    "SaturationError",
    "StageError",
    "StoreError",
    "SymbolicSizes",
    "TooSlow",
    "escaped",
    "or_nearest",
    "printable",
    "reason",
]


def escaped(text: str) -> str:
    """Replace control characters by escapes, so that names from files cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """Return a text on one line, with control characters as escapes."""
    return escaped(" ".join(text.split()))


def reason(error: BaseException) -> str:
    """Return the text of an error: the operating system's, else its message, else its type."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def or_nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: all known names, and a similar one if there is one."""
    from difflib import get_close_matches  # errors are imported by everything

    names = list(known)
    by_lower = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), by_lower, 1)
    hint = f"; did you mean {by_lower[near[0]]}?" if near and len(names) > 1 else ""
    return f"choose from {', '.join(names)}{hint}"


class EqsatError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 1


class ModelError(EqsatError):
    """The given model cannot be read, is not valid ONNX, or cannot be written."""


class OptionError(EqsatError):
    """An option has an invalid value."""


class RuleError(EqsatError):
    """A rewrite rule is malformed, or breaks an invariant of the e-graph."""


class RuleRefuted(RuleError):
    """A rewrite rule is wrong, or could not be verified.

    Attributes:
        refutation: the smallest instance found at which it fails, if there is one.
    """

    def __init__(self, message: str, refutation: object = None) -> None:
        super().__init__(message, refutation)
        self.refutation = refutation

    def __str__(self) -> str:
        return str(self.args[0])


class CertificateError(RuleError):
    """A certificate was edited, or cannot be read or written."""


class SaturationError(EqsatError):
    """The e-graph engine failed or was stopped from outside."""


class ExtractionError(EqsatError):
    """An extraction problem is malformed or has no solution."""


class RuntimeFailed(EqsatError):
    """A backend refused a model or failed while running it."""


class PlanError(EqsatError):
    """A plan is damaged, unsafe to run, or made for something else."""


class StoreError(EqsatError):
    """The profile store cannot be read or written."""


class StageError(EqsatError):
    """A stored stage of the search has another format, is damaged, or cannot be read or written."""


class SymbolicSizes(EqsatError, ValueError):
    """A size that must be a number is symbolic."""


class InternalError(EqsatError):
    """A stage of this package failed for an internal reason, and the user asked for strictness."""


class CheckFailed(EqsatError):
    """The optimised graph does not compute what the original computes; nothing was written."""

    exit_code = 2


class TooSlow(EqsatError):
    """The result gains less than the user demands; it is written all the same."""

    exit_code = 3
