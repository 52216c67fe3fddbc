"""The standard streams: closed ones, broken pipes, and encodings that lack characters of ours."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import unicodedata

__all__ = ["leave_pipe", "prepare_streams"]

_HANDLER = "eqsat_opt.spelt"
_SPELT = {
    "→": "->", "←": "<-", "×": "x", "µ": "u", "…": "...", "–": "-", "−": "-", "≤": "<=", "≥": ">=",
    "·": "*", "η": "eta",
}  # fmt: skip
"""Characters of messages and tables, and how they are spelt where an encoding lacks them."""


def prepare_streams() -> None:
    """Open streams that the caller has closed, and spell what their encodings lack."""
    # A stream that the caller has closed is None, and the next file opened would take its number.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    codecs.register_error(_HANDLER, _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def leave_pipe() -> int:
    """Return the exit code after a broken pipe.

    Standard output is redirected to the null device, so that the final flush raises no error.
    """
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Return how characters that cannot be encoded are spelt, and where encoding goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_spelt, lacking)), error.end


def _spelt(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _SPELT.get(character) or plain or "?"
