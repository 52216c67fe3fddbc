"""Questions that z3 found unsatisfiable, as scripts in SMT-LIB for any solver."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eqsat_opt.checking.smt import RESET

__all__ = ["scripts"]

_SINGLE = re.compile(r"\((?:\+ (0)|and (true)|or (false)) *\)")
"""An operator with one operand, which the standard does not have."""


def scripts(questions: Iterable[tuple[str, str]], about: str) -> str:
    """Return one file of claims.

    Args:
        questions: the logic of each question, and its declarations and assertions.
        about: the subject of the claims in words.
    """
    claims = [
        f"(set-logic {logic})\n(set-info :status unsat)\n{_standard(text)}\n(check-sat)\n"
        for logic, text in questions
    ]
    return f"; {about}\n" + f"{RESET}\n".join(claims)


def _standard(text: str) -> str:
    return _SINGLE.sub(lambda match: next(filter(None, match.groups())), text)
