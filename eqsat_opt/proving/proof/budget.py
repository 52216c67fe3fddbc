"""The budget of a proof, counted in work that is the same on every machine.

A limit in seconds would let a busy machine refuse what an idle one proves, and certificates would
depend on it. So the prover counts what it does: scenarios, steps of simplification, and questions
to z3 by their length and by the resource units that z3 itself counts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

__all__ = ["Budget", "OutOfWork"]

_UNITS_PER_S = 20_000
"""About what an idle core of 2024 does in a second; it only gives a limit its order of size."""
_SCENARIOS = 4
"""Limit of all scenarios together, as a multiple of the limit of one."""
_SCENARIO = 10
_STEP = 6
_QUESTION = 10
_CHARACTERS = 100
"""Characters of a question per unit."""
_RESOURCES = 300
"""Resource units of z3 per unit."""


class OutOfWork(Exception):
    """The limit of the proof is reached."""


class Budget:
    """The remaining budget of a proof, and its z3 context."""

    def __init__(self, nominal_s: float) -> None:
        """Allow about ``nominal_s`` seconds of work on an idle core for a scenario, and no more.

        The scenarios of a rule take similar work: a rule that can be proved is proved quickly in
        each, and one that cannot is given up at the first scenario without a proof.
        """
        self._limit = int(nominal_s * _UNITS_PER_S)
        self._left, self._total = self._limit, self._limit * _SCENARIOS

    @cached_property
    def z3(self) -> Any:
        """A context of this proof alone: what was asked before changes the steps that z3 takes."""
        import z3

        return z3.Context()

    def scenario(self) -> None:
        """Begin one scenario."""
        self._left = self._limit
        self._spend(_SCENARIO)

    def step(self) -> None:
        """Count one step of simplification."""
        self._spend(_STEP)

    def question(self, characters: int, resources: int) -> None:
        """Count one question to z3."""
        self._spend(_QUESTION + characters // _CHARACTERS + resources // _RESOURCES)

    def _spend(self, units: int) -> None:
        self._left -= units
        self._total -= units
        if min(self._left, self._total) < 0:
            raise OutOfWork
