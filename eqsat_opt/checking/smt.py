"""Claims in SMT-LIB, confirmed by a solver that did not make them: cvc5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from eqsat_opt.errors import RuleError

__all__ = ["RESET", "Confirmed", "claims_in", "confirm"]

RESET = "(reset)"
"""The line between two claims of one file."""
_STEPS = "2000000"
"""Limit of one claim in cvc5's resource units, which count steps, so that it repeats."""


@dataclass
class Confirmed:
    """Counts of answers to the claims of some files.

    Attributes:
        unsat: claims that are confirmed.
        others: claims that are not, with the answer.
    """

    unsat: int = 0
    others: list[tuple[str, str]] = field(default_factory=list)


def claims_in(text: str) -> Iterator[str]:
    """Yield the claims of a file, each a script of its own that ends with (check-sat)."""
    for claim in text.split(f"{RESET}\n"):
        if "(check-sat)" in claim:
            yield claim


def confirm(claims: Iterable[str]) -> Confirmed:
    """Ask cvc5 whether claims are unsatisfiable, each once.

    Raises:
        RuleError: cvc5 is not installed.
    """
    try:
        import cvc5
    except ImportError as error:
        raise RuleError(
            "claims are confirmed by cvc5; install it with: pip install 'eqsat-opt[verify]'"
        ) from error
    found = Confirmed()
    for claim in dict.fromkeys(claims):
        answer = _answer(cvc5, claim)
        if answer == "unsat":
            found.unsat += 1
        else:
            found.others.append((claim, answer))
    return found


def _answer(cvc5: object, claim: str) -> str:
    solver = cvc5.Solver()  # type: ignore[attr-defined]
    solver.setOption("rlimit-per", _STEPS)
    parser = cvc5.InputParser(solver)  # type: ignore[attr-defined]
    answer = "no answer"
    try:
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, claim, "claim")  # type: ignore[attr-defined]
        symbols = parser.getSymbolManager()
        while not (command := parser.nextCommand()).isNull():
            said = command.invoke(solver, symbols).strip()
            if said:
                answer = said
    except RuntimeError as error:
        return f"refused: {error}"
    return answer
